"""Five hundred scattered retries, from the look that finds them due until all are published and followed up."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final

from sqlalchemy import text

from benchmarks.results import Result
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.roles import Role
from gads_assets.emulator.accounts import made_up_accounts
from gads_assets.emulator.server import serve_emulator
from gads_assets.orchestration.control import look, request_of
from gads_assets.orchestration.customers import dagster_instance, sync_accounts
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import Settings, read_settings
from gads_assets.state.rows import keys_json
from gads_assets_tests.ledgers import let_nothing_open

QUERIES: Final = ("campaign", "ad_group", "keyword_view", "search_term_view")
_FIRST_DAY: Final = date(2024, 1, 1)
_DAYS: Final = 365

_DUE: Final = """
    INSERT INTO retry_schedule (source, customer_id, query_name, logical_date, purpose, disposition, next_run_at,
        backoff_strategy, scheduled_at)
    SELECT source, customer_id, query_name, logical_date, 'retry', 'due', now(), 'none', now()
    FROM jsonb_to_recordset(CAST(:keys AS jsonb))
        AS k (source text, customer_id text, query_name text, logical_date date)
"""


def measure(folder: Path, *, jars: Path, retries: int = 500, singly: int = 10, accounts: int = 60) -> list[Result]:
    """Runs are processes of their own, each with a Spark session of its own, as Dagster's daemon launches them."""
    with ExitStack() as opened:
        emulator = opened.enter_context(serve_emulator(home=folder / "emulator", accounts=made_up_accounts(accounts)))
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("GADS_", "DAGSTER_"))},
            "GADS_HOME": str(folder),
            "GADS_SPARK_JARS": str(jars),
            "GADS_GOOGLE_ADS_ENDPOINT": emulator.endpoint,
        }
        settings = read_settings(environment)
        with Workplace(settings) as here:
            sync_accounts(here, now=datetime.now(UTC), closes_most=True)
            keys = _scattered(here, retries + singly)
            # What opens while this is measured would be measured too.
            let_nothing_open(here.engine_as(Role.OPERATOR), here.catalog.queries)
            together, runs = _retried(settings, environment, keys[:retries])
            apart, single_runs = _retried(replace(settings, batch_partitions=1), environment, keys[retries:])
    assert single_runs == singly
    return [
        Result(
            name="scattered_retries",
            unit="s",
            ours=together,
            peer=f"{retries} runs of one partition, extrapolated from {singly}",
            peer_value=apart / singly * retries,
            goal=0.05,
        ),
        Result(
            name="scattered_retries_runs", unit="runs", ours=runs, peer="as many as are allowed", peer_value=10, goal=1
        ),
    ]


def _scattered(here: Workplace, count: int) -> list[PartitionKey]:
    """All different, over all customers, queries and days of a year."""
    customers = [account.customer_id for account in here.customers_as(Role.OPERATOR).customers()]
    chance = Random(8)  # noqa: S311  # the same ones in every round
    found: dict[PartitionKey, None] = {}
    while len(found) < count:
        key = PartitionKey(
            source=here.catalog.source,
            customer_id=CustomerId(chance.choice(customers)),
            query_name=chance.choice(QUERIES),
            logical_date=_FIRST_DAY + timedelta(days=chance.randrange(_DAYS)),
        )
        found[key] = None
    return list(found)


def _retried(settings: Settings, environment: dict[str, str], keys: Sequence[PartitionKey]) -> tuple[float, int]:
    """Seconds, and how many runs it took."""
    with Workplace(settings) as here, dagster_instance(here) as instance:
        with here.engine_as(Role.OPERATOR).begin() as connection:
            connection.execute(text(_DUE), {"keys": keys_json(keys)})
        started, runs = time.perf_counter(), 0
        while requests := [request_of(here.catalog, batch) for batch in look(here, instance).requests]:
            for request in requests:
                asked = {
                    "run_key": request.run_key,
                    "assets": [list(asset.path) for asset in request.asset_selection or ()],
                    "tags": dict(request.tags),
                }
                subprocess.run(
                    [sys.executable, "-m", "benchmarks.run_request"],
                    input=json.dumps(asked).encode(),
                    env=environment,
                    check=True,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                runs += 1
        taken = time.perf_counter() - started
        published = here.store_as(Role.CONSUMER).publishable(keys)
        assert len(published) == len(keys), "some were not published, so this measured something else"
        assert here.schedule_as(Role.OPERATOR).open_batches() == []
    return taken, runs
