"""Writing one run: rows into its payload, then its seal. Nothing counts before the seal does."""

import errno
import hashlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import IO, Self

from upath import UPath
from zlib_ng import zlib_ng

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.manifest import PayloadFile, RunManifest, manifest_to_json
from gads_assets.errors import RawSinkError, SealedRunError
from gads_assets.raw.layout import PAYLOAD
from gads_assets.raw.storage import remove_unsealed, sync, write_seal

GZIP = zlib_ng.MAX_WBITS | 16
_PENDING = 1 << 15  # compressing a few rows at a time costs more than compressing them


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What only the extractor knows about a run; the writer adds the key, the counts and the digests."""

    run_seq: int
    schema_version: str
    gaql: str
    api_version: str
    api_origin: str
    account_time_zone: str
    account_currency: str
    window_start: date
    window_end: date
    extraction_started_at: datetime
    extraction_finished_at: datetime
    code_version: str


class RunWriter:
    """Writes one run's payload; nothing it wrote counts until `seal` returns.

    A write that failed ends the run: it takes no further row and no seal. Leaving the `with` block without a seal
    removes what was written.
    """

    def __init__(self, directory: UPath, key: PartitionKey, run_id: RunId, payload: IO[bytes]) -> None:
        self._directory = directory
        self._key = key
        self._run_id = run_id
        self._open = True
        self._sealed = False
        self.record_count = 0
        self._file = HashingFile(payload)
        # No file name and no time in the header: the same rows give the same bytes, in whatever portions they come.
        # Not so at zlib-ng's levels 1 and 6.
        self._gzip = zlib_ng.compressobj(level=2, wbits=GZIP)
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def write(self, lines: bytes) -> None:
        """Adds rows: JSON documents, each with the line break that ends it."""
        self._require_open()
        self.record_count += lines.count(b"\n")
        self._pending.append(lines)
        self._pending_bytes += len(lines)
        if self._pending_bytes >= _PENDING:
            self._compress()

    def _compress(self) -> None:
        content = b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        try:
            self._file.write(self._gzip.compress(content))
        except OSError as error:
            self._open = False
            raise cannot_write(self._run_id, error) from error

    def seal(self, facts: RunFacts) -> RunManifest:
        """Makes the run exist. Raises SealedRunError the second time, or if somebody else sealed it."""
        self._require_open()
        self._open = False
        try:
            self._compress()
            self._file.write(self._gzip.flush())
            self._file.close()
            manifest = RunManifest(
                source=self._key.source,
                customer_id=self._key.customer_id,
                query_name=self._key.query_name,
                logical_date=self._key.logical_date,
                run_id=self._run_id,
                record_count=self.record_count,
                gaql_sha256=hashlib.sha256(facts.gaql.encode()).hexdigest(),
                files=(PayloadFile(name=PAYLOAD, bytes=self._file.size, sha256=self._file.digest),),
                **asdict(facts),
            )
            write_seal(self._directory, manifest_to_json(manifest))
        except FileExistsError:
            raise SealedRunError(f"run {self._run_id} of {self._key} is sealed already", run_id=self._run_id) from None
        except OSError as error:
            raise cannot_write(self._run_id, error) from error
        self._sealed = True
        return manifest

    def abandon(self) -> None:
        """Removes an unsealed run; what cannot be removed stays invisible. A seal that appeared all the same stays."""
        if self._sealed:
            return
        self._open = False
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            remove_unsealed(self._directory)

    def _require_open(self) -> None:
        if self._sealed:
            raise SealedRunError(f"run {self._run_id} of {self._key} is sealed", run_id=self._run_id)
        if not self._open:
            raise RawSinkError(
                f"run {self._run_id} of {self._key} ended without a seal; begin another", run_id=self._run_id
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()


class HashingFile:
    """Counts and hashes what passes through: sealing reads nothing back, and comparing reads nothing twice."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self.size += len(data)
        return self._file.write(data)

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        self.size += len(data)
        return data

    def close(self) -> None:
        if not self._file.closed:
            self._file.flush()
            sync(self._file)
            self._file.close()


def cannot_write(run_id: RunId, error: OSError) -> RawSinkError:
    fix = {
        errno.ENOSPC: "the disk is full: free space, then run again",
        errno.EROFS: "the disk is read-only: set GADS_RAW_URI or GADS_HOME to a writable place",
        errno.EACCES: "not permitted: set GADS_RAW_URI or GADS_HOME to a writable place",
        errno.ENOENT: "it was removed meanwhile: run again, and give housekeeping a longer grace",
    }.get(error.errno or 0, "mend the storage, then run again")
    return RawSinkError(f"run {run_id} cannot be written ({error.strerror or error}); {fix}", run_id=run_id)
