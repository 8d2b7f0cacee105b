"""What the marts are called, their columns, and the one commit that replaces some of their partitions."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.errors import WarehouseError
from gads_assets.warehouse.delta_tables import find_table, sql_name
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.session import SPARK_ERRORS, spark_reason

# Said here and not only in Spark's settings: a server's own may be others, and readers outside Spark refuse them.
_PROPERTIES: Final = {
    "delta.enableDeletionVectors": "false",
    "delta.columnMapping.mode": "none",
    "delta.checkpointInterval": "20",
}


@dataclass(frozen=True, kw_only=True)
class MartColumn:
    name: str
    type: str
    description: str


@dataclass(frozen=True, kw_only=True)
class Metric:
    """`field` is the API's; `total` is Spark SQL for a partition's sum, with `{}` for the column."""

    name: str
    field: str
    type: str
    total: str
    description: str


@dataclass(frozen=True, kw_only=True)
class Mart:
    name: str
    columns: tuple[MartColumn, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


# Millionths as decimals: a double would round them, and a bigint could overflow in the sum.
_UNITS: Final = "CAST(sum(CAST({} AS DECIMAL(20, 0))) * 0.000001BD AS DECIMAL(24, 6))"

METRICS: Final = (
    Metric(
        name="impressions", field="metrics.impressions", type="bigint", total="sum({})", description="how often shown"
    ),
    Metric(name="clicks", field="metrics.clicks", type="bigint", total="sum({})", description="how often clicked"),
    Metric(
        name="interactions",
        field="metrics.interactions",
        type="bigint",
        total="sum({})",
        description="clicks, views and whatever else the format counts",
    ),
    Metric(
        name="cost",
        field="metrics.cost_micros",
        type="decimal(24,6)",
        total=_UNITS,
        description="in the account's currency, exact",
    ),
    Metric(
        name="conversions",
        field="metrics.conversions",
        type="double",
        total="sum({})",
        description="as the account counts them",
    ),
    Metric(
        name="conversions_value",
        field="metrics.conversions_value",
        type="double",
        total="sum({})",
        description="in the account's currency",
    ),
)

_CUSTOMER: Final = MartColumn(name="customer_id", type="string", description="the account")
_QUERY: Final = MartColumn(name="query_name", type="string", description="the query that was published")

ACCOUNT_DAY: Final = Mart(
    name="account_day",
    # The key comes first: statistics are kept for the leading columns.
    columns=(
        _CUSTOMER,
        MartColumn(name="logical_date", type="date", description="the day, in the account's own time zone"),
        _QUERY,
        MartColumn(name="currency_code", type="string", description="the account's; null while no query has told it"),
        MartColumn(name="row_count", type="bigint", description="rows of the query on that day; 0 is a day without"),
        *(MartColumn(name=each.name, type=each.type, description=each.description) for each in METRICS),
        MartColumn(name="run_id", type="string", description="the extraction that the figures are of"),
        MartColumn(name="schema_version", type="string", description="the version that it was extracted under"),
    ),
)

FRESHNESS: Final = Mart(
    name="freshness",
    columns=(
        _CUSTOMER,
        _QUERY,
        MartColumn(name="first_day", type="date", description="the first day that is published"),
        MartColumn(name="last_day", type="date", description="the last day that is published"),
        MartColumn(name="days_published", type="bigint", description="how many days are published"),
        MartColumn(name="days_missing", type="bigint", description="days between the first and the last that are not"),
        MartColumn(name="rows_published", type="bigint", description="rows of all these days"),
        MartColumn(name="last_loaded_at", type="timestamp", description="when the newest of what is shown was loaded"),
        MartColumn(name="last_day_loaded_at", type="timestamp", description="when what is shown of the last day was"),
        MartColumn(name="last_day_run_id", type="string", description="the extraction that is shown of the last day"),
        MartColumn(
            name="last_day_schema_version", type="string", description="the version that it was extracted under"
        ),
        MartColumn(name="pointer_version", type="bigint", description="of the query's pointer table, as it was seen"),
        MartColumn(name="refreshed_at", type="timestamp", description="when this row was made"),
    ),
)

MARTS: Final = {mart.name: mart for mart in (ACCOUNT_DAY, FRESHNESS)}


def refreshing_scope(source: str, mart: Mart) -> str:
    """What a run locks from its look at the inputs to its commit: an older look must not replace a newer one's rows."""
    return f"refresh {source}_marts.{mart.name}"


def account_days_condition(keys: Iterable[PartitionKey]) -> str:
    """Exactly these account-days, whether or not they are a rectangle.

    Without BETWEEN, which replaceWhere does not always survive.
    """
    days: dict[CustomerId, set[date]] = defaultdict(set)
    for key in keys:
        days[key.customer_id].add(key.logical_date)
    customers: dict[frozenset[date], list[CustomerId]] = defaultdict(list)
    for customer_id, some in days.items():
        customers[frozenset(some)].append(customer_id)
    return " OR ".join(
        f"({customers_condition(alike)} AND {_among('logical_date', [f'DATE {str(day)!r}' for day in some])})"
        for some, alike in customers.items()
    )


def customers_condition(customers: Iterable[CustomerId]) -> str:
    return _among("customer_id", [f"'{customer_id}'" for customer_id in customers])


def _among(column: str, literals: Iterable[str]) -> str:
    return f"{column} IN ({', '.join(sorted(literals))})"


def replace_rows(spark: SparkSession, layout: WarehouseLayout, mart: Mart, rows: DataFrame, condition: str) -> None:
    """In one commit: what the condition is true of goes, and these rows, of which it is true too, come in its place."""
    uri = layout.mart(mart.name)
    try:
        _create(spark, uri, mart.columns)
        written = rows.select(*mart.names).coalesce(1).write.format("delta").mode("overwrite")
        written.option("replaceWhere", condition).save(uri)
    except SPARK_ERRORS as error:
        raise WarehouseError(
            f"the mart at {uri} cannot be refreshed ({spark_reason(error)}); run again once that is mended"
        ) from error


def _create(spark: SparkSession, uri: str, columns: Sequence[MartColumn]) -> None:
    if find_table(uri):
        return
    typed = ", ".join(f"{column.name} {column.type}" for column in columns)
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in _PROPERTIES.items())
    spark.sql(f"CREATE TABLE IF NOT EXISTS {sql_name(uri)} ({typed}) USING DELTA TBLPROPERTIES ({properties})")
