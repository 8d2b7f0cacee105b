"""The control plane through Dagster: the real client, runs, Spark and PostgreSQL; only the daemon's loop is ours."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG
from sqlalchemy import Engine, text

from gads_assets.domain.desk import Action, DeskRow, PartitionChoice, plan_action
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionStatus
from gads_assets.emulator.faults import parse_faults
from gads_assets.emulator.server import RunningEmulator, serve_emulator
from gads_assets.extract.extraction import Extraction
from gads_assets.extract.partitions import Extractor
from gads_assets.orchestration import killed_runs
from gads_assets.orchestration.control import runs_of
from gads_assets.orchestration.partitions import CUSTOMERS
from gads_assets.orchestration.requested_runs import carry_out
from gads_assets.orchestration.runs import ATTEMPT, BATCH, PURPOSE
from gads_assets.orchestration.unclaimed_batches import plan_unclaimed
from gads_assets_tests.ledgers import NOW, let_nothing_open, let_pass, new_override_id
from gads_assets_tests.worlds import BERLIN, NEW_YORK, RAW, TABLE, TOKYO, World, attempted, key

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

SENSOR = "google_ads_control"
HALF_A_DAY = timedelta(hours=12)
DAYS = [f"2024-06-0{day}" for day in (1, 2, 3)]


@dataclass
class Agency:
    """Three customers, asked one after the other: New York, Berlin, Tokyo."""

    world: World
    engine: Engine
    serve: Callable[[str], RunningEmulator]

    def tick(self) -> list[dg.RunRequest]:
        return self.world.tick(SENSOR)[0]

    def skipped(self) -> str:
        requests, skipped = self.world.tick(SENSOR)
        assert requests == []
        assert skipped
        assert "\n" not in skipped
        return skipped

    def carry_out(self, request: dg.RunRequest) -> dg.JobExecutionResult:
        return carry_out(self.world.definitions, self.world.instance, request)

    def launch(
        self, request: dg.RunRequest, status: dg.DagsterRunStatus, *, repeats: dg.DagsterRun | None = None
    ) -> dg.DagsterRun:
        """The run that the daemon makes of a request, as far as this status."""
        job = self.world.definitions.get_repository_def().get_job(str(request.job_name))
        selected = frozenset(request.asset_selection or ())
        return self.world.instance.create_run_for_job(
            job_def=job.get_subset(asset_selection=selected),
            tags={**request.tags, "dagster/sensor_name": SENSOR, "dagster/run_key": str(request.run_key)},
            asset_selection=selected,
            status=status,
            root_run_id=repeats.run_id if repeats else None,
            parent_run_id=repeats.run_id if repeats else None,
        )

    def scheduled(self) -> dict[PartitionKey, DeskRow]:
        rows = self.world.here.desk.rows(PartitionChoice(queries=list(self.world.here.catalog.queries)))
        return {row.key: row for row in rows if row.disposition}

    def batch(self, request: dg.RunRequest) -> set[str]:
        asked = text("SELECT customer_id || '|' || logical_date FROM retry_schedule WHERE batch_id = :batch_id")
        with self.engine.begin() as connection:
            return set(connection.execute(asked, {"batch_id": request.tags[BATCH]}).scalars())

    def half_a_day_later(self) -> None:
        let_pass(self.engine, HALF_A_DAY)

    def recovered(self) -> RunningEmulator:
        self.half_a_day_later()
        return self.serve("")


@pytest.fixture
def agency(
    make_world: Callable[..., World], engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Agency]:
    """No day opens, unless a test says so."""
    with ExitStack() as open_servers:

        def serve(faults: str) -> RunningEmulator:
            running = open_servers.enter_context(
                serve_emulator(home=tmp_path / "emulator", faults=parse_faults(faults))
            )
            monkeypatch.setenv("GADS_GOOGLE_ADS_ENDPOINT", running.endpoint)
            return running

        monkeypatch.setenv("GADS_API_CALLS_AT_ONCE", "1")
        monkeypatch.setenv("GADS_LEASE_SECONDS", "2")  # so long nobody passes for killed after the server's start
        world = make_world()
        let_nothing_open(engine, world.here.catalog.queries)
        yield Agency(world=world, engine=engine, serve=serve)


def stop_at_berlin(agency: Agency) -> set[str]:
    """Runs three days of all three customers into a quota of half a day; returns what was not extracted."""
    running = agency.serve(f"quota@{BERLIN}/campaign/*:{HALF_A_DAY.total_seconds():.0f}")
    result = agency.world.run(f"{NEW_YORK}|{DAYS[0]}", f"{TOKYO}|{DAYS[-1]}")
    assert not result.success
    assert running.operations == 2  # New York and Berlin: nobody asks for Tokyo any more
    assert set(agency.world.published()) == {f"{NEW_YORK}|{day}" for day in DAYS}
    return {f"{customer}|{day}" for customer in (BERLIN, TOKYO) for day in DAYS}


def test_nothing_is_due_in_a_home_where_nothing_happened(agency: Agency) -> None:
    assert agency.skipped() == "nothing is due"


def test_days_that_have_opened_are_one_run_of_all_queries_asked_for_once(agency: Agency) -> None:
    with agency.engine.begin() as connection:
        connection.execute(text("DELETE FROM opened_day"))
    queries = agency.world.here.catalog.queries

    [request] = agency.tick()

    assert len(request.asset_selection or ()) == 2 * len(queries)
    assert request.partition_key is None
    assert (request.tags[PURPOSE], request.tags[ATTEMPT], request.tags["dagster/priority"]) == ("fresh", "1", "30")
    assert request.run_key == f"fresh {request.tags[BATCH]} attempt 1"
    assert len(agency.scheduled()) == 3 * len(queries)
    assert agency.skipped() == "nothing is due"


def test_a_batch_that_no_run_was_made_of_is_asked_for_again_under_the_same_key(agency: Agency) -> None:
    stop_at_berlin(agency)
    agency.recovered()
    [request] = agency.tick()
    assert agency.skipped() == "nothing is due"

    let_pass(agency.engine, timedelta(minutes=3))
    [again] = agency.tick()
    assert (again.run_key, again.tags) == (request.run_key, request.tags)

    agency.launch(again, dg.DagsterRunStatus.STARTING)
    let_pass(agency.engine, timedelta(minutes=3))
    assert agency.skipped() == "nothing is due"


def test_nothing_is_asked_while_the_api_is_paused(agency: Agency) -> None:
    stop_at_berlin(agency)
    until = agency.world.here.operations_as(Role.OPERATOR).status().paused_until
    assert f"the API is paused until {until:%Y-%m-%d %H:%M:%S} UTC" in agency.skipped()


def test_a_lifted_pause_alone_makes_nothing_due_before_its_time(agency: Agency) -> None:
    stop_at_berlin(agency)
    budget = agency.world.here.operations_as(Role.OPERATOR)
    until = budget.status().paused_until
    assert until
    assert budget.lift_pause(until)
    assert agency.skipped() == "6 partitions were followed up"


def test_nothing_is_asked_when_the_days_operations_are_spent(agency: Agency, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at_berlin(agency)
    agency.recovered()
    monkeypatch.setenv("GADS_API_DAILY_OPERATIONS", "2")
    assert "the day's 2 API operations are used up until " in agency.skipped()


def test_what_half_a_days_quota_stopped_is_extracted_judged_and_published_after_it(agency: Agency) -> None:
    stopped = stop_at_berlin(agency)
    running = agency.recovered()

    [request] = agency.tick()

    assert agency.batch(request) == stopped
    assert request.asset_selection == [RAW, TABLE]
    assert (request.tags[PURPOSE], request.tags["dagster/priority"]) == ("retry", "20")
    assert agency.carry_out(request).success
    assert running.operations == 2
    assert set(agency.world.published()) == {
        f"{customer}|{day}" for customer in (NEW_YORK, BERLIN, TOKYO) for day in DAYS
    }
    assert agency.skipped() == "6 partitions were followed up"
    assert agency.scheduled() == {}
    assert agency.skipped() == "nothing is due"


def test_a_rejected_partition_is_pending_again_before_its_next_run_which_is_logged_and_then_heals(
    agency: Agency,
) -> None:
    label = f"{BERLIN}|2024-06-02"
    agency.serve(f"duplicated_rows@{BERLIN}/campaign/2024-06-02")
    assert not agency.world.run(label).success
    assert agency.world.status(label) is PartitionStatus.FAILED
    agency.serve("")
    assert agency.skipped() == "1 partitions were followed up"
    assert agency.skipped() == "nothing is due"

    let_pass(agency.engine, timedelta(minutes=6))
    [request] = agency.tick()

    assert agency.world.status(label) is PartitionStatus.PENDING
    with agency.engine.begin() as connection:
        [logged] = connection.execute(text("SELECT actor, action, change FROM override_log")).all()
    assert tuple(logged) == ("control plane", "retry", "failed → pending")
    assert agency.carry_out(request).success
    assert agency.world.status(label) is PartitionStatus.SUCCESS
    assert agency.world.attempts(label) == 2
    agency.tick()
    assert agency.scheduled() == {}


def test_a_partition_that_is_rejected_again_and_again_is_terminal_and_keeps_the_reason(agency: Agency) -> None:
    label = f"{BERLIN}|2024-06-02"
    most = agency.world.here.catalog.query("campaign").retry.max_attempts
    agency.serve(f"duplicated_rows@{BERLIN}/campaign/2024-06-02")
    agency.world.run(label)
    keys = []
    for _ in range(most - 1):
        agency.tick()
        let_pass(agency.engine, timedelta(hours=2))
        [request] = agency.tick()
        keys.append(request.run_key)
        agency.carry_out(request)
    agency.tick()

    row = agency.scheduled()[key(label)]

    assert agency.world.attempts(label) == most
    assert len(set(keys)) == most - 1
    assert row.disposition == "terminal"
    assert row.reason
    assert row.reason.startswith(f"rejected {most} times, and {most} are allowed: ")
    let_pass(agency.engine, timedelta(days=30))
    assert agency.tick() == []


def test_a_cancelled_run_leaves_its_partitions_retryable_and_no_limit_nearer(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = stop_at_berlin(agency)
    agency.recovered()
    [request] = agency.tick()

    def cancel(*_: object, dagster_run_id: str, **__: object) -> None:
        run = agency.world.instance.get_run_by_id(dagster_run_id)
        assert run
        agency.world.instance.report_run_canceling(run)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Extractor, "extract", cancel)
        assert agency.carry_out(request).dagster_run.status is dg.DagsterRunStatus.CANCELED

    assert agency.skipped() == "6 partitions were followed up"
    rows = agency.scheduled().values()
    assert {(row.disposition, row.backoff_strategy) for row in rows} == {("due", "cancelled")}
    let_pass(agency.engine, timedelta(minutes=31))
    [again] = agency.tick()
    assert agency.batch(again) == stopped
    assert again.run_key != request.run_key
    assert agency.carry_out(again).success


@pytest.mark.parametrize(
    ("status", "outcome"), [(dg.DagsterRunStatus.CANCELED, "CANCELLED"), (dg.DagsterRunStatus.FAILURE, "FAILED")]
)
def test_a_run_that_ends_before_its_process_begins_leaves_an_attempt_of_each_partition(
    agency: Agency, status: dg.DagsterRunStatus, outcome: str
) -> None:
    """Cancelled in the queue, or never started. A look that is killed before it has settled them plans them twice."""
    stopped = stop_at_berlin(agency)
    agency.recovered()
    [request] = agency.tick()
    run = agency.launch(request, dg.DagsterRunStatus.STARTING)
    world, schedule = agency.world, agency.world.here.schedule_as(Role.OPERATOR)
    if status is dg.DagsterRunStatus.CANCELED:
        world.instance.report_run_canceled(run)
        batches = schedule.open_batches()
        plan_unclaimed(world.here, world.instance, batches, runs_of(world.instance, batches))
    else:
        world.instance.report_run_failed(run)

    assert agency.skipped() == "6 partitions were followed up"

    planned = world.instance.all_logs(run.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    told = [(entry.get_dagster_event().asset_key, entry.get_dagster_event().partition) for entry in planned]
    assert sorted(filter(itemgetter(1), told)) == sorted(product((RAW, TABLE), stopped))
    for asset in (RAW, TABLE):
        found = attempted(world, asset)
        assert {label: found[label] for label in stopped} == dict.fromkeys(stopped, outcome)


def test_of_a_batch_that_a_run_has_come_for_nobody_else_says_what_was_planned(agency: Agency) -> None:
    stop_at_berlin(agency)
    agency.recovered()
    [request] = agency.tick()
    run = agency.launch(request, dg.DagsterRunStatus.FAILURE)
    world, schedule = agency.world, agency.world.here.schedule_as(Role.OPERATOR)
    before = schedule.open_batches()
    schedule.claim_batch(request.tags[BATCH], run.run_id)

    for batches in (before, schedule.open_batches()):
        plan_unclaimed(world.here, world.instance, batches, runs_of(world.instance, batches))

    planned = world.instance.all_logs(run.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    assert not any(entry.get_dagster_event().partition for entry in planned)


def test_of_a_run_and_its_repetitions_the_last_says_how_a_batch_ended(agency: Agency) -> None:
    stop_at_berlin(agency)
    agency.recovered()
    [request] = agency.tick()
    world, schedule = agency.world, agency.world.here.schedule_as(Role.OPERATOR)
    first = agency.launch(request, dg.DagsterRunStatus.FAILURE)
    schedule.claim_batch(request.tags[BATCH], first.run_id)
    again = agency.launch(request, dg.DagsterRunStatus.CANCELED, repeats=first)
    agency.launch(request, dg.DagsterRunStatus.FAILURE)  # of another daemon, and too late

    [end] = runs_of(world.instance, schedule.open_batches()).ended.values()

    assert end.cancelled
    assert again.run_id in end.reason


def test_a_run_that_was_killed_is_reported_failed_by_its_expired_lease_and_its_partitions_are_due_again(
    agency: Agency,
) -> None:
    stopped = stop_at_berlin(agency)
    agency.recovered()
    [request] = agency.tick()
    run = agency.launch(request, dg.DagsterRunStatus.STARTED)
    keys, _ = agency.world.here.schedule_as(Role.EXTRACTOR).claim_batch(request.tags[BATCH], run.run_id)
    agency.world.here.leases_as(Role.EXTRACTOR).take(run.run_id, keys)
    assert agency.skipped() == "nothing is due"

    let_pass(agency.engine, timedelta(minutes=2))

    assert agency.skipped() == "6 partitions were followed up"
    assert agency.world.run_status(run.run_id) is dg.DagsterRunStatus.FAILURE
    let_pass(agency.engine, timedelta(minutes=6))
    [again] = agency.tick()
    assert agency.batch(again) == stopped
    assert again.tags[ATTEMPT] == "2"


def test_a_run_that_was_killed_before_it_had_a_lease_is_reported_failed_once_it_was_silent_for_long(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = stop_at_berlin(agency)
    agency.recovered()
    [request] = agency.tick()
    run = agency.launch(request, dg.DagsterRunStatus.STARTING)
    scheduled, foreign = (
        agency.world.instance.create_run_for_job(dg.GraphDefinition(name="nothing").to_job(name), status=run.status)
        for name in ("google_ads_housekeeping", "theirs")
    )
    for each in (run, scheduled, foreign):
        started = dg.DagsterEvent(event_type_value=dg.DagsterEventType.RUN_START.value, job_name=each.job_name)
        agency.world.instance.report_dagster_event(started, run_id=each.run_id)
    assert agency.skipped() == "nothing is due"

    monkeypatch.setattr(killed_runs, "_LONGEST_SILENCE", timedelta())

    agency.world.here.leases_as(Role.EXTRACTOR).extend(run.run_id)
    assert agency.skipped() == "nothing is due"
    agency.world.here.leases_as(Role.EXTRACTOR).release(run.run_id)
    assert agency.skipped() == "6 partitions were followed up"
    assert agency.world.run_status(run.run_id) is dg.DagsterRunStatus.FAILURE
    assert agency.world.run_status(scheduled.run_id) is dg.DagsterRunStatus.FAILURE
    assert agency.world.run_status(foreign.run_id) is dg.DagsterRunStatus.STARTED
    let_pass(agency.engine, timedelta(minutes=6))
    [again] = agency.tick()
    assert agency.batch(again) == stopped


def test_a_run_on_a_machine_whose_clock_is_behind_is_not_taken_for_silent(agency: Agency) -> None:
    """Its latest word is its own; the daemon's, just before, is by a clock that is right."""
    run = agency.world.instance.create_run_for_job(
        dg.GraphDefinition(name="nothing").to_job("google_ads_housekeeping"), status=dg.DagsterRunStatus.STARTING
    )
    for seconds_behind in (0, 3600):
        started = dg.DagsterEvent(event_type_value=dg.DagsterEventType.RUN_START.value, job_name=run.job_name)
        agency.world.instance.report_dagster_event(started, run_id=run.run_id, timestamp=time.time() - seconds_behind)
    agency.tick()
    assert agency.world.run_status(run.run_id) is dg.DagsterRunStatus.STARTED


def test_a_run_that_was_killed_while_it_was_being_cancelled_is_reported_as_cancelled(agency: Agency) -> None:
    stop_at_berlin(agency)
    agency.recovered()
    [request] = agency.tick()
    run = agency.launch(request, dg.DagsterRunStatus.CANCELING)
    agency.world.here.leases_as(Role.EXTRACTOR).extend(run.run_id)
    let_pass(agency.engine, timedelta(minutes=2))

    assert agency.skipped() == "6 partitions were followed up"

    assert agency.world.run_status(run.run_id) is dg.DagsterRunStatus.CANCELED
    assert {row.backoff_strategy for row in agency.scheduled().values()} == {"cancelled"}


def test_runs_that_end_before_they_try_anything_are_followed_but_not_for_ever(agency: Agency) -> None:
    stop_at_berlin(agency)
    agency.recovered()
    most = agency.world.here.catalog.query("campaign").retry.max_extraction_attempts
    runs = 0
    while any(row.disposition == "due" for row in agency.scheduled().values()) or not runs:
        requests = agency.tick()
        for request in requests:
            agency.launch(request, dg.DagsterRunStatus.FAILURE)
        runs += len(requests)
        if not requests:
            let_pass(agency.engine, timedelta(hours=2))
    assert runs == (most - 2) + 2 + 6  # the last but one are of five partitions at most, and the last are alone

    assert agency.skipped() == "nothing is due"

    rows = agency.scheduled().values()
    assert {row.disposition for row in rows} == {"blocked"}
    assert all(f"{most} runs ended before they tried it: run " in str(row.reason) for row in rows)


def test_partitions_that_a_person_launched_are_left_to_that_run(agency: Agency) -> None:
    stopped = stop_at_berlin(agency)
    assert agency.tick() == []
    agency.recovered()
    leases = agency.world.here.leases_as(Role.EXTRACTOR)
    leases.take("by hand", [key(label) for label in stopped])
    assert agency.tick() == []

    leases.release("by hand")

    [request] = agency.tick()
    assert agency.batch(request) == stopped


def test_a_run_by_hand_has_leases_of_its_own_so_that_nothing_of_it_is_dispatched_meanwhile(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = stop_at_berlin(agency)
    assert agency.tick() == []
    agency.recovered()
    by_hand, extract = {f"{BERLIN}|{day}" for day in DAYS}, Extractor.extract
    asked: list[dg.RunRequest] = []

    def look_meanwhile(*arguments: Any, **named: Any) -> Extraction:
        asked.extend(agency.tick())
        return extract(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Extractor, "extract", look_meanwhile)
        tags = {ASSET_PARTITION_RANGE_START_TAG: min(by_hand), ASSET_PARTITION_RANGE_END_TAG: max(by_hand)}
        assert agency.carry_out(dg.RunRequest(run_key="hand", asset_selection=[RAW, TABLE], tags=tags)).success

    [request] = asked
    assert agency.batch(request) == stopped - by_hand
    assert agency.carry_out(request).success
    agency.tick()
    assert agency.scheduled() == {}


def test_a_revalidation_is_a_run_of_checks_alone(agency: Agency) -> None:
    label = f"{NEW_YORK}|2024-06-01"
    running = agency.serve("")
    assert agency.world.run(label).success
    desk = agency.world.here.desk
    plan = plan_action(Action.REVALIDATE, desk.rows(PartitionChoice(queries=["campaign"])))
    desk.carry_out(plan, actor="me", reason="a look", now=NOW, new_override_id=new_override_id)
    asked = running.operations

    [request] = agency.tick()

    assert request.asset_selection == []
    assert {check.asset_key for check in request.asset_check_keys or ()} == {RAW}
    assert agency.carry_out(request).success
    assert running.operations == asked
    assert agency.world.attempts(label) == 2
    agency.tick()
    assert agency.scheduled() == {}


def test_customers_that_dagster_has_lost_are_not_asked_for(agency: Agency) -> None:
    stop_at_berlin(agency)
    agency.recovered()
    for customer in (BERLIN, TOKYO):
        agency.world.instance.delete_dynamic_partition(CUSTOMERS, customer)
    assert agency.tick() == []


def test_a_database_that_does_not_answer_is_one_line(agency: Agency, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GADS_DATABASE_URL", "postgresql://somebody:secret@127.0.0.1:1/nowhere")
    told = agency.skipped()
    assert "cannot be reached" in told
    assert "secret" not in told
