"""What a long quota delay stopped is tried again by the sensor: the real client, Dagster, Spark and PostgreSQL."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import Engine

from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.rectangles import partitions_between
from gads_assets.domain.roles import Role
from gads_assets.emulator.faults import parse_faults
from gads_assets.emulator.server import RunningEmulator, serve_emulator
from gads_assets.orchestration.partitions import CUSTOMERS
from gads_assets.orchestration.presence import join
from gads_assets_tests.ledgers import let_pass
from gads_assets_tests.worlds import BERLIN, NEW_YORK, RAW, TABLE, TOKYO, World, key

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

SENSOR = "google_ads_reschedule"
START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
HALF_A_DAY = timedelta(hours=12)
DAYS = [f"2024-06-0{day}" for day in (1, 2, 3)]


@dataclass
class Agency:
    """Three customers, asked one after the other: New York, Berlin, Tokyo."""

    world: World
    engine: Engine
    serve: Callable[[str], RunningEmulator]

    def tick(self) -> tuple[list[dg.RunRequest], str | None]:
        return self.world.tick(SENSOR)

    def covered(self, request: dg.RunRequest) -> set[PartitionKey]:
        order = [CustomerId(customer) for customer in self.world.instance.get_dynamic_partitions(CUSTOMERS)]
        return partitions_between(key(request.tags[START]), key(request.tags[END]), order)

    def launch(self, request: dg.RunRequest, status: dg.DagsterRunStatus) -> None:
        """The run that the daemon makes of a request, as far as this status."""
        job = self.world.definitions.get_repository_def().get_job(str(request.job_name))
        selected = frozenset(request.asset_selection or ())
        self.world.instance.create_run_for_job(
            job_def=job.get_subset(asset_selection=selected),
            tags={**request.tags, "dagster/sensor_name": SENSOR, "dagster/run_key": str(request.run_key)},
            asset_selection=selected,
            status=status,
        )

    def half_a_day_later(self) -> None:
        let_pass(self.engine, HALF_A_DAY)

    def recovered(self) -> RunningEmulator:
        self.half_a_day_later()
        return self.serve("")


@pytest.fixture
def agency(
    make_world: Callable[..., World], engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Agency]:
    with ExitStack() as open_servers:

        def serve(faults: str) -> RunningEmulator:
            running = open_servers.enter_context(
                serve_emulator(home=tmp_path / "emulator", faults=parse_faults(faults))
            )
            monkeypatch.setenv("GADS_GOOGLE_ADS_ENDPOINT", running.endpoint)
            return running

        monkeypatch.setenv("GADS_API_CALLS_AT_ONCE", "1")
        yield Agency(world=make_world(), engine=engine, serve=serve)


def stop_at_berlin(agency: Agency) -> set[PartitionKey]:
    """Runs three days of all three customers into a quota of half a day; returns what was not extracted."""
    running = agency.serve(f"quota@{BERLIN}/campaign/*:{HALF_A_DAY.total_seconds():.0f}")
    result = agency.world.run(f"{NEW_YORK}|{DAYS[0]}", f"{TOKYO}|{DAYS[-1]}")
    assert not result.success
    assert running.operations == 2  # New York and Berlin: nobody asks for Tokyo any more
    assert set(agency.world.published()) == {f"{NEW_YORK}|{day}" for day in DAYS}
    return {key(f"{customer}|{day}") for customer in (BERLIN, TOKYO) for day in DAYS}


def test_nothing_is_launched_while_the_api_is_paused_and_nothing_when_nothing_failed(agency: Agency) -> None:
    assert agency.tick() == ([], "no failed extraction is due")

    stop_at_berlin(agency)

    requests, skipped = agency.tick()
    until = agency.world.here.operations_as(Role.OPERATOR).status().paused_until
    assert requests == []
    assert skipped
    assert f"the API is paused until {until:%Y-%m-%d %H:%M:%S} UTC" in skipped


def test_a_lifted_pause_alone_makes_nothing_due_before_its_time(agency: Agency) -> None:
    stop_at_berlin(agency)
    budget = agency.world.here.operations_as(Role.OPERATOR)
    until = budget.status().paused_until
    assert until
    assert budget.lift_pause(until)
    assert agency.tick() == ([], "no failed extraction is due")


def test_what_half_a_days_quota_stopped_is_extracted_judged_and_published_after_it(agency: Agency) -> None:
    stopped = stop_at_berlin(agency)
    running = agency.recovered()

    [request], _ = agency.tick()
    [same], _ = agency.tick()

    assert agency.covered(request) == stopped
    assert request.asset_selection == [RAW, TABLE]
    assert {check.asset_key for check in request.asset_check_keys or ()} == {RAW}
    assert same.run_key == request.run_key

    result = agency.world.run(request.tags[START], request.tags[END], assets=list(request.asset_selection))

    assert result.success
    assert running.operations == 2
    assert set(agency.world.published()) == {
        f"{customer}|{day}" for customer in (NEW_YORK, BERLIN, TOKYO) for day in DAYS
    }
    assert agency.tick() == ([], "no failed extraction is due")


def test_a_second_refusal_is_tried_again_under_a_new_key(agency: Agency) -> None:
    stopped = stop_at_berlin(agency)
    agency.half_a_day_later()
    [first], _ = agency.tick()
    agency.serve(f"quota@*/campaign/*:{HALF_A_DAY.total_seconds():.0f}")
    assert not agency.world.run(first.tags[START], first.tags[END]).success
    agency.recovered()

    [second], _ = agency.tick()

    assert agency.covered(second) == stopped
    assert second.run_key != first.run_key


def test_partitions_of_a_run_that_has_not_ended_are_not_launched_twice(agency: Agency) -> None:
    stop_at_berlin(agency)
    agency.recovered()
    [request], _ = agency.tick()
    agency.launch(request, dg.DagsterRunStatus.STARTED)

    assert agency.tick() == ([], "6 failed extractions are due, all in runs that have not ended yet")


def test_partitions_of_a_run_that_still_lives_are_left_to_it(agency: Agency) -> None:
    stop_at_berlin(agency)
    agency.recovered()
    [run] = agency.world.instance.get_runs()

    with join(run.run_id):
        assert agency.tick() == ([], "6 failed extractions are due, all in runs that have not ended yet")

    requests, _ = agency.tick()
    assert len(requests) == 1


def test_nothing_is_launched_when_the_days_operations_are_spent(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at_berlin(agency)
    agency.recovered()
    monkeypatch.setenv("GADS_API_DAILY_OPERATIONS", "2")

    requests, skipped = agency.tick()

    assert requests == []
    assert skipped
    assert skipped.startswith("the day's 2 API operations are used up until ")


def test_customers_that_dagster_has_lost_are_named_with_the_fix(agency: Agency) -> None:
    stop_at_berlin(agency)
    agency.recovered()
    [request], _ = agency.tick()
    agency.launch(request, dg.DagsterRunStatus.STARTED)
    for customer in (BERLIN, TOKYO):
        agency.world.instance.delete_dynamic_partition(CUSTOMERS, customer)

    requests, skipped = agency.tick()

    assert requests == []
    assert skipped
    assert f"failed extractions of {BERLIN}, {TOKYO} are due" in skipped
    assert "run `gads customers sync`" in skipped


def test_a_run_that_was_killed_before_it_tried_anything_is_followed_by_another_but_not_for_ever(agency: Agency) -> None:
    stop_at_berlin(agency)
    agency.recovered()
    keys = []
    for _ in range(agency.world.here.catalog.query("campaign").max_attempts):
        [request], _ = agency.tick()
        agency.launch(request, dg.DagsterRunStatus.FAILURE)
        keys.append(request.run_key)
    assert len(set(keys)) == len(keys)

    requests, skipped = agency.tick()

    assert requests == []
    assert skipped
    assert "the runs that were to try them again failed before they did, or were cancelled" in skipped


def test_a_run_that_somebody_cancelled_is_not_launched_again(agency: Agency) -> None:
    stop_at_berlin(agency)
    agency.recovered()
    [request], _ = agency.tick()
    agency.launch(request, dg.DagsterRunStatus.CANCELED)

    requests, skipped = agency.tick()

    assert requests == []
    assert skipped
    assert "or were cancelled; launch the partitions by hand" in skipped


def test_a_database_that_does_not_answer_is_one_line(agency: Agency, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GADS_DATABASE_URL", "postgresql://somebody:secret@127.0.0.1:1/nowhere")
    requests, skipped = agency.tick()
    assert requests == []
    assert skipped
    assert "cannot be reached" in skipped
    assert "\n" not in skipped
    assert "secret" not in skipped
