"""Reading the marts with Spark: what was withdrawn since they were refreshed is left out."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from gads_assets.catalog.specification import Catalog
from gads_assets.errors import ReadError
from gads_assets.warehouse.as_of import table_as_of
from gads_assets.warehouse.delta_tables import find_table, select, sql_name
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.marts.account_day import performance_queries
from gads_assets.warehouse.marts.tables import ACCOUNT_DAY, MARTS, Mart
from gads_assets.warehouse.pointer_order import current_sql
from gads_assets.warehouse.pointers import pointer_table
from gads_assets.warehouse.reading import replace_view
from gads_assets.warehouse.session import SPARK_ERRORS, spark_reason


def mart_rows(
    spark: SparkSession, layout: WarehouseLayout, catalog: Catalog, name: str, *, as_of: datetime | None = None
) -> DataFrame:
    """The rows of a mart as it was last refreshed, or at that moment; of account-days none whose input was withdrawn.

    A mart that was never refreshed has no rows.
    """
    if name not in MARTS:
        raise ReadError(f"there is no mart {name}; there are {', '.join(MARTS)}")
    try:
        return spark.sql(mart_sql(layout, catalog, MARTS[name], as_of=as_of))
    except SPARK_ERRORS as error:
        raise ReadError(f"the mart {name} cannot be read: {spark_reason(error)}") from error


def register_mart_views(
    spark: SparkSession,
    layout: WarehouseLayout,
    catalog: Catalog,
    names: Iterable[str],
    *,
    registration: str,
    as_of: datetime | None = None,
) -> None:
    """`<source>_marts.<mart>` for each of these, as they are now or were then, until they are registered again."""
    for name in names:
        spark.sql(f"CREATE DATABASE IF NOT EXISTS `{catalog.source}_marts`")
        shown = mart_sql(layout, catalog, MARTS[name], as_of=as_of)
        replace_view(spark, f"`{catalog.source}_marts`.`{name}`", registration, shown)


def mart_sql(layout: WarehouseLayout, catalog: Catalog, mart: Mart, *, as_of: datetime | None) -> str:
    """The statement behind the two. Names in it are the catalog's, which allows no quotes."""
    table = _at(find_table(layout.mart(mart.name)), as_of, mart.name)
    if table is None:
        return f"SELECT {', '.join(f'CAST(NULL AS {each.type}) AS {each.name}' for each in mart.columns)} WHERE false"
    rows = f"SELECT {', '.join(mart.names)} FROM {_pinned(layout.mart(mart.name), table)} AS mart"  # noqa: S608
    # After the mart: what is withdrawn between the two looks is left out.
    withdrawn = list(_withdrawn(layout, catalog, as_of)) if mart == ACCOUNT_DAY else []
    if not withdrawn:
        return rows
    return (
        f"{rows} LEFT ANTI JOIN ({' UNION ALL '.join(withdrawn)}) AS withdrawn "
        "ON mart.query_name = withdrawn.query_name AND mart.customer_id = withdrawn.customer_id "
        "AND mart.logical_date = withdrawn.logical_date "
        "AND (withdrawn.run_id IS NULL OR withdrawn.run_id = mart.run_id)"
    )


def _withdrawn(layout: WarehouseLayout, catalog: Catalog, as_of: datetime | None) -> Iterator[str]:
    """Partitions that are not shown at all, without a run; and runs that were retracted, also where another one is
    shown by now and the mart has not been refreshed since."""
    for name in performance_queries(catalog):
        newest = pointer_table(layout, name)
        # Most queries have none, and need no look at all their pointers.
        if newest is None or not select(newest, "SELECT 1 FROM this WHERE status = 'unavailable' LIMIT 1").num_rows:
            continue
        uri, run = layout.pointers(name), "customer_id, logical_date, run_id"
        yield _unavailable(name, current_sql(_pinned(uri, newest), of=run), "run_id")
        if table := _at(newest, as_of, name):
            yield _unavailable(name, current_sql(_pinned(uri, table)), "CAST(NULL AS STRING) AS run_id")


def _unavailable(query_name: str, highest: str, run_id: str) -> str:
    return (
        f"SELECT '{query_name}' AS query_name, customer_id, logical_date, {run_id} FROM ({highest}) AS highest "  # noqa: S608
        "WHERE status = 'unavailable'"
    )


def _at(table: DeltaTable | None, as_of: datetime | None, name: str) -> DeltaTable | None:
    if table is None or as_of is None:
        return table
    return table_as_of(table, as_of, query_name=name, now=datetime.now(UTC))


def _pinned(uri: str, table: DeltaTable) -> str:
    return f"{sql_name(uri)} VERSION AS OF {table.version()}"
