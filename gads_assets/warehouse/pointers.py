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

POINTER_COLUMNS: Final = (
    "source STRING, query_name STRING, customer_id STRING, logical_date DATE, run_id STRING, stage_id STRING, "
    "schema_version STRING, record_count BIGINT, content_digest STRING, state_version BIGINT, stage_commit BIGINT, "
    "status STRING, loaded_at TIMESTAMP"
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
        (
            pointer.key.source,
            pointer.key.query_name,
            pointer.key.customer_id,
            pointer.key.logical_date,
            pointer.run_id,
            pointer.stage_id,
            pointer.schema_version,
            pointer.record_count,
            pointer.content_digest,
            pointer.state_version,
            pointer.stage_commit,
            pointer.status.value,
            pointer.loaded_at,
        )
        for pointer in pointers
    ]
    frame = spark.createDataFrame(rows, POINTER_COLUMNS).coalesce(1)
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
