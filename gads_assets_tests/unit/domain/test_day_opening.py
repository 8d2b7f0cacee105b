from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gads_assets.domain.accounts import day_opens_at, last_complete_day, require_open
from gads_assets.domain.keys import CustomerId
from gads_assets.errors import DayNotOpenError, PartitionKeyError

NO_DELAY = timedelta()


@pytest.mark.parametrize(
    ("zone", "day", "opens_at"),
    [
        ("UTC", "2024-06-01", "2024-06-02T00:00"),
        ("Asia/Tokyo", "2024-06-01", "2024-06-01T15:00"),
        ("America/New_York", "2024-06-01", "2024-06-02T04:00"),
        ("Pacific/Kiritimati", "2024-06-01", "2024-06-01T10:00"),
        ("Asia/Kolkata", "2024-06-01", "2024-06-01T18:30"),
        # Spring forward and fall back: the day ends at the offset that holds at its end.
        ("Europe/Berlin", "2024-03-30", "2024-03-30T23:00"),
        ("Europe/Berlin", "2024-03-31", "2024-03-31T22:00"),
        ("Europe/Berlin", "2024-10-26", "2024-10-26T22:00"),
        ("Europe/Berlin", "2024-10-27", "2024-10-27T23:00"),
        ("America/New_York", "2024-03-10", "2024-03-11T04:00"),
        ("America/New_York", "2024-11-03", "2024-11-04T05:00"),
        # Midnight itself is skipped (Beirut), or the hour before it comes twice (Santiago).
        ("Asia/Beirut", "2024-03-30", "2024-03-30T22:00"),
        ("America/Santiago", "2024-04-06", "2024-04-07T04:00"),
    ],
)
def test_a_day_opens_at_the_accounts_own_next_midnight(zone: str, day: str, opens_at: str) -> None:
    expected = datetime.fromisoformat(opens_at).replace(tzinfo=UTC)
    assert day_opens_at(zone, date.fromisoformat(day), NO_DELAY) == expected


def test_the_settling_delay_is_real_time_also_when_clocks_change_within_it() -> None:
    midnight = day_opens_at("Europe/Berlin", date(2024, 3, 30), NO_DELAY)
    settled = day_opens_at("Europe/Berlin", date(2024, 3, 30), timedelta(hours=3))
    assert settled - midnight == timedelta(hours=3)


def _require(now: datetime) -> None:
    require_open(
        customer_id=CustomerId("2145550101"),
        time_zone="America/New_York",
        logical_date=date(2024, 6, 1),
        settling_delay=timedelta(hours=3),
        now=now,
    )


def test_a_day_is_refused_until_the_very_moment_it_opens_and_the_refusal_names_that_moment() -> None:
    opens_at = datetime(2024, 6, 2, 7, tzinfo=UTC)
    with pytest.raises(DayNotOpenError, match=r"2145550101 \(America/New_York\) opens at 2024-06-02 07:00 UTC"):
        _require(opens_at - timedelta(seconds=1))
    _require(opens_at)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "Europe"])
def test_an_unknown_time_zone_is_named_not_guessed(zone: str) -> None:
    with pytest.raises(PartitionKeyError, match="is not in the tz database"):
        day_opens_at(zone, date(2024, 6, 1), NO_DELAY)


def test_the_last_day_of_the_calendar_is_refused_in_one_line() -> None:
    with pytest.raises(PartitionKeyError, match="choose an earlier day"):
        day_opens_at("UTC", date.max, NO_DELAY)


@pytest.mark.parametrize(
    ("now", "last"),
    [
        (datetime(2024, 6, 10, 9, 59, tzinfo=UTC), date(2024, 6, 9)),
        (datetime(2024, 6, 10, 10, tzinfo=UTC), date(2024, 6, 10)),
        (datetime(2024, 6, 10, 23, 59, tzinfo=UTC), date(2024, 6, 10)),
        (datetime(2024, 6, 10, 12, tzinfo=ZoneInfo("Asia/Tokyo")), date(2024, 6, 9)),
    ],
)
def test_the_last_complete_day_is_that_of_the_furthest_east(now: datetime, last: date) -> None:
    assert last_complete_day(now) == last
    assert day_opens_at("Pacific/Kiritimati", last, timedelta(0)) <= now
    assert day_opens_at("Pacific/Kiritimati", last + timedelta(days=1), timedelta(0)) > now
