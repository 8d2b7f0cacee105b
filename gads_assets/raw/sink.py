"""Writing, sealing and reading back run directories on any filesystem that fsspec knows.

A run exists once its metadata.json exists, and that file is written last. Until then a crash leaves a directory
that no reader looks into; afterwards nothing in it may change.
"""

import errno
import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import date, datetime
from pathlib import Path
from typing import IO, Any, Self, cast

from fsspec.implementations.local import LocalFileSystem
from upath import UPath

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.manifest import (
    ManifestError,
    PayloadFile,
    RunManifest,
    manifest_from_json,
    manifest_to_json,
)
from gads_assets.errors import BrokenSealError, RawSinkError, RunNotFoundError, SealedRunError, UnreadableRunError
from gads_assets.raw.layout import PAYLOAD, SEAL, partition_path, run_path

_CHUNK = 1 << 20


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


class RawSink:
    """Run directories under one root URI."""

    def __init__(self, root: str) -> None:
        self._root = UPath(root)

    def begin(self, key: PartitionKey, run_id: RunId) -> "RunWriter":
        """Opens a new run; raises SealedRunError when that run id was used before, sealed or not."""
        directory = self._root / run_path(key, run_id)
        try:
            directory.mkdir(parents=True, exist_ok=False)
        except FileExistsError:
            raise SealedRunError(
                f"run {run_id} of {key} exists already; every extraction takes a new run id", run_id=run_id
            ) from None
        except OSError as error:
            raise _cannot_write(run_id, error) from error
        return RunWriter(directory, key, run_id)

    def sealed_runs(self, key: PartitionKey) -> list[RunId]:
        """The sealed runs of a partition, oldest first."""
        directory = self._root / partition_path(key)
        if not directory.is_dir():
            return []
        return sorted(RunId(run.name) for run in directory.iterdir() if (run / SEAL).is_file())

    def manifest(self, key: PartitionKey, run_id: RunId) -> RunManifest:
        """Reads a seal and makes sure that it belongs to the place where it was found."""
        with _readable(key, run_id):
            try:
                content = (self._root / run_path(key, run_id) / SEAL).read_bytes()
            except FileNotFoundError:
                raise RunNotFoundError(f"run {run_id} of {key} has no seal: it does not exist", run_id=run_id) from None
        try:
            manifest = manifest_from_json(content)
        except ManifestError as error:
            raise BrokenSealError(f"run {run_id} of {key}: {error}", run_id=run_id) from None
        if (manifest.key, manifest.run_id) != (key, run_id):
            raise BrokenSealError(
                f"run {run_id} of {key} carries the seal of run {manifest.run_id} of {manifest.key}",
                run_id=run_id,
            )
        return manifest

    def payload_uris(self, manifest: RunManifest) -> list[str]:
        directory = self._root / run_path(manifest.key, manifest.run_id)
        return [str(directory / file.name) for file in manifest.files]

    def verify(self, manifest: RunManifest) -> None:
        """Compares every byte with the seal; raises BrokenSealError naming the first file that differs."""
        directory = self._root / run_path(manifest.key, manifest.run_id)
        expected = {file.name for file in manifest.files} | {SEAL}
        with _readable(manifest.key, manifest.run_id):
            present = {entry.name for entry in directory.iterdir()} if directory.is_dir() else set()
        for name in sorted(expected ^ present):
            what = "is missing" if name in expected else "is not named by the seal"
            raise BrokenSealError(
                f"run {manifest.run_id} of {manifest.key}: file {name} {what}", run_id=manifest.run_id
            )
        for file in manifest.files:
            with _readable(manifest.key, manifest.run_id):
                size, digest = _measure(directory / file.name)
            if (size, digest) != (file.bytes, file.sha256):
                raise BrokenSealError(
                    f"run {manifest.run_id} of {manifest.key}: {file.name} has {size} bytes and SHA-256 {digest[:12]}…,"
                    f" the seal says {file.bytes} and {file.sha256[:12]}…",
                    run_id=manifest.run_id,
                )

    def rows(self, manifest: RunManifest) -> Iterator[dict[str, Any]]:
        """The rows of a sealed run, as the extractor wrote them."""
        directory = self._root / run_path(manifest.key, manifest.run_id)
        for file in manifest.files:
            with (directory / file.name).open("rb") as compressed, gzip.open(compressed, "rb") as lines:
                for line in lines:
                    yield json.loads(line)


class RunWriter:
    """Writes one run's payload; nothing it wrote counts until `seal` returns.

    Leaving the `with` block without a seal removes what was written.
    """

    def __init__(self, directory: UPath, key: PartitionKey, run_id: RunId) -> None:
        self._directory = directory
        self._key = key
        self._run_id = run_id
        self._sealed = False
        self.record_count = 0
        try:
            self._file = _HashingFile(cast("IO[bytes]", (directory / PAYLOAD).open("xb")))
        except OSError as error:
            raise _cannot_write(run_id, error) from error
        # No file name and no time in the header: the same rows give the same bytes.
        self._gzip = gzip.GzipFile(filename="", mode="wb", fileobj=self._file, compresslevel=1, mtime=0)

    def append(self, line: bytes) -> None:
        """Adds one row, a JSON document without line breaks."""
        if self._sealed:
            raise SealedRunError(f"run {self._run_id} of {self._key} is sealed", run_id=self._run_id)
        try:
            self._gzip.write(line + b"\n")
        except OSError as error:
            raise _cannot_write(self._run_id, error) from error
        self.record_count += 1

    def extend(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.append(line)

    def seal(self, facts: RunFacts) -> RunManifest:
        """Makes the run exist. Raises SealedRunError the second time, or if somebody else sealed it."""
        if self._sealed:
            raise SealedRunError(f"run {self._run_id} of {self._key} is sealed already", run_id=self._run_id)
        try:
            self._gzip.close()
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
            _write_seal(self._directory, manifest_to_json(manifest))
        except FileExistsError:
            raise SealedRunError(f"run {self._run_id} of {self._key} is sealed already", run_id=self._run_id) from None
        except OSError as error:
            raise _cannot_write(self._run_id, error) from error
        self._sealed = True
        return manifest

    def abandon(self) -> None:
        """Removes an unsealed run; what cannot be removed stays invisible. A seal that appeared all the same stays."""
        if self._sealed:
            return
        with suppress(OSError):
            self._gzip.close()
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            if not (self._directory / SEAL).exists():
                self._directory.fs.rm(self._directory.path, recursive=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()


class _HashingFile:
    """Counts and hashes what passes through, so that sealing reads nothing back."""

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

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if not self._file.closed:
            self._file.flush()
            _sync(self._file)
            self._file.close()


def _write_seal(directory: UPath, content: bytes) -> None:
    """Creates metadata.json whole or not at all, and never over an existing one."""
    seal = directory / SEAL
    if not isinstance(directory.fs, LocalFileSystem):
        # An object appears whole when its upload completes; "x" makes the store refuse to overwrite.
        with seal.open("xb") as file:
            file.write(content)
        return
    # A rename would replace an existing seal; a hard link refuses, and appears with its content.
    draft = Path(directory.parent.path) / f".{directory.name}.{SEAL}"
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, seal.path)
    finally:
        draft.unlink(missing_ok=True)
    for folder in (directory.path, directory.parent.path):
        _sync_directory(folder)


def _sync(file: IO[bytes]) -> None:
    # Remote files have no descriptor; closing them is what makes them durable.
    with suppress(OSError, AttributeError):
        os.fsync(file.fileno())


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _measure(path: UPath) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


@contextmanager
def _readable(key: PartitionKey, run_id: RunId) -> Iterator[None]:
    """What is missing, or a folder where a file should be, is damage; a storage that does not answer says nothing
    about the run."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise BrokenSealError(f"run {run_id} of {key}: {error}", run_id=run_id) from None
    except OSError as error:
        raise UnreadableRunError(
            f"run {run_id} of {key} cannot be read ({error.strerror or error}); mend the storage, then judge it again",
            run_id=run_id,
        ) from error


def _cannot_write(run_id: RunId, error: OSError) -> RawSinkError:
    fix = {
        errno.ENOSPC: "the disk is full: free space, then run again",
        errno.EROFS: "the disk is read-only: set GADS_RAW_URI or GADS_HOME to a writable place",
        errno.EACCES: "not permitted: set GADS_RAW_URI or GADS_HOME to a writable place",
    }.get(error.errno or 0, "nothing was sealed")
    return RawSinkError(f"run {run_id} cannot be written ({error.strerror or error}); {fix}", run_id=run_id)
