"""What the warehouse may forget, and when: the decisions of its housekeeping."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

GRACE: Final = timedelta(hours=24)
"""Longer than any loader may live: rows that were staged before, and that no pointer names, will never get one."""

SHORTEST_RETENTION_HOURS: Final = 24
"""As long as the grace: what a loader is about to stage must not be vacuumed under it."""
LONGEST_RETENTION_HOURS: Final = 720
RETENTION_HOURS: Final = 168

_SMALL_FILE: Final = 32 * 1024 * 1024
_SMALL_FILES: Final = 20


@dataclass(frozen=True, kw_only=True)
class Upkeep:
    """What housekeeping takes from the tables of a query, or would take.

    Rows that are deleted today are in files that the retention still keeps: `files` and `bytes` are of earlier ones.
    """

    query_name: str
    superseded: int = 0
    """Partitions whose staged rows were replaced or withdrawn longer ago than the retention."""
    abandoned: int = 0
    """Partitions whose staged rows no pointer names."""
    pointer_rows: int = 0
    small_files: int = 0
    """Files that are brought together; no row of them goes."""
    files: int = 0
    bytes: int = 0

    @property
    def is_nothing(self) -> bool:
        return self == Upkeep(query_name=self.query_name)


def version_at(commits: Mapping[int, datetime], moment: datetime) -> int | None:
    """The version of a table at a moment; None if it is not known, for lack of a commit that old.

    `commits` has the versions that are in the log still. Where their times go back and forth, as in a table that was
    copied, only those before the first younger one count: keeping more is safe, and keeping less is not.
    """
    old = takewhile(lambda commit: commit[1] <= moment, sorted(commits.items()))
    return max((version for version, _ in old), default=None)


def files_to_compact(sizes: Iterable[int]) -> int:
    """How many of a table's files are small, or none while rewriting them would cost more than it saves."""
    small = sum(size < _SMALL_FILE for size in sizes)
    return small if small >= _SMALL_FILES else 0
