"""Account-days across queries: what each query counted of an account's day, in the account's currency."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.keys import PartitionKey
from gads_assets.warehouse.columns import schema_versions
from gads_assets.warehouse.frames import arrow_frame
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.marts.tables import ACCOUNT_DAY, METRICS, Metric
from gads_assets.warehouse.reading import rows_of
from gads_assets.warehouse.selection import Selection
from gads_assets.warehouse.snapshots import Snapshot, take_snapshot

_CURRENCY: Final = "customer.currency_code"

LINEAGE: Final = pa.schema(
    [
        ("customer_id", pa.string()),
        ("logical_date", pa.date32()),
        ("query_name", pa.string()),
        ("run_id", pa.string()),
        ("schema_version", pa.string()),
    ]
)
"""Which run of a query an account-day is made of."""


_NOTHING: Final = LINEAGE.append(pa.field("row_count", pa.int64())).empty_table()


@dataclass(frozen=True, kw_only=True)
class AccountDayInputs:
    """One look at each query, and everything that the account-days are made of."""

    catalog: Catalog
    performance: Mapping[str, Snapshot]
    """The partitions of these account-days, by query."""
    currency: Sequence[Snapshot]
    """Of each customer one partition whose rows tell the currency, in whichever query has one."""

    @property
    def lineage(self) -> pa.Table:
        """A row for each partition that is published, also for those without rows; beside `LINEAGE` its row_count."""
        return pa.concat_tables([_NOTHING, *(_made_of(each) for each in self.performance.values())])


def performance_queries(catalog: Catalog) -> list[str]:
    """Those that select one of the metrics, in any version: what is published of an older one is shown too."""
    return [name for name in catalog.queries if any(_versions(catalog, name, metric.field) for metric in METRICS)]


def take_inputs(layout: WarehouseLayout, catalog: Catalog, keys: Sequence[PartitionKey]) -> AccountDayInputs:
    """Raises ReadError where a query cannot be read whole."""
    customers = {key.customer_id for key in keys}
    performance: dict[str, Snapshot] = {}
    currency: list[Snapshot] = []
    asked = set(performance_queries(catalog))
    for name in catalog.queries:
        telling = _versions(catalog, name, _CURRENCY)
        if telling:
            # Every day of these customers: an account's currency never changes, so any of them tells it.
            snapshot = take_snapshot(layout, catalog, name, Selection(customers=customers))
            currency.append(snapshot.only(_one_a_customer(snapshot.pointers, telling)))
        elif name in asked:
            snapshot = take_snapshot(layout, catalog, name, Selection(partitions=keys))
        else:
            continue
        if name in asked:
            performance[name] = snapshot.only(_among(snapshot.pointers, keys))
    return AccountDayInputs(catalog=catalog, performance=performance, currency=currency)


def customers_with_currency(layout: WarehouseLayout, catalog: Catalog) -> pa.Array:
    """Those of whom a row is published that tells the currency."""
    known = [
        _telling(take_snapshot(layout, catalog, name).pointers, versions)["customer_id"]
        for name in catalog.queries
        if (versions := _versions(catalog, name, _CURRENCY))
    ]
    return pc.unique(pa.chunked_array([chunk for each in known for chunk in each.chunks], pa.string()))


def account_day_rows(spark: SparkSession, inputs: AccountDayInputs) -> DataFrame:
    """A row for each published partition: the pointers lead, so that a day without rows is one of zeros."""
    shown = [snapshot for snapshot in inputs.performance.values() if snapshot.pointers.num_rows]
    if not shown:
        return spark.createDataFrame([], ", ".join(f"{each.name} {each.type}" for each in ACCOUNT_DAY.columns))
    totals = reduce(DataFrame.unionByName, (_totals(spark, snapshot) for snapshot in shown))
    rows = arrow_frame(spark, inputs.lineage).join(totals, ["customer_id", "logical_date", "query_name"], "left")
    currencies = [_currency(spark, each) for each in inputs.currency if each.pointers.num_rows]
    if currencies:
        told = (
            reduce(DataFrame.union, currencies)
            .groupBy("customer_id")
            .agg(F.max("currency_code").alias("currency_code"))
        )
        rows = rows.join(F.broadcast(told), "customer_id", "left")
    else:
        rows = rows.withColumn("currency_code", F.expr("CAST(NULL AS STRING)"))
    return rows.withColumns({metric.name: F.expr(_or_zero(inputs.catalog, metric)) for metric in METRICS})


def _totals(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    names = {column.field: column.name for column in snapshot.columns}
    totals = [
        F.expr(metric.total.format(f"`{names[metric.field]}`") if metric.field in names else "NULL")
        .cast(metric.type)
        .alias(metric.name)
        for metric in METRICS
    ]
    sums = rows_of(spark, snapshot).groupBy("customer_id", "logical_date").agg(*totals)
    return sums.withColumn("query_name", F.lit(snapshot.query_name))


def _or_zero(catalog: Catalog, metric: Metric) -> str:
    """A day without rows has a zero in what its version selects, and a null in what it does not."""
    selected = [
        f"(query_name = '{name}' AND schema_version IN ({', '.join(f'{version!r}' for version in versions)}))"
        for name in catalog.queries
        if (versions := _versions(catalog, name, metric.field))
    ]
    return (
        f"CASE WHEN row_count = 0 AND ({' OR '.join(selected) or 'false'}) THEN CAST(0 AS {metric.type}) "
        f"ELSE {metric.name} END"
    )


def _currency(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    [name] = [column.name for column in snapshot.columns if column.field == _CURRENCY]
    return rows_of(spark, snapshot).select("customer_id", F.col(name).alias("currency_code"))


def _versions(catalog: Catalog, query_name: str, field: str) -> list[str]:
    """The schema versions of a query that select a field."""
    return sorted(schema.version for schema in schema_versions(catalog, query_name) if schema.column_of(field))


def _telling(pointers: pa.Table, versions: Sequence[str]) -> pa.Table:
    return pointers.filter((pc.field("record_count") > 0) & pc.field("schema_version").isin(versions))


def _one_a_customer(pointers: pa.Table, versions: Sequence[str]) -> pa.Table:
    """The newest partition of each that has rows to tell from."""
    telling = _telling(pointers, versions)
    newest = telling.group_by("customer_id").aggregate([("logical_date", "max")])
    newest = newest.rename_columns({"logical_date_max": "logical_date"})
    return telling.join(newest, ["customer_id", "logical_date"], join_type="left semi")


def _among(pointers: pa.Table, keys: Sequence[PartitionKey]) -> pa.Table:
    wanted = pa.table(
        {
            "customer_id": pa.array([key.customer_id for key in keys], pa.string()),
            "logical_date": pa.array([key.logical_date for key in keys], pa.date32()),
        }
    )
    return pointers.join(wanted, ["customer_id", "logical_date"], join_type="left semi")


def _made_of(snapshot: Snapshot) -> pa.Table:
    pointers = snapshot.pointers.rename_columns({"record_count": "row_count"})
    name = pa.repeat(pa.scalar(snapshot.query_name, pa.string()), pointers.num_rows)
    return pointers.append_column("query_name", name).select(_NOTHING.schema.names)
