"""partition_status.parquet: ADR-026's rows for whoever reads Parquet, whole or not at all."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import RowMapping

from gads_assets.status.files import replacing

_MOMENT = pa.timestamp("us", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        pa.field("tenant_id", pa.string(), nullable=False),
        pa.field("workspace_id", pa.string(), nullable=False),
        pa.field("asset_key", pa.string(), nullable=False),
        pa.field("partition_key", pa.string(), nullable=False),
        pa.field("last_materialization_run_id", pa.string()),
        pa.field("last_materialization_at", _MOMENT),
        pa.field("last_materialization_code_version", pa.string()),
        pa.field("last_attempt_run_id", pa.string()),
        pa.field("last_attempt_at", _MOMENT),
        pa.field("last_attempt_outcome", pa.string()),
        pa.field("stale_since", _MOMENT),
        pa.field("stale_reason_code", pa.string()),
        pa.field("partition_values", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("row_version", pa.string(), nullable=False),
    ]
)


def write_parquet(uri: str, batches: Iterable[Sequence[RowMapping]]) -> int:
    """Returns the number of rows. Readers see the file that was there before until this one is complete."""
    rows = 0
    with replacing(uri) as file, pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(_record_batch(batch))
            rows += len(batch)
    return rows


def _record_batch(batch: Sequence[RowMapping]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {name: [row[name] for row in batch] for name in SCHEMA.names if name in batch[0]}
    columns["partition_values"] = [_partition_values(row) for row in batch]
    return pa.RecordBatch.from_pydict(columns, SCHEMA)


def _partition_values(row: RowMapping) -> list[tuple[str, str]]:
    dimensions = ("customer_id", "logical_date")
    return [(name, row[name]) for name in dimensions if row[name] is not None]
