"""Files that somebody may be reading: each appears whole, in place of the one before, or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fsspec.implementations.local import LocalFileSystem
from upath import UPath

from gads_assets.errors import WarehouseError
from gads_assets.raw.storage import without_login


@contextmanager
def replacing(uri: str) -> Iterator[IO[bytes]]:
    """A draft, which takes the place of the file once the block has ended well; readers see the old one until then.

    In a store, an object may appear as soon as it is closed, so that the draft is on this machine there too.
    """
    with _readable_errors(uri):
        target = _opened(uri)
        on_disk = isinstance(target.fs, LocalFileSystem)
        folder = Path(target.path).parent if on_disk else Path(tempfile.gettempdir())
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".draft-", dir=folder)
        draft = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.chmod(0o644)  # as any file: a draft is its owner's alone
            if on_disk:
                draft.replace(target.path)
            else:
                with draft.open("rb") as complete, target.open("wb") as stored:
                    shutil.copyfileobj(complete, stored)
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()


def _opened(uri: str) -> UPath:
    try:
        target = UPath(uri)
        target.fs  # noqa: B018  only this asks for the package that knows such addresses
    except (ImportError, ValueError) as error:
        raise OSError(str(error)) from error
    return target


@contextmanager
def _readable_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WarehouseError(
            f"{without_login(uri)} cannot be written ({error.strerror or error}); name a file in a folder of yours, on "
            "a disk with room"
        ) from error
