"""Accepted partitions loaded by Dagster runs of the default size, events and all, beside the loader alone on the same
batches; what storing events takes of it; and runs in which one partition of twenty was rejected."""

import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final, Self
from unittest.mock import patch

import dagster as dg
from pyspark.sql import SparkSession
from sqlalchemy import text

from benchmarks.results import Result
from benchmarks.timing import in_turns
from benchmarks.workbench import QUERY, Workbench, made_rows, numbered_key
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.rectangles import partitions_between, plan_rectangles
from gads_assets.domain.roles import Role
from gads_assets.orchestration.code_location import code_location
from gads_assets.orchestration.customers import dagster_instance
from gads_assets.orchestration.partitions import CUSTOMERS
from gads_assets.orchestration.requested_runs import RunTask, carry_out, customer_order, run_requests
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.state.connection import open_engine
from gads_assets.state.migration import migrate
from gads_assets.state.server import running_database
from gads_assets_tests.ledgers import extraction
from gads_assets_tests.sealed_runs import seal
from gads_assets_tests.worlds import STATUS_URL, SharedSpark

_REJECTED: Final = 20
"""One of so many, in a mixed run."""


def measure(
    bench: Workbench, *, partitions: int = 1000, rows: int = 200, warm_up: int = 1, rounds: int = 3
) -> list[Result]:
    keys = [numbered_key(bench.catalog.source, number) for number in range(2 * partitions + 1)]
    clean, mixed, opening = keys[:partitions], keys[partitions:-1], keys[-1]
    folder = bench.folder / "dagster"
    with (
        running_database(folder / "postgres", None) as url,
        _only_settings(GADS_HOME=str(folder), GADS_DATABASE_URL=url),
        _Home(folder, bench.spark, opening=opening) as home,
    ):
        home.extract_and_judge(keys, rows=rows, rejected=mixed[:: min(_REJECTED, partitions)])
        in_events: list[float] = []
        through_dagster, alone, with_rejected = in_turns(
            lambda number: in_events.append(home.load(clean, number, is_clean=True)),
            lambda _: home.load_alone(clean),
            lambda number: home.load(mixed, number, is_clean=False),
            warm_up=warm_up,
            rounds=rounds,
            before_each=home.forget_loads,
        )
    return [
        Result(
            name="load_through_dagster",
            unit="ms",
            ours=median(through_dagster),
            peer="the loader alone, on the same batches",
            peer_value=median(alone),
            goal=4.0,
        ),
        Result(
            name="load_through_dagster_events",
            unit="ms",
            ours=median(in_events[warm_up:]),
            peer="all of the same runs",
            peer_value=median(through_dagster),
        ),
        Result(
            name="load_through_dagster_mixed",
            unit="ms",
            ours=median(with_rejected),
            peer="as many partitions, none of them rejected",
            peer_value=median(through_dagster),
            goal=1.5,
        ),
    ]


class _Home:
    """A home with a ledger and a Dagster instance, in which the same partitions are loaded again and again: each time
    into a warehouse of its own, with nothing on record of the time before."""

    def __init__(self, folder: Path, spark: SparkSession, *, opening: PartitionKey) -> None:
        migrate(os.environ["GADS_DATABASE_URL"])
        self._open = ExitStack()
        self._folder, self._spark, self._opening = folder, spark, opening
        self._here = self._open.enter_context(self._workplace("first"))
        self._instance = self._open.enter_context(dagster_instance(self._here))
        self._definitions = code_location(self._here.catalog, SharedSpark(), status_url=STATUS_URL)
        self._numbers = count()
        self._loading = self._open.enter_context(ExitStack())
        self._loader = self._here.loader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def extract_and_judge(self, keys: Sequence[PartitionKey], *, rows: int, rejected: Collection[PartitionKey]) -> None:
        here, schema = self._here, self._here.catalog.query(QUERY).schema
        store = here.store_as(Role.EXTRACTOR)
        attempts = []
        for key, run_seq in zip(keys, store.allocate_run_seqs(len(keys)), strict=True):
            made = made_rows(schema, key, rows)
            made += made[:1] if key in rejected else []
            run = seal(here.sink, key, made, run_seq=run_seq, schema_version=schema.version)
            attempts.append(replace(extraction(), key=key, run_id=run.run_id, run_seq=run_seq))
        store.record_extractions(attempts)
        self._instance.add_dynamic_partitions(CUSTOMERS, sorted({key.customer_id for key in keys}))
        judged = here.validator.validate(keys, dagster_run_id="made").judged
        if {key for key, run in judged.items() if not run.accepted} != set(rejected):
            raise AssertionError(
                "other partitions were rejected than meant to be, so this would measure something else"
            )

    def forget_loads(self) -> None:
        self._loading.close()
        engine = open_engine(self._here.database_url)
        with engine.begin() as connection:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            connection.execute(text("TRUNCATE load_record"))
        engine.dispose()
        self._loader = self._loading.enter_context(self._workplace(f"warehouse_{next(self._numbers)}")).loader
        self._loader.load([self._opening])  # creates the tables

    def load_alone(self, keys: Sequence[PartitionKey]) -> None:
        order = customer_order(self._instance)
        for each in plan_rectangles(dict.fromkeys(keys), order):
            if self._loader.load(sorted(partitions_between(each.first, each.last, order))).refused:
                raise AssertionError("a good partition was refused, so this measured something else")

    def load(self, keys: Sequence[PartitionKey], number: int, *, is_clean: bool) -> float:
        """The milliseconds that were spent on storing events."""
        marks = dict.fromkeys(keys, number)
        with _watched(self._instance) as taken:
            for request in run_requests(self._here.catalog, self._instance, RunTask.LOAD, marks):
                if carry_out(self._definitions, self._instance, request).success != is_clean:
                    raise AssertionError("a run ended otherwise than meant to, so this measured something else")
        return sum(taken)

    def _workplace(self, warehouse: str) -> Workplace:
        """What runs read from the environment, too: they have no other way to know."""
        os.environ["GADS_WAREHOUSE_URI"] = str(self._folder / warehouse)
        return Workplace(read_settings(os.environ), session=lambda: self._spark)


@contextmanager
def _only_settings(**settings: str) -> Iterator[None]:
    """No others: they could point the runs at somebody's real warehouse."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GADS_", "DAGSTER_"))}
    with patch.dict(os.environ, kept | settings, clear=True):
        yield


@contextmanager
def _watched(instance: dg.DagsterInstance) -> Iterator[list[float]]:
    """Milliseconds of each event, or batch of events, that the instance is handed within the block."""
    taken: list[float] = []
    handle = instance.handle_new_event

    def timed(*positional: Any, **named: Any) -> None:
        started = time.perf_counter()
        handle(*positional, **named)
        taken.append((time.perf_counter() - started) * 1000)

    with patch.object(instance, "handle_new_event", timed):
        yield taken
