"""partition_status.parquet: ADR-026's rows for whoever reads Parquet, whole or not at all."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem
from sqlalchemy import RowMapping
from upath import UPath

from gads_assets.errors import WarehouseError

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
    try:
        with _replacing(UPath(uri)) as file, pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(_record_batch(batch))
                rows += len(batch)
    except OSError as error:
        raise WarehouseError(
            f"{uri} cannot be written ({error.strerror or error}); name a file in a folder of yours on a disk with room"
        ) from error
    return rows


def _record_batch(batch: Sequence[RowMapping]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {name: [row[name] for row in batch] for name in SCHEMA.names if name in batch[0]}
    columns["partition_values"] = [_partition_values(row) for row in batch]
    return pa.RecordBatch.from_pydict(columns, SCHEMA)


def _partition_values(row: RowMapping) -> list[tuple[str, str]]:
    dimensions = ("customer_id", "logical_date")
    return [(name, row[name]) for name in dimensions if row[name] is not None]


@contextmanager
def _replacing(target: UPath) -> Iterator[IO[bytes]]:
    """An object of a store appears when it is closed; on a disk that takes a draft beside it."""
    if not isinstance(target.fs, LocalFileSystem):
        with target.open("wb") as file:
            yield file
        return
    path = target.path
    folder = os.path.dirname(path) or "."  # noqa: PTH120  a UPath's, of whatever kind
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    descriptor, draft = tempfile.mkstemp(prefix=".partition_status-", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, 0o644)  # noqa: PTH101  as any file: a draft is its owner's alone
        os.replace(draft, path)  # noqa: PTH105
    except BaseException:
        os.unlink(draft)  # noqa: PTH108
        raise
