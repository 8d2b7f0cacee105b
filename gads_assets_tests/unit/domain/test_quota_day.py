"""When the day of operations ends, also where clocks change and where the caller's clock is wrong."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gads_assets.domain.quota import (
    BudgetStatus,
    is_reserved_for_fresh,
    moment_of_reset,
    next_reset,
    why_not_asked,
)


@pytest.mark.parametrize(
    ("moment", "reset"),
    [
        ("2024-01-15T07:59:59.999999", "2024-01-15T08:00:00"),
        ("2024-01-15T08:00:00", "2024-01-16T08:00:00"),
        ("2024-07-01T06:59:59", "2024-07-01T07:00:00"),
        ("2024-07-01T07:00:00", "2024-07-02T07:00:00"),
        # 23 hours on the day that clocks go forward, 25 on the day that they go back.
        ("2024-03-10T08:00:00", "2024-03-11T07:00:00"),
        ("2024-11-03T07:00:00", "2024-11-04T08:00:00"),
        ("2024-11-03T09:30:00", "2024-11-04T08:00:00"),
    ],
)
def test_operations_start_anew_at_midnight_pacific_time(moment: str, reset: str) -> None:
    found = next_reset(datetime.fromisoformat(moment).replace(tzinfo=UTC))
    assert found == datetime.fromisoformat(reset).replace(tzinfo=UTC)
    assert found.tzinfo is UTC


def test_the_reset_is_told_in_the_callers_time_and_never_early() -> None:
    counting = datetime(2024, 1, 15, 7, 0, 0, 250_000, tzinfo=UTC)
    slow = counting - timedelta(days=2)
    assert moment_of_reset(now=slow, counting_clock=counting) == datetime(2024, 1, 13, 8, tzinfo=UTC)
    slightly_off = counting - timedelta(milliseconds=3)
    assert moment_of_reset(now=slightly_off, counting_clock=counting) == datetime(2024, 1, 15, 8, tzinfo=UTC)
    ahead = counting + timedelta(milliseconds=3)
    assert moment_of_reset(now=ahead, counting_clock=counting) == datetime(2024, 1, 15, 8, 0, 1, tzinfo=UTC)


STATUS = BudgetStatus(
    used=0, allowed=1000, resets_at=datetime(2024, 7, 2, 7, tzinfo=UTC), paused_until=None, reason=None
)


@pytest.mark.parametrize(
    ("used", "allowed", "next_days", "is_reserved"),
    [
        (899, 1000, 100, False),
        (900, 1000, 100, True),
        (1000, 1000, 100, True),
        (499, 1000, 5000, False),  # an agency too large for its operations: half of them are for the rest
        (500, 1000, 5000, True),
        (0, 1000, 0, False),
        (10**9, None, 5000, False),
    ],
)
def test_the_last_operations_of_a_day_are_for_days_that_open(
    used: int, allowed: int | None, next_days: int, is_reserved: bool
) -> None:
    assert is_reserved_for_fresh(replace(STATUS, used=used, allowed=allowed), next_days=next_days) is is_reserved


def test_why_the_api_is_not_asked_is_one_line_with_its_end() -> None:
    assert why_not_asked(replace(STATUS, used=999)) is None
    assert why_not_asked(replace(STATUS, used=10**9, allowed=None)) is None
    assert why_not_asked(replace(STATUS, used=1000)) == (
        "the day's 1000 API operations are used up until 2024-07-02 07:00:00 UTC"
    )
    paused = replace(STATUS, paused_until=datetime(2024, 7, 1, 9, tzinfo=UTC), reason="the quota is exhausted")
    assert why_not_asked(paused) == (
        "the API is paused until 2024-07-01 09:00:00 UTC: the quota is exhausted; `gads quota --resume` lifts the pause"
    )
