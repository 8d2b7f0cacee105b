"""The ledger, the pointers and Dagster's events drift apart in the ways that a crash allows, and agree again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import Engine, text

from gads_assets.domain import reconciling as domain_reconciling
from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionStatus
from gads_assets.orchestration import killed_runs, reconciling
from gads_assets.orchestration.presence import join
from gads_assets.warehouse.loading import Loader, Standing
from gads_assets_tests.databases import end_sessions_with_locks
from gads_assets_tests.worlds import BERLIN, NEW_YORK, RAW, TABLE, VERDICT, World, key, step_failure

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

SENSOR = "google_ads_reconcile"
START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
FIRST, LAST = f"{NEW_YORK}|2024-06-01", f"{BERLIN}|2024-06-02"
ALL = {f"{customer}|2024-06-0{day}" for customer in (NEW_YORK, BERLIN) for day in (1, 2)}
AGREED = "readers see what the ledger says"


@dataclass
class Agency:
    world: World

    def tick(self) -> tuple[list[dg.RunRequest], str | None]:
        return self.world.tick(SENSOR)

    def carry_out(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        """What the daemon makes of a request."""
        job = self.world.definitions.get_repository_def().get_job(str(request.job_name))
        subset = job.get_subset(
            asset_selection=frozenset(request.asset_selection or ()),
            asset_check_selection=frozenset(request.asset_check_keys or ()),
        )
        return subset.execute_in_process(instance=self.world.instance, tags=dict(request.tags), raise_on_error=False)

    def create_run(self, request: dg.RunRequest, *, status: dg.DagsterRunStatus | None = None) -> dg.DagsterRun:
        """As the daemon does before it launches one."""
        selected = frozenset(request.asset_selection or ())
        return self.world.instance.create_run_for_job(
            job_def=self.world.definitions.get_repository_def()
            .get_job(str(request.job_name))
            .get_subset(asset_selection=selected),
            tags={**request.tags, "dagster/sensor_name": SENSOR, "dagster/run_key": str(request.run_key)},
            asset_selection=selected,
            status=status,
        )

    def settle(self) -> list[dg.RunRequest]:
        """Ticks until nothing is left to do; returns all that was asked for."""
        asked: list[dg.RunRequest] = []
        while True:
            requests, skipped = self.tick()
            if not requests:
                assert skipped == AGREED
                return asked
            for request in requests:
                assert self.carry_out(request).success
            asked += requests


@pytest.fixture
def agency(make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> Agency:
    monkeypatch.setattr(reconciling, "TIME_TO_REPORT", timedelta())
    return Agency(world=make_world())


def selected(requests: Sequence[dg.RunRequest]) -> list[tuple[list[dg.AssetKey], bool]]:
    return [(list(request.asset_selection or ()), VERDICT in (request.asset_check_keys or ())) for request in requests]


def test_what_was_judged_and_never_loaded_is_loaded_newest_days_first_and_nothing_is_extracted(agency: Agency) -> None:
    world = agency.world
    world.run(FIRST, LAST, assets=[RAW])
    sealed = {label: world.here.sink.sealed_runs(key(label)) for label in ALL}
    assert world.published() == {}

    requests = agency.settle()

    assert selected(requests) == [([TABLE], False)]
    assert (requests[0].tags[START], requests[0].tags[END]) == (FIRST, LAST)
    assert world.published() == {label: set(runs) for label, runs in sealed.items()}
    assert world.materialized(TABLE) == ALL
    assert agency.tick() == ([], AGREED)


def test_what_was_sealed_and_never_judged_is_judged_and_then_loaded(agency: Agency, engine: Engine) -> None:
    world = agency.world
    world.run(FIRST, LAST)
    world.run(FIRST, LAST, assets=[RAW])
    _forget(
        engine,
        "DELETE FROM partition_attempt WHERE attempt_number = 2",
        "UPDATE partition_state SET attempt_count = 1, version = 1, (current_run_id, current_run_seq) = "
        "(SELECT run_id, run_seq FROM partition_attempt AS a WHERE (a.customer_id, a.logical_date) = "
        "(partition_state.customer_id, partition_state.logical_date))",
    )  # as if it had been killed in between
    newest = {label: {world.here.sink.sealed_runs(key(label))[-1]} for label in ALL}
    assert world.published() != newest

    requests = agency.settle()

    assert selected(requests) == [([], True), ([TABLE], False)]
    assert world.published() == newest
    assert {world.attempts(label) for label in ALL} == {2}


def test_a_demotion_that_was_killed_half_way_is_finished_at_once(
    agency: Agency, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = agency.world
    _demote_half_way(world, monkeypatch)
    assert world.status(FIRST) is PartitionStatus.SUCCESS
    assert set(world.published()) == ALL

    requests, skipped = agency.tick()

    assert (requests, skipped) == ([], "1 withdrawals that were half way are finished")
    assert world.status(FIRST) is PartitionStatus.FAILED
    assert set(world.published()) == ALL - {FIRST}
    assert agency.tick() == ([], AGREED)


def test_a_tick_does_not_wait_long_for_a_loader_and_says_what_it_left(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = agency.world
    _demote_half_way(world, monkeypatch)
    monkeypatch.setattr("gads_assets.orchestration.sensors._PATIENCE", timedelta(milliseconds=200))

    with world.here.records_as(Role.LOADER).exclusive("publish google_ads/campaign"):
        requests, skipped = agency.tick()

    assert requests == []
    assert skipped
    assert skipped.startswith("1 withdrawals cannot be finished: its rows could not be withdrawn: others have had the")
    assert agency.tick() == ([], "1 withdrawals that were half way are finished")


def test_successes_of_customers_that_dagster_has_lost_are_named_with_the_fix(agency: Agency) -> None:
    world = agency.world
    world.run(FIRST, LAST, assets=[RAW])
    for customer in (NEW_YORK, BERLIN):
        world.instance.delete_dynamic_partition("google_ads_customers", customer)

    requests, skipped = agency.tick()

    assert requests == []
    assert skipped == "4 successes wait to be loaded; " + "; ".join(
        f"2 of them cannot be launched: customer {customer} is not registered; run `gads customers sync`"
        for customer in (NEW_YORK, BERLIN)
    )


def test_a_pointer_whose_state_is_no_success_any_more_is_hidden(agency: Agency, engine: Engine) -> None:
    """As a restored warehouse would show it: the ledger says failed, and knows the run."""
    world = agency.world
    world.run(FIRST, LAST)
    _forget(
        engine,
        "UPDATE partition_state SET status = 'failed', error_message = 'bad', version = 3 "
        f"WHERE customer_id = '{NEW_YORK}'",
    )

    assert agency.tick() == ([], "2 partitions that are no success any more are hidden")

    assert {label.split("|")[0] for label in world.published()} == {BERLIN}
    assert agency.tick() == ([], AGREED)


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(("TRUNCATE partition_state, partition_attempt, load_record, demotion",), id="lost"),
        pytest.param(("UPDATE partition_state SET version = 1",), id="restored from an older backup"),
        pytest.param(
            (
                "DELETE FROM load_record",
                "DELETE FROM partition_attempt",
                "UPDATE partition_state SET status = 'failed', error_message = 'bad', version = 9",
            ),
            id="restored, and failing since",
        ),
    ],
)
def test_a_lost_or_restored_database_takes_nothing_from_readers(
    agency: Agency, engine: Engine, loss: Sequence[str]
) -> None:
    world = agency.world
    for _ in range(2):
        world.run(FIRST, LAST)
    before = world.published()
    _forget(engine, "DELETE FROM extraction_attempt", *loss)

    requests, skipped = agency.tick()

    assert requests == []
    assert skipped
    assert skipped.startswith("4 partitions are shown from a history that the database does not have")
    assert "run `gads reconcile --adopt`" in skipped
    assert world.published() == before

    sealed = world.here.sink.sealed_runs(key(FIRST))
    extracting = world.run(FIRST, assets=[RAW])
    assert "could pass for older than those that it lost; run `gads reconcile --adopt`" in step_failure(
        extracting, "google_ads__raw__campaign"
    )
    assert world.here.sink.sealed_runs(key(FIRST)) == sealed
    assert world.published() == before


@pytest.mark.parametrize("loss", ["DELETE FROM load_record", "a wiped asset"])
def test_a_load_whose_record_or_event_was_lost_gets_both_without_a_new_pointer(
    agency: Agency, engine: Engine, loss: str
) -> None:
    world = agency.world
    world.run(FIRST, LAST)
    before = world.published()
    loads = world.here.store_as(Role.CONSUMER).load_records()
    if loss.startswith("DELETE"):
        _forget(engine, loss)
    else:
        world.instance.wipe_assets([TABLE])

    requests = agency.settle()

    assert selected(requests) == [([TABLE], False)]
    assert world.published() == before
    assert world.here.store_as(Role.CONSUMER).load_records() == loads
    assert world.materialized(TABLE) == ALL
    assert world.materialization(TABLE, FIRST).metadata["pointer_version"].value == 0


@pytest.mark.parametrize("is_repeated", [False, True])
def test_partitions_of_a_run_that_lives_or_is_repeated_are_left_to_it(agency: Agency, is_repeated: bool) -> None:
    world = agency.world
    result = world.run(FIRST, LAST, assets=[RAW])

    with join("its repetition" if is_repeated else result.run_id, result.run_id) as is_present:
        assert agency.tick() == ([], AGREED)
        # A place in a pool that the first try left behind is not kept by its repetition.
        assert is_present(result.run_id) != is_repeated

    requests, _ = agency.tick()
    assert len(requests) == 1


def test_partitions_of_a_run_that_lost_its_session_as_the_database_restarted_are_left_to_it(
    agency: Agency, database_url: str
) -> None:
    world = agency.world
    result = world.run(FIRST, LAST, assets=[RAW])
    keys = {key(label) for label in ALL}

    with join(result.run_id):
        world.here.leases_as(Role.EXTRACTOR).take(result.run_id, keys)
        end_sessions_with_locks(database_url)
        assert reconciling.reconcile(world.here, world.instance).is_clean
        assert agency.tick() == ([], AGREED)

    assert reconciling.reconcile(world.here, world.instance).to_load.keys() == keys


def test_a_run_whose_process_was_killed_is_reported_as_failed_and_followed_by_another(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = agency.world
    world.run(FIRST, LAST, assets=[RAW])
    [request], _ = agency.tick()
    killed = agency.create_run(request)
    started = dg.DagsterEvent(event_type_value=dg.DagsterEventType.RUN_START.value, job_name=killed.job_name)
    world.instance.report_dagster_event(started, run_id=killed.run_id)
    assert agency.tick() == ([], "4 successes wait to be loaded")  # it may be about to show up

    monkeypatch.setattr(killed_runs, "_LONGEST_SILENCE", timedelta())
    with join(killed.run_id):
        assert agency.tick() == ([], "4 successes wait to be loaded")
    [following], _ = agency.tick()

    assert following.run_key != request.run_key
    [run] = world.instance.get_runs(dg.RunsFilter(run_ids=[killed.run_id]))
    assert run.status is dg.DagsterRunStatus.FAILURE


def test_what_did_not_change_since_it_agreed_is_not_compared_again_within_the_hour(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, compared = agency.world, list[str]()
    compare = Loader.compare

    def watched(loader: Loader, source: str, query_name: str) -> Standing:
        compared.append(query_name)
        return compare(loader, source, query_name)

    def compared_by_tick(cursor: str | None) -> tuple[set[str], str | None]:
        compared.clear()
        ticked = world.tick_from(SENSOR, cursor)
        assert not ticked.run_requests
        return set(compared), ticked.cursor

    monkeypatch.setattr(Loader, "compare", watched)
    monkeypatch.setattr(domain_reconciling, "TIME_TO_REPORT", timedelta())
    queries = set(world.here.catalog.queries)
    world.run(FIRST, LAST)
    found, cursor = compared_by_tick(None)
    assert found == queries
    found, cursor = compared_by_tick(cursor)
    assert found == queries  # what changed last may not have been reported by then
    found, cursor = compared_by_tick(cursor)
    assert found == set()

    world.run(FIRST, LAST)
    found, cursor = compared_by_tick(cursor)
    assert found == {"campaign"}
    assert compared_by_tick("written by hand")[0] == queries
    monkeypatch.setattr(domain_reconciling, "_LOOKS_AGAIN", timedelta())
    assert compared_by_tick(cursor)[0] == queries


def test_what_a_living_run_is_about_to_load_is_compared_until_it_has(agency: Agency) -> None:
    world = agency.world
    result = world.run(FIRST, LAST, assets=[RAW])
    with join(result.run_id):
        ticked = world.tick_from(SENSOR, None)
        assert not ticked.run_requests
    ticked = world.tick_from(SENSOR, ticked.cursor)
    assert len(ticked.run_requests or ()) == 1


def test_a_load_that_keeps_failing_is_tried_a_few_times_and_not_for_ever(agency: Agency) -> None:
    world = agency.world
    world.run(FIRST, LAST, assets=[RAW])
    keys = []
    for _ in range(5):
        [request], _ = agency.tick()
        agency.create_run(request, status=dg.DagsterRunStatus.FAILURE)
        keys.append(request.run_key)
    assert len(set(keys)) == 5
    assert agency.tick() == ([], "4 successes wait to be loaded")


def test_a_database_that_does_not_answer_is_one_line(agency: Agency, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GADS_DATABASE_URL", "postgresql://somebody:secret@127.0.0.1:1/nowhere")
    requests, skipped = agency.tick()
    assert requests == []
    assert skipped
    assert "cannot be reached" in skipped
    assert "secret" not in skipped


def _demote_half_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that is published, FIRST is found bad, and its check is killed before it could withdraw the rows."""
    world.run(FIRST, LAST)
    _spoil(world, FIRST)
    with monkeypatch.context() as killed:
        killed.setattr("gads_assets.validate.recording.Validator.finish_demotions", lambda *_: {})
        world.check_alone(FIRST)


def _spoil(world: World, label: str) -> None:
    [run_id] = world.here.sink.sealed_runs(key(label))
    [payload] = world.here.sink.payload_uris(world.here.sink.manifest(key(label), run_id))
    Path(payload).write_bytes(b"")


def _forget(engine: Engine, *statements: str) -> None:
    """What no role could do: the guards are off."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        for statement in statements:
            connection.execute(text(statement))
