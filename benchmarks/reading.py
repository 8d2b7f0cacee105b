"""Published rows read through the pointers, by Spark and by delta-rs, each beside itself reading the same files
without them."""

from statistics import median
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from benchmarks.results import Result
from benchmarks.timing import in_turns
from benchmarks.workbench import QUERY, Workbench
from gads_assets.domain.rectangles import MOST_PARTITIONS
from gads_assets.warehouse.arrow import read_published
from gads_assets.warehouse.delta_tables import open_table
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.reading import published_rows
from gads_assets.warehouse.selection import EVERYTHING, Selection

_WAREHOUSE: Final = "reading"
_MONTH: Final = 30


def measure_one_customer_month(
    bench: Workbench, *, partitions: int = 3000, rows: int = 200, warm_up: int = 10, rounds: int = 11
) -> list[Result]:
    keys = sorted(run.manifest.key for run in bench.batch(partitions, rows=rows))
    customer = keys[len(keys) // 2].customer_id
    days = [key.logical_date for key in keys if key.customer_id == customer][:_MONTH]
    return _measure(
        bench,
        "read_one_customer_month",
        Selection(customers=[customer], days=days),
        f"customer_id = '{customer}' AND logical_date BETWEEN DATE '{days[0]}' AND DATE '{days[-1]}'",
        (pc.field("customer_id") == customer)
        & (pc.field("logical_date") >= days[0])
        & (pc.field("logical_date") <= days[-1]),
        partitions=partitions,
        rows=rows,
        warm_up=warm_up,
        rounds=rounds,
    )


def measure_everything(
    bench: Workbench, *, partitions: int = 3000, rows: int = 200, warm_up: int = 3, rounds: int = 5
) -> list[Result]:
    return _measure(
        bench,
        "read_everything",
        EVERYTHING,
        "true",
        None,
        partitions=partitions,
        rows=rows,
        warm_up=warm_up,
        rounds=rounds,
    )


def _measure(
    bench: Workbench,
    name: str,
    selection: Selection,
    condition: str,
    expression: pc.Expression | None,
    *,
    partitions: int,
    rows: int,
    warm_up: int,
    rounds: int,
) -> list[Result]:
    """`condition` and `expression` say what `selection` does, to whoever knows no pointers."""
    layout = _published(bench, partitions, rows)
    files = layout.stage(QUERY, bench.schema.version)

    def through_pointers() -> DataFrame:
        return published_rows(bench.spark, layout, bench.catalog, QUERY, selection)

    def without_pointers() -> DataFrame:
        return bench.spark.read.format("delta").load(files).where(condition)

    def through_pointers_in_arrow() -> pa.Table:
        return read_published(layout, bench.catalog, QUERY, selection)

    def without_pointers_in_arrow() -> pa.Table:
        return open_table(files).to_pyarrow_dataset().to_table(filter=expression)

    counts = {
        through_pointers().count(),
        without_pointers().count(),
        through_pointers_in_arrow().num_rows,
        without_pointers_in_arrow().num_rows,
    }
    if len(counts) != 1:
        raise AssertionError(f"{counts} rows were read, so this measured something else")
    ours, peer, ours_in_arrow, peer_in_arrow = in_turns(
        lambda _: _read(through_pointers()),
        lambda _: _read(without_pointers()),
        lambda _: through_pointers_in_arrow(),
        lambda _: without_pointers_in_arrow(),
        warm_up=warm_up,
        rounds=rounds,
    )
    return [
        Result(
            name=name,
            unit="ms",
            ours=median(ours),
            peer="Spark reading the same files without the pointers",
            peer_value=median(peer),
            goal=1.4,
        ),
        Result(
            name=f"{name}_delta_rs",
            unit="ms",
            ours=median(ours_in_arrow),
            peer="delta-rs reading the same files without the pointers",
            peer_value=median(peer_in_arrow),
        ),
    ]


def _published(bench: Workbench, partitions: int, rows: int) -> WarehouseLayout:
    """As runs of the default size publish them; those that are published already are left alone."""
    batch, publisher = bench.batch(partitions, rows=rows), bench.publisher(_WAREHOUSE)
    for start in range(0, len(batch), MOST_PARTITIONS):
        publisher.publish(QUERY, [run.authority for run in batch[start : start + MOST_PARTITIONS]])
    return publisher.layout


def _read(rows: DataFrame) -> None:
    """Every column of every row, and nothing done with them."""
    rows.write.format("noop").mode("overwrite").save()
