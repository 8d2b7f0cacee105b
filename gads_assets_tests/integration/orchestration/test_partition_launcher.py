"""Backfills from Dagster's partition launcher: its own daemons over the real code location, in this process."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.remote_representation.external import RemoteJob
from dagster._core.storage.tags import BACKFILL_ID_TAG
from dagster._core.test_utils import create_run_for_test, create_test_daemon_workspace_context
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from ulid import ULID

from gads_assets.domain.roles import Role
from gads_assets.domain.scheduling import Purpose
from gads_assets.orchestration import instance as instance_module
from gads_assets.orchestration.control import request_of
from gads_assets.orchestration.instance import dagster_environment
from gads_assets.orchestration.presence import join
from gads_assets.orchestration.runs import PURPOSE
from gads_assets.state.dispatching import OpenBatch
from gads_assets_tests.ledgers import NOW
from gads_assets_tests.worlds import NEW_YORK, RAW, TABLE, World, attempted, key, step_failure

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

DAYS = [f"{NEW_YORK}|2024-06-0{day}" for day in (1, 2, 3)]
LOCATION = "gads_assets"
# Runs that leave the queue stay as they are, so that a test can look at them.
LAUNCHER = """
run_launcher:
  module: dagster._core.test_utils
  class: MockedRunLauncher
"""


@pytest.fixture
def world(make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(instance_module, "_DAGSTER_YAML", instance_module._DAGSTER_YAML + LAUNCHER)
    world = make_world()
    for name, value in dagster_environment(world.here.settings, world.here.database_url).items():
        monkeypatch.setenv(name, value)
    return world


@contextmanager
def daemons(world: World) -> Iterator[WorkspaceProcessContext]:
    target = ModuleTarget(
        module_name="gads_assets.definitions", attribute=None, working_directory=None, location_name=LOCATION
    )
    with create_test_daemon_workspace_context(target, world.instance) as workspace:
        yield workspace


def launch_partitions(world: World, workspace: WorkspaceProcessContext, labels: Sequence[str]) -> dg.DagsterRun:
    """As the page does, and then the daemon; returns the run that is in the queue."""
    request = workspace.create_request_context()
    backfill = PartitionBackfill.from_asset_partitions(
        backfill_id="launched",
        asset_graph=request.asset_graph,
        partition_names=list(labels),
        asset_selection=[RAW, TABLE],
        backfill_timestamp=time.time(),
        tags={},
        dynamic_partitions_store=world.instance,
        all_partitions=False,
        title=None,
        description=None,
        run_config=None,
    )
    world.instance.add_backfill(backfill)
    assert backfill.status is BulkActionStatus.REQUESTED
    assert not [*filter(None, execute_backfill_iteration(workspace, logging.getLogger(__name__)))]
    [run] = world.instance.get_runs(dg.RunsFilter(tags={BACKFILL_ID_TAG: "launched"}))
    assert run.status is dg.DagsterRunStatus.QUEUED
    return run


def leave_queue(world: World, workspace: WorkspaceProcessContext) -> set[str]:
    """What the queue's daemon launches now."""
    with QueuedRunCoordinatorDaemon(interval_seconds=1) as daemon:
        list(daemon.run_iteration(workspace))
    return {run.run_id for run in world.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTING]))}


def submit(world: World, workspace: WorkspaceProcessContext, tags: Mapping[str, str]) -> str:
    location = workspace.create_request_context().get_code_location(LOCATION)
    job: RemoteJob = location.get_repository("__repository__").get_full_job("__ASSET_JOB")
    run = create_run_for_test(
        world.instance,
        job_name=job.name,
        tags=tags,
        remote_job_origin=job.get_remote_origin(),
        job_code_origin=job.get_python_origin(),
    )
    world.instance.submit_run(run.run_id, workspace.create_request_context())
    return str(run.run_id)


def end(world: World, run_ids: Iterable[str]) -> None:
    for run_id in run_ids:
        run = world.instance.get_run_by_id(run_id)
        assert run
        world.instance.report_run_canceled(run)


def tags_of(world: World, purpose: Purpose) -> Mapping[str, str]:
    batch = OpenBatch(
        batch_id=str(ULID()),
        purpose=purpose,
        queries=("campaign",),
        partitions=1,
        attempt=1,
        dispatched_at=NOW,
        dagster_run_id=None,
    )
    return request_of(world.here.catalog, batch).tags


def test_history_takes_one_place_in_the_queue_whoever_asked_for_it(world: World) -> None:
    with daemons(world) as workspace:
        ours = submit(world, workspace, {PURPOSE: "backfill"})
        launched = launch_partitions(world, workspace, DAYS).run_id
        assert leave_queue(world, workspace) == {ours}

        fresh, by_hand = submit(world, workspace, {PURPOSE: "fresh"}), submit(world, workspace, {})
        assert leave_queue(world, workspace) == {ours, fresh}

        end(world, (fresh, ours))
        assert leave_queue(world, workspace) == {launched, by_hand}


def test_the_queue_lets_out_what_is_most_urgent_whenever_it_was_asked_for(world: World) -> None:
    """Of two places in it one is kept by a run throughout, so that the others leave one after the other."""
    with daemons(world) as workspace:
        busy = submit(world, workspace, {})
        assert leave_queue(world, workspace) == {busy}
        asked = {
            submit(world, workspace, tags_of(world, purpose)): purpose
            for purpose in (Purpose.BACKFILL, Purpose.RESTATEMENT, Purpose.RETRY, Purpose.FRESH)
        }
        submit(world, workspace, {})
        order = []
        while left := leave_queue(world, workspace) - {busy}:
            order += [asked.get(run_id, "by hand") for run_id in left]
            end(world, left)
    assert order == [Purpose.FRESH, Purpose.RETRY, Purpose.RESTATEMENT, "by hand", Purpose.BACKFILL]


def test_what_the_partition_launcher_asks_for_obeys_leases(world: World) -> None:
    [held, *free] = DAYS
    with daemons(world) as workspace:
        run = launch_partitions(world, workspace, DAYS)
        assert leave_queue(world, workspace) == {run.run_id}
    launched = world.instance.get_run_by_id(run.run_id)
    assert launched
    job = world.definitions.resolve_implicit_global_asset_job_def()

    with join("another run"):
        world.here.leases_as(Role.EXTRACTOR).take("another run", [key(held)])
        result = execute_run(InMemoryJob(job), launched, world.instance)

    assert not result.success
    failure = step_failure(result, "google_ads__campaign")
    assert failure.startswith(f"1 of 3 partitions were not published. {held}: run another run has it")
    assert set(world.published()) == world.materialized(RAW) == world.materialized(TABLE) == set(free)
    assert attempted(world, TABLE) == dict.fromkeys(free, "SUCCEEDED") | {held: "FAILED"}
    assert world.here.leases_as(Role.OPERATOR).all_held("google_ads") == set()
