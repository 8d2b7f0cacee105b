"""Looking through the raw sink in few requests. A storage that does not answer is an error, never an empty folder."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fsspec.implementations.local import LocalFileSystem
from upath import UPath

from gads_assets.domain.keys import parse_customer_id, parse_logical_date
from gads_assets.errors import PartitionKeyError, RawSinkError
from gads_assets.raw.storage import on_disk, without_login


def entries_of(folder: UPath) -> Iterator[tuple[str, bool]]:
    folder.fs.invalidate_cache(folder.path)
    try:
        listed = folder.fs.ls(folder.path, detail=True)
    except FileNotFoundError:
        return
    for information in listed:
        name, is_directory = information["name"].rstrip("/"), information["type"] == "directory"
        if name != folder.path.rstrip("/"):
            yield name.rpartition("/")[2], is_directory
        elif not is_directory:
            raise NotADirectoryError(f"{folder.path} is not a folder")


def all_below(folder: UPath) -> Iterator[tuple[tuple[str, ...], bool]]:
    top = folder.path.rstrip("/") + "/"
    for information in details_of_all(folder):
        name = information["name"].rstrip("/")
        if name.startswith(top):
            yield tuple(name.removeprefix(top).split("/")), information["type"] == "directory"


def details_of_all(path: UPath) -> Iterable[dict[str, Any]]:
    """What fsspec knows about a path and all below it, in few requests; nothing if it is gone."""
    path.fs.invalidate_cache(path.path)
    if not on_disk(path):
        found: dict[str, dict[str, Any]] = path.fs.find(path.path, withdirs=True, detail=True)
        return found.values()
    try:
        return _walk(path.fs, path.fs.info(path.path))
    except FileNotFoundError:
        return ()


def _walk(disk: LocalFileSystem, information: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """fsspec's own walk passes over folders that may not be read, and an orphan would then go unnoticed."""
    yield information
    if information["type"] == "directory":
        with suppress(FileNotFoundError):
            for inside in disk.ls(information["name"], detail=True):
                yield from _walk(disk, inside)


@contextmanager
def answering(root: UPath) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RawSinkError(
            f"the raw sink {without_login(str(root))} cannot be read ({error.strerror or error}); mend the storage or "
            "its permissions, then try again"
        ) from error


def is_customer(name: str) -> bool:
    try:
        return parse_customer_id(name) == name
    except PartitionKeyError:
        return False


def is_day(name: str) -> bool:
    try:
        parse_logical_date(name)
    except PartitionKeyError:
        return False
    return True
