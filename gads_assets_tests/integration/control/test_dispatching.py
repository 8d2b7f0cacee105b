"""What is decided about partitions, and how they come to a run, whoever else decides, dispatches or judges then."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from threading import Barrier

import pytest
from sqlalchemy import Engine, text
from ulid import ULID

from gads_assets.domain.desk import Action, PartitionChoice, plan_action
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.ledger_news import RunEnd
from gads_assets.domain.retrying import MANUAL
from gads_assets.domain.roles import Role
from gads_assets.domain.scheduling import Purpose
from gads_assets.domain.state import PartitionStatus
from gads_assets.state.connection import open_engine
from gads_assets.state.deciding import Decided
from gads_assets.state.desk import OperatorDesk
from gads_assets.state.dispatching import Dispatcher
from gads_assets.state.leases import Leases
from gads_assets.state.opening import schedule_opened
from gads_assets.state.schedule import Schedule
from gads_assets_tests.integration.control.schedules import RULE, Desk, account_in, day_of
from gads_assets_tests.integration.control.simulated_agency import SOURCE
from gads_assets_tests.integration.control.simulated_runs import Clock

NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=3)
FIRST = date(2024, 5, 1)
ACCOUNT = account_in(0, "UTC")
KEY = day_of(ACCOUNT, FIRST)
ENDED = RunEnd(cancelled=False, reason="it was killed")


def keys(number: int) -> list[PartitionKey]:
    return [day_of(ACCOUNT, FIRST + timedelta(days=day)) for day in range(number)]


@pytest.fixture(autouse=True)
def _registered(desk: Desk) -> None:
    desk.register([ACCOUNT], NOON - timedelta(days=100))


def want(desk: Desk, wanted: Sequence[PartitionKey], *, purpose: Purpose = Purpose.RETRY) -> None:
    scheduled = desk.schedule.schedule_wanted(wanted, purpose=purpose, strategy="wanted", reason="it is", now=NOON)
    assert scheduled == len(wanted)


def dispatch(desk: Desk, most_open: int = 10, *, now: datetime = LATER) -> list[str]:
    return desk.schedule.dispatch(desk.dispatcher([ACCOUNT.customer_id]), {Purpose.RETRY: most_open}, now=now)


def settle(desk: Desk, ended: dict[str, RunEnd] | None = None, *, now: datetime = LATER) -> None:
    desk.plane([ACCOUNT]).settle(ended or {}, now=now)


def mark(engine: Engine, key: PartitionKey) -> None:
    operator = OperatorDesk(engine, source=SOURCE)
    chosen = PartitionChoice(queries=[key.query_name], first=key.logical_date, last=key.logical_date)
    plan = plan_action(Action.MARK, operator.rows(chosen))
    assert [row.key for row in plan.changed] == [key]
    operator.carry_out(plan, actor="somebody", reason="the client left", now=NOON, new_override_id=lambda: str(ULID()))


@pytest.mark.parametrize("is_scheduled", [True, False])
def test_an_operator_who_is_faster_than_the_decision_is_obeyed(
    desk: Desk, acting: Callable[[Role], Engine], is_scheduled: bool
) -> None:
    if is_scheduled:
        want(desk, [KEY])
    desk.try_once(KEY, accepted=False, now=NOON)
    plane = desk.plane([ACCOUNT])
    news = desk.schedule.news(["campaign"], over=(), since=None, now=LATER, most=10)
    decided = [step for each in news if (step := plane._decided(each, {}, looked_at=None, now=LATER, chance=0.5))]
    assert [each.disposition for each in decided] == ["due"]
    mark(acting(Role.OPERATOR), KEY)
    desk.schedule.decide(decided, now=LATER)
    row = desk.rows()[KEY]
    assert (row["disposition"], row["backoff_strategy"], row["reason"]) == ("terminal", MANUAL, "the client left")

    desk.try_once(KEY, accepted=False, now=LATER)
    settle(desk)
    assert desk.rows()[KEY]["reason"] == "the client left"
    desk.try_once(KEY, now=LATER)
    settle(desk)
    assert desk.rows() == {}


def test_a_decision_that_was_overtaken_by_a_dispatch_changes_nothing(desk: Desk) -> None:
    want(desk, [KEY])
    desk.fail(KEY, "transient", now=NOON)
    [news] = desk.schedule.news(["campaign"], over=(), since=None, now=LATER, most=10)
    settle(desk)
    [batch_id] = dispatch(desk)
    desk.schedule.decide([Decided(news=news)], now=LATER)
    assert desk.rows()[KEY]["batch_id"] == batch_id


@pytest.mark.parametrize("accepted", [True, False])
def test_what_was_tried_while_it_was_due_is_decided_anew_before_it_runs(desk: Desk, accepted: bool) -> None:
    """A verdict may come between what a look decides and what it dispatches."""
    want(desk, keys(2))
    desk.try_once(KEY, accepted=accepted, now=NOON)
    [batch_id] = dispatch(desk)
    assert {key: row["batch_id"] for key, row in desk.rows().items()} == {KEY: None, keys(2)[1]: batch_id}

    settle(desk)
    assert len(dispatch(desk)) == (0 if accepted else 1)
    assert (KEY in desk.rows()) is not accepted


def test_two_daemons_that_decide_at_once_count_a_fruitless_run_once(desk: Desk) -> None:
    want(desk, keys(8))
    ended = dict.fromkeys(dispatch(desk), ENDED)
    plane = desk.plane([ACCOUNT])
    news = desk.schedule.news(["campaign"], over=ended, since=LATER, now=LATER, most=10)
    decided = [step for each in news if (step := plane._decided(each, ended, looked_at=None, now=LATER, chance=0.5))]
    together = Barrier(2)

    def decide(some: Sequence[Decided]) -> None:
        together.wait(timeout=60)
        desk.schedule.decide(some, now=LATER)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(decide, [decided, decided[::-1]]))
    rows = desk.rows().values()
    assert {(row["fruitless_runs"], row["batch_id"], row["purpose"]) for row in rows} == {(1, None, "retry")}


def test_a_batch_without_a_run_is_asked_for_again_under_the_same_key(desk: Desk) -> None:
    want(desk, keys(3))
    [asked] = desk.plane([ACCOUNT], rules=[replace(RULE, start_date=FIRST)]).tick(now=NOON).requests[:1]
    without_run = desk.plane([ACCOUNT], missing=True)
    too_early = without_run.tick(now=NOON + timedelta(minutes=2)).requests
    assert asked.run_key not in {batch.run_key for batch in too_early}
    again = without_run.tick(now=NOON + timedelta(minutes=2, seconds=1)).requests
    assert asked.run_key in {batch.run_key for batch in again}
    assert sum(batch.run_key == asked.run_key for batch in again) == 1


def test_another_try_is_another_run_key(desk: Desk) -> None:
    want(desk, [KEY])
    [first] = dispatch(desk)
    settle(desk, {first: ENDED})
    [second] = dispatch(desk, now=LATER + timedelta(hours=1))
    [batch] = desk.schedule.open_batches()
    assert first != second
    assert batch.run_key == f"retry {second} attempt 2"


def test_dispatchers_at_once_leave_no_more_batches_open_than_there_may_be(desk: Desk, database_url: str) -> None:
    """Each of them sees room for two before the other has filled it."""
    want(desk, keys(20))
    engines = [open_engine(database_url, Role.OPERATOR) for _ in range(2)]
    together = Barrier(2)

    def take(engine: Engine) -> list[str]:
        schedule, dispatcher = Schedule(engine, source=SOURCE), desk.dispatcher([ACCOUNT.customer_id])
        together.wait(timeout=60)
        return schedule.dispatch(dispatcher, {Purpose.RETRY: 2}, now=LATER)

    with ThreadPoolExecutor(2) as pool:
        taken = list(pool.map(take, engines))
    for engine in engines:
        engine.dispose()
    assert sorted(map(len, taken)) == [0, 2]
    assert len(desk.schedule.open_batches()) == 2


def test_dispatchers_in_a_row_take_everything_once(desk: Desk, database_url: str) -> None:
    want(desk, keys(60))
    engines = [open_engine(database_url, Role.OPERATOR) for _ in range(2)]
    together = Barrier(2)

    def take(engine: Engine) -> list[str]:
        schedule, dispatcher = Schedule(engine, source=SOURCE), desk.dispatcher([ACCOUNT.customer_id])
        together.wait(timeout=60)
        taken: list[str] = []
        while len(opened := schedule.open_batches()) < 15:
            taken += schedule.dispatch(dispatcher, {Purpose.RETRY: len(opened) + 1}, now=LATER)
        return taken

    with ThreadPoolExecutor(2) as pool:
        taken = list(pool.map(take, engines))
    for engine in engines:
        engine.dispose()
    rows = desk.rows().values()
    assert set(taken[0]).isdisjoint(taken[1])
    assert {row["dispatches"] for row in rows} == {1}
    assert {row["batch_id"] for row in rows} == {*taken[0], *taken[1]}
    assert len(taken[0]) + len(taken[1]) == 15


def test_nobody_waits_for_a_daemon_that_stopped_while_it_dispatched(desk: Desk, database_url: str) -> None:
    want(desk, keys(8))
    desk.register([ACCOUNT], NOON)
    other = open_engine(database_url, Role.OPERATOR)
    with other.connect() as stopped:
        assert len(desk.dispatcher([ACCOUNT.customer_id]).dispatch(stopped, {Purpose.RETRY: 1}, now=LATER)) == 1
        assert schedule_opened(stopped, source=SOURCE, rules=[RULE], now=LATER).fresh == 1
        assert dispatch(desk, 2) == []
        assert desk.schedule.schedule_opened([RULE], now=LATER).fresh == 0
    other.dispose()
    assert len(dispatch(desk, 2)) == 2
    assert desk.schedule.schedule_opened([RULE], now=LATER).fresh == 1


def test_what_has_to_be_decided_anew_keeps_nobody_else_from_a_run(desk: Desk) -> None:
    """More of it than a batch holds, and ahead of all others."""
    want(desk, keys(9))
    [oldest, *tried] = keys(9)
    for key in tried:
        desk.fail(key, "transient", now=NOON)
    [batch_id] = dispatch(desk, 1)
    assert {key for key, row in desk.rows().items() if row["batch_id"] == batch_id} == {oldest}


def test_a_batch_is_the_first_runs_that_comes_for_it(desk: Desk, acting: Callable[[Role], Engine]) -> None:
    runs = Schedule(acting(Role.EXTRACTOR), source=SOURCE)
    want(desk, keys(3))
    [batch_id] = dispatch(desk)
    assert runs.claim_batch(batch_id, "first") == (keys(3), None)
    assert runs.claim_batch(batch_id, "second") == ([], "first")
    assert runs.claim_batch(batch_id, "first") == (keys(3), None)
    settle(desk, {batch_id: ENDED})
    assert runs.claim_batch(batch_id, "first") == ([], None)


def test_what_a_living_run_has_is_neither_decided_nor_dispatched(desk: Desk, acting: Callable[[Role], Engine]) -> None:
    leases = Leases(acting(Role.EXTRACTOR), lasts=timedelta(hours=1), clock=lambda: LATER)
    want(desk, keys(2))
    leases.take("a person's run", [KEY])
    [batch_id] = dispatch(desk)
    assert desk.rows()[KEY]["batch_id"] is None
    leases.take("the batch's run", [keys(2)[1]])
    settle(desk, {batch_id: ENDED})
    assert desk.rows()[keys(2)[1]]["batch_id"] == batch_id
    settle(desk, {batch_id: ENDED}, now=LATER + timedelta(hours=1))
    assert desk.rows()[keys(2)[1]]["batch_id"] is None


def test_a_batch_that_is_over_keeps_no_place_for_a_partition_that_a_person_has(
    desk: Desk, acting: Callable[[Role], Engine]
) -> None:
    leases = Leases(acting(Role.EXTRACTOR), lasts=timedelta(hours=9), clock=lambda: LATER)
    want(desk, keys(20))
    ended = dict.fromkeys(dispatch(desk, Purpose.RETRY.open_batches), ENDED)
    for batch_id in ended:
        leases.take("a person's run", [desk.schedule.claim_batch(batch_id, batch_id)[0][0]])

    requests = desk.plane([ACCOUNT], ended=ended).tick(now=LATER).requests

    assert [batch.purpose for batch in requests].count(Purpose.RETRY) == Purpose.RETRY.open_batches
    assert {batch.batch_id for batch in requests}.isdisjoint(ended)
    assert {batch.batch_id for batch in desk.schedule.open_batches()} >= set(ended)


def test_only_what_may_be_asked_for_now_is_dispatched(desk: Desk) -> None:
    want(desk, keys(2))
    nobody = desk.dispatcher([])
    too_late = desk.dispatcher([ACCOUNT.customer_id], rules=[replace(RULE, start_date=FIRST + timedelta(days=9))])
    another = desk.dispatcher([ACCOUNT.customer_id], rules=[replace(RULE, query_name="keyword")])

    def dispatched(dispatcher: Dispatcher, most_open: int = 1, now: datetime = LATER) -> list[str]:
        return desk.schedule.dispatch(dispatcher, {Purpose.RETRY: most_open}, now=now)

    assert [dispatched(each) for each in (nobody, too_late, another)] == [[], [], []]
    assert dispatched(desk.dispatcher([ACCOUNT.customer_id]), now=NOON - timedelta(seconds=1)) == []
    assert dispatched(desk.dispatcher([ACCOUNT.customer_id]), most_open=0) == []
    assert len(dispatched(desk.dispatcher([ACCOUNT.customer_id]))) == 1


def test_a_failure_is_pending_again_and_that_is_logged_before_its_run_comes(desk: Desk) -> None:
    desk.try_once(KEY, accepted=False, now=NOON)
    settle(desk)
    assert desk.store.states([KEY])[KEY].status is PartitionStatus.FAILED
    assert len(dispatch(desk)) == 1
    assert desk.store.states([KEY])[KEY].status is PartitionStatus.PENDING
    with desk.engine.begin() as connection:
        [logged] = connection.execute(text("SELECT action, actor, state_version FROM override_log")).all()
    assert tuple(logged) == ("retry", "control plane", 2)


def test_a_verdict_on_an_older_run_says_nothing_about_the_newer(desk: Desk) -> None:
    """The reconciler judges late what a killed run had sealed."""
    older = desk.seal(KEY, now=NOON)
    desk.try_once(KEY, now=NOON)
    desk.judge(KEY, older, accepted=False, now=LATER)
    settle(desk)
    assert desk.rows() == {}


@pytest.mark.parametrize("is_looked_at_between", [True, False])
def test_tries_end_when_an_older_run_turns_out_good_whether_or_not_a_look_came_between(
    desk: Desk, is_looked_at_between: bool
) -> None:
    older = desk.seal(KEY, now=NOON)
    desk.try_once(KEY, accepted=False, now=NOON)
    if is_looked_at_between:
        settle(desk, now=NOON)
        assert desk.rows()[KEY]["reason"] == "two rows share a key"
    desk.judge(KEY, older, now=LATER)
    assert desk.store.states([KEY])[KEY].status is PartitionStatus.SUCCESS
    settle(desk)
    assert desk.rows() == {}


@pytest.mark.parametrize("is_looked_at_between", [True, False])
def test_a_demoted_partition_is_tried_again_also_when_an_older_run_turns_out_good(
    desk: Desk, is_looked_at_between: bool
) -> None:
    older, newer = desk.seal(KEY, now=NOON), desk.seal(KEY, now=NOON)
    desk.judge(KEY, newer, now=NOON)
    desk.judge(KEY, newer, accepted=False, now=NOON)
    desk.store.finish_demotions(desk.store.open_demotions(), now=NOON)
    if is_looked_at_between:
        settle(desk)
        assert KEY in desk.rows()
    desk.judge(KEY, older, now=NOON)
    assert desk.store.states([KEY])[KEY].status is PartitionStatus.FAILED
    settle(desk)
    assert desk.rows()[KEY]["disposition"] == "due"


def test_news_that_came_late_is_found_by_the_sweep(desk: Desk) -> None:
    settle(desk, now=LATER)
    desk.fail(KEY, "transient", now=NOON)  # recorded by a process that had long finished
    settle(desk, now=LATER + timedelta(minutes=59))
    assert desk.rows() == {}
    settle(desk, now=LATER + timedelta(minutes=60))
    assert desk.rows()[KEY]["reason"] == "in vain"


def test_a_look_by_a_clock_that_was_ahead_hides_nothing_once_it_is_set_right(desk: Desk) -> None:
    settle(desk, now=LATER + timedelta(days=60))
    desk.fail(KEY, "transient", now=NOON)
    settle(desk, now=LATER)
    assert set(desk.rows()) == {KEY}
    assert desk.schedule.reached("news") == desk.schedule.reached("all news") == LATER


def test_a_run_that_takes_hours_does_not_make_every_look_a_sweep(desk: Desk, acting: Callable[[Role], Engine]) -> None:
    clock = Clock(now=NOON)
    leases = Leases(acting(Role.EXTRACTOR), lasts=timedelta(hours=9), clock=clock)
    leases.take("a long one", [KEY])
    settle(desk, now=LATER)
    assert desk.schedule.reached("news") == NOON
    assert desk.schedule.reached("all news") == LATER
    # What it has recorded is looked at when it is over.
    desk.fail(KEY, "transient", now=NOON + timedelta(hours=1))
    leases.release("a long one")
    settle(desk, now=LATER + timedelta(minutes=1))
    assert KEY in desk.rows()


def test_more_news_than_are_read_at_once_are_all_decided(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gads_assets.control.ticking._MOST_NEWS", 3)
    for key in keys(10):
        desk.fail(key, "transient", now=NOON)
    settle(desk)
    assert set(desk.rows()) == set(keys(10))
