"""The days, and for changes the times, that WHERE chooses; and which of them the API answers for."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta

from gads_assets.catalog.gaql_query import CHANGE_TIME_FIELDS, DATE_FIELD, Condition, GaqlQuery, Literal, Operator
from gads_assets.catalog.shapes import MOST_CHANGES, Shape, days_back, shape_of
from gads_assets.emulator.date_ranges import days_during
from gads_assets.emulator.failures import RefusedCallError, invalid_argument, query_refused
from gads_assets.emulator.rows import Value


def _quarter(day: date) -> str:
    return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1).isoformat()


_DAYS_OF_WEEK = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_MONTHS = (
    "JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE",
    "JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER",
)  # fmt: skip

DATE_SEGMENTS: dict[str, Callable[[date], Value]] = {
    DATE_FIELD: date.isoformat,
    "segments.week": lambda day: (day - timedelta(days=day.weekday())).isoformat(),
    "segments.month": lambda day: day.replace(day=1).isoformat(),
    "segments.quarter": _quarter,
    "segments.year": lambda day: day.year,
    "segments.day_of_week": lambda day: _DAYS_OF_WEEK[day.weekday()],
    "segments.month_of_year": lambda day: _MONTHS[day.month - 1],
}
CORE_DATES = frozenset(DATE_SEGMENTS) - {"segments.day_of_week", "segments.month_of_year"}
"""Those that choose days in WHERE, and need not be selected for it."""

_WINDOW_OPERATORS = frozenset(
    {
        Operator.EQUALS,
        Operator.BETWEEN,
        Operator.DURING,
        Operator.GREATER,
        Operator.GREATER_OR_EQUAL,
        Operator.LESS,
        Operator.LESS_OR_EQUAL,
    }
)
_DATE = r"(\d{4}-\d\d-\d\d|\d{8})"
_DATE_FORM, _TIME_FORM = re.compile(_DATE, re.ASCII), re.compile(rf"{_DATE}( \d\d:\d\d:\d\d(\.\d+)?)?", re.ASCII)
_EVER, _FOREVER = -1, 2**63
_DAY = 24 * 60 * 60 * 1_000_000

_Span = tuple[int, int]
"""The first and the last, both included: of days as ordinals, or of microseconds since the first of all days."""


def during(condition: Condition, today: date | None) -> tuple[date, date]:
    if today is None:
        raise query_refused("BAD_OPERATOR", "DURING cannot be answered without a clock. Use BETWEEN with two dates.")
    return days_during(str(condition.values[0].value), today)


def days_asked(query: GaqlQuery, today: date | None, *, required: bool) -> range | None:
    """The days as ordinals; None when the query does not speak of days, which `required` forbids."""

    def days(condition: Condition) -> list[_Span]:
        if condition.operator is Operator.DURING:
            first, last = during(condition, today)
            return [(first.toordinal(), last.toordinal())]
        return [_period(condition.field, literal) for literal in condition.values]

    conditions = [condition for condition in query.conditions if condition.field in CORE_DATES]
    low, high = _window(conditions, days)
    asked = range(low, high + 1) if low > _EVER and high < _FOREVER else None
    if shape_of(query) is Shape.SINGLE_DAY:
        _require_one_recent_day(query, asked, today)
    if asked is None and (required or conditions):
        raise query_refused(
            "EXPECTED_FILTERS_ON_DATE_RANGE", "Expected filters on a finite date range: segments.date BETWEEN two days."
        )
    return asked


def require_answered_changes(query: GaqlQuery, today: date | None) -> None:
    """Changes are asked for with a LIMIT and a time range that begins within the last weeks. Other queries pass."""
    if shape_of(query) is not Shape.CHANGES:
        return
    resource, field, oldest = query.resource, CHANGE_TIME_FIELDS[query.resource], days_back(query)

    def refused(code: str, message: str) -> RefusedCallError:
        return invalid_argument(f"{resource}_error", code, message)

    def times(condition: Condition) -> list[_Span]:
        if condition.operator is Operator.DURING:
            first, last = (day.toordinal() for day in during(condition, today))
            return [((first - 1) * _DAY, last * _DAY - 1)]
        return [(moment, moment) for moment in map(_moment, condition.values)]

    if query.limit is None:
        raise refused("LIMIT_NOT_SPECIFIED", f"The {resource} search request must specify a LIMIT.")
    if query.limit > MOST_CHANGES:
        raise refused("INVALID_LIMIT_CLAUSE", f"The LIMIT of a {resource} request must be {MOST_CHANGES} or less.")
    low, high = _window([condition for condition in query.conditions if condition.field == field], times)
    if low == _EVER or high == _FOREVER:
        raise refused("CHANGE_DATE_RANGE_INFINITE", f"The request must specify a finite range filter on {field}.")
    if low > high:
        raise refused("CHANGE_DATE_RANGE_NEGATIVE", f"No time can meet all the filters on {field}.")
    if today and oldest is not None and low // _DAY + 1 < today.toordinal() - oldest:
        raise refused("START_DATE_TOO_OLD", f"The requested start date is too old: more than {oldest} days.")


def _require_one_recent_day(query: GaqlQuery, days: range | None, today: date | None) -> None:
    category, oldest = f"{query.resource}_error", days_back(query)
    if days is None or len(days) != 1:
        raise invalid_argument(category, "EXPECTED_FILTER_ON_A_SINGLE_DAY", "Missing filter on a single day.")
    if today and oldest is not None and days[0] < today.toordinal() - oldest:
        raise invalid_argument(category, "DATE_TOO_OLD", f"The requested date is too old: more than {oldest} days.")


def _window(conditions: Sequence[Condition], spans_of: Callable[[Condition], list[_Span]]) -> _Span:
    """What meets all the conditions, by the spans that the values of each stand for."""
    low, high = _EVER, _FOREVER
    for condition in conditions:
        if condition.operator not in _WINDOW_OPERATORS:
            raise query_refused(
                "BAD_OPERATOR",
                f"{condition.field} takes =, BETWEEN, DURING and comparisons here, not {condition.operator.value}.",
            )
        spans = spans_of(condition)
        first, last = spans[0][0], spans[-1][1]
        match condition.operator:
            case Operator.GREATER_OR_EQUAL:
                low = max(low, first)
            case Operator.GREATER:
                low = max(low, last + 1)
            case Operator.LESS_OR_EQUAL:
                high = min(high, last)
            case Operator.LESS:
                high = min(high, first - 1)
            case _:
                low, high = max(low, first), min(high, last)
    return low, high


def _period(field: str, literal: Literal) -> _Span:
    """The days that a date segment's value stands for."""
    text, segment = str(literal.value), DATE_SEGMENTS[field]
    first = last = _parsed(f"{text}-01-01" if field == "segments.year" else text, _DATE_FORM).date()
    if field in ("segments.week", "segments.month", "segments.quarter") and segment(first) != first.isoformat():
        raise query_refused(
            "MISALIGNED_DATE_FOR_FILTER", f"'{text}' is not the first day of a {field.removeprefix('segments.')}."
        )
    while last < date.max and segment(last + timedelta(days=1)) == segment(first):
        last += timedelta(days=1)
    return first.toordinal(), last.toordinal()


def _moment(literal: Literal) -> int:
    return (_parsed(str(literal.value), _TIME_FORM) - datetime.min.replace(tzinfo=UTC)) // timedelta(microseconds=1)


def _parsed(text: str, form: re.Pattern[str]) -> datetime:
    try:
        if form.fullmatch(text):
            return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        pass
    raise query_refused("INVALID_DATE_FORMAT", f"Invalid date '{text}'; expected 'YYYY-MM-DD'.")
