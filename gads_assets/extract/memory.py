"""The memory of a stream: each batch takes and frees as much as the one before."""

import ctypes
from contextlib import suppress
from typing import Final

_TRIM_THRESHOLD: Final = -1  # of glibc's malloc.h
_MMAP_THRESHOLD: Final = -3
_KEPT: Final = 64 << 20
_LARGEST_KEPT: Final = 32 << 20


def keep_freed_memory() -> None:
    """Has glibc keep what a batch freed for the next one. Giving it back to the system, as it does from 128 KB on,
    costs a page fault for every few rows. Elsewhere than on glibc nothing changes."""
    with suppress(AttributeError, OSError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_TRIM_THRESHOLD, _KEPT)
        libc.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
