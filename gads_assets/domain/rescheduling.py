"""Which runs try failed partitions again: rectangles of customers × days, which is what Dagster launches as one run."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from typing import Final

from gads_assets.domain.keys import CustomerId, PartitionKey

MOST_PARTITIONS: Final = 400
"""Of one run: a failed one costs no more than these, and the next can be queued behind it."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """A query's: after how many runs that failed since a partition was last sealed somebody has to look, and the first
    day that is a partition."""

    max_attempts: int
    start_date: date


@dataclass(frozen=True, kw_only=True)
class DuePartition:
    """Its newest extraction failed, in `dagster_run_id`, and since `retry_at` another is worth it."""

    key: PartitionKey
    retry_at: datetime
    dagster_run_id: str


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """The partitions between two corners (see `partitions_between`); `retry_at` is the newest of theirs."""

    first: PartitionKey
    last: PartitionKey
    retry_at: datetime

    def name(self, number: int) -> str:
        """The same for the same partitions until one of them is tried again; `number` counts runs that tried none."""
        return f"{self.first.query_name} {self.first.label}...{self.last.label} {self.retry_at.isoformat()} {number}"


def plan_reruns(due: Iterable[DuePartition], order: Sequence[CustomerId]) -> list[Rerun]:
    """Covers exactly the due partitions, each once, newest days first. `order` is that in which Dagster knows the
    customers; one that is not in it cannot be launched, and is left out.

    A customer's days stay together, also where that takes a run more: it is one call to the API.
    """
    positions = {customer_id: position for position, customer_id in enumerate(order)}
    moments = {each.key: each.retry_at for each in due if each.key.customer_id in positions}
    reruns: list[Rerun] = []
    for (source, query_name), keys in groupby(sorted(moments, key=_query), key=_query):
        for customers, days in _rectangles((positions[key.customer_id], key.logical_date.toordinal()) for key in keys):
            first, last = (
                PartitionKey(
                    source=source,
                    customer_id=order[position],
                    query_name=query_name,
                    logical_date=date.fromordinal(day),
                )
                for position, day in ((customers[0], days[0]), (customers[-1], days[-1]))
            )
            retry_at = max(moments[key] for key in partitions_between(first, last, order))
            reruns.append(Rerun(first=first, last=last, retry_at=retry_at))
    return sorted(reruns, key=lambda rerun: rerun.last.logical_date, reverse=True)


def partitions_between(first: PartitionKey, last: PartitionKey, order: Sequence[CustomerId]) -> set[PartitionKey]:
    """As Dagster reads a range: every day between the two, of every customer between them in `order`. None where one of
    them is not there any more."""
    if not {first.customer_id, last.customer_id} <= set(order):
        return set()
    return {
        PartitionKey(
            source=first.source,
            customer_id=customer_id,
            query_name=first.query_name,
            logical_date=date.fromordinal(day),
        )
        for customer_id in order[order.index(first.customer_id) : order.index(last.customer_id) + 1]
        for day in range(first.logical_date.toordinal(), last.logical_date.toordinal() + 1)
    }


def _query(key: PartitionKey) -> tuple[str, str]:
    return key.source, key.query_name


def _rectangles(cells: Iterable[tuple[int, int]]) -> Iterator[tuple[range, range]]:
    """Rows that have the same stretch of columns and follow each other are one, as far as MOST_PARTITIONS allows."""
    columns: dict[int, set[int]] = defaultdict(set)
    for row, column in cells:
        columns[row].add(column)
    rows: dict[range, set[int]] = defaultdict(set)
    for row, some in columns.items():
        for stretch in _stretches(some):
            for piece in _pieces(stretch, MOST_PARTITIONS):
                rows[piece].add(row)
    for stretch, alike in rows.items():
        for following in _stretches(alike):
            for piece in _pieces(following, MOST_PARTITIONS // len(stretch)):
                yield piece, stretch


def _stretches(numbers: Iterable[int]) -> Iterator[range]:
    """In order, each as long as it can be without a number that is not among these."""
    for _, group in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        stretch = [number for _, number in group]
        yield range(stretch[0], stretch[-1] + 1)


def _pieces(stretch: range, longest: int) -> Iterator[range]:
    for start in range(0, len(stretch), longest):
        yield stretch[start : start + longest]
