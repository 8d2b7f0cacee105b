"""Days that open and days that are due again: each once, by the account's own clock."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from threading import Barrier

import pytest

from gads_assets.domain.accounts import AccountStatus
from gads_assets.domain.roles import Role
from gads_assets.domain.scheduling import Purpose
from gads_assets.state.connection import open_engine
from gads_assets.state.opening import Opened
from gads_assets.state.schedule import Schedule
from gads_assets_tests.integration.control.schedules import RULE, Desk, account_in, day_of
from gads_assets_tests.integration.control.simulated_agency import SOURCE, account, last_open

NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
JUNE_30 = date(2024, 6, 30)
BERLIN = account_in(0, "Europe/Berlin")
ZONES = ("Pacific/Kiritimati", "Asia/Kathmandu", "UTC", "America/St_Johns", "Pacific/Pago_Pago")


def days(desk: Desk) -> list[date]:
    return sorted(key.logical_date for key in desk.rows())


def test_each_accounts_day_opens_when_it_has_ended_there_and_settled(desk: Desk) -> None:
    accounts = [account_in(number, zone) for number, zone in enumerate(ZONES)]
    desk.register(accounts, NOON)
    desk.schedule.schedule_opened([RULE], now=NOON)
    expected = {day_of(each, last_open(RULE, each.time_zone, NOON)) for each in accounts}
    assert set(desk.rows()) == expected
    for half_hours in range(1, 97):
        now = NOON + timedelta(minutes=30 * half_hours)
        desk.schedule.schedule_opened([RULE], now=now)
        expected |= {day_of(each, last_open(RULE, each.time_zone, now)) for each in accounts}
        assert set(desk.rows()) == expected
    assert len(expected) == 3 * len(ZONES)
    assert {(row["purpose"], row["disposition"]) for row in desk.rows().values()} == {("fresh", "due")}


@pytest.mark.parametrize(
    ("zone", "day", "ends"),
    [
        ("Europe/Berlin", date(2024, 10, 27), datetime(2024, 10, 27, 23, tzinfo=UTC)),  # of 25 hours
        ("Europe/Berlin", date(2024, 3, 31), datetime(2024, 3, 31, 22, tzinfo=UTC)),  # of 23
        ("America/New_York", date(2024, 11, 3), datetime(2024, 11, 4, 5, tzinfo=UTC)),
        ("Australia/Lord_Howe", date(2024, 10, 6), datetime(2024, 10, 6, 13, tzinfo=UTC)),  # of 23 and a half
        ("America/Santiago", date(2024, 9, 7), datetime(2024, 9, 8, 4, tzinfo=UTC)),  # the next has no midnight
    ],
)
def test_a_day_on_which_clocks_change_opens_when_its_last_hour_has_settled(
    desk: Desk, zone: str, day: date, ends: datetime
) -> None:
    each = account_in(0, zone)
    desk.register([each], ends)
    opens = ends + RULE.settling
    desk.schedule.schedule_opened([RULE], now=opens - timedelta(seconds=1))
    assert days(desk) == [day - timedelta(days=1)]
    desk.schedule.schedule_opened([RULE], now=opens)
    assert days(desk) == [day - timedelta(days=1), day]


def test_an_account_seen_for_the_first_time_begins_with_its_newest_day(desk: Desk) -> None:
    desk.register([BERLIN], NOON)
    assert desk.schedule.schedule_opened([RULE], now=NOON) == Opened(fresh=1, restated=0)
    assert desk.schedule.schedule_opened([RULE], now=NOON) == Opened(fresh=0, restated=0)
    newcomer = account_in(1, "Europe/Berlin")
    desk.register([newcomer], NOON)
    assert desk.schedule.schedule_opened([RULE], now=NOON) == Opened(fresh=1, restated=0)
    assert set(desk.rows()) == {day_of(BERLIN, JUNE_30), day_of(newcomer, JUNE_30)}


def test_days_that_opened_while_nobody_looked_are_made_up_for(desk: Desk) -> None:
    desk.register([BERLIN], NOON)
    desk.schedule.schedule_opened([RULE], now=NOON)
    desk.schedule.schedule_opened([RULE], now=NOON + timedelta(days=5))
    assert days(desk) == [JUNE_30 + timedelta(days=number) for number in range(6)]
    desk.schedule.schedule_opened([RULE], now=NOON + timedelta(days=205))
    newest = JUNE_30 + timedelta(days=205)
    assert days(desk)[6:] == [newest - timedelta(days=back) for back in range(93, -1, -1)]


@pytest.mark.parametrize(("reach", "made_up"), [(0, 1), (30, 30)])
def test_of_a_snapshot_only_days_that_can_still_be_asked_for_are_made_up(desk: Desk, reach: int, made_up: int) -> None:
    rule = replace(RULE, reach_days=reach)
    desk.register([BERLIN], NOON)
    desk.schedule.schedule_opened([rule], now=NOON)
    assert days(desk) == [JUNE_30]
    desk.clear()
    desk.schedule.schedule_opened([rule], now=NOON + timedelta(days=60))
    newest = JUNE_30 + timedelta(days=60)
    assert days(desk) == [newest - timedelta(days=back) for back in range(made_up - 1, -1, -1)]


def test_days_before_the_querys_first_never_open(desk: Desk) -> None:
    rule = replace(RULE, start_date=JUNE_30 + timedelta(days=2))
    desk.register([BERLIN], NOON)
    assert desk.schedule.schedule_opened([rule], now=NOON + timedelta(days=1)).fresh == 0
    desk.schedule.schedule_opened([rule], now=NOON + timedelta(days=4))
    assert min(days(desk)) >= rule.start_date


def test_nothing_opens_for_a_closed_account_until_it_is_open_again(desk: Desk) -> None:
    desk.register([BERLIN], NOON)
    desk.schedule.schedule_opened([RULE], now=NOON)
    closed = replace(BERLIN, status=AccountStatus.INACTIVE, closed_at=NOON, closed_reason="cancelled")
    desk.register([closed], NOON)
    assert desk.schedule.schedule_opened([RULE], now=NOON + timedelta(days=3)).fresh == 0
    desk.register([BERLIN], NOON)
    assert desk.schedule.schedule_opened([RULE], now=NOON + timedelta(days=4)).fresh == 4


def test_what_was_tried_before_its_day_was_scheduled_is_not_fresh(desk: Desk) -> None:
    extracted, judged = account_in(1, "UTC"), account_in(2, "UTC")
    desk.register([BERLIN, extracted, judged], NOON)
    desk.fail(day_of(extracted, JUNE_30), "transient", now=NOON)
    desk.try_once(day_of(judged, JUNE_30), now=NOON)
    desk.schedule.schedule_opened([RULE], now=NOON)
    assert set(desk.rows()) == {day_of(BERLIN, JUNE_30)}


def test_two_processes_at_once_open_every_day_once(desk: Desk, database_url: str) -> None:
    accounts = [account(number) for number in range(50)]
    desk.register(accounts, NOON)
    engines = [open_engine(database_url, Role.OPERATOR) for _ in range(2)]
    schedules = [Schedule(engine, source=SOURCE) for engine in engines]
    together = Barrier(2)

    def look(schedule: Schedule, now: datetime) -> Opened:
        together.wait(timeout=60)
        return schedule.schedule_opened([RULE], now=now)

    with ThreadPoolExecutor(2) as pool:
        for number in range(10):
            now = NOON + timedelta(days=number)
            looks = [pool.submit(look, schedule, now) for schedule in schedules]
            assert sorted(each.result(timeout=60).fresh for each in looks) == [0, 50]
            # Those of the first have run and are gone when the second counts.
            desk.clear()
    for engine in engines:
        engine.dispose()


def test_a_published_day_is_due_again_once_at_each_age(desk: Desk) -> None:
    rule = replace(RULE, ages=(2, 3, 7))
    desk.register([BERLIN], NOON)
    due_again = []
    for number in range(12):
        now = NOON + timedelta(days=number)
        opened = [desk.schedule.schedule_opened([rule], now=now + timedelta(hours=hour)) for hour in range(3)]
        assert [each.restated for each in opened[1:]] == [0, 0]
        for key, row in desk.rows().items():
            if row["purpose"] == Purpose.RESTATEMENT and key.logical_date == JUNE_30:
                due_again.append((number + 1, row["backoff_strategy"]))
            desk.try_once(key, now=now)
        desk.clear()
    assert due_again == [(2, "2 days old"), (3, "3 days old"), (7, "7 days old")]


def test_a_day_that_came_to_several_ages_meanwhile_is_due_again_once(desk: Desk) -> None:
    rule = replace(RULE, ages=(2, 3, 7))
    desk.register([BERLIN], NOON)
    desk.schedule.schedule_opened([rule], now=NOON)
    desk.try_once(day_of(BERLIN, JUNE_30), now=NOON)
    desk.clear()
    assert desk.schedule.schedule_opened([rule], now=NOON + timedelta(days=10)) == Opened(fresh=10, restated=1)
    row = desk.rows()[day_of(BERLIN, JUNE_30)]
    assert (row["backoff_strategy"], row["baseline_attempts"], row["seen_attempts"]) == ("2 days old", 1, 1)


def test_what_failed_is_with_the_policy_of_retries_and_not_due_again(desk: Desk) -> None:
    rule = replace(RULE, ages=(2,))
    desk.register([BERLIN], NOON)
    desk.schedule.schedule_opened([rule], now=NOON)
    desk.try_once(day_of(BERLIN, JUNE_30), accepted=False, now=NOON)
    desk.clear()
    assert desk.schedule.schedule_opened([rule], now=NOON + timedelta(days=1)) == Opened(fresh=1, restated=0)


def test_a_day_out_of_reach_is_not_due_again(desk: Desk) -> None:
    rule = replace(RULE, ages=(2, 20), reach_days=10)
    desk.register([BERLIN], NOON)
    desk.schedule.schedule_opened([rule], now=NOON)
    desk.try_once(day_of(BERLIN, JUNE_30), now=NOON)
    desk.clear()
    assert desk.schedule.schedule_opened([rule], now=NOON + timedelta(days=1)).restated == 1
    desk.clear()
    assert desk.schedule.schedule_opened([rule], now=NOON + timedelta(days=19)).restated == 0
