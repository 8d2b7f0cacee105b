"""Disks that are full or read-only: for real where mounting is permitted, imitated elsewhere.

As root, and not in a container that forbids it, they are small file systems of their own. Otherwise nothing is ever
full: a limit on the size of each file, or a folder in which nothing can be made, fails the program's writes instead,
for a reason that is not the disk's.
"""

import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def full_disk(folder: Path, *, kilobytes: int) -> Iterator[Sequence[str]]:
    """A folder that takes this much and no more; yields what must stand before the commands that use it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not can_mount():
        yield ("bash", "-c", f'ulimit -f {kilobytes}; exec "$@"', "bash")
        return
    with _mounted(folder, f"size={kilobytes}k"):
        yield ()


@contextmanager
def hardly_any_disk(folder: Path) -> Iterator[Path]:
    """Yields a folder with room for one small file; where nothing can be mounted, for none.

    A limit on the size of files will not do here: the rest of the program has files to write too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if can_mount():
        with _mounted(folder, "size=4k"):
            yield folder
    else:
        with read_only_disk(folder) as place:
            yield place


@contextmanager
def read_only_disk(folder: Path) -> Iterator[Path]:
    """Yields a folder in which nothing can be written."""
    folder.mkdir(parents=True, exist_ok=True)
    if can_mount():
        with _mounted(folder, "ro,size=4k"):
            yield folder
    elif os.geteuid() == 0:
        # Permissions do not bind root, but nobody can make a folder below a file.
        file = folder / "file"
        file.write_text("in the way")
        yield file / "folder"
    else:
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


@contextmanager
def _mounted(folder: Path, options: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@functools.cache
def can_mount() -> bool:
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as place:
        tried = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], capture_output=True, check=False)
        if tried.returncode == 0:
            subprocess.run(["umount", place], check=True)
    return tried.returncode == 0
