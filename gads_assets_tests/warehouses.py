"""A warehouse of a test's own, published to and read back by both readers."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from ulid import ULID

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.keys import StageId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.pointer import Authority
from gads_assets.raw.sink import RawSink
from gads_assets.validate.judging import judge_runs
from gads_assets.warehouse.arrow import read_published
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.pointers import pointer_table
from gads_assets.warehouse.publishing import Publisher, Withdrawal
from gads_assets.warehouse.reading import published_rows
from gads_assets.warehouse.selection import EVERYTHING, Selection
from gads_assets_tests.sealed_runs import QUERY, authority, catalog

_MOMENTS = {"commitInfo": "timestamp", "add": "modificationTime", "remove": "deletionTimestamp"}


@dataclass
class Warehouse:
    """A raw sink and a warehouse of a test's own, with what a loader would know from PartitionState."""

    spark: SparkSession
    root: Path
    catalog: Catalog = field(default_factory=catalog)
    versions: Callable[[], int] = field(default_factory=lambda: count(1).__next__)

    @property
    def sink(self) -> RawSink:
        return RawSink(str(self.root / "raw"))

    @property
    def layout(self) -> WarehouseLayout:
        return WarehouseLayout(root=str(self.root / "warehouse"), source="google_ads")

    @property
    def publisher(self) -> Publisher:
        return Publisher(
            session=lambda: self.spark,
            layout=self.layout,
            sink=self.sink,
            catalog=self.catalog,
            new_stage_id=lambda: StageId(str(ULID())),
            now=lambda: datetime.now(UTC),
        )

    def accept(self, *runs: RunManifest) -> list[Authority]:
        verdicts = judge_runs(lambda: self.spark, self.sink, self.catalog, {run.key: run.run_id for run in runs})
        return [authority(run, verdicts.judged[run.key].verdict, state_version=self.versions()) for run in runs]

    def with_spark(self, selection: Selection = EVERYTHING) -> list[dict[str, object]]:
        rows = published_rows(self.spark, self.layout, self.catalog, QUERY, selection)
        return _sorted([line.asDict() for line in rows.collect()])

    def without_jvm(self, selection: Selection = EVERYTHING) -> list[dict[str, object]]:
        return _sorted(read_published(self.layout, self.catalog, QUERY, selection).to_pylist())

    def content(self, selection: Selection = EVERYTHING) -> dict[tuple[str, str], list[tuple[object, object]]]:
        """What both readers agree on: (customer, day) → campaign and clicks."""
        rows = self.with_spark(selection)
        assert rows == self.without_jvm(selection)
        found: dict[tuple[str, str], list[tuple[object, object]]] = {}
        for line in rows:
            place = (str(line["customer_id"]), str(line["logical_date"]))
            found.setdefault(place, []).append((line["campaign_id"], line["metrics_clicks"]))
        return found

    def withdraw(self, shown: Authority) -> None:
        withdrawal = Withdrawal(
            key=shown.key,
            run_id=shown.run_id,
            schema_version=shown.schema_version,
            state_version=self.versions(),
        )
        self.publisher.withdraw(QUERY, [withdrawal])

    def pointer_rows(self) -> pa.Table:
        table = pointer_table(self.layout, QUERY)
        assert table is not None
        return table.to_pyarrow_table()

    def let_pass(self, hours: float) -> None:
        """As if everything in the warehouse had been written so much earlier."""
        for log in (self.root / "warehouse").rglob("_delta_log"):
            let_pass(log.parent, hours)


def let_pass(table: Path, hours: float) -> None:
    """As if a table without checkpoints had been written so much earlier, by every clock that Delta looks at."""
    for checksum in (table / "_delta_log").glob("*.crc"):
        checksum.unlink()
    for file in [path for path in table.rglob("*") if path.is_file()]:
        then = file.stat().st_mtime - hours * 3600
        if file.suffix == ".json":
            actions = [json.loads(line) for line in file.read_text().splitlines()]
            for action in actions:
                for kind, moment in _MOMENTS.items():
                    if kind in action:
                        action[kind][moment] -= int(hours * 3_600_000)
            file.write_text("".join(json.dumps(action) + "\n" for action in actions))
        os.utime(file, (then, then))


def many_pointers(like: pa.Table, generation: int, part: int) -> pa.Table:
    """Of 6,250 partitions, like the first of these; every fifth generation's tombstones among them."""
    number = np.arange(6_250) + part * 6_250
    columns = {name: pa.repeat(like[name][0], len(number)) for name in like.schema.names}
    columns["customer_id"] = pa.array([str(2_000_000_000 + each) for each in number % 125])
    columns["logical_date"] = pa.array([date(2023, 1, 1) + timedelta(days=int(each)) for each in number // 125])
    columns["stage_id"] = pa.array([f"01HZ{generation:04}{each // 500:018}" for each in number])
    columns["state_version"] = pa.array(generation + number % 3, pa.int64())
    columns["status"] = pa.array(["unavailable" if each % 5 == generation else "active" for each in number])
    return pa.table(columns).cast(like.schema)


def _sorted(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda line: (line["customer_id"], line["logical_date"], line["campaign_id"]))
