"""What follows tries that came to something odd: runs that never judge, verdicts on older runs, clocks that lie."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy import Engine
from ulid import ULID

from gads_assets.domain.desk import Action, PartitionChoice, plan_action
from gads_assets.domain.keys import RunId
from gads_assets.domain.ledger_news import RunEnd
from gads_assets.domain.retrying import RetryPolicy
from gads_assets.domain.roles import Role
from gads_assets.domain.scheduling import Purpose
from gads_assets.domain.state import PartitionStatus
from gads_assets.orchestration.living import process_scope
from gads_assets.state.alerts import Alerts
from gads_assets.state.backfills import Backfills, BackfillStatus
from gads_assets.state.desk import OperatorDesk
from gads_assets.state.leases import Leases
from gads_assets.state.run_records import RunRecords
from gads_assets_tests.integration.control.schedules import RULE, Desk, account_in, day_of
from gads_assets_tests.integration.control.simulated_agency import SOURCE
from gads_assets_tests.ledgers import new_override_id

NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FIRST = date(2024, 5, 1)
JUNE_30 = date(2024, 6, 30)
ACCOUNT = account_in(0, "UTC")
KEY = day_of(ACCOUNT, FIRST)
ENDED = RunEnd(cancelled=False, reason="it was killed")
MOST = RetryPolicy().max_extraction_attempts


@pytest.fixture(autouse=True)
def _registered(desk: Desk) -> None:
    desk.register([ACCOUNT], NOON - timedelta(days=100))


@pytest.fixture
def act(acting: Callable[[Role], Engine]) -> Callable[[Action, datetime], None]:
    operator = OperatorDesk(acting(Role.OPERATOR), source=SOURCE)

    def carry_out(action: Action, now: datetime) -> None:
        plan = plan_action(action, operator.rows(PartitionChoice(queries=["campaign"])))
        assert plan.changed, plan.refused
        operator.carry_out(plan, actor="somebody", reason="a look", now=now, new_override_id=lambda: str(ULID()))

    return carry_out


def dispatch(desk: Desk, purpose: Purpose, *, now: datetime) -> str:
    [batch_id] = desk.schedule.dispatch(desk.dispatcher([ACCOUNT.customer_id]), {purpose: 1}, now=now)
    return batch_id


def settle(desk: Desk, ended: dict[str, RunEnd] | None = None, *, now: datetime) -> None:
    desk.plane([ACCOUNT]).settle(ended or {}, now=now)


def start_backfill(acting: Callable[[Role], Engine], first: date, last: date) -> tuple[Backfills, str]:
    backfills, backfill_id = (
        Backfills(acting(Role.OPERATOR), source=SOURCE, new_override_id=new_override_id),
        str(ULID()),
    )
    wanted = backfills.wanted([RULE], [ACCOUNT.customer_id], first, last, now=NOON)
    backfills.create(backfill_id, wanted.keys, first=first, last=last, operations=1, actor="somebody", now=NOON)
    return backfills, backfill_id


def test_a_day_that_opens_is_fresh_although_a_paused_backfill_asked_for_it_first(
    desk: Desk, acting: Callable[[Role], Engine]
) -> None:
    backfills, backfill_id = start_backfill(acting, date(2024, 6, 1), JUNE_30)
    backfills.change(backfill_id, BackfillStatus.PAUSED, actor="somebody", now=NOON)

    [request] = desk.plane([ACCOUNT]).tick(now=NOON).requests

    assert (request.purpose, request.partitions) == (Purpose.FRESH, 1)
    row = desk.rows()[day_of(ACCOUNT, JUNE_30)]
    assert (row["batch_id"], row["backfill_id"]) == (request.batch_id, backfill_id)


def test_a_late_day_is_fresh_although_it_waits_in_a_backfill(desk: Desk, acting: Callable[[Role], Engine]) -> None:
    start_backfill(acting, JUNE_30, JUNE_30)
    key = day_of(ACCOUNT, JUNE_30)
    assert desk.schedule.schedule_wanted([key], purpose=Purpose.FRESH, strategy="late", reason="late", now=NOON) == 1
    assert desk.rows()[key]["purpose"] == Purpose.FRESH


def test_a_partition_that_ends_its_runs_between_seal_and_verdict_is_blocked_after_so_many(desk: Desk) -> None:
    desk.schedule.schedule_wanted([KEY], purpose=Purpose.RETRY, strategy="wanted", reason="it is", now=NOON)
    now, runs = NOON, 0
    while (row := desk.rows()[KEY])["disposition"] == "due":
        now = max(now, row["next_run_at"])
        batch_id = dispatch(desk, Purpose.RETRY, now=now)
        runs += 1
        desk.seal(KEY, now=now)
        settle(desk, {batch_id: ENDED}, now=now)
    assert (runs, row["disposition"]) == (MOST, "blocked")
    assert row["reason"] == "8 runs sealed it and ended before they judged it"
    assert now - NOON >= timedelta(hours=12)


def test_one_partition_that_ends_all_its_runs_blocks_nobody_else(desk: Desk) -> None:
    """Every run that has it dies before it has tried anything; all others do their work."""
    keys = [day_of(ACCOUNT, FIRST + timedelta(days=day)) for day in range(20)]
    desk.schedule.schedule_wanted(keys, purpose=Purpose.RETRY, strategy="wanted", reason="it is", now=NOON)
    poisoned, now = keys[7], NOON
    dispatcher = replace(desk.dispatcher([ACCOUNT.customer_id]), largest=20)
    while any(row["disposition"] == "due" for row in desk.rows().values()):
        now += HOUR
        ended = {}
        for batch_id in desk.schedule.dispatch(dispatcher, {Purpose.RETRY: 2}, now=now):
            ended[batch_id] = ENDED
            batch, _ = desk.schedule.claim_batch(batch_id, batch_id)
            if poisoned not in batch:
                for key in batch:
                    desk.try_once(key, now=now)
        settle(desk, ended, now=now)
    assert {key: row["disposition"] for key, row in desk.rows().items()} == {poisoned: "blocked"}


def test_a_revalidation_does_not_make_attempts_count_anew(desk: Desk, act: Callable[[Action, datetime], None]) -> None:
    now = NOON
    for _ in range(RetryPolicy().max_attempts):
        run = desk.seal(KEY, now=now)
        desk.judge(KEY, run, accepted=False, now=now)
        settle(desk, now=now)
        now += 3 * HOUR
    assert desk.rows()[KEY]["disposition"] == "terminal"
    act(Action.REVALIDATE, now)
    batch_id = dispatch(desk, Purpose.REVALIDATE, now=now)
    desk.judge(KEY, run, accepted=False, now=now)

    settle(desk, {batch_id: ENDED}, now=now)

    row = desk.rows()[KEY]
    assert (row["disposition"], row["baseline_attempts"]) == ("terminal", 0)
    act(Action.RETRY, now)
    assert desk.rows()[KEY]["baseline_attempts"] == RetryPolicy().max_attempts + 1


@pytest.mark.parametrize("error", ["customer", "transient"])
def test_an_older_run_that_is_good_when_it_is_judged_again_ends_the_tries_and_alerts_nobody(
    desk: Desk, acting: Callable[[Role], Engine], act: Callable[[Action, datetime], None], error: str
) -> None:
    run = desk.seal(KEY, now=NOON)
    desk.judge(KEY, run, accepted=False, now=NOON)
    settle(desk, now=NOON)
    desk.fail(KEY, error, now=NOON + HOUR)
    settle(desk, now=NOON + HOUR)
    act(Action.REVALIDATE, NOON + HOUR)
    batch_id = dispatch(desk, Purpose.REVALIDATE, now=NOON + HOUR)
    desk.judge(KEY, run, now=NOON + HOUR)
    assert desk.store.states([KEY])[KEY].status is PartitionStatus.SUCCESS

    settle(desk, {batch_id: ENDED}, now=NOON + HOUR)

    assert desk.rows() == {}
    assert Alerts(acting(Role.OPERATOR), source=SOURCE).waiting() == []


@pytest.mark.parametrize("purpose", [Purpose.RETRY, Purpose.RESTATEMENT])
def test_what_is_to_be_extracted_again_still_is_when_its_last_run_is_judged_again_meanwhile(
    desk: Desk, act: Callable[[Action, datetime], None], purpose: Purpose
) -> None:
    run = desk.seal(KEY, now=NOON)
    desk.judge(KEY, run, now=NOON)
    if purpose is Purpose.RETRY:
        act(Action.RETRY, NOON)
    else:
        desk.schedule.schedule_wanted([KEY], purpose=purpose, strategy="7 days old", reason="late", now=NOON)
    before = desk.rows()[KEY]
    desk.judge(KEY, run, now=NOON)

    settle(desk, now=NOON + HOUR)

    row = desk.rows()[KEY]
    assert (row["seen_attempts"], row["next_run_at"]) == (2, NOON + HOUR)
    kept = ("purpose", "disposition", "backoff_strategy", "reason")
    assert [row[name] for name in kept] == [before[name] for name in kept]
    assert dispatch(desk, purpose, now=NOON + HOUR)


def test_what_an_operator_retried_is_extracted_also_when_its_first_run_is_killed_and_the_old_one_judged_again(
    desk: Desk, act: Callable[[Action, datetime], None]
) -> None:
    run = desk.seal(KEY, now=NOON)
    desk.judge(KEY, run, now=NOON)
    act(Action.RETRY, NOON)
    settle(desk, {dispatch(desk, Purpose.RETRY, now=NOON): ENDED}, now=NOON)
    desk.judge(KEY, run, now=NOON + HOUR)
    settle(desk, now=NOON + HOUR)
    assert dispatch(desk, Purpose.RETRY, now=NOON + HOUR)


@pytest.mark.parametrize("error", ["customer", "transient"])
def test_what_failed_before_an_older_run_was_found_good_ends_with_that_also_if_nobody_looked_between(
    desk: Desk, error: str
) -> None:
    run = desk.seal(KEY, now=NOON)
    desk.schedule.schedule_wanted([KEY], purpose=Purpose.FRESH, strategy="late", reason="late", now=NOON)
    desk.fail(KEY, error, now=NOON)
    desk.judge(KEY, run, now=NOON)
    settle(desk, now=NOON)
    assert desk.rows() == {}


@pytest.mark.parametrize("is_swept", [True, False])
def test_what_was_tried_in_vain_before_an_older_run_was_found_good_is_no_news_without_its_row_either(
    desk: Desk, is_swept: bool
) -> None:
    """The schedule may be lost, and is decided anew from the ledger."""
    rejected, extracted_in_vain = KEY, day_of(ACCOUNT, FIRST + timedelta(days=1))
    for key in (rejected, extracted_in_vain):
        run = desk.seal(key, now=NOON)
        desk.judge(key, run, accepted=False, now=NOON)
        if key == extracted_in_vain:
            desk.fail(key, "customer", now=NOON)
        desk.judge(key, run, now=NOON)
    if not is_swept:
        settle(desk, now=NOON)
    settle(desk, now=NOON + timedelta(minutes=1))
    assert desk.rows() == {}

    desk.fail(extracted_in_vain, "transient", now=NOON + timedelta(minutes=2))
    settle(desk, now=NOON + timedelta(minutes=2))
    assert set(desk.rows()) == {extracted_in_vain}


@pytest.mark.parametrize("wrong_by", [timedelta(days=60), timedelta(days=-60)])
def test_the_errors_own_delay_is_waited_for_whatever_the_clock_that_noted_it(desk: Desk, wrong_by: timedelta) -> None:
    settle(desk, now=NOON)
    noted_at = NOON + wrong_by
    desk.fail(KEY, "quota", now=noted_at, retry_at=noted_at + 12 * HOUR)
    settle(desk, now=NOON + HOUR)
    assert NOON + 12 * HOUR <= desk.rows()[KEY]["next_run_at"] <= NOON + 13 * HOUR


def test_what_failed_while_nobody_looked_waits_from_then_on(desk: Desk) -> None:
    settle(desk, now=NOON)
    desk.fail(KEY, "quota", now=NOON + HOUR, retry_at=NOON + 13 * HOUR)
    settle(desk, now=NOON + 10 * HOUR)
    assert desk.rows()[KEY]["next_run_at"] == NOON + 13 * HOUR


@pytest.mark.parametrize("wrong_by", [timedelta(days=60), timedelta(days=-60)])
def test_the_clocks_of_those_who_try_neither_delay_nor_end_anything(desk: Desk, wrong_by: timedelta) -> None:
    desk.try_once(KEY, accepted=False, now=NOON + wrong_by)
    settle(desk, now=NOON)
    row = desk.rows()[KEY]
    assert (row["disposition"], row["failing_since"]) == ("due", NOON)
    assert row["next_run_at"] <= NOON + timedelta(minutes=5)


def test_what_a_run_recorded_that_ends_while_somebody_looks_is_found_by_the_next_look(
    desk: Desk, acting: Callable[[Role], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = Leases(acting(Role.EXTRACTOR), lasts=timedelta(hours=9), clock=lambda: NOON)
    leases.take("by hand", [KEY])
    settle(desk, now=NOON)
    desk.fail(KEY, "transient", now=NOON + timedelta(minutes=1))
    news = desk.schedule.news

    def slow(*asked: object, **more: object) -> object:
        found = news(*asked, **more)  # type: ignore[arg-type]
        leases.release("by hand")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(desk.schedule, "news", slow)
        settle(desk, now=NOON + timedelta(minutes=30))
    assert desk.rows() == {}

    settle(desk, now=NOON + timedelta(minutes=31))

    assert set(desk.rows()) == {KEY}


def test_what_a_stopped_run_recorded_is_looked_at_when_it_is_over_however_long_that_takes(
    desk: Desk, acting: Callable[[Role], Engine]
) -> None:
    leases = Leases(acting(Role.EXTRACTOR), lasts=timedelta(seconds=30), clock=lambda: NOON)
    with RunRecords(acting(Role.EXTRACTOR)).shared([process_scope("stopped")]):
        leases.take("stopped", [KEY])
        desk.fail(KEY, "transient", now=NOON)
        settle(desk, now=NOON + 3 * HOUR)
        assert desk.schedule.reached("news") == NOON
        leases.release("stopped")
    settle(desk, now=NOON + 3 * HOUR + timedelta(minutes=1))
    assert set(desk.rows()) == {KEY}


def test_an_operator_can_mark_a_success_whose_further_tries_were_given_up(
    desk: Desk, act: Callable[[Action, datetime], None]
) -> None:
    desk.try_once(KEY, now=NOON)
    desk.fail(KEY, "customer", now=NOON)
    settle(desk, now=NOON)
    assert desk.rows()[KEY]["disposition"] == "blocked"

    act(Action.MARK, NOON)

    assert (desk.rows()[KEY]["disposition"], desk.rows()[KEY]["reason"]) == ("terminal", "a look")
    assert desk.store.states([KEY])[KEY].status is PartitionStatus.SUCCESS


def test_an_adopted_state_stays_due_again(desk: Desk) -> None:
    """It has a verdict, and no extraction on record."""
    rule = replace(RULE, ages=(3,))
    desk.plane([ACCOUNT], rules=[rule]).tick(now=NOON)
    desk.clear()
    key = day_of(ACCOUNT, date(2024, 6, 29))
    [run_seq] = desk.store.allocate_run_seqs(1)
    desk.judge(key, (RunId(str(ULID())), run_seq), now=NOON)
    assert desk.schedule.schedule_opened([rule], now=NOON + timedelta(days=1)).restated == 1

    desk.plane([ACCOUNT], rules=[rule]).settle({}, now=NOON + timedelta(days=1, hours=1))

    assert desk.rows()[key]["purpose"] == Purpose.RESTATEMENT


def test_what_an_operator_retried_and_failed_again_does_not_wait_for_its_paused_backfill(
    desk: Desk, acting: Callable[[Role], Engine], act: Callable[[Action, datetime], None]
) -> None:
    desk.schedule.schedule_opened([RULE], now=NOON)
    desk.clear()
    backfills, backfill_id = start_backfill(acting, FIRST, FIRST)
    batch_id = dispatch(desk, Purpose.BACKFILL, now=NOON)
    desk.fail(KEY, "customer", now=NOON)
    settle(desk, {batch_id: ENDED}, now=NOON)
    backfills.change(backfill_id, BackfillStatus.PAUSED, actor="somebody", now=NOON)
    act(Action.RETRY, NOON)
    batch_id = dispatch(desk, Purpose.RETRY, now=NOON)
    desk.fail(KEY, "transient", now=NOON)

    settle(desk, {batch_id: ENDED}, now=NOON)

    assert desk.rows()[KEY]["purpose"] == Purpose.RETRY
    assert len(desk.plane([ACCOUNT]).tick(now=NOON + HOUR).requests) == 1


@pytest.mark.parametrize("has_run", [True, False])
def test_a_query_that_leaves_the_catalog_keeps_no_place_and_stops_nobody(desk: Desk, has_run: bool) -> None:
    other = replace(RULE, query_name="ad_group")
    desk.register([account_in(number, "UTC") for number in range(1, 4)], NOON)
    accounts = [account_in(number, "UTC") for number in range(4)]
    [request] = desk.plane(accounts, rules=[RULE, other]).tick(now=NOON).requests[:1]
    assert request.queries == ("ad_group",)

    ended = {request.batch_id: ENDED} if has_run else None
    plane = desk.plane(accounts, ended=ended, missing=not has_run)
    requests = plane.tick(now=NOON + timedelta(minutes=5)).requests

    assert {query for each in requests for query in each.queries} <= {"campaign"}
    assert request.batch_id not in {batch.batch_id for batch in desk.schedule.open_batches()}
    left = [row for key, row in desk.rows().items() if key.query_name == "ad_group"]
    assert {(row["disposition"], row["batch_id"]) for row in left} == {("due", None)}
