"""Extraction against an emulator in a process of its own: one long stream, and many customers at 50 ms each."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final

from ulid import ULID

from benchmarks.results import Result
from benchmarks.timing import side_by_side
from gads_assets.catalog.gaql_query import print_gaql
from gads_assets.catalog.loading import load_catalog
from gads_assets.catalog.shapes import for_days
from gads_assets.domain.accounts import Account
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.roles import Role
from gads_assets.extract.accounts import find_accounts
from gads_assets.extract.client import GoogleAdsSource, connect_to_emulator
from gads_assets.extract.customer_days import extract_days
from gads_assets.extract.pacing import Pacer, Uncounted
from gads_assets.extract.partitions import Extractor
from gads_assets.raw.sink import RawSink
from gads_assets.settings import read_settings
from gads_assets.state.connection import open_engine
from gads_assets.state.migration import migrate
from gads_assets.state.operations import OperationsBudget
from gads_assets.state.partition_states import StateStore
from gads_assets.state.server import running_database

_CATALOG: Final = load_catalog(None)
_QUERY: Final = "keyword_view"
_DAY: Final = date(2024, 6, 4)


@dataclass(frozen=True, kw_only=True)
class _Api:
    source: GoogleAdsSource
    accounts: Sequence[Account]


def measure_stream(folder: Path, *, rows: int = 200_000, warm_up: int = 1, rounds: int = 5) -> list[Result]:
    """Rows a second from the stream into a sealed run, beside the client alone, which throws them away."""
    specification = _CATALOG.query(_QUERY)
    gaql = print_gaql(for_days(specification.gaql, specification.shape, _DAY, _DAY))
    sink, numbers = RawSink(str(folder / "raw")), count(1)
    with _emulator(folder, "--fault", f"rows@*/{_QUERY}/*:{rows}") as api:
        account = api.accounts[0]

        def seal(_: int) -> None:
            [run] = extract_days(
                source=api.source,
                sink=sink,
                specification=specification,
                account=account,
                days=[_DAY],
                run_seq=lambda: next(numbers),
                new_run_id=lambda: RunId(str(ULID())),
                now=lambda: datetime.now(UTC),
                code_version="bench",
            )
            if run.record_count != rows:
                raise AssertionError(f"{run.record_count} rows were sealed, so this measured something else")

        def iterate(_: int) -> None:
            seen = 0
            login = account.login_customer_id
            for batch in api.source.stream(account.customer_id, gaql, login_customer_id=login):
                for _row in batch:
                    seen += 1
            if seen != rows:
                raise AssertionError(f"{seen} rows were streamed, so this measured something else")

        taken = side_by_side(seal, iterate, warm_up=warm_up, rounds=rounds)
    return [
        Result(
            name="extract_stream",
            unit="rows/s",
            ours=rows / median(taken.ours) * 1000,
            peer="the bare client iterating the same stream",
            peer_value=rows / median(taken.peer) * 1000,
            goal=0.6,
            better="higher",
        )
    ]


def measure_customers(folder: Path, *, customers: int = 200, rounds: int = 3) -> list[Result]:
    """One query of many customers at the default concurrency, beside one call after the other."""
    specification, days = _CATALOG.query("campaign"), count()
    with (
        _emulator(folder, "--accounts", str(customers), "--latency-ms", "50") as api,
        running_database(folder / "database", None) as url,
    ):
        migrate(url)
        engine = open_engine(url, Role.EXTRACTOR)
        extractor = Extractor(
            source=api.source,
            sink=RawSink(str(folder / "raw")),
            store=StateStore(engine),
            pacer=Pacer(
                budget=OperationsBudget(engine, origin=api.source.origin, allowed=None),
                now=lambda: datetime.now(UTC),
                sleep=time.sleep,
            ),
            new_run_id=lambda: RunId(str(ULID())),
            now=lambda: datetime.now(UTC),
            calls_at_once=read_settings({}).api_calls_at_once,
            estranged=lambda _: (),
        )
        accounts = {account.customer_id: account for account in api.accounts}

        def together(_: int) -> None:
            _sealed(extractor, specification.name, accounts, next(days))

        def one_by_one(_: int) -> None:
            day = next(days)
            for customer_id, account in accounts.items():
                _sealed(extractor, specification.name, {customer_id: account}, day)

        taken = side_by_side(together, one_by_one, warm_up=1, rounds=rounds)
        engine.dispose()
    return [
        Result(
            name="extract_customers",
            unit="ms",
            ours=median(taken.ours),
            peer=f"{len(accounts)} calls one after the other, 50 ms each until it answers",
            peer_value=median(taken.peer),
            goal=1 / 6,
        )
    ]


def _sealed(extractor: Extractor, query: str, accounts: dict[CustomerId, Account], number: int) -> None:
    day = date.fromordinal(_DAY.toordinal() + number)
    keys = [
        PartitionKey(source=_CATALOG.source, customer_id=customer, query_name=query, logical_date=day)
        for customer in accounts
    ]
    extraction = extractor.extract(_CATALOG.query(query), keys, accounts, code_version="bench", dagster_run_id="bench")
    if extraction.failed:
        raise next(iter(extraction.failed.values()))


@contextmanager
def _emulator(folder: Path, *options: str) -> Iterator[_Api]:
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(Path(sys.executable).with_name("gads")), "emulator", "--json", *options]
    environment = {**os.environ, "GADS_HOME": str(folder)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)  # ours
    try:
        said = json.loads(server.stdout.readline() if server.stdout else "")
        login = CustomerId(said["login_customer_id"])
        source = connect_to_emulator(
            said["endpoint"], Path(said["ca_path"]), api_version=_CATALOG.api_version, login_customer_id=login
        )
        pacer = Pacer(budget=Uncounted(), now=lambda: datetime.now(UTC), sleep=time.sleep)
        found = find_accounts(source, login, pacer=pacer)
        yield _Api(source=source, accounts=[each.account for each in found if each.is_enabled])
    finally:
        server.terminate()
        server.wait()
