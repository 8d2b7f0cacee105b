"""What each partition may show at which moment, and what is wrong with a read that shows something else.

The writer says before each step what may be seen from now on, and after it what must be; between the two, both are
right. A step that crashed leaves it open, until a reader has seen the new, after which nobody may see the old.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import Final

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets_tests.sealed_runs import key

_CONTENT: Final = ("campaign_id", "campaign_name", "metrics_clicks", "metrics_conversions")

Rows = list[tuple[object, ...]]
"""Sorted, and without the key and the run."""
Seen = Mapping[PartitionKey, Mapping[RunId, Rows]]


class Fault(StrEnum):
    MIXED = "mixed_reads"
    """Rows of two runs in one partition."""
    PARTIAL = "partial_reads"
    """Not exactly the rows of the run that they are said to be of."""
    MISSING = "missing_reads"
    """Nothing, where a run is known to be shown."""
    RETRACTED = "retracted_reads"
    """Rows of a run that was withdrawn, or that nobody ever loaded."""
    STALE = "stale_reads"
    """Rows of a run after those of a newer one were there."""


@dataclass(frozen=True, kw_only=True)
class Complaint:
    fault: Fault
    sentence: str


@dataclass
class _Possibility:
    """None is nothing to see. It may be seen by reads that end after `since` and begin before `until`."""

    run_id: RunId | None
    since: float
    until: float = math.inf
    is_withdrawn: bool = False


def content(rows: Iterable[Mapping[str, object]]) -> Rows:
    return sorted((tuple(row[name] for name in _CONTENT) for row in rows), key=repr)


def by_partition(rows: Iterable[Mapping[str, object]]) -> Seen:
    """A read of the query as the journal takes it."""
    groups: dict[PartitionKey, dict[RunId, list[Mapping[str, object]]]] = {}
    for row in rows:
        place = key(str(row["customer_id"]), str(row["logical_date"]))
        groups.setdefault(place, {}).setdefault(RunId(str(row["run_id"])), []).append(row)
    return {place: {run: content(found) for run, found in runs.items()} for place, runs in groups.items()}


class Journal:
    """Of partitions that show nothing yet. Readers and the writer may use it at the same time."""

    def __init__(self, partitions: Iterable[PartitionKey], *, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._lock = Lock()
        self._rows: dict[RunId, Rows] = {}
        self._possible = {partition: [_Possibility(run_id=None, since=-math.inf)] for partition in partitions}

    def sealed(self, run_id: RunId, rows: Iterable[Mapping[str, object]]) -> None:
        with self._lock:
            self._rows[run_id] = content(rows)

    def rows(self, run_id: RunId) -> Rows:
        return self._rows[run_id]

    def begins(self, partition: PartitionKey, run_id: RunId | None) -> None:
        """To be said before the first moment at which a reader could see it."""
        with self._lock:
            possible = self._possible[partition]
            if possible[-1].run_id != run_id:
                possible.append(_Possibility(run_id=run_id, since=self.clock()))

    def is_known(self, partition: PartitionKey, run_id: RunId | None) -> None:
        """To be said once what began is certainly there."""
        with self._lock:
            possible = self._possible[partition]
            places = [place for place, each in enumerate(possible) if each.run_id == run_id]
            _end(possible, before=places[-1], at=self.clock())

    def complaints(self, seen: Seen, *, began: float, ended: float) -> list[Complaint]:
        """What is wrong with a read of everything that lasted from `began` to `ended`."""
        with self._lock:
            found = [
                Complaint(fault=Fault.RETRACTED, sentence=f"{partition} is shown, and nobody loaded it")
                for partition in seen.keys() - self._possible.keys()
            ]
            for partition in self._possible:
                complaint = self._complaint(partition, seen.get(partition, {}), began=began, ended=ended)
                if complaint:
                    found.append(complaint)
        return found

    def _complaint(
        self, partition: PartitionKey, runs: Mapping[RunId, Rows], *, began: float, ended: float
    ) -> Complaint | None:
        possible = self._possible[partition]
        now = [place for place, each in enumerate(possible) if each.since <= ended and each.until > began]
        if len(runs) > 1:
            return Complaint(fault=Fault.MIXED, sentence=f"{partition} shows rows of {len(runs)} runs")
        shown, rows = next(iter(runs.items()), (None, []))
        if shown is not None and rows != self._rows.get(shown):
            return Complaint(
                fault=Fault.PARTIAL,
                sentence=f"{partition} shows {len(rows)} rows as those of run {shown}, which has "
                f"{len(self._rows.get(shown, []))}, or others",
            )
        # Of a run without rows there is nothing to see either.
        fitting = [place for place in now if self._looks(possible[place].run_id, shown)]
        if not fitting:
            right = ", ".join(str(possible[place].run_id) for place in now)
            return Complaint(
                fault=self._fault(partition, shown), sentence=f"{partition} shows run {shown}, and not {right}"
            )
        if len(fitting) == 1:
            _end(possible, before=fitting[0], at=ended)
        return None

    def _looks(self, run_id: RunId | None, shown: RunId | None) -> bool:
        return run_id == shown or (shown is None and not self._rows.get(run_id or RunId("")))

    def _fault(self, partition: PartitionKey, shown: RunId | None) -> Fault:
        if shown is None:
            return Fault.MISSING
        withdrawn = [each.is_withdrawn for each in self._possible[partition] if each.run_id == shown]
        return Fault.STALE if withdrawn and not withdrawn[-1] else Fault.RETRACTED


def _end(possible: list[_Possibility], *, before: int, at: float) -> None:
    for earlier in possible[:before]:
        if earlier.until > at:
            earlier.until = at
            earlier.is_withdrawn = possible[before].run_id is None
