"""What the raw sink asks of a filesystem: look without a doubt, create only, and remove only what has no seal.

On a disk, links and renames decide races; on an object store, an object that appears whole or not at all does.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from upath import UPath

from gads_assets.domain.keys import RunId
from gads_assets.errors import BrokenSealError
from gads_assets.raw.layout import SEAL, Entry

# Secret keys may hold a slash or an @: a login with a password ends at the last @. Azure has a container there instead.
_LOGIN: Final = re.compile(r"(?<=://)(?:[^/@]*:.*|(?<!abfs://)(?<!abfss://)[^/]*)@")


def login_in(uri: str) -> str:
    """The `user:password@` of a URI, or nothing."""
    found = _LOGIN.search(uri)
    return found.group() if found else ""


def without_login(uri: str) -> str:
    """A URI as it may be shown."""
    return uri.replace(login_in(uri), "", 1)


def on_disk(path: UPath) -> bool:
    return isinstance(path.fs, LocalFileSystem)


def open_to_read(storage: AbstractFileSystem, path: str) -> IO[bytes]:
    """On a disk without fsspec's own opening, which takes longer than reading a small run."""
    if isinstance(storage, LocalFileSystem):
        return open(path, "rb")  # noqa: PTH123  building a Path takes as long again
    opened: IO[bytes] = storage.open(path, "rb")
    return opened


def names_in(directory: UPath) -> set[str]:
    return names_at(directory.fs, directory.path)


def names_at(storage: AbstractFileSystem, path: str) -> set[str]:
    """What lies in a directory; nothing, where there is none.

    Asks the storage and not fsspec's memory of it, and raises when it does not answer: fsspec's own `exists` and
    `isdir` say no then, and a failure must never pass for a missing seal.
    """
    try:
        if isinstance(storage, LocalFileSystem):
            return set(os.listdir(path))  # noqa: PTH208  a Path for each name is what takes the time
        storage.invalidate_cache(path)
        return {name.rstrip("/").rpartition("/")[2] for name in storage.ls(path, detail=False)}
    except FileNotFoundError:
        return set()


def has_seal(directory: UPath) -> bool:
    return SEAL in names_in(directory)


def write_seal(directory: UPath, content: bytes) -> None:
    """Creates metadata.json whole or not at all, and never over an existing one."""
    seal = directory / SEAL
    if not on_disk(directory):
        # An object appears whole when its upload completes; "x" makes the store refuse to overwrite.
        with seal.open("xb") as file:
            file.write(content)
        return
    draft = Path(directory.parent.path) / Entry.DRAFT.name_for(RunId(directory.name))
    # Opened before the link: a removal may move the directory just after it, and put it back when it finds the seal.
    with _opened(directory.path) as inside, _opened(directory.parent.path) as beside:
        try:
            with draft.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            # A rename would replace an existing seal; a hard link refuses, and appears with its content. By path:
            # through the descriptor it would also reach a directory that was moved aside and is being deleted.
            os.link(draft, seal.path)
        finally:
            draft.unlink(missing_ok=True)
        os.fsync(inside)
        os.fsync(beside)


def remove_unsealed(directory: UPath) -> bool:
    """True when nothing of the run is left; False when it has a seal, and then it is where it belongs.

    On a disk this holds also against a writer that seals at this very moment: one of the two comes first, and the other
    finds out. Elsewhere there is a moment between the last look and the deletion.
    """
    if not on_disk(directory):
        return _remove_objects(directory)
    if has_seal(directory):
        return False
    place = Path(directory.path)
    aside = place.with_name(Entry.ASIDE.name_for(RunId(directory.name)))
    with suppress(FileNotFoundError):  # it is aside already, left by a removal that was killed
        place.rename(aside)
    # Seals are linked by the run's own path. What lies aside without one can therefore never get one.
    try:
        sealed = any(entry.name == SEAL for entry in aside.iterdir())
    except FileNotFoundError:
        return not has_seal(directory)
    if sealed:
        with suppress(FileNotFoundError):  # another removal put it back
            aside.rename(place)
        return False
    with suppress(FileNotFoundError):  # another removal is deleting it too
        shutil.rmtree(aside)
    return True


def _remove_objects(directory: UPath) -> bool:
    storage = directory.fs
    # By name, listed before the last look: a seal that appears later is never among them.
    payload = [path for path in storage.find(directory.path) if path.rpartition("/")[2] != SEAL]
    if has_seal(directory):
        return False
    for path in payload:
        with suppress(FileNotFoundError):
            storage.rm_file(path)
    if has_seal(directory):
        raise BrokenSealError(
            f"run {directory.name} was sealed while its files were being removed; extract the day again, and give "
            "housekeeping a longer grace",
            run_id=directory.name,
        )
    with suppress(OSError, NotImplementedError):  # most object stores have no directories
        storage.rmdir(directory.path)
    return True


def sync(file: IO[bytes]) -> None:
    # Remote files have no descriptor; closing them is what makes them durable.
    with suppress(OSError, AttributeError):
        os.fsync(file.fileno())


@contextmanager
def _opened(directory: str) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
