"""How a query's rows come by day. Most resources answer any window of days; some do not, and each in its own way."""

from dataclasses import replace
from datetime import date, timedelta
from enum import Enum
from typing import Final, assert_never

from gads_assets.catalog.gaql_query import (
    CHANGE_TIME_FIELDS,
    DATE_FIELD,
    Condition,
    GaqlQuery,
    Operator,
    print_condition,
    quoted,
)
from gads_assets.catalog.gaql_tokens import shortened
from gads_assets.errors import CatalogError

MOST_CHANGES: Final = 10_000
"""What Google allows as LIMIT of a query for changes. As many rows as the LIMIT mean that some may be missing."""

_CLICKS: Final = "click_view"
_DAYS_BACK: Final = {_CLICKS: 90, "change_event": 30, "change_status": 90}


class Shape(Enum):
    DATED = "dated"
    """Any window of days in one call; each row has its day in segments.date."""
    SINGLE_DAY = "single_day"
    """As dated, but one day a call, and no day older than `days_back`."""
    CHANGES = "changes"
    """The time of the change says the day. A LIMIT is required, and no day may be older than `days_back`."""
    SNAPSHOT = "snapshot"
    """What is there now, kept as the newest day that is open; no other can be asked for."""

    @property
    def days_per_call(self) -> int | None:
        """None: as many as one likes."""
        return 1 if self in (Shape.SINGLE_DAY, Shape.SNAPSHOT) else None


def shape_of(query: GaqlQuery) -> Shape:
    if query.resource == _CLICKS:
        return Shape.SINGLE_DAY
    if query.resource in CHANGE_TIME_FIELDS:
        return Shape.CHANGES
    # Also where they are only filtered or sorted by: then the answer depends on the days that it covers.
    if any(field.startswith(("metrics.", "segments.")) for field in query.fields):
        return Shape.DATED
    return Shape.SNAPSHOT


def days_back(query: GaqlQuery) -> int | None:
    """How long before the account's today a day is still answered; None where Google sets no limit."""
    return 0 if shape_of(query) is Shape.SNAPSHOT else _DAYS_BACK.get(query.resource)


def day_field(query: GaqlQuery) -> str | None:
    """The field whose first ten characters are the row's day; None for a snapshot."""
    shape = shape_of(query)
    match shape:
        case Shape.DATED | Shape.SINGLE_DAY:
            return DATE_FIELD
        case Shape.CHANGES:
            return CHANGE_TIME_FIELDS[query.resource]
        case Shape.SNAPSHOT:
            return None
        case _:
            assert_never(shape)


def for_days(query: GaqlQuery, shape: Shape, first: date, last: date) -> GaqlQuery:
    """The query restricted to the account's days `first` to `last`, both included.

    Raises CatalogError for more days than a call of this shape can cover. A snapshot stays as it is: whoever asks
    sees to it that the day is today's.
    """
    if query.date_conditions:
        own = shortened(print_condition(query.date_conditions[0]))
        raise CatalogError(f"the query chooses its own days ({own}); remove that condition")
    if first > last:
        raise CatalogError(f"the days {first} to {last} run backwards; give the earlier one first")
    if shape.days_per_call == 1 and first != last:
        raise CatalogError(f"{query.resource} cannot be asked for {first} to {last} in one call; ask day by day")
    conditions: tuple[Condition, ...]
    match shape:
        case Shape.DATED:
            conditions = (_condition(DATE_FIELD, Operator.BETWEEN, first.isoformat(), last.isoformat()),)
        case Shape.SINGLE_DAY:
            conditions = (_condition(DATE_FIELD, Operator.EQUALS, first.isoformat()),)
        case Shape.CHANGES:
            require_change_limit(query)
            field = CHANGE_TIME_FIELDS[query.resource]
            # Times have fractions of a second, so a window that ended at 23:59:59 would miss some.
            conditions = (
                _condition(field, Operator.GREATER_OR_EQUAL, f"{first} 00:00:00"),
                _condition(field, Operator.LESS, f"{last + timedelta(days=1)} 00:00:00"),
            )
        case Shape.SNAPSHOT:
            conditions = ()
        case _:
            assert_never(shape)
    return replace(query, conditions=(*query.conditions, *conditions))


def require_change_limit(query: GaqlQuery) -> None:
    if query.limit is None or query.limit > MOST_CHANGES:
        written = "no LIMIT" if query.limit is None else f"LIMIT {query.limit}"
        raise CatalogError(f"has {written}, and {query.resource} requires one; write LIMIT {MOST_CHANGES} or less")


def _condition(field: str, operator: Operator, *values: str) -> Condition:
    return Condition(field=field, operator=operator, values=tuple(map(quoted, values)))
