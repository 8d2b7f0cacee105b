"""Runs that share the API's pool."""

import signal

import dagster as dg
import pytest
from dagster._core.instance.config import PoolGranularity

from gads_assets import definitions
from gads_assets.orchestration.dagster_executor import PatientClaims
from gads_assets.orchestration.presence import join
from gads_assets_tests.databases import end_sessions_with_locks
from gads_assets_tests.integration.orchestration.run_processes import (
    ANOTHER_DAY,
    CALLS_AT_ONCE,
    PATIENCE,
    POOL,
    Agency,
    eventually,
)


def test_whatever_asks_the_api_is_in_its_pool_and_nothing_else() -> None:
    graph = definitions.defs.resolve_asset_graph()
    pools = {key.to_user_string(): graph.get(key).pools or set() for key in graph.get_all_asset_keys()}
    in_pool = {name for name, found in pools.items() if POOL in found}
    assert in_pool == {name for name in pools if "/raw/" in name}
    assert set().union(*pools.values()) == {POOL, "google_ads_spark"}


def test_a_home_has_one_place_in_the_pool_and_a_queue_that_leaves_the_waiting_to_runs(agency: Agency) -> None:
    found = agency.instance.get_concurrency_config()
    assert (found.pool_config.pool_granularity, found.pool_config.default_pool_limit) == (PoolGranularity.OP, 1)
    assert found.run_queue_config is not None
    assert not found.run_queue_config.should_block_op_concurrency_limited_runs
    assert found.run_queue_config.max_concurrent_runs == 2


def test_runs_at_the_same_time_make_no_more_calls_at_once_than_one_alone(agency: Agency) -> None:
    runs = [agency.start(), agency.start(ANOTHER_DAY)]
    for process in runs:
        agency.finish(process)
    assert agency.emulator.operations == agency.sealed() == 2 * agency.calls
    assert agency.emulator.most_calls_at_once == CALLS_AT_ONCE
    assert agency.places() == {"taken": set(), "queue": set()}


def test_a_run_that_finds_no_pool_while_another_opens_it_takes_its_turn(agency: Agency) -> None:
    run = dg.DagsterRun(job_name="raw_alone")
    with PatientClaims(agency.instance, run, lambda _: True) as claims:
        assert claims.get_pool_info(POOL) is None
        agency.take_place("the other")
        assert not claims.claim(POOL, "step")
    assert agency.places() == {"taken": {"the other"}, "queue": {"the other"}}


def test_a_pool_with_two_places_lets_two_runs_extract(agency: Agency) -> None:
    agency.instance.event_log_storage.set_concurrency_slots(POOL, 2)
    runs = [agency.start(), agency.start(ANOTHER_DAY)]
    for process in runs:
        agency.finish(process)
    assert CALLS_AT_ONCE < agency.emulator.most_calls_at_once <= 2 * CALLS_AT_ONCE


def test_a_run_killed_while_it_extracts_keeps_no_place_from_the_next(agency: Agency) -> None:
    """Once its lease has ended: until then it may only have lost its session."""
    killed = agency.start()
    eventually(lambda: agency.emulator.operations, killed)
    killed.kill()
    killed.wait()
    [gone] = agency.places()["taken"]
    sealed = agency.sealed()

    following = agency.start()

    agency.finish(following)
    assert agency.sealed() - sealed == agency.calls
    assert agency.places() == {"taken": set(), "queue": set()}
    [run] = agency.instance.get_runs(dg.RunsFilter(run_ids=[gone]))
    assert run.status is dg.DagsterRunStatus.STARTED  # as far as Dagster knows


def test_a_run_that_lost_its_session_as_the_database_restarted_keeps_its_place(
    agency: Agency, database_url: str
) -> None:
    run = dg.DagsterRun(job_name="raw_alone")
    with join("extracting"), join("waiting") as is_present:
        agency.take_place("extracting")
        end_sessions_with_locks(database_url)
        with PatientClaims(agency.instance, run, is_present) as claims:
            assert not claims.claim(POOL, "step")
        assert agency.places()["taken"] == {"extracting"}
    with join("another") as is_present:
        assert not is_present("extracting")


def test_a_run_that_waits_goes_on_when_those_before_it_are_killed(agency: Agency) -> None:
    """The one that extracts and one that waits in front: the place would be given to it next."""
    extracting, in_front = "extracting", "in front"
    with join(extracting), join(in_front):
        agency.take_place(extracting)
        assert not agency.instance.event_log_storage.claim_concurrency_slot(POOL, in_front, "step").is_claimed
        waiting = agency.start()
        eventually(lambda: len(agency.places()["queue"]) == 3, waiting)
        eventually(lambda: "Step blocked by limit for pool google_ads_api" in agency.log(0).read_text(), waiting)
        assert agency.emulator.operations == 0
        assert agency.places()["taken"] == {extracting}

    agency.finish(waiting)
    assert agency.emulator.operations == agency.calls
    assert agency.places() == {"taken": set(), "queue": set()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_waits_can_be_interrupted_and_leaves_the_queue(agency: Agency, number: signal.Signals) -> None:
    with join("extracting"):
        agency.take_place("extracting")
        waiting = agency.start()
        eventually(lambda: "Step blocked by limit" in agency.log(0).read_text(), waiting)

        waiting.send_signal(number)

        assert waiting.wait(timeout=PATIENCE) != 0
        assert agency.places() == {"taken": {"extracting"}, "queue": {"extracting"}}
    [run] = agency.instance.get_runs()
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert agency.emulator.operations == 0
