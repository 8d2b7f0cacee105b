"""Reading published rows with Spark, always through one snapshot of the pointers."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from gads_assets.catalog.specification import Catalog, Column, QuerySchema
from gads_assets.domain.state import LoadRecord
from gads_assets.errors import ReadError
from gads_assets.warehouse.columns import KEY
from gads_assets.warehouse.delta_tables import open_table, sql_name
from gads_assets.warehouse.frames import arrow_frame
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.pointer_order import shown_sql
from gads_assets.warehouse.selection import EVERYTHING, Selection
from gads_assets.warehouse.session import SPARK_ERRORS, spark_reason
from gads_assets.warehouse.shown_rows import condition_of, whole_stages
from gads_assets.warehouse.snapshots import Snapshot, take_snapshot

_TRIES: Final = 5
_ALREADY_THERE: Final = "TABLE_OR_VIEW_ALREADY_EXISTS"

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


def published_rows(
    spark: SparkSession,
    layout: WarehouseLayout,
    catalog: Catalog,
    query_name: str,
    selection: Selection = EVERYTHING,
) -> DataFrame:
    """Every published row of a query that is selected; each partition's rows come from exactly one run.

    Raises ReadError rather than leave out a partition whose schema version the catalog lacks.
    """
    return rows_of(spark, take_snapshot(layout, catalog, query_name, selection))


def rows_of(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    conditions = _conditions(snapshot)
    try:
        stages = {schema.version: sql_name(_stage(snapshot, schema)) for schema in snapshot.stages}
        rows = spark.sql(_sql(snapshot, conditions, stages=stages))
    except SPARK_ERRORS as error:
        raise ReadError(f"{snapshot.query_name} cannot be read: {spark_reason(error)}") from error
    if conditions is not None or (snapshot.selection.partitions is None and snapshot.selection.strict is None):
        return rows
    # What neither SQL nor the pointer table can tell is in the snapshot itself.
    shown = snapshot.pointers.select(["customer_id", "logical_date", "run_id"])
    return rows.join(arrow_frame(spark, shown), shown.column_names, "left_semi")


def register_views(
    spark: SparkSession,
    layout: WarehouseLayout,
    catalog: Catalog,
    *,
    as_of: datetime | None = None,
    queries: Iterable[str] | None = None,
) -> str:
    """`<source>.<query>` for each of these queries, or all of the catalog's; each as one snapshot shows it now, or
    showed it then, until it is registered again. Returns what this registration is called."""
    registration = uuid4().hex
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{catalog.source}`")
    for name in catalog.queries if queries is None else queries:
        shown = view_sql(take_snapshot(layout, catalog, name, Selection(as_of=as_of)))
        replace_view(spark, f"`{catalog.source}`.`{name}`", registration, shown)
    return registration


def replace_view(spark: SparkSession, name: str, registration: str, sql: str) -> None:
    """Spark replaces a view in two steps, and the sessions of a Spark Connect server share views: another one may put
    its own between the two."""
    for tries_left in reversed(range(_TRIES)):
        try:
            spark.sql(f"CREATE OR REPLACE VIEW {name} COMMENT '{registration}' AS {sql}")
        except SPARK_ERRORS as error:
            if not tries_left or _ALREADY_THERE not in str(error):
                raise
        else:
            return


def are_registered(spark: SparkSession, views: Iterable[str], registration: str) -> bool:
    """Whether these views are still those of this registration: the sessions of a Spark Connect server share views, and
    another one may have registered them as of another moment, or be about to."""
    try:
        return all(spark.catalog.getTable(name).description == registration for name in views)
    except SPARK_ERRORS:
        return False


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
    arrow_frame(spark, pa.Table.from_pylist(rows, _LOAD_RECORDS)).createOrReplaceTempView("load_records")


def select_only(spark: SparkSession, sql: str) -> DataFrame:
    """Runs a query and refuses everything else: a statement that writes cannot stand inside a FROM."""
    # The line break ends a comment on the query's last line, which would hide the parenthesis.
    return spark.sql(f"SELECT * FROM (\n{sql}\n)")


def view_sql(snapshot: Snapshot) -> str:
    """The statement of a view. It is read long after, and again and again: the versions of the stage tables are in it
    too, so that rows which housekeeping has collected since are an error, and not missing."""
    conditions = _conditions(snapshot)
    # Opened after the conditions were made, which hold from then on and may not have held before.
    pinned = {
        schema.version: f"{sql_name(uri)} VERSION AS OF {open_table(uri).version()}"
        for schema in snapshot.stages
        for uri in [_stage(snapshot, schema)]
    }
    return _sql(snapshot, conditions, stages=pinned)


def _conditions(snapshot: Snapshot) -> list[str] | None:
    """What tells the shown rows of each stage table from the others; None where that takes a join."""
    conditions = []
    for schema in snapshot.stages:
        pointers = _pointers(snapshot, schema)
        # A part of the partitions is in part of the files: told by places it opens no others, and the rows are few.
        whole = () if snapshot.selection.is_narrow else whole_stages(open_table(_stage(snapshot, schema)), pointers)
        conditions.append(condition_of(pointers, whole=whole))
    known = [condition for condition in conditions if condition is not None]
    return known if len(known) == len(conditions) else None


def _sql(snapshot: Snapshot, conditions: Sequence[str] | None, *, stages: Mapping[str, str]) -> str:
    """The statement behind every Spark reader; `stages` are the tables by schema version. Names and versions in it are
    the catalog's, which allows no quotes."""
    if not snapshot.stages:
        return f"SELECT {', '.join(_null(column) for column in snapshot.columns)} WHERE false"
    if conditions is not None:
        selects = [
            _select(snapshot, schema, condition, stages)
            for schema, condition in zip(snapshot.stages, conditions, strict=True)
        ]
        return " UNION ALL ".join(selects)
    uri = sql_name(snapshot.layout.pointers(snapshot.query_name))
    shown = shown_sql(
        f"{uri} VERSION AS OF {snapshot.version}",
        condition=snapshot.selection.condition,
        newest=f"{uri} VERSION AS OF {snapshot.newest}" if snapshot.version < snapshot.newest else None,
    )
    selects = [
        f"{_select(snapshot, schema, _near(snapshot, schema), stages)} JOIN shown "
        "ON stage.customer_id = shown.customer_id AND stage.logical_date = shown.logical_date "
        f"AND stage.stage_id = shown.stage_id WHERE shown.schema_version = '{schema.version}'"
        for schema in snapshot.stages
    ]
    return f"WITH shown AS ({shown}) {' UNION ALL '.join(selects)}"


def _select(snapshot: Snapshot, schema: QuerySchema, condition: str, stages: Mapping[str, str]) -> str:
    own = {column.name: column.type for column in schema.report_columns}
    expressions = ", ".join(_expression(column, own, schema) for column in snapshot.columns)
    return f"SELECT {expressions} FROM (SELECT * FROM {stages[schema.version]} WHERE {condition}) AS stage"


def _near(snapshot: Snapshot, schema: QuerySchema) -> str:
    """Stage ids rise with time: most files of superseded runs are below the first one that is shown."""
    stage_ids = pc.min_max(_pointers(snapshot, schema)["stage_id"])
    return f"{snapshot.selection.condition} AND stage_id BETWEEN '{stage_ids['min']}' AND '{stage_ids['max']}'"


def _stage(snapshot: Snapshot, schema: QuerySchema) -> str:
    return snapshot.layout.stage(schema.query_name, schema.version)


def _pointers(snapshot: Snapshot, schema: QuerySchema) -> pa.Table:
    return snapshot.pointers.filter(pc.field("schema_version") == schema.version)


def _expression(column: Column, own: Mapping[str, str], schema: QuerySchema) -> str:
    if column.name == "schema_version":
        return f"'{schema.version}' AS schema_version"
    if column in KEY or own.get(column.name) == column.type:
        return f"stage.`{column.name}`"
    return f"CAST(stage.`{column.name}` AS {column.type}) AS `{column.name}`" if column.name in own else _null(column)


def _null(column: Column) -> str:
    return f"CAST(NULL AS {column.type}) AS `{column.name}`"
