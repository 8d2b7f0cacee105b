"""Runs that share the API's pool: real `dagster` processes, and an emulator that counts the calls made at once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.instance.config import PoolGranularity
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG
from sqlalchemy import Engine, text

from gads_assets import definitions
from gads_assets.domain.roles import Role
from gads_assets.emulator.accounts import made_up_accounts
from gads_assets.emulator.server import RunningEmulator, serve_emulator
from gads_assets.orchestration.control import look
from gads_assets.orchestration.customers import dagster_instance, register_accounts
from gads_assets.orchestration.dagster_executor import PatientClaims
from gads_assets.orchestration.instance import dagster_environment
from gads_assets.orchestration.presence import join
from gads_assets.orchestration.runs import BATCH
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.state.connection import transaction
from gads_assets_tests.agencies import registered
from gads_assets_tests.databases import end_sessions_with_locks
from gads_assets_tests.ledgers import let_nothing_open, let_pass
from gads_assets_tests.worlds import World, attempted

POOL = "google_ads_api"
DAY, ANOTHER_DAY = "2024-06-01", "2024-06-02"
CALLS_AT_ONCE = 3
PATIENCE = 120.0


def eventually(happened: Callable[[], object], process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert process is None or process.poll() is None, "the run ended before"
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@dataclass
class Agency:
    """A dozen registered customers; `start` is one run that extracts two queries of all of them."""

    home: Path
    here: Workplace
    instance: dg.DagsterInstance
    emulator: RunningEmulator
    environment: dict[str, str]
    customers: list[str]
    runs: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """Of one run that is not disturbed."""
        return 2 * len(self.customers)

    def start(self, day: str = DAY, *, tags: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Of all customers' day, unless tags say otherwise."""
        tags = tags or {
            ASSET_PARTITION_RANGE_START_TAG: f"{self.customers[0]}|{day}",
            ASSET_PARTITION_RANGE_END_TAG: f"{self.customers[-1]}|{day}",
        }
        with self.log(len(self.runs)).open("wb") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "dagster", "job", "execute", "--job", "raw_alone"),
                    *("-m", "gads_assets_tests.integration.orchestration.raw_alone", "--tags", json.dumps(tags)),
                ],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
            )
        self.runs.append(process)
        return process

    def log(self, number: int) -> Path:
        return self.home / f"run-{number}.log"

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        returncode = process.wait(timeout=PATIENCE)
        assert returncode == 0, self.log(self.runs.index(process)).read_text()[-3000:]

    def sealed(self) -> int:
        with transaction(self.here.engine_as(Role.OPERATOR)) as connection:
            statement = text("SELECT count(*) FROM extraction_attempt WHERE outcome = 'sealed'")
            count: int = connection.execute(statement).scalar_one()
            return count

    def places(self) -> dict[str, set[str]]:
        """Who has a place in the pool, and who is in its queue (those who have one among them)."""
        info = self.instance.event_log_storage.get_concurrency_info(POOL)
        return {
            "taken": {slot.run_id for slot in info.claimed_slots},
            "queue": {step.run_id for step in info.pending_steps},
        }

    def take_place(self, run_id: str) -> None:
        storage = self.instance.event_log_storage
        storage.initialize_concurrency_limit_to_default(POOL)
        assert storage.claim_concurrency_slot(POOL, run_id, "google_ads__raw__campaign").is_claimed


@pytest.fixture
def agency(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agency]:
    accounts = registered(account for account in made_up_accounts(12) if account.status == "ENABLED")
    with ExitStack() as held:
        emulator = held.enter_context(
            serve_emulator(home=tmp_path / "emulator", accounts=made_up_accounts(12), latency=0.3)
        )
        variables = {
            "GADS_HOME": str(tmp_path),
            "GADS_DATABASE_URL": database_url,
            "GADS_GOOGLE_ADS_ENDPOINT": emulator.endpoint,
            "GADS_API_CALLS_AT_ONCE": str(CALLS_AT_ONCE),
            "GADS_LEASE_SECONDS": "5",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        settings = read_settings(variables)
        here = held.enter_context(Workplace(settings))
        customers = list(accounts.values())
        register_accounts(here, customers, now=datetime.now(UTC))
        agency = Agency(
            home=tmp_path,
            here=here,
            instance=held.enter_context(dagster_instance(here)),
            emulator=emulator,
            environment={**variables, **dagster_environment(settings, database_url)},
            customers=[account.customer_id for account in customers],
        )
        yield agency
        for process in agency.runs:
            process.kill()
            process.wait()


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
    killed = agency.start()
    eventually(lambda: agency.emulator.operations, killed)
    killed.kill()
    killed.wait()
    [gone] = agency.places()["taken"]

    following = agency.start()

    agency.finish(following)
    assert agency.places() == {"taken": set(), "queue": set()}
    [run] = agency.instance.get_runs(dg.RunsFilter(run_ids=[gone]))
    assert run.status is dg.DagsterRunStatus.STARTED  # as far as Dagster knows
    assert "blocked by limit" not in agency.log(1).read_text()


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
