"""Reading published rows without a JVM: delta-rs in, Arrow out, the same rows and columns as Spark gives."""

from collections.abc import Collection
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from gads_assets.catalog.specification import Catalog, Column, QuerySchema
from gads_assets.domain.keys import CustomerId
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.warehouse.columns import reader_columns, schema_versions
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.pointers import pointer_table, read_pointers

_ON = ["customer_id", "logical_date", "stage_id"]
_ARROW_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
}


def read_published(
    layout: WarehouseLayout,
    catalog: Catalog,
    query_name: str,
    *,
    customers: Collection[CustomerId] | None = None,
    days: Collection[date] | None = None,
) -> pa.Table:
    """Every published row of a query, or of some customers and days; one run a partition, from one snapshot."""
    schemas = schema_versions(catalog, query_name)
    columns = reader_columns(schemas)
    table = pointer_table(layout, query_name)
    active = [
        pointer
        for pointer in (read_pointers(table).values() if table else ())
        if pointer.status is PointerStatus.ACTIVE
        and (customers is None or pointer.key.customer_id in customers)
        and (days is None or pointer.key.logical_date in days)
    ]
    parts = [
        _rows(layout, schema, columns, [pointer for pointer in active if pointer.schema_version == schema.version])
        for schema in schemas
    ]
    return pa.concat_tables([_schema(columns).empty_table(), *parts])


def _rows(layout: WarehouseLayout, schema: QuerySchema, columns: list[Column], pointers: list[Pointer]) -> pa.Table:
    if not any(pointer.record_count for pointer in pointers):
        return _schema(columns).empty_table()
    wanted = pa.table(
        {
            "customer_id": [pointer.key.customer_id for pointer in pointers],
            "logical_date": [pointer.key.logical_date for pointer in pointers],
            "stage_id": [pointer.stage_id for pointer in pointers],
        }
    )
    days = wanted["logical_date"]
    staged = DeltaTable(layout.stage(schema.query_name, schema.version)).to_pyarrow_dataset()
    candidates = staged.to_table(
        filter=(pc.field("logical_date") >= pc.min(days))
        & (pc.field("logical_date") <= pc.max(days))
        & pc.field("stage_id").isin(pc.unique(wanted["stage_id"]))
    )
    rows = candidates.join(wanted, _ON, join_type="inner")
    version = pa.array([schema.version] * rows.num_rows, pa.string())
    rows = rows.append_column("schema_version", version)
    target = _schema(columns)
    return pa.table(
        [
            rows[field.name].cast(field.type)
            if field.name in rows.column_names
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
