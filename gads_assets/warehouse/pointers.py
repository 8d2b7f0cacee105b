"""The pointer table of a query: append-only, one commit a batch, read without a JVM."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId, StageId
from gads_assets.domain.pointer import Pointer, PointerStatus, current_pointers
from gads_assets.warehouse.layout import WarehouseLayout

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


def pointer_table(layout: WarehouseLayout, query_name: str) -> DeltaTable | None:
    """The table as of now, or None before the query's first publish."""
    uri = layout.pointers(query_name)
    return DeltaTable(uri) if DeltaTable.is_deltatable(uri) else None


def read_pointers(table: DeltaTable, keys: Sequence[PartitionKey] | None = None) -> dict[PartitionKey, Pointer]:
    """The current pointer of each partition; with `keys`, of these at least."""
    filters = None
    if keys:
        days = [key.logical_date for key in keys]
        filters = [("logical_date", ">=", min(days)), ("logical_date", "<=", max(days))]
    return current_pointers(_from_arrow(table.to_pyarrow_table(filters=filters)))


def append_pointers(spark: SparkSession, layout: WarehouseLayout, query_name: str, pointers: Iterable[Pointer]) -> None:
    """One commit for all of them: the moment at which readers see the change.

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
    # As Arrow: rows given as Python objects are sent through a Python worker, which takes longer than the commit.
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, _SCHEMA)).coalesce(1)
    frame.write.format("delta").mode("append").save(layout.pointers(query_name))


def _from_arrow(table: pa.Table) -> Iterator[Pointer]:
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
