"""Dagster's daemon with nobody there: what fails at first, is killed or cancelled, is published in the end."""

import os
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import dagster as dg
import pytest
import yaml
from dagster_graphql import DagsterGraphQLClient
from sqlalchemy import text

from gads_assets import definitions
from gads_assets.catalog.loading import PACKAGED_CATALOG
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.roles import Role
from gads_assets.emulator.accounts import made_up_accounts
from gads_assets.emulator.faults import parse_faults
from gads_assets.emulator.server import serve_emulator
from gads_assets.orchestration.customers import dagster_instance
from gads_assets.orchestration.killed_runs import ENDED
from gads_assets.orchestration.runs import BATCH
from gads_assets.orchestration.workplace import Workplace
from gads_assets_tests.acceptance.browser import serve_page
from gads_assets_tests.acceptance.commands import Home
from gads_assets_tests.worlds import World, attempted

QUERIES: Final = ("campaign", "ad_group")
ACCOUNTS: Final = 12
TROUBLES: Final = ("transient", "internal", "midstream_break")
_PATIENCE: Final = 540.0


def write_catalog(folder: Path) -> Path:
    """Two of the packaged queries, with waits that a test can wait for."""
    shutil.copytree(PACKAGED_CATALOG.parent / "schemas", folder / "schemas")
    document = yaml.safe_load(PACKAGED_CATALOG.read_text(encoding="utf-8"))
    document["queries"] = {name: document["queries"][name] | {"retry": {"backoff_minutes": [1]}} for name in QUERIES}
    path = folder / "google_apis.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what}: it did not come"
        time.sleep(0.5)


@pytest.mark.timeout(1_200)  # four runs, one after the other, each after a wait of the control plane's
def test_what_fails_at_first_is_killed_or_cancelled_heals_without_a_person(tmp_path: Path) -> None:
    """Of half of the customers the first attempts fail; the first run is killed with -9, and the next one is cancelled
    through Dagster's page."""
    folder = tmp_path / "home"
    clients = [account for account in made_up_accounts(ACCOUNTS) if not account.manager and account.status == "ENABLED"]
    troubled = [client.customer_id for client in clients[: len(clients) // 2]]
    faults = "; ".join(
        f"{TROUBLES[number % 3]}@{customer}/{query}/*:3"
        for number, customer in enumerate(troubled)
        for query in QUERIES
    )
    (tmp_path / "catalog").mkdir()
    with serve_emulator(
        home=folder / "emulator", accounts=made_up_accounts(ACCOUNTS), faults=parse_faults(faults)
    ) as emulator:
        home = Home(
            path=folder,
            variables={
                "GADS_CATALOG": str(write_catalog(tmp_path / "catalog")),
                "GADS_GOOGLE_ADS_ENDPOINT": emulator.endpoint,
                "GADS_LEASE_SECONDS": "6",
            },
        )
        synchronised = home.gads("customers", "sync")
        assert synchronised.returncode == 0, synchronised.stderr
        with serve_page(home.environment()) as page, Workplace(home.settings) as here:
            customers = here.customers_as(Role.OPERATOR).customers()
            wanted = len(customers) * len(QUERIES)

            with dagster_instance(here) as instance:
                world = World(here=here, instance=instance, definitions=definitions.defs)
                killed = run_at_work(here, instance)
                os.kill(process_of(instance, killed), signal.SIGKILL)
                cancelled = run_at_work(here, instance, after=killed)
                DagsterGraphQLClient("127.0.0.1", port_number=page.port).terminate_run(cancelled.run_id)
                wait_for("the end of a cancelled run", lambda: world.run_status(cancelled.run_id) in ENDED)
                outcomes = {query: attempted(world, dg.AssetKey(["google_ads", query])) for query in QUERIES}
            wait_for("every partition", lambda: len(published(here)) == wanted)
            wait_for("a schedule with nothing left", lambda: scheduled(here) == 0)
            with dagster_instance(here) as instance:
                runs = {run.run_id: run.status for run in instance.get_runs() if BATCH in run.tags}
            failed = failed_at_first(here)
    assert {account.customer_id for account in customers} >= set(troubled)
    assert len(failed) >= 0.3 * wanted, failed
    ended = Counter(runs.values())
    assert runs[killed.run_id] is dg.DagsterRunStatus.FAILURE
    assert runs[cancelled.run_id] is dg.DagsterRunStatus.CANCELED
    assert "CANCELLED" in {outcome for of_query in outcomes.values() for outcome in of_query.values()}
    assert ended[dg.DagsterRunStatus.FAILURE] >= 2  # and that whose first attempts failed
    assert ended[dg.DagsterRunStatus.SUCCESS] >= 1
    assert len(runs) <= 8


def run_at_work(here: Workplace, instance: dg.DagsterInstance, *, after: dg.DagsterRun | None = None) -> dg.DagsterRun:
    """One that has partitions by now, other than `after`."""
    leases = here.leases_as(Role.OPERATOR)
    before = {after.run_id} if after else set()
    seen: set[str] = set()

    def is_seen() -> bool:
        seen.update(set(leases.held(leases.all_held("google_ads")).values()) - before)
        return bool(seen)

    wait_for("a run with partitions", is_seen)
    run = instance.get_run_by_id(seen.pop())
    assert run is not None
    return run


def process_of(instance: dg.DagsterInstance, run: dg.DagsterRun) -> int:
    said = [entry.message for entry in instance.all_logs(run.run_id, dg.DagsterEventType.ENGINE_EVENT)]
    [number] = {found[1] for line in said if (found := re.search(r"Executing steps in process \(pid: (\d+)\)", line))}
    return int(number)


def published(here: Workplace) -> set[PartitionKey]:
    """Successes that readers see."""
    return {key for query in QUERIES for key in here.loader.compare("google_ads", query).shown()}


def failed_at_first(here: Workplace) -> set[tuple[str, str]]:
    """Those whose first attempt that came to an end did not extract them."""
    first = """
        SELECT customer_id, query_name FROM (
            SELECT DISTINCT ON (customer_id, query_name, logical_date) *
            FROM extraction_attempt ORDER BY customer_id, query_name, logical_date, run_seq) AS first
        WHERE outcome = 'failed'
    """
    with here.engine_as(Role.OPERATOR).begin() as connection:
        return {(row.customer_id, row.query_name) for row in connection.execute(text(first))}


def scheduled(here: Workplace) -> int:
    with here.engine_as(Role.OPERATOR).begin() as connection:
        number: int = connection.execute(text("SELECT count(*) FROM retry_schedule")).scalar_one()
        return number
