"""How fresh each query of each customer is: what is published, and when it was loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.keys import CustomerId
from gads_assets.state.partition_states import StateStore
from gads_assets.warehouse.frames import arrow_frame
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.selection import Selection
from gads_assets.warehouse.snapshots import take_snapshot

_RUN: Final = ["customer_id", "logical_date", "query_name", "run_id", "schema_version"]

_LOADS: Final = pa.schema(
    [
        ("customer_id", pa.string()),
        ("logical_date", pa.date32()),
        ("run_id", pa.string()),
        ("schema_version", pa.string()),
        ("loaded_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, kw_only=True)
class FreshnessInputs:
    """One look at each query's pointers, and then at its load records: what was loaded between the two is not shown."""

    customers: Sequence[CustomerId]
    pointers: pa.Table
    loads: pa.Table
    versions: Mapping[str, int]
    """Of the pointer tables; -1 where nothing was published yet."""


def take_inputs(
    layout: WarehouseLayout, catalog: Catalog, store: StateStore, customers: Sequence[CustomerId]
) -> FreshnessInputs:
    """Raises ReadError where a query cannot be read whole."""
    pointers, loads, versions = [], [], {}
    for name in catalog.queries:
        snapshot = take_snapshot(layout, catalog, name, Selection(customers=customers))
        versions[name] = snapshot.version
        pointers.append(_of_query(snapshot.pointers.drop_columns("stage_id"), name))
        columns = zip(*store.load_times(name, customers, source=catalog.source), strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _LOADS, strict=False)]
        loads.append(_of_query(pa.table(arrays, schema=_LOADS) if arrays else _LOADS.empty_table(), name))
    return FreshnessInputs(
        customers=customers, pointers=pa.concat_tables(pointers), loads=pa.concat_tables(loads), versions=versions
    )


def freshness_rows(spark: SparkSession, inputs: FreshnessInputs, *, now: datetime) -> DataFrame:
    """A row for each of the customers and queries, also where nothing is published."""
    asked = pa.table(
        {
            "customer_id": pa.array([each for each in inputs.customers for _ in inputs.versions], pa.string()),
            "query_name": pa.array([name for _ in inputs.customers for name in inputs.versions], pa.string()),
            "pointer_version": pa.array(
                [version for _ in inputs.customers for version in inputs.versions.values()], pa.int64()
            ),
        }
    )
    shown = arrow_frame(spark, inputs.pointers).join(arrow_frame(spark, inputs.loads), _RUN, "left")
    published = shown.groupBy("customer_id", "query_name").agg(
        F.min("logical_date").alias("first_day"),
        F.max("logical_date").alias("last_day"),
        F.count("*").alias("days_published"),
        F.sum("record_count").alias("rows_published"),
        F.max("loaded_at").alias("last_loaded_at"),
        F.max_by("loaded_at", "logical_date").alias("last_day_loaded_at"),
        F.max_by("run_id", "logical_date").alias("last_day_run_id"),
        F.max_by("schema_version", "logical_date").alias("last_day_schema_version"),
    )
    rows = arrow_frame(spark, asked).join(published, ["customer_id", "query_name"], "left")
    return rows.withColumns(
        {
            "days_missing": F.expr("datediff(last_day, first_day) + 1 - days_published").cast("bigint"),
            "refreshed_at": F.lit(now),
        }
    ).na.fill(0, ["days_published", "days_missing", "rows_published"])


def _of_query(rows: pa.Table, query_name: str) -> pa.Table:
    return rows.append_column("query_name", pa.repeat(pa.scalar(query_name, pa.string()), rows.num_rows))
