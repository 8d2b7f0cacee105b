"""Exactly the rows of some pointers, as a condition on their stage table: reading them then takes no join."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from gads_assets.warehouse.selection import among

MOST_PIECES: Final = 50
"""Each row is held against them one by one, where a join looks it up once."""
_MOST_CUSTOMERS: Final = 5_000

Stretch = tuple[date, date]


def condition_of(pointers: pa.Table) -> str | None:
    """SQL for Spark, true of the rows of these pointers and no others of their stage table; None where it would be too
    long. Batches are rectangles of customers × days as a rule, and so is what is asked for: a few pieces tell all."""
    pointers = pointers.filter(pc.field("record_count") > 0)
    if pc.count_distinct(pointers["stage_id"]).as_py() > MOST_PIECES:
        return None
    days: dict[tuple[str, str], list[date]] = defaultdict(list)
    columns = (pointers[name].to_pylist() for name in ("stage_id", "customer_id", "logical_date"))
    for stage_id, customer_id, day in zip(*columns, strict=True):
        days[stage_id, customer_id].append(day)
    customers: dict[tuple[str, Stretch], set[str]] = defaultdict(set)
    for (stage_id, customer_id), some in days.items():
        for stretch in _stretches(some):
            customers[stage_id, stretch].add(f"'{customer_id}'")
    if len(customers) > MOST_PIECES or sum(map(len, customers.values())) > _MOST_CUSTOMERS:
        return None
    return " OR ".join(
        f"(stage_id = '{stage_id}' AND logical_date BETWEEN DATE '{first}' AND DATE '{last}' "
        f"AND {among('customer_id', some)})"
        for (stage_id, (first, last)), some in sorted(customers.items())
    )


def _stretches(days: Sequence[date]) -> Iterator[Stretch]:
    """In order, each as long as it can be without a day that is not among these."""
    for _, group in groupby(enumerate(sorted(days)), key=lambda pair: pair[1].toordinal() - pair[0]):
        stretch = [day for _, day in group]
        yield stretch[0], stretch[-1]
