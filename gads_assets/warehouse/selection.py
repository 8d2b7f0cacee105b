"""What of a query's published rows is read: the same question to every reader."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Final, Self

from gads_assets.domain.keys import CustomerId, PartitionKey, parse_customer_id
from gads_assets.domain.state import PartitionState

PublishableStates = Callable[[Iterable[PartitionKey]], Iterable[PartitionState]]
"""`StateStore.publishable`: of these partitions, the states that are success with no demotion under way."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What is not given narrows nothing; an empty collection selects nothing.

    `schema_version` leaves only what was published under that version, with that version's own columns.
    `as_of` is a version of the query's pointer table, or a moment: what was shown then, without the runs that were
    retracted since. `strict` leaves only partitions whose pointer equals the state that it answers.
    """

    customers: Collection[CustomerId] | None = None
    days: Collection[date] | None = None
    partitions: Collection[PartitionKey] | None = None
    schema_version: str | None = None
    as_of: int | datetime | None = None
    strict: PublishableStates | None = None

    def for_version(self, schema_version: str) -> Self:
        return replace(self, schema_version=schema_version)

    @property
    def is_narrow(self) -> bool:
        """Whether only some customers or days are asked for."""
        return not (self.customers is None and self.days is None and self.partitions is None)

    @property
    def condition(self) -> str:
        """SQL for Spark and delta-rs alike, true of every row that is selected."""
        conditions = []
        if self.customers is not None:
            conditions.append(among("customer_id", {f"'{parse_customer_id(each)}'" for each in self.customers}))
        if self.days is not None:
            conditions.append(among("logical_date", {f"DATE '{day:%Y-%m-%d}'" for day in self.days}))
        if self.partitions is not None:
            conditions.append(among("customer_id", {f"'{key.customer_id}'" for key in self.partitions}))
            conditions.append(among("logical_date", {f"DATE '{key.logical_date}'" for key in self.partitions}))
        return " AND ".join(conditions) or "true"


EVERYTHING: Final = Selection()


def among(column: str, literals: Collection[str]) -> str:
    """The range says no more than the list, but it is what both engines hold against the statistics of a file."""
    if not literals:
        return "false"
    return f"{column} BETWEEN {min(literals)} AND {max(literals)} AND {column} IN ({', '.join(sorted(literals))})"
