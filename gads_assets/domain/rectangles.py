"""Rectangles of customers × days, which is what Dagster launches as one run."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Final

from gads_assets.domain.keys import CustomerId, PartitionKey

MOST_PARTITIONS: Final = 400
"""Of one run: a failed one costs no more than these, and the next can be queued behind it."""


@dataclass(frozen=True, kw_only=True)
class Rectangle:
    """The partitions of a query between two corners, see `partitions_between`. `mark` stands for theirs together."""

    first: PartitionKey
    last: PartitionKey
    mark: str

    def name(self, purpose: str, number: int) -> str:
        """The same for the same partitions until the mark of one of them changes."""
        return f"{purpose} {self.first.query_name} {self.first.label}...{self.last.label} {self.mark} {number}"


def plan_rectangles(marks: Mapping[PartitionKey, object], order: Sequence[CustomerId]) -> list[Rectangle]:
    """Covers exactly these partitions, each once, newest days first. A partition's mark changes when another run of it
    is worth it. `order` is that in which Dagster knows the customers; one that is not in it cannot be launched, and is
    left out.

    A customer's days stay together, also where that takes a run more: extracting them is one call to the API.
    """
    positions = {customer_id: position for position, customer_id in enumerate(order)}
    known = [key for key in marks if key.customer_id in positions]
    rectangles: list[Rectangle] = []
    for (source, query_name), group in groupby(sorted(known, key=_query), key=_query):
        cells = ((positions[key.customer_id], key.logical_date.toordinal()) for key in group)
        for customers, days in _rectangles(cells):
            first, last = (
                PartitionKey(
                    source=source,
                    customer_id=order[position],
                    query_name=query_name,
                    logical_date=date.fromordinal(day),
                )
                for position, day in ((customers[0], days[0]), (customers[-1], days[-1]))
            )
            digest = hashlib.sha256()
            for key in sorted(partitions_between(first, last, order)):
                digest.update(f"{key.label} {marks[key]}\n".encode())
            rectangles.append(Rectangle(first=first, last=last, mark=digest.hexdigest()[:16]))
    return sorted(rectangles, key=lambda rectangle: rectangle.last.logical_date, reverse=True)


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
        for stretch in stretches(some):
            for piece in _pieces(stretch, MOST_PARTITIONS):
                rows[piece].add(row)
    for stretch, alike in rows.items():
        for following in stretches(alike):
            for piece in _pieces(following, MOST_PARTITIONS // len(stretch)):
                yield piece, stretch


def stretches(numbers: Iterable[int]) -> Iterator[range]:
    """In order, each as long as it can be without a number that is not among these."""
    for _, group in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        stretch = [number for _, number in group]
        yield range(stretch[0], stretch[-1] + 1)


def _pieces(stretch: range, longest: int) -> Iterator[range]:
    for start in range(0, len(stretch), longest):
        yield stretch[start : start + longest]
