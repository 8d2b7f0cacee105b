"""History that nobody wants any more: what was taken back, marked or is in a run, and whoever decides meanwhile."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from threading import Barrier

import pytest
from sqlalchemy import Engine, text
from ulid import ULID

from gads_assets.domain.ledger_news import RunEnd
from gads_assets.domain.retrying import RetryPolicy
from gads_assets.domain.roles import Role
from gads_assets.domain.scheduling import Purpose
from gads_assets.state.alerts import Alerts
from gads_assets.state.backfills import Backfills, BackfillStatus
from gads_assets_tests.integration.control.schedules import RULE, Desk, account_in, day_of
from gads_assets_tests.integration.control.simulated_agency import SOURCE
from gads_assets_tests.ledgers import new_override_id

NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
FIRST = date(2024, 5, 1)
ACCOUNT = account_in(0, "UTC")
KEY = day_of(ACCOUNT, FIRST)
ENDED = RunEnd(cancelled=False, reason="it was killed")
CANCELLED = RunEnd(cancelled=True, reason="somebody cancelled it")


@pytest.fixture(autouse=True)
def _nothing_opens(desk: Desk) -> None:
    desk.register([ACCOUNT], NOON - timedelta(days=100))
    desk.schedule.schedule_opened([RULE], now=NOON)
    desk.clear()


@pytest.fixture
def backfills(acting: Callable[[Role], Engine]) -> Backfills:
    return Backfills(acting(Role.OPERATOR), source=SOURCE, new_override_id=new_override_id)


def start(backfills: Backfills, first: date = FIRST, *, days: int) -> str:
    last, backfill_id = first + timedelta(days=days - 1), str(ULID())
    wanted = backfills.wanted([RULE], [ACCOUNT.customer_id], first, last, now=NOON)
    backfills.create(backfill_id, wanted.keys, first=first, last=last, operations=1, actor="somebody", now=NOON)
    return backfill_id


def tick(desk: Desk, *, ended: dict[str, RunEnd] | None = None, minutes: int = 0) -> list[str]:
    plane = desk.plane([ACCOUNT], ended=ended)
    return [request.run_key for request in plane.tick(now=NOON + timedelta(minutes=minutes)).requests]


def cancel(backfills: Backfills, backfill_id: str) -> int:
    return backfills.change(backfill_id, BackfillStatus.CANCELLED, actor="somebody", now=NOON)


def claimed(desk: Desk) -> str:
    [batch] = desk.schedule.open_batches()
    keys, _ = desk.schedule.claim_batch(batch.batch_id, "a run")
    assert keys
    return batch.batch_id


def test_what_failed_before_the_cancellation_is_tried_no_more_and_alerts_nobody(
    desk: Desk, backfills: Backfills, acting: Callable[[Role], Engine]
) -> None:
    backfill_id = start(backfills, days=4)
    tick(desk)
    batch_id = claimed(desk)
    for key in desk.rows():
        desk.fail(key, "transient", now=NOON)
    assert tick(desk, ended={batch_id: ENDED}) == []

    assert cancel(backfills, backfill_id) == 0

    for hours in range(1, 14):
        assert tick(desk, minutes=60 * hours) == []
    rows = desk.rows().values()
    assert {(row["disposition"], row["reason"]) for row in rows} == {("terminal", "its backfill was cancelled")}
    assert Alerts(acting(Role.OPERATOR), source=SOURCE).waiting() == []
    [found] = backfills.all(most=1)
    assert (found.done, found.taken_off, found.terminal, found.is_over) == (0, 0, 4, True)

    again = start(backfills, days=4)
    assert {row["backfill_id"] for row in desk.rows().values()} == {again}
    assert len(tick(desk, minutes=60 * 14)) == 1
    with desk.engine.begin() as connection:
        asked = "SELECT action, actor, reason, change, count(*) FROM override_log GROUP BY 1, 2, 3, 4"
        logged = {tuple(row) for row in connection.execute(text(asked))}
    cleared = "terminal → backfill due; attempts count from 0"
    assert logged == {
        ("terminal", "somebody", f"backfill {backfill_id} was cancelled", "due → terminal", 4),
        ("clear", "somebody", f"backfill {again} wants it again", cleared, 4),
    }


def test_what_was_rejected_before_its_backfill_was_cancelled_counts_anew_in_the_next(
    desk: Desk, backfills: Backfills
) -> None:
    backfill_id = start(backfills, days=1)
    tick(desk)
    batch_id = claimed(desk)
    [key] = desk.rows()
    for _ in range(RetryPolicy().max_attempts - 1):
        desk.try_once(key, accepted=False, now=NOON)
    tick(desk, ended={batch_id: ENDED})
    cancel(backfills, backfill_id)

    start(backfills, days=1)
    assert len(tick(desk)) == 1
    batch_id = claimed(desk)
    desk.try_once(key, accepted=False, now=NOON)
    tick(desk, ended={batch_id: ENDED})

    assert desk.rows()[key]["disposition"] == "due"


def test_a_partition_that_was_tried_before_and_is_on_no_schedule_runs_with_its_backfill_at_once(
    desk: Desk, backfills: Backfills
) -> None:
    key = day_of(ACCOUNT, FIRST)
    desk.try_once(key, accepted=False, now=NOON)
    start(backfills, days=1)
    assert len(tick(desk)) == 1


def test_what_no_run_has_come_for_is_taken_back_and_a_run_that_comes_later_gets_nothing(
    desk: Desk, backfills: Backfills
) -> None:
    backfill_id = start(backfills, days=4)
    tick(desk)
    [batch] = desk.schedule.open_batches()

    assert cancel(backfills, backfill_id) == 4

    assert desk.rows() == {}
    assert desk.schedule.claim_batch(batch.batch_id, "a run that comes late") == ([], None)
    assert backfills.all(most=1)[0].done == 0


def test_a_pause_takes_back_what_no_run_has_come_for_and_a_resumption_dispatches_it(
    desk: Desk, backfills: Backfills
) -> None:
    backfill_id = start(backfills, days=8)
    assert len(tick(desk)) == 2
    [first, second] = desk.schedule.open_batches()
    assert desk.schedule.claim_batch(first.batch_id, "a run")[0]

    backfills.change(backfill_id, BackfillStatus.PAUSED, actor="somebody", now=NOON)

    assert [batch.batch_id for batch in desk.schedule.open_batches()] == [first.batch_id]
    assert desk.schedule.claim_batch(second.batch_id, "a run that comes late") == ([], None)
    assert tick(desk, minutes=60) == []
    [found] = backfills.all(most=1)
    assert (found.running, found.queued, found.retrying, found.remaining) == (4, 0, 0, 8)
    backfills.change(backfill_id, BackfillStatus.ACTIVE, actor="somebody", now=NOON)
    assert len(tick(desk, minutes=61)) == 1


@pytest.mark.parametrize("end", [ENDED, CANCELLED])
def test_what_a_run_had_and_did_not_try_is_off_the_schedule_when_it_ends(
    desk: Desk, backfills: Backfills, end: RunEnd
) -> None:
    backfill_id = start(backfills, days=4)
    tick(desk)
    batch_id = claimed(desk)
    cancel(backfills, backfill_id)
    assert len(desk.rows()) == 4
    desk.try_once(KEY, now=NOON)
    desk.fail(day_of(ACCOUNT, FIRST + timedelta(days=1)), "transient", now=NOON)

    assert tick(desk, ended={batch_id: end}) == []

    [(key, row)] = desk.rows().items()
    assert (key.logical_date, row["disposition"]) == (FIRST + timedelta(days=1), "terminal")


def test_its_batches_keep_no_place_from_retries_and_are_asked_for_under_the_same_key(
    desk: Desk, backfills: Backfills
) -> None:
    backfill_id = start(backfills, days=8)
    asked = tick(desk)
    for batch in desk.schedule.open_batches():
        desk.schedule.claim_batch(batch.batch_id, "a run")
    cancel(backfills, backfill_id)
    failed = day_of(ACCOUNT, date(2024, 6, 29))
    desk.fail(failed, "transient", now=NOON)
    tick(desk)

    assert len(tick(desk, minutes=6)) == 1

    assert desk.rows()[failed]["batch_id"]
    assert {batch.run_key for batch in desk.schedule.open_batches()} > set(asked)


def test_a_decision_that_did_not_know_of_the_cancellation_is_made_again(desk: Desk, backfills: Backfills) -> None:
    backfill_id = start(backfills, days=3)
    tick(desk)
    batch_id = claimed(desk)
    plane, ended = desk.plane([ACCOUNT]), {batch_id: ENDED}
    news = desk.schedule.news(["campaign"], over=ended, since=NOON, now=NOON, most=10)
    decided = [step for each in news if (step := plane._decided(each, ended, looked_at=None, now=NOON, chance=0.5))]
    assert len(decided) == 3
    cancel(backfills, backfill_id)

    desk.schedule.decide(decided, now=NOON)

    assert {row["batch_id"] for row in desk.rows().values()} == {batch_id}
    plane.settle(ended, now=NOON)
    assert desk.rows() == {}


def test_cancelling_and_deciding_at_once_do_not_deadlock(desk: Desk, backfills: Backfills) -> None:
    together = Barrier(2)

    def at_once(action: Callable[[], object]) -> None:
        together.wait(timeout=60)
        action()

    with ThreadPoolExecutor(2) as pool:
        for _ in range(6):
            desk.clear()
            backfill_id = start(backfills, date(2024, 1, 1), days=170)
            with desk.engine.begin() as connection:  # so that rows lie in another order than their keys
                connection.execute(
                    text("UPDATE retry_schedule SET dispatches = 1 WHERE extract(day FROM logical_date) < 15")
                )
            dispatcher = replace(desk.dispatcher([ACCOUNT.customer_id]), largest=400)
            [batch_id] = desk.schedule.dispatch(dispatcher, {Purpose.BACKFILL: 1}, now=NOON)
            desk.schedule.claim_batch(batch_id, "a run")
            plane, ended = desk.plane([ACCOUNT]), {batch_id: ENDED}
            looks = [
                pool.submit(at_once, partial(plane.settle, ended, now=NOON)),
                pool.submit(at_once, partial(cancel, backfills, backfill_id)),
            ]
            for each in looks:
                each.result(timeout=60)
            plane.settle(ended, now=NOON)
            assert desk.rows() == {}
