"""Beginning runs and reading them back, on any filesystem that fsspec knows.

A run exists once its metadata.json exists, and that file is written last. Until then a crash leaves a directory
that no reader looks into; afterwards nothing in it may change.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from upath import UPath

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.manifest import ManifestError, RunManifest, manifest_from_json
from gads_assets.errors import (
    BrokenPayloadError,
    BrokenSealError,
    RawSinkError,
    RunNotFoundError,
    SealedRunError,
    SettingsError,
    UnreadableRunError,
)
from gads_assets.raw.layout import PAYLOAD, SEAL, Entry, partition_path, read_entry, run_path
from gads_assets.raw.storage import (
    has_seal,
    login_in,
    names_at,
    names_in,
    on_disk,
    open_to_read,
    remove_unsealed,
    without_login,
)
from gads_assets.raw.writing import GZIP, HashingFile, RunWriter, cannot_write

_CHUNK = 1 << 20
_READS_AT_ONCE = 16
_LARGEST_SEAL = 1 << 20

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Seal:
    """`sha256` is that of metadata.json, which names no digest of its own: whoever keeps it finds any later change."""

    manifest: RunManifest
    sha256: str


class RawSink:
    """Run directories under one root URI."""

    def __init__(self, root: str) -> None:
        try:
            self.root = UPath(root)
            self._path, self._uri = self.root.path.rstrip("/"), str(self.root).rstrip("/")
            self.root.fs  # noqa: B018  made when first asked for, and then it may say which package it lacks
        except Exception as error:  # noqa: BLE001  drivers have errors of their own, which need not be OSErrors
            # The driver's words may quote a login, or a part of it.
            words = "" if login_in(root) else str(error)
            raise SettingsError(
                f"the raw sink cannot be at {without_login(root)} ({words or type(error).__name__}); install what that "
                "needs, make it reachable, or set GADS_RAW_URI to another place"
            ) from None
        if login_in(root) and login_in(root) in self.root.path:
            # It would be taken for a part of the path, and stand in every error that names one.
            raise SettingsError(
                f"GADS_RAW_URI has a login, which {self.root.protocol}:// does not take from there; set it to "
                f"{without_login(root)}, and give the login in the way that storage's driver documents"
            )

    def for_each(self, work: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
        """Reads runs as many at a time as is fastest. A disk answers at once, and threads would only wait for each
        other's turns in Python; a store takes its time over each."""
        if on_disk(self.root):
            return list(map(work, items))
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            return list(pool.map(work, items))

    def begin(self, key: PartitionKey, run_id: RunId) -> RunWriter:
        """Opens a new run; raises SealedRunError when that run id was used before, sealed or not."""
        directory = self.root / run_path(key, run_id)
        try:
            directory.mkdir(parents=True, exist_ok=False)
            payload = (directory / PAYLOAD).open("xb")
        except FileExistsError:
            raise SealedRunError(
                f"run {run_id} of {key} exists already; every extraction takes a new run id", run_id=run_id
            ) from None
        except OSError as error:
            with suppress(OSError):
                remove_unsealed(directory)
            raise cannot_write(run_id, error) from error
        return RunWriter(directory, key, run_id, cast("IO[bytes]", payload))

    def sealed_runs(self, key: PartitionKey) -> list[RunId]:
        """The sealed runs of a partition, oldest first."""
        directory = self.root / partition_path(key)
        try:
            found = [read_entry(name) for name in names_in(directory)]
            runs = [run_id for entry, run_id in filter(None, found) if entry is Entry.RUN]
            return sorted(run_id for run_id in runs if has_seal(directory / run_id))
        except OSError as error:
            raise UnreadableRunError(
                f"the runs of {key} cannot be listed ({error.strerror or error}); mend the storage, then try again"
            ) from error

    def manifest(self, key: PartitionKey, run_id: RunId) -> RunManifest:
        """Reads a seal and makes sure that it belongs to the place where it was found."""
        return self.read_seal(key, run_id).manifest

    def read_seal(self, key: PartitionKey, run_id: RunId) -> Seal:
        """The same, with the digest of the seal itself."""
        with _readable(key, run_id):
            try:
                with self._open(key, run_id, SEAL) as seal:
                    content = seal.read(_LARGEST_SEAL + 1)
            except FileNotFoundError:
                if has_seal(self.root / run_path(key, run_id)):
                    raise BrokenSealError(
                        f"run {run_id} of {key}: {SEAL} is a name with no file behind it", run_id=run_id
                    ) from None
                raise RunNotFoundError(f"run {run_id} of {key} has no seal: it does not exist", run_id=run_id) from None
        if len(content) > _LARGEST_SEAL:
            raise BrokenSealError(f"run {run_id} of {key}: {SEAL} is larger than {_LARGEST_SEAL} bytes", run_id=run_id)
        try:
            manifest = manifest_from_json(content)
        except ManifestError as error:
            raise BrokenSealError(f"run {run_id} of {key}: {error}", run_id=run_id) from None
        if (manifest.key, manifest.run_id) != (key, run_id):
            raise BrokenSealError(
                f"run {run_id} of {key} carries the seal of run {manifest.run_id} of {manifest.key}",
                run_id=run_id,
            )
        return Seal(manifest=manifest, sha256=hashlib.sha256(content).hexdigest())

    def payload_uris(self, manifest: RunManifest) -> list[str]:
        directory = f"{self._uri}/{run_path(manifest.key, manifest.run_id)}"
        return [f"{directory}/{file.name}" for file in manifest.files]

    def verify(self, manifest: RunManifest) -> None:
        """Compares every byte with the seal; raises BrokenSealError naming the first file that differs."""
        for _ in self._compared(manifest):
            pass

    def blocks(self, manifest: RunManifest) -> Iterator[bytes]:
        """The payload in blocks of whole lines, read once: they count only if this ends without an error.

        Raises what `verify` does, and BrokenPayloadError where the bytes are as sealed and no gzip.
        """
        key, run_id = manifest.key, manifest.run_id
        broken: BrokenPayloadError | None = None
        with _readable(key, run_id):
            for file, compressed in zip(manifest.files, self._compared(manifest), strict=True):
                try:
                    yield from _whole_lines(_decompressed(compressed))
                except (EOFError, zlib.error) as error:
                    broken = BrokenPayloadError(
                        f"run {run_id} of {key}: {file.name} was sealed as it is, but cannot be decompressed ({error})",
                        run_id=run_id,
                    )
        if broken:
            raise broken

    def rows(self, manifest: RunManifest) -> Iterator[dict[str, Any]]:
        """The rows of a sealed run, as the extractor wrote them; none before every byte was compared with the seal."""
        self.verify(manifest)
        for block in self.blocks(manifest):
            yield from map(json.loads, block.splitlines())

    def _compared(self, manifest: RunManifest) -> Iterator[HashingFile]:
        """The payload's files, one after the other; each is read to its end and compared with the seal before the next
        is handed out."""
        key, run_id = manifest.key, manifest.run_id
        expected = {file.name for file in manifest.files} | {SEAL}
        with _readable(key, run_id):
            present = names_at(self.root.fs, f"{self._path}/{run_path(key, run_id)}")
        for name in sorted(expected ^ present):
            what = "is missing" if name in expected else "is not named by the seal"
            raise BrokenSealError(f"run {run_id} of {key}: file {name} {what}", run_id=run_id)
        for file in manifest.files:
            with _readable(key, run_id), self._open(key, run_id, file.name) as content:
                hashed = HashingFile(content)
                yield hashed
                while hashed.read(_CHUNK):
                    pass
            if (hashed.size, hashed.digest) != (file.bytes, file.sha256):
                raise BrokenSealError(
                    f"run {run_id} of {key}: {file.name} has {hashed.size} bytes and SHA-256 {hashed.digest[:12]}…,"
                    f" the seal says {file.bytes} and {file.sha256[:12]}…",
                    run_id=run_id,
                )

    def _open(self, key: PartitionKey, run_id: RunId, name: str) -> IO[bytes]:
        return open_to_read(self.root.fs, f"{self._path}/{run_path(key, run_id)}/{name}")

    def remove_unsealed(self, key: PartitionKey, run_id: RunId) -> None:
        """Removes a run that was never sealed, also one that an earlier removal left half way; none there is fine.

        Raises SealedRunError when it has a seal, and the run is then where it was, whole. A writer that is still at it
        cannot seal it any more.
        """
        with _removable(key, run_id):
            removed = remove_unsealed(self.root / run_path(key, run_id))
        if not removed:
            raise SealedRunError(f"run {run_id} of {key} is sealed and stays; nothing removes it", run_id=run_id)

    def remove_draft(self, key: PartitionKey, run_id: RunId) -> None:
        """Removes what a killed writer left of writing a seal; the run itself stays, sealed or not."""
        draft = self.root / partition_path(key) / Entry.DRAFT.name_for(run_id)
        with _removable(key, run_id):
            if on_disk(draft):  # nowhere else are there drafts
                Path(draft.path).unlink(missing_ok=True)


def _decompressed(file: HashingFile) -> Iterator[bytes]:
    """Nothing but whole gzip members, at least one. Python's own reader also takes no bytes at all, or zeros after the
    last member, at which Spark's stops."""
    member = zlib.decompressobj(GZIP)
    while chunk := file.read(_CHUNK):
        piece = b""
        while chunk or len(piece) == _CHUNK:
            if member.eof:
                if not chunk:
                    break
                member = zlib.decompressobj(GZIP)
            piece = member.decompress(chunk, _CHUNK)
            yield piece
            chunk = member.unused_data if member.eof else member.unconsumed_tail
    if not member.eof:
        raise EOFError("it ends before its gzip stream does")


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            yield rest + chunk[:end]
            rest = chunk[end:]
        else:
            rest += chunk
    if rest:
        yield rest


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


@contextmanager
def _removable(key: PartitionKey, run_id: RunId) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RawSinkError(
            f"run {run_id} of {key} cannot be removed ({error.strerror or error}); mend the storage or its "
            "permissions, then run housekeeping again",
            run_id=run_id,
        ) from error
