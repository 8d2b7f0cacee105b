"""Reading published rows without a JVM: delta-rs in, Arrow out, the same rows and columns as Spark gives."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gads_assets.catalog.specification import Catalog, Column, QuerySchema
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.pointer import Pointer
from gads_assets.warehouse.columns import reader_columns
from gads_assets.warehouse.delta_tables import open_table, readable_delta_errors, select
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.selection import EVERYTHING, Selection
from gads_assets.warehouse.snapshots import Snapshot, take_snapshot

_ARROW_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "binary": pa.binary(),
}


def read_published(
    layout: WarehouseLayout, catalog: Catalog, query_name: str, selection: Selection = EVERYTHING
) -> pa.Table:
    """Every published row of a query that is selected; one run a partition, from one snapshot.

    Raises ReadError rather than leave out a partition whose schema version the catalog lacks.
    """
    snapshot = take_snapshot(layout, catalog, query_name, selection)
    return pa.concat_tables(
        [
            _schema(snapshot.columns).empty_table(),
            *(rows for schema in snapshot.stages for rows in _staged(snapshot, schema)),
        ]
    )


def read_first_rows(
    layout: WarehouseLayout, catalog: Catalog, pointers: Sequence[Pointer], *, limit: int
) -> dict[PartitionKey, pa.Table]:
    """At most `limit` rows of each of these pointers, all of one query, without reading the rest of their stages."""
    first = {}
    for version in {pointer.schema_version for pointer in pointers}:
        schema = catalog.schema(pointers[0].key.query_name, version)
        columns = reader_columns([schema], in_use=[schema])
        stage = open_table(layout.stage(schema.query_name, version))
        for pointer in pointers:
            if pointer.schema_version == version:
                first[pointer.key] = _as_read(select(stage, _rows_of(pointer, limit)), schema, columns)
    return first


def _staged(snapshot: Snapshot, schema: QuerySchema) -> list[pa.Table]:
    pointers = snapshot.pointers.filter(pc.field("schema_version") == schema.version)
    keys = _keys(pointers)
    uri = snapshot.layout.stage(snapshot.query_name, schema.version)
    with readable_delta_errors(uri):
        # Arrow's join would do what the keys do here, but refuses tables with list columns.
        batches = open_table(uri).to_pyarrow_dataset().to_batches(filter=near(pointers))
        return [_as_read(batch, schema, snapshot.columns).filter(pc.is_in(_keys(batch), keys)) for batch in batches]


def _rows_of(pointer: Pointer, limit: int) -> str:
    return (
        "SELECT * FROM this "  # noqa: S608 - the key and the id were checked where they were made
        f"WHERE logical_date = DATE '{pointer.key.logical_date}' AND customer_id = '{pointer.key.customer_id}' "
        f"AND stage_id = '{pointer.stage_id}' LIMIT {limit}"
    )


def near(pointers: pa.Table) -> pc.Expression:
    """True of every row of these pointers, and in terms that the statistics of a file can answer."""
    days, customers = pc.min_max(pointers["logical_date"]), pc.min_max(pointers["customer_id"])
    return (
        (pc.field("logical_date") >= days["min"])
        & (pc.field("logical_date") <= days["max"])
        & (pc.field("customer_id") >= customers["min"])
        & (pc.field("customer_id") <= customers["max"])
        & pc.field("stage_id").isin(pc.unique(pointers["stage_id"]))
    )


def _keys(rows: pa.Table | pa.RecordBatch) -> pa.Array:
    return pc.binary_join_element_wise(
        rows["customer_id"], rows["logical_date"].cast(pa.string()), rows["stage_id"], " "
    )


def _as_read(rows: pa.Table | pa.RecordBatch, schema: QuerySchema, columns: Sequence[Column]) -> pa.Table:
    rows = rows.append_column("schema_version", pa.array([schema.version] * rows.num_rows, pa.string()))
    target = _schema(columns)
    return pa.table(
        [
            rows[field.name].cast(field.type)
            if field.name in rows.schema.names
            else pa.nulls(rows.num_rows, field.type)
            for field in target
        ],
        schema=target,
    )


def _schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([(column.name, _arrow_type(column.type)) for column in columns])


def _arrow_type(spark_type: str) -> pa.DataType:
    if spark_type.startswith("array<"):
        return pa.list_(_arrow_type(spark_type.removeprefix("array<").removesuffix(">")))
    return _ARROW_TYPES[spark_type]
