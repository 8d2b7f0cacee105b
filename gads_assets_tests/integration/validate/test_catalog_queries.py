"""Every query of the catalog, from the emulated API to its verdict."""

from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from ulid import ULID

from gads_assets.catalog.loading import load_catalog
from gads_assets.catalog.shapes import Shape
from gads_assets.domain.accounts import day_opens_at
from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.verdict import Rule
from gads_assets.emulator.accounts import made_up_accounts
from gads_assets.emulator.faults import parse_faults
from gads_assets.emulator.server import serve_emulator
from gads_assets.extract.client import GoogleAdsSource
from gads_assets.extract.customer_days import extract_days
from gads_assets.raw.sink import RawSink
from gads_assets.validate.judging import judge_runs
from gads_assets_tests.agencies import connected, registered

CATALOG = load_catalog(None)
NOW = datetime(2024, 7, 1, 12, tzinfo=UTC)
DAYS = [date(2024, 6, 27) + timedelta(days=offset) for offset in range(3)]
AGENCY = made_up_accounts(8)
ACCOUNTS = registered(AGENCY)


def _sealed(source: GoogleAdsSource, sink: RawSink) -> dict[PartitionKey, RunManifest]:
    numbers = count(1)
    return {
        run.key: run
        for query in CATALOG.queries.values()
        for account in ACCOUNTS.values()
        for run in extract_days(
            source=source,
            sink=sink,
            specification=query,
            account=account,
            days=DAYS[-1:] if query.shape is Shape.SNAPSHOT else DAYS,
            run_seq=lambda: next(numbers),
            new_run_id=lambda: RunId(str(ULID())),
            now=partial(day_opens_at, account.time_zone, DAYS[-1], query.settling_delay),
            code_version="test",
        )
    }


@pytest.mark.parametrize("fault", ["", "duplicated_rows@*/*/2024-06-28", "wrong_customer_rows@*/*/2024-06-28"])
def test_what_the_api_gives_is_accepted_and_what_it_spoils_is_not(
    spark: SparkSession, tmp_path: Path, fault: str
) -> None:
    sink = RawSink(str(tmp_path / "raw"))
    with serve_emulator(home=tmp_path, accounts=AGENCY, faults=parse_faults(fault), today=NOW.date()) as running:
        source = connected(running, api_version=CATALOG.api_version)
        runs = _sealed(source, sink)

    verdicts = judge_runs(lambda: spark, sink, CATALOG, {key: run.run_id for key, run in runs.items()}).judged

    spoilt = {key for key, run in runs.items() if fault and run.record_count and key.logical_date == DAYS[1]}
    rejected = {key: judged.verdict.error_message for key, judged in verdicts.items() if not judged.verdict.accepted}
    snapshots = {key for key in runs if CATALOG.query(key.query_name).shape is Shape.SNAPSHOT}
    assert set(rejected) - snapshots == spoilt, rejected
    # Rows of no day are struck by faults of any: a snapshot is spoilt too.
    assert bool(set(rejected) & snapshots) == bool(fault)
    rows = {
        name: sum(run.record_count for key, run in runs.items() if key.query_name == name) for name in CATALOG.queries
    }
    assert all(rows.values()), rows
    if not fault:
        warned = {
            finding.rule
            for judged in verdicts.values()
            for finding in judged.verdict.findings
            if not finding.passed and finding.rule is Rule.SPEND
        }
        assert warned == set(), "finer spends never exceed their campaign's"
