"""Launching a rectangle of customers × days as one Dagster run, the way a person would from a shell."""

import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import dagster as dg

from gads_assets.domain.keys import PartitionKey
from gads_assets.orchestration.customers import dagster_instance
from gads_assets.orchestration.instance import dagster_environment
from gads_assets.orchestration.keys import raw_key, table_key
from gads_assets.orchestration.partitions import CUSTOMERS
from gads_assets.orchestration.runs import run_failure, step_failure
from gads_assets.orchestration.workplace import Workplace


def start_run(
    here: Workplace, keys: Sequence[PartitionKey], *, log: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Starts `dagster asset materialize` over the smallest rectangle that holds these partitions.

    Every query among the keys is extracted, judged and published in the one run. What Dagster prints goes to `log`.
    """
    queries = sorted({key.query_name for key in keys})
    assets = [make(here.catalog, query).to_user_string() for query in queries for make in (raw_key, table_key)]
    days = [key.logical_date for key in keys]
    customers = _in_dagster_order(here, {key.customer_id for key in keys})
    first, last = f"{customers[0]}|{min(days)}", f"{customers[-1]}|{max(days)}"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "dagster", "asset", "materialize"),
                *("--select", ",".join(assets), "--partition-range", f"{first}...{last}"),
                *("-m", "gads_assets.definitions"),
            ],
            env={**os.environ, **dagster_environment(here.settings, here.database_url), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def failure_reasons(here: Workplace, *, since: datetime) -> list[str]:
    """What the failed steps of the newest run said, in their order, or the run itself where it came to none; empty when
    no run was created since then."""
    failures = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    with dagster_instance(here) as instance:
        runs = instance.get_run_records(dg.RunsFilter(created_after=since), limit=1)
        entries = instance.all_logs(runs[0].dagster_run.run_id, failures) if runs else []
    events = [entry.get_dagster_event() for entry in entries]
    of_steps = [step_failure(event) for event in events if event.is_step_failure]
    return of_steps or [run_failure(event) for event in events]


def _in_dagster_order(here: Workplace, customers: set[str]) -> list[str]:
    """Dagster reads a range of customers in the order in which they were registered."""
    with dagster_instance(here) as instance:
        return [customer for customer in instance.get_dynamic_partitions(CUSTOMERS) if customer in customers]
