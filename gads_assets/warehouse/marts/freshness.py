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

_RUN: Final = ["customer_id", "logical_date", "run_id", "schema_version"]

_LOADS: Final = pa.schema(
    [
        ("customer_id", pa.string()),
        ("logical_date", pa.date32()),
        ("run_id", pa.string()),
        ("schema_version", pa.string()),
        ("loaded_at", pa.timestamp("us", tz="UTC")),
    ]
)

_PUBLISHED: Final = pa.schema(
    [
        ("customer_id", pa.string()),
        ("query_name", pa.string()),
        ("first_day", pa.date32()),
        ("last_day", pa.date32()),
        ("days_published", pa.int64()),
        ("rows_published", pa.int64()),
        ("last_loaded_at", pa.timestamp("us", tz="UTC")),
        ("last_day_loaded_at", pa.timestamp("us", tz="UTC")),
        ("last_day_run_id", pa.string()),
        ("last_day_schema_version", pa.string()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class FreshnessInputs:
    """Of each query one look at the pointers, and then at the load records: what was loaded between the two is not
    shown."""

    customers: Sequence[CustomerId]
    published: pa.Table
    """A row for each customer and query of which something is."""
    versions: Mapping[str, int]
    """Of the pointer tables; -1 where nothing was published yet."""


def take_inputs(
    layout: WarehouseLayout, catalog: Catalog, store: StateStore, customers: Sequence[CustomerId]
) -> FreshnessInputs:
    """Raises ReadError where a query cannot be read whole.

    Summed up here and not by Spark: to hand it a hundred thousand pointers takes longer than to join them.
    """
    published, versions = [_PUBLISHED.empty_table()], {}
    for name in catalog.queries:
        snapshot = take_snapshot(layout, catalog, name, Selection(customers=customers))
        versions[name] = snapshot.version
        if snapshot.pointers.num_rows:
            loads = _table(store.load_times(name, customers, source=catalog.source))
            published.append(_summed_up(snapshot.pointers.join(loads, _RUN, join_type="left outer"), name))
    return FreshnessInputs(customers=customers, published=pa.concat_tables(published), versions=versions)


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
    rows = arrow_frame(spark, asked).join(arrow_frame(spark, inputs.published), ["customer_id", "query_name"], "left")
    return rows.withColumns(
        {
            "days_missing": F.expr("datediff(last_day, first_day) + 1 - days_published").cast("bigint"),
            "refreshed_at": F.lit(now),
        }
    ).na.fill(0, ["days_published", "days_missing", "rows_published"])


def _table(rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(_LOADS)
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, _LOADS, strict=True)], schema=_LOADS
    )


def _summed_up(shown: pa.Table, query_name: str) -> pa.Table:
    sums = shown.group_by("customer_id").aggregate(
        [
            ("logical_date", "min"),
            ("logical_date", "max"),
            ("logical_date", "count"),
            ("record_count", "sum"),
            ("loaded_at", "max"),
        ]
    )
    last = ["customer_id", "logical_date"]
    found = sums.join(shown, ["customer_id", "logical_date_max"], last, join_type="inner")
    names = {
        "logical_date_min": "first_day",
        "logical_date_max": "last_day",
        "logical_date_count": "days_published",
        "record_count_sum": "rows_published",
        "loaded_at_max": "last_loaded_at",
        "loaded_at": "last_day_loaded_at",
        "run_id": "last_day_run_id",
        "schema_version": "last_day_schema_version",
    }
    query = pa.repeat(pa.scalar(query_name, pa.string()), found.num_rows)
    return found.rename_columns(names).append_column("query_name", query).select(_PUBLISHED.names).cast(_PUBLISHED)
