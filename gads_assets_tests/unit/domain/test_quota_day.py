"""When the day of operations ends, also where clocks change and where the caller's clock is wrong."""

from datetime import UTC, datetime, timedelta

import pytest

from gads_assets.domain.quota import moment_of_reset, next_reset


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
