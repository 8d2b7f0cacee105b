"""Why a partition is to run, and which of the due ones go together into one run."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Final

from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.windows import LONGEST_WINDOW, plan_windows

DEFAULT_BATCH: Final = 400
"""Partitions of one run: a failed one costs no more than these, and what is more urgent waits no longer for it."""


class Purpose(StrEnum):
    FRESH = "fresh"
    """The account's day has opened, and was never asked for."""

    RETRY = "retry"
    """What was tried last came to nothing, or somebody wants it tried again."""

    REVALIDATE = "revalidate"
    """A sealed run is judged again; nothing is asked of the API."""

    RESTATEMENT = "restatement"
    """It is published, and Google may have changed it since."""

    BACKFILL = "backfill"
    """Somebody asked for history; it gives way to everything else."""

    @property
    def priority(self) -> int:
        """In Dagster's queue, where what a person launches has 0 and a mart's refresh -1."""
        return _PRIORITIES[self]

    @property
    def asks_api(self) -> bool:
        return self is not Purpose.REVALIDATE

    @property
    def open_batches(self) -> int:
        """How many batches may wait or run at once. What is due beyond that stays where it can still be held back,
        and goes together into fewer, larger runs."""
        return 4 if self is Purpose.FRESH else 2


_PRIORITIES: Final = {
    Purpose.FRESH: 30,
    Purpose.RETRY: 20,
    Purpose.REVALIDATE: 20,
    Purpose.RESTATEMENT: 10,
    Purpose.BACKFILL: -10,
}


@dataclass(frozen=True, kw_only=True)
class Due:
    """A partition whose time has come, in a run of `at_most` partitions."""

    key: PartitionKey
    purpose: Purpose
    at_most: int = sys.maxsize


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Partitions of one run, of one query or several."""

    purpose: Purpose
    due: tuple[Due, ...]


def plan_batches(due: Iterable[Due], *, largest: int = DEFAULT_BATCH) -> list[Batch]:
    """All of them, each once: in few batches, the most urgent first, and of equal ones the largest and the newest days
    first.

    A customer's days of a query stay together as far as they fit, since they are one call to the API; and so do the
    partitions of a query, since a run takes longer with each of its queries.
    """
    batches = [
        Batch(purpose=purpose, due=tuple(piece))
        for (_, purpose, at_most), group in groupby(sorted(due, key=_by_kind), key=_by_kind)
        for piece in _pieces(group, min(at_most, largest))
    ]
    return sorted(batches, key=_urgency)


def company_of(fruitless: int, *, tries_left: int, largest: int) -> int:
    """With how many at most a partition runs whose last runs came to nothing. If it was one partition that ended them,
    smaller ones find out which: the last try is alone, and blocks nobody else."""
    return largest if fruitless == 0 else max(1, min(largest // 4, 5 ** max(tries_left - 1, 0)))


def count_operations(keys: Iterable[PartitionKey], days_per_call: Mapping[str, int | None]) -> int:
    """What extracting them in one run costs, if no call has to be made again."""
    operations = 0
    for (query_name, _), group in groupby(sorted(keys, key=_by_call), key=_by_call):
        longest = days_per_call[query_name] or LONGEST_WINDOW
        operations += len(plan_windows((key.logical_date for key in group), longest=longest))
    return operations


def _by_kind(each: Due) -> tuple[int, Purpose, int]:
    return -each.purpose.priority, each.purpose, each.at_most


def _by_call(key: PartitionKey) -> tuple[str, CustomerId]:
    return key.query_name, key.customer_id


def _pieces(due: Iterable[Due], largest: int) -> Iterator[list[Due]]:
    """Each as large as it can be without cutting what one call brings."""
    calls = [
        sorted(group, key=lambda each: each.key.logical_date, reverse=True)
        for _, group in groupby(sorted(due, key=lambda each: _by_call(each.key)), key=lambda each: _by_call(each.key))
    ]
    calls.sort(
        key=lambda call: (call[0].key.query_name, -call[0].key.logical_date.toordinal(), call[0].key.customer_id)
    )
    piece: list[Due] = []
    for call in calls:
        for start in range(0, len(call), largest):
            part = call[start : start + largest]
            if piece and len(piece) + len(part) > largest:
                yield piece
                piece = []
            piece += part
    if piece:
        yield piece


def _urgency(batch: Batch) -> tuple[int, int, int]:
    newest = max(each.key.logical_date for each in batch.due)
    return -batch.purpose.priority, -batch.due[0].at_most, -newest.toordinal()
