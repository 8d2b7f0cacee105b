"""A run and its process: cancelled by a signal, or started twice."""

import signal
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._grpc.types import ExecuteRunArgs
from sqlalchemy import Engine

from gads_assets import definitions
from gads_assets.domain.roles import Role
from gads_assets.orchestration.control import look
from gads_assets.orchestration.living import present
from gads_assets.orchestration.presence import join
from gads_assets.orchestration.runs import BATCH
from gads_assets_tests.databases import end_sessions_with_locks
from gads_assets_tests.integration.orchestration import raw_alone
from gads_assets_tests.integration.orchestration.run_processes import DAY, PATIENCE, Agency, eventually
from gads_assets_tests.ledgers import let_nothing_open, let_pass
from gads_assets_tests.worlds import World, attempted, key


def made_run(agency: Agency) -> tuple[dg.DagsterRun, list[str]]:
    """A run that was taken from the queue, and the command that Dagster's launcher starts it with."""
    repository = ReconstructableRepository.for_module(raw_alone.__name__, "defs", str(Path.cwd()))
    job = repository.get_reconstructable_job("raw_alone")
    run = agency.instance.create_run_for_job(
        job.get_definition(),
        status=dg.DagsterRunStatus.STARTING,
        tags=agency.tags_of(DAY),
        job_code_origin=job.get_python_origin(),
    )
    arguments = ExecuteRunArgs(
        job_origin=job.get_python_origin(), run_id=run.run_id, instance_ref=agency.instance.get_ref()
    )
    return run, [sys.executable, "-m", *arguments.get_command_args()]


def said(agency: Agency, run: dg.DagsterRun) -> str:
    return "\n".join(entry.message for entry in agency.instance.all_logs(run.run_id, dg.DagsterEventType.ENGINE_EVENT))


def test_a_run_that_two_daemons_started_at_once_is_carried_out_by_one_process(agency: Agency) -> None:
    _, command = made_run(agency)
    for process in [agency.start_process(command), agency.start_process(command)]:
        agency.finish(process)

    assert agency.emulator.operations == agency.sealed() == agency.calls
    assert agency.instance.get_runs()[0].status is dg.DagsterRunStatus.SUCCESS
    assert agency.here.leases_as(Role.OPERATOR).all_held("google_ads") == set()


def test_a_second_process_of_a_run_that_dagster_did_not_notice_leaves_everything_to_the_first(agency: Agency) -> None:
    run, command = made_run(agency)
    leases = agency.here.leases_as(Role.EXTRACTOR)
    with join(run.run_id):
        leases.take(run.run_id, [key(f"{agency.customers[0]}|{DAY}")])
        agency.finish(agency.start_process(command))
        assert f"process of run {run.run_id} is there already" in said(agency, run)
        assert agency.emulator.operations == agency.sealed() == 0
        assert agency.instance.get_runs()[0].status is dg.DagsterRunStatus.STARTED
        assert len(leases.all_held("google_ads")) == 1


def test_a_run_that_was_away_for_so_long_that_another_has_its_partitions_ends(
    agency: Agency, database_url: str
) -> None:
    """Its machine sleeps, its session is cut, its lease expires, and the next run takes over; then it wakes."""
    process = agency.start()
    eventually(lambda: agency.sealed() >= 1, process)
    [run] = agency.instance.get_runs()
    process.send_signal(signal.SIGSTOP)
    end_sessions_with_locks(database_url)
    leases = agency.here.leases_as(Role.EXTRACTOR)
    eventually(lambda: leases.living([run.run_id]) == set())
    wanted = [replace(key(f"{agency.customers[-1]}|{DAY}"), query_name=query) for query in ("campaign", "ad_group")]
    with join("another"):
        assert leases.take("another", wanted) == {}
        process.send_signal(signal.SIGCONT)
        process.wait(timeout=PATIENCE)
        assert leases.held(wanted) == dict.fromkeys(wanted, "another")

    assert agency.instance.get_runs()[0].status is dg.DagsterRunStatus.FAILURE
    assert "showed no sign of life for too long" in agency.log(0).read_text()
    assert agency.emulator.operations < agency.calls
    assert leases.living([run.run_id]) == set()


def test_a_run_that_lost_its_session_is_present_again_before_its_lease_has_ended(
    agency: Agency, database_url: str
) -> None:
    process = agency.start()
    eventually(lambda: agency.sealed() >= 1, process)
    [run] = agency.instance.get_runs()
    records = agency.here.records_as(Role.OPERATOR)
    end_sessions_with_locks(database_url)
    eventually(lambda: present(records, [run.run_id]), process)
    agency.finish(process)
    assert agency.emulator.operations == agency.sealed() == agency.calls


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_batch_that_is_cancelled_while_it_extracts_lets_go_of_everything_and_is_due_again(
    agency: Agency, engine: Engine, number: signal.Signals
) -> None:
    world = World(here=agency.here, instance=agency.instance, definitions=definitions.defs)
    let_nothing_open(engine, agency.here.catalog.queries)
    labels = {f"{customer}|{DAY}" for customer in agency.customers}
    process = agency.start(tags={BATCH: world.make_batch([*labels], queries=["campaign", "ad_group"])})
    eventually(lambda: agency.sealed() >= 2, process)
    [run] = agency.instance.get_runs()

    # What Dagster's launcher does when somebody terminates the run.
    agency.instance.report_run_canceling(run)
    process.send_signal(number)
    process.wait(timeout=PATIENCE)

    assert world.run_status(run.run_id) is dg.DagsterRunStatus.CANCELED
    assert agency.emulator.operations < agency.calls
    for query in ("campaign", "ad_group"):
        assert attempted(world, dg.AssetKey(["google_ads", "raw", query])) == dict.fromkeys(labels, "CANCELLED")
    assert agency.here.leases_as(Role.OPERATOR).living([run.run_id]) == set()
    assert agency.here.leases_as(Role.OPERATOR).all_held("google_ads") == set()
    assert agency.places() == {"taken": set(), "queue": set()}
    sealed = agency.sealed()
    assert look(agency.here, agency.instance).requests == []
    let_pass(engine, timedelta(minutes=31))
    due = sum(batch.partitions for batch in look(agency.here, agency.instance).requests)
    assert agency.calls - sealed <= due <= agency.calls
