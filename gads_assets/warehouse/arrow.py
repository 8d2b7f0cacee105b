"""Reading published rows without a JVM: delta-rs in, Arrow out, the same rows and columns as Spark gives."""

from collections.abc import Collection, Iterable, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from gads_assets.catalog.specification import Catalog, Column, QuerySchema
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.errors import ReadError
from gads_assets.warehouse.columns import reader_columns, schema_versions
from gads_assets.warehouse.delta_tables import open_table, readable_delta_errors, select
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.pointers import pointer_table, read_pointers

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
    layout: WarehouseLayout,
    catalog: Catalog,
    query_name: str,
    *,
    customers: Collection[CustomerId] | None = None,
    days: Collection[date] | None = None,
) -> pa.Table:
    """Every published row of a query, or of some customers and days; one run a partition, from one snapshot.

    Raises ReadError rather than leave out a partition whose schema version the catalog lacks.
    """
    schemas = schema_versions(catalog, query_name)
    columns = reader_columns(schemas)
    table = pointer_table(layout, query_name)
    wanted = [
        pointer
        for pointer in (read_pointers(table).values() if table else ())
        if (customers is None or pointer.key.customer_id in customers)
        and (days is None or pointer.key.logical_date in days)
    ]
    shown = active_pointers(wanted, schemas)
    parts = [
        _published(layout, schema, columns, [pointer for pointer in shown if pointer.schema_version == schema.version])
        for schema in schemas
    ]
    return pa.concat_tables([_schema(columns).empty_table(), *parts])


def read_first_rows(
    layout: WarehouseLayout, catalog: Catalog, pointers: Sequence[Pointer], *, limit: int
) -> dict[PartitionKey, pa.Table]:
    """At most `limit` rows of each of these pointers, all of one query, without reading the rest of their stages."""
    first = {}
    for version in {pointer.schema_version for pointer in pointers}:
        schema = catalog.schema(pointers[0].key.query_name, version)
        columns = reader_columns([schema])
        stage = open_table(layout.stage(schema.query_name, version))
        for pointer in pointers:
            if pointer.schema_version == version:
                first[pointer.key] = _as_read(select(stage, _rows_of(pointer, limit)), schema, columns)
    return first


def active_pointers(current: Iterable[Pointer], schemas: Sequence[QuerySchema]) -> list[Pointer]:
    """Those that show rows to readers; raises ReadError for one of a schema version that is not among `schemas`."""
    known = {schema.version for schema in schemas}
    active = [pointer for pointer in current if pointer.status is PointerStatus.ACTIVE]
    for pointer in active:
        if pointer.schema_version not in known:
            raise ReadError(
                f"{pointer.key} is published under schema version {pointer.schema_version}, and this catalog knows "
                f"{', '.join(sorted(known))} of {pointer.key.query_name}; read it with the catalog or the version of "
                "the program that published it"
            )
    return active


def _published(
    layout: WarehouseLayout, schema: QuerySchema, columns: list[Column], pointers: list[Pointer]
) -> pa.Table:
    parts = [_schema(columns).empty_table()]
    if any(pointer.record_count for pointer in pointers):
        keys = pa.array(
            [f"{pointer.key.customer_id} {pointer.key.logical_date} {pointer.stage_id}" for pointer in pointers]
        )
        uri = layout.stage(schema.query_name, schema.version)
        with readable_delta_errors(uri):
            # Arrow's join would do what the keys do here, but refuses tables with list columns.
            for batch in open_table(uri).to_pyarrow_dataset().to_batches(filter=_near(pointers)):
                parts.append(_as_read(batch, schema, columns).filter(pc.is_in(_keys(batch), keys)))
    return pa.concat_tables(parts)


def _rows_of(pointer: Pointer, limit: int) -> str:
    return (
        "SELECT * FROM this "  # noqa: S608 - the key and the id were checked where they were made
        f"WHERE logical_date = DATE '{pointer.key.logical_date}' AND customer_id = '{pointer.key.customer_id}' "
        f"AND stage_id = '{pointer.stage_id}' LIMIT {limit}"
    )


def _near(pointers: Sequence[Pointer]) -> pc.Expression:
    """True of every row of these pointers, and in terms that the statistics of a file can answer."""
    days = [pointer.key.logical_date for pointer in pointers]
    customers = [pointer.key.customer_id for pointer in pointers]
    return (
        (pc.field("logical_date") >= min(days))
        & (pc.field("logical_date") <= max(days))
        & (pc.field("customer_id") >= min(customers))
        & (pc.field("customer_id") <= max(customers))
        & pc.field("stage_id").isin(list({pointer.stage_id for pointer in pointers}))
    )


def _keys(batch: pa.RecordBatch) -> pa.Array:
    day = batch["logical_date"].cast(pa.string())
    return pc.binary_join_element_wise(batch["customer_id"], day, batch["stage_id"], " ")


def _as_read(rows: pa.Table | pa.RecordBatch, schema: QuerySchema, columns: list[Column]) -> pa.Table:
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


def _schema(columns: list[Column]) -> pa.Schema:
    return pa.schema([(column.name, _arrow_type(column.type)) for column in columns])


def _arrow_type(spark_type: str) -> pa.DataType:
    if spark_type.startswith("array<"):
        return pa.list_(_arrow_type(spark_type.removeprefix("array<").removesuffix(">")))
    return _ARROW_TYPES[spark_type]
