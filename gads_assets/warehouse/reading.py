"""Reading published rows with Spark, always through one snapshot of the pointers."""

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from gads_assets.catalog.specification import Catalog, Column, QuerySchema
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.state import LoadRecord
from gads_assets.warehouse.arrow import active_pointers
from gads_assets.warehouse.columns import reader_columns, schema_versions
from gads_assets.warehouse.delta_tables import select, sql_name
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.pointers import pointer_table, read_pointers

_LOAD_RECORDS = pa.schema(
    [
        ("source", pa.string()),
        ("query_name", pa.string()),
        ("customer_id", pa.string()),
        ("logical_date", pa.date32()),
        ("run_id", pa.string()),
        ("schema_version", pa.string()),
        ("record_count", pa.int64()),
        ("content_digest", pa.string()),
        ("pointer_version", pa.int64()),
        ("loaded_at", pa.timestamp("us", tz="UTC")),
    ]
)
_HIGHEST = "max_by(struct(status, schema_version, stage_id), struct(state_version, stage_id)) AS pointer"


def published_rows(spark: SparkSession, layout: WarehouseLayout, catalog: Catalog, query_name: str) -> DataFrame:
    """Every published row of a query; each partition's rows come from exactly one run.

    Raises ReadError rather than leave out a partition whose schema version the catalog lacks.
    """
    return spark.sql(published_sql(layout, catalog, query_name))


def published_partitions(
    spark: SparkSession, layout: WarehouseLayout, catalog: Catalog, query_name: str, keys: Sequence[PartitionKey]
) -> DataFrame:
    """The published rows of these partitions only."""
    wanted = spark.createDataFrame(
        pa.table({"customer_id": [key.customer_id for key in keys], "logical_date": [key.logical_date for key in keys]})
    )
    rows = spark.sql(published_sql(layout, catalog, query_name, keys))
    return rows.join(wanted, ["customer_id", "logical_date"], "left_semi")


def register_views(spark: SparkSession, layout: WarehouseLayout, catalog: Catalog) -> None:
    """`<source>.<query>` for each query of the catalog, all reading the pointers as they are now."""
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{catalog.source}`")
    for name in catalog.queries:
        spark.sql(f"CREATE OR REPLACE VIEW `{catalog.source}`.`{name}` AS {published_sql(layout, catalog, name)}")


def register_load_records(spark: SparkSession, records: Sequence[LoadRecord]) -> None:
    """`load_records`: when each run was first published, and what it held."""
    rows = [
        {
            "source": record.key.source,
            "query_name": record.key.query_name,
            "customer_id": record.key.customer_id,
            "logical_date": record.key.logical_date,
            "run_id": record.run_id,
            "schema_version": record.schema_version,
            "record_count": record.record_count,
            "content_digest": record.content_digest,
            "pointer_version": record.pointer_version,
            "loaded_at": record.loaded_at,
        }
        for record in records
    ]
    spark.createDataFrame(pa.Table.from_pylist(rows, _LOAD_RECORDS)).createOrReplaceTempView("load_records")


def select_only(spark: SparkSession, sql: str) -> DataFrame:
    """Runs a query and refuses everything else: a statement that writes cannot stand inside a FROM."""
    # The line break ends a comment on the query's last line, which would hide the parenthesis.
    return spark.sql(f"SELECT * FROM (\n{sql}\n)")


def published_sql(
    layout: WarehouseLayout, catalog: Catalog, query_name: str, keys: Sequence[PartitionKey] | None = None
) -> str:
    """The statement behind every Spark reader. Names and versions in it are the catalog's, which allows no quotes.

    The pointers are pinned to a version first and the stage tables are looked up afterwards: the other way round, a
    publish in between would show a pointer whose rows the older snapshot of the stage table lacks.
    With `keys`, a schema version that the catalog lacks is refused only where one of these has it.
    """
    schemas = schema_versions(catalog, query_name)
    columns = reader_columns(schemas)
    table = pointer_table(layout, query_name)
    named = _named_versions(table) if table else set()
    stages = [schema for schema in schemas if schema.version in named]
    if table and len(stages) < len(named):
        current = read_pointers(table, keys)
        active_pointers(current.values() if keys is None else [current[key] for key in keys if key in current], schemas)
    if table is None or not stages:
        return f"SELECT {', '.join(_null(column) for column in columns)} WHERE false"
    selects = [_select(layout.stage(query_name, schema.version), schema, columns) for schema in stages]
    pointers = f"{sql_name(layout.pointers(query_name))} VERSION AS OF {table.version()}"
    highest = f"SELECT customer_id, logical_date, {_HIGHEST} FROM {pointers} GROUP BY customer_id, logical_date"
    return f"WITH current AS ({highest}) {' UNION ALL '.join(selects)}"


def _named_versions(table: DeltaTable) -> set[str]:
    """Every schema version under which rows were ever shown, and so has a stage table."""
    found = select(table, "SELECT DISTINCT schema_version FROM this WHERE status = 'active'")
    return set(found["schema_version"].to_pylist())


def _select(uri: str, schema: QuerySchema, columns: Sequence[Column]) -> str:
    own = {column.name for column in schema.report_columns} | {"customer_id", "logical_date", "run_id"}
    expressions = ", ".join(
        f"stage.`{column.name}`"
        if column.name in own
        else f"'{schema.version}' AS schema_version"
        if column.name == "schema_version"
        else _null(column)
        for column in columns
    )
    return (
        f"SELECT {expressions} FROM {sql_name(uri)} AS stage JOIN current "
        "ON stage.customer_id = current.customer_id AND stage.logical_date = current.logical_date "
        "AND stage.stage_id = current.pointer.stage_id "
        f"WHERE current.pointer.status = 'active' AND current.pointer.schema_version = '{schema.version}'"
    )


def _null(column: Column) -> str:
    return f"CAST(NULL AS {column.type}) AS `{column.name}`"
