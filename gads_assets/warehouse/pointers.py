"""The pointer table of a query: append-only, one commit a batch, written and read without a JVM."""

from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId, StageId
from gads_assets.domain.pointer import Pointer, PointerStatus, current_pointers
from gads_assets.errors import WarehouseError
from gads_assets.warehouse.delta_tables import find_table, open_table, readable_delta_errors, select
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.pointer_order import current_sql

_SCHEMA: Final = pa.schema(
    [
        ("source", pa.string()),
        ("query_name", pa.string()),
        ("customer_id", pa.string()),
        ("logical_date", pa.date32()),
        ("run_id", pa.string()),
        ("stage_id", pa.string()),
        ("schema_version", pa.string()),
        ("record_count", pa.int64()),
        ("content_digest", pa.string()),
        ("state_version", pa.int64()),
        ("stage_commit", pa.int64()),
        ("status", pa.string()),
        ("loaded_at", pa.timestamp("us", tz="UTC")),
    ]
)
# Whoever publishes or reads opens this table first; with the default of 100 commits that took most of the time.
_PROPERTIES: Final = {"delta.checkpointInterval": "20"}

NO_POINTERS: Final = _SCHEMA.empty_table()


def pointer_table(layout: WarehouseLayout, query_name: str) -> DeltaTable | None:
    """The table as of now, or None before the query's first publish."""
    return find_table(layout.pointers(query_name))


def read_pointers(table: DeltaTable, keys: Sequence[PartitionKey] | None = None) -> dict[PartitionKey, Pointer]:
    """The current pointer of each partition; with `keys`, of these at least."""
    return current_pointers(pointers_from_arrow(read_pointer_rows(table, keys)))


def read_pointer_rows(table: DeltaTable, keys: Sequence[PartitionKey] | None = None) -> pa.Table:
    """The same as rows of the table.

    By a query: an Arrow dataset describes every file of the table first, and would make each publish slower than the
    one before.
    """
    condition = "true"
    if keys:
        days, customers = [key.logical_date for key in keys], [key.customer_id for key in keys]
        condition = (
            f"logical_date BETWEEN DATE '{min(days)}' AND DATE '{max(days)}' "
            f"AND customer_id BETWEEN '{min(customers)}' AND '{max(customers)}'"
        )
    return select(table, current_sql("this", condition=condition)).select(_SCHEMA.names).cast(_SCHEMA)


def pointers_of(layout: WarehouseLayout, keys: Sequence[PartitionKey]) -> dict[PartitionKey, Pointer]:
    """The current pointer of each of these partitions that has one; all are of one query."""
    table = pointer_table(layout, keys[0].query_name) if keys else None
    current = read_pointers(table, keys) if table else {}
    return {key: current[key] for key in keys if key in current}


def shown_runs(layout: WarehouseLayout, keys: Sequence[PartitionKey]) -> dict[PartitionKey, RunId]:
    """The run whose rows readers see, of each of these partitions that has any to see; all are of one query."""
    pointers = pointers_of(layout, keys)
    return {key: pointer.run_id for key, pointer in pointers.items() if pointer.status is PointerStatus.ACTIVE}


def append_pointers(layout: WarehouseLayout, query_name: str, pointers: Sequence[Pointer]) -> int:
    """One commit for all of them: the moment at which readers see the change. Returns a version that has them.

    Blind: it reads nothing of the table, so two loaders never conflict.
    """
    rows = [
        {
            "source": pointer.key.source,
            "query_name": pointer.key.query_name,
            "customer_id": pointer.key.customer_id,
            "logical_date": pointer.key.logical_date,
            "run_id": pointer.run_id,
            "stage_id": pointer.stage_id,
            "schema_version": pointer.schema_version,
            "record_count": pointer.record_count,
            "content_digest": pointer.content_digest,
            "state_version": pointer.state_version,
            "stage_commit": pointer.stage_commit,
            "status": pointer.status.value,
            "loaded_at": pointer.loaded_at,
        }
        for pointer in pointers
    ]
    uri = layout.pointers(query_name)
    try:
        with readable_delta_errors(uri):
            write_deltalake(uri, pa.Table.from_pylist(rows, _SCHEMA), mode="append", configuration=_PROPERTIES)
    except WarehouseError:
        # Now and then a checkpoint follows the commit: that it failed does not mean that the commit did.
        if not _are_current(layout, query_name, pointers):
            raise
    return open_table(uri).version()


def _are_current(layout: WarehouseLayout, query_name: str, pointers: Sequence[Pointer]) -> bool:
    table = pointer_table(layout, query_name)
    current = read_pointers(table, [pointer.key for pointer in pointers]) if table else {}
    return all(current.get(pointer.key) == pointer for pointer in pointers)


def pointers_from_arrow(table: pa.Table) -> Iterator[Pointer]:
    for row in table.to_pylist():
        yield Pointer(
            key=PartitionKey(
                source=row["source"],
                customer_id=CustomerId(row["customer_id"]),
                query_name=row["query_name"],
                logical_date=row["logical_date"],
            ),
            run_id=RunId(row["run_id"]),
            stage_id=StageId(row["stage_id"]),
            schema_version=row["schema_version"],
            record_count=row["record_count"],
            content_digest=row["content_digest"],
            state_version=row["state_version"],
            stage_commit=row["stage_commit"],
            status=PointerStatus(row["status"]),
            loaded_at=row["loaded_at"].astimezone(UTC),
        )
