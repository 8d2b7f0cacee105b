"""What the measurements of publishing share: a warm session, judged runs, a publisher and its peer."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from ulid import ULID

from gads_assets.catalog.loading import load_catalog
from gads_assets.catalog.specification import Catalog, Column, QuerySchema
from gads_assets.domain.keys import CustomerId, PartitionKey, StageId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.pointer import Authority
from gads_assets.orchestration.workplace import open_session
from gads_assets.raw.frames import FILE, MALFORMED, sealed_rows
from gads_assets.raw.sink import RawSink
from gads_assets.settings import Settings
from gads_assets.validate.judging import judge_runs
from gads_assets.warehouse.java import find_jars
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.publishing import Publisher
from gads_assets_tests.sealed_runs import authority, seal

QUERY: Final = "keyword_view"
DAYS: Final = 100
_FIRST_DAY: Final = date(2024, 1, 1)


@dataclass(frozen=True, kw_only=True)
class JudgedRun:
    manifest: RunManifest
    authority: Authority


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """Everything it makes lies in `folder`."""

    spark: SparkSession
    folder: Path
    catalog: Catalog = field(default_factory=lambda: load_catalog(None))
    _numbers: Iterator[int] = field(default_factory=count)
    _batches: dict[tuple[int, int], list[JudgedRun]] = field(default_factory=dict)

    @property
    def sink(self) -> RawSink:
        return RawSink(str(self.folder / "raw"))

    @property
    def schema(self) -> QuerySchema:
        return self.catalog.query(QUERY).schema

    def sealed_runs(self, partitions: int, *, rows: int) -> list[RunManifest]:
        """Of new partitions, a hundred days a customer."""
        keys = [numbered_key(self.catalog.source, next(self._numbers)) for _ in range(partitions)]
        return self.seal(keys, rows=rows)

    def seal(self, keys: Iterable[PartitionKey], *, rows: int) -> list[RunManifest]:
        version = self.schema.version
        return [seal(self.sink, key, made_rows(self.schema, key, rows), schema_version=version) for key in keys]

    def judged_runs(self, partitions: int, *, rows: int) -> list[JudgedRun]:
        """Sealed and accepted."""
        return self.judge(self.sealed_runs(partitions, rows=rows))

    def judge(self, runs: Sequence[RunManifest]) -> list[JudgedRun]:
        verdicts = judge_runs(lambda: self.spark, self.sink, self.catalog, {run.key: run.run_id for run in runs})
        return [JudgedRun(manifest=run, authority=authority(run, verdicts.judged[run.key].verdict)) for run in runs]

    def batch(self, partitions: int, *, rows: int) -> list[JudgedRun]:
        """The same ones to everyone who asks: three thousand take longer to make than to measure."""
        if (partitions, rows) not in self._batches:
            self._batches[partitions, rows] = self.judged_runs(partitions, rows=rows)
        return self._batches[partitions, rows]

    def layout(self, warehouse: str) -> WarehouseLayout:
        return WarehouseLayout(root=str(self.folder / warehouse), source=self.catalog.source)

    def publisher(self, warehouse: str) -> Publisher:
        return Publisher(
            session=lambda: self.spark,
            layout=self.layout(warehouse),
            sink=self.sink,
            catalog=self.catalog,
            new_stage_id=lambda: StageId(str(ULID())),
            now=lambda: datetime.now(UTC),
        )

    def append_plainly(self, runs: Sequence[JudgedRun], table: str) -> None:
        """The peer: the same rows from the same files, appended to a Delta table that promises nothing."""
        uris = [uri for run in runs for uri in self.sink.payload_uris(run.manifest)]
        rows = sealed_rows(self.spark, uris, self.schema).drop(FILE, MALFORMED)
        rows.write.format("delta").mode("append").save(str(self.folder / table))


@contextmanager
def open_workbench(settings: Settings, folder: Path) -> Iterator[Workbench]:
    """With a session of its own, on the JARs that settings have."""
    spark = open_session(replace(settings, home=folder, spark_jars=jar_folder(settings)))
    try:
        yield Workbench(spark=spark, folder=folder)
    finally:
        spark.stop()


def jar_folder(settings: Settings) -> Path:
    return find_jars(given=settings.spark_jars, kept=settings.spark_home / "jars")[0].parent


def numbered_key(source: str, number: int) -> PartitionKey:
    """A hundred days a customer."""
    return PartitionKey(
        source=source,
        customer_id=CustomerId(f"{1_000_000_000 + number // DAYS}"),
        query_name=QUERY,
        logical_date=_FIRST_DAY + timedelta(days=number % DAYS),
    )


def made_rows(schema: QuerySchema, key: PartitionKey, rows: int) -> list[dict[str, object]]:
    return [{column.name: _value(column, key, number) for column in schema.columns} for number in range(rows)]


def _value(column: Column, key: PartitionKey, number: int) -> object:
    if column.field == "customer.id":
        return int(key.customer_id)
    if column.field == "segments.date":
        return key.logical_date.isoformat()
    return {"bigint": number, "int": number, "double": number / 4, "boolean": number % 2 == 0}.get(
        column.type, f"{column.field} {number}"
    )
