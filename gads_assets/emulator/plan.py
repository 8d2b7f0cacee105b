"""A query's text, checked as the API would check it, and what answering it takes."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from gads_assets.catalog.fields import row_descriptor
from gads_assets.catalog.gaql import parse_gaql
from gads_assets.catalog.gaql_query import DATE_FIELD, Condition, GaqlQuery, Operator
from gads_assets.emulator.accounts import EmulatedAccount
from gads_assets.emulator.conditions import predicate
from gads_assets.emulator.date_ranges import days_during
from gads_assets.emulator.entities import KEYWORD, chain_of, level_of
from gads_assets.emulator.failures import query_refused
from gads_assets.emulator.rows import RowFacts, Value
from gads_assets.emulator.values import SelectedField, follows_keyword, select_field
from gads_assets.errors import CatalogError, GaqlError

CUSTOMER_CLIENT = "customer_client"


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

_DATE_OPERATORS = frozenset(
    {
        Operator.EQUALS,
        Operator.BETWEEN,
        Operator.GREATER,
        Operator.GREATER_OR_EQUAL,
        Operator.LESS,
        Operator.LESS_OR_EQUAL,
    }
)


@dataclass(frozen=True, kw_only=True)
class AnswerPlan:
    """`fields` are what a row carries: the selected ones first, then its resource name, which the API always adds.

    `days` are the ordinals asked for, or None when the query does not speak of days. Conversions are those counted by
    `today`; None for a time when all have been.
    """

    resource: str
    fields: tuple[SelectedField, ...]
    selected: int
    order_by: tuple[tuple[SelectedField, bool], ...]
    limit: int | None
    days: range | None
    date_segments: tuple[str, ...]
    other_segments: tuple[SelectedField, ...]
    filters: tuple[Callable[[RowFacts], bool], ...]
    today: date | None

    @property
    def chain(self) -> tuple[str, ...]:
        return chain_of(self.resource)

    @property
    def segmented(self) -> bool:
        return bool(self.date_segments or self.other_segments)

    @property
    def field_mask(self) -> list[str]:
        return [field.path for field in self.fields[: self.selected]]


def plan_answer(text: str, account: EmulatedAccount, api_version: str, *, today: date | None = None) -> AnswerPlan:
    """Raises RefusedCallError with the API's own error for anything that cannot be answered.

    `today` is the account's own; without it all conversions have been counted, and DURING cannot be answered.
    """
    try:
        query = parse_gaql(text)
    except GaqlError as error:
        raise query_refused("UNEXPECTED_INPUT", f"Error in query: {error}") from None
    _require_resource(query.resource, api_version)
    fields = tuple(_field(path, query.resource, api_version) for path in query.select)
    conditions = [(condition, _field(condition.field, query.resource, api_version)) for condition in query.conditions]
    if query.resource == CUSTOMER_CLIENT and any(field.group in ("metrics", "segments") for field in fields):
        raise query_refused(
            "PROHIBITED_METRIC_IN_SELECT_OR_WHERE_CLAUSE", f"{CUSTOMER_CLIENT} has no metrics and no segments."
        )
    if account.manager and any(field.group == "metrics" for field in (*fields, *(field for _, field in conditions))):
        raise query_refused(
            "REQUESTED_METRICS_FOR_MANAGER",
            "Metrics cannot be requested for a manager account. Issue separate requests against each client account.",
        )
    segments = [field for field in fields if field.group == "segments" and not follows_keyword(field.path)]
    date_segments = tuple(field.path for field in segments if field.path in DATE_SEGMENTS)
    _require_selected_segments(query)
    resource_name = () if f"{query.resource}.resource_name" in query.select else (f"{query.resource}.resource_name",)
    return AnswerPlan(
        resource=query.resource,
        fields=(*fields, *(select_field(path, api_version) for path in resource_name)),
        selected=len(fields),
        order_by=tuple(
            (_field(order.field, query.resource, api_version), order.descending) for order in query.order_by
        ),
        limit=query.limit,
        days=_days(query, today, required=bool(date_segments)),
        date_segments=date_segments,
        other_segments=tuple(field for field in segments if field.path not in DATE_SEGMENTS),
        filters=tuple(
            _filter(condition, field, today) for condition, field in conditions if condition.field != DATE_FIELD
        ),
        today=today,
    )


def _field(path: str, resource: str, api_version: str) -> SelectedField:
    try:
        field = select_field(path, api_version)
    except CatalogError as error:
        raise query_refused("UNRECOGNIZED_FIELD", f"Error in query: {error}") from None
    chain, level = chain_of(resource), level_of(field.group)
    if level is not None and level not in chain:
        raise query_refused(
            "PROHIBITED_RESOURCE_TYPE_IN_SELECT_CLAUSE",
            f"{field.group} is not attributed to {resource}, the resource of the FROM clause.",
        )
    if follows_keyword(path) and KEYWORD not in chain:
        raise query_refused(
            "PROHIBITED_SEGMENT_IN_SELECT_OR_WHERE_CLAUSE",
            f"The segment {path} does not go with the resource {resource}.",
        )
    return field


def _filter(condition: Condition, field: SelectedField, today: date | None) -> Callable[[RowFacts], bool]:
    if condition.operator is Operator.DURING:
        first, last = (day.isoformat() for day in _during(condition, today))
        # A date with its time of day begins with the date.
        return lambda facts: first <= str(field.value(facts) or "")[:10] <= last
    test = predicate(condition, field.leaf)
    return lambda facts: test(field.value(facts))


def _require_resource(resource: str, api_version: str) -> None:
    known = {field.name for field in row_descriptor(api_version).fields} - {"metrics", "segments"}
    if resource not in known:
        raise query_refused(
            "BAD_RESOURCE_TYPE_IN_FROM_CLAUSE", f"Error in query: '{resource}' is not a valid resource."
        )


def _require_selected_segments(query: GaqlQuery) -> None:
    named = [condition.field for condition in query.conditions] + [order.field for order in query.order_by]
    for path in named:
        if path.startswith("segments.") and path != DATE_FIELD and path not in query.select:
            raise query_refused(
                "EXPECTED_REFERENCED_FIELD_IN_SELECT_CLAUSE",
                f"The following field must be present in SELECT clause: '{path}'.",
            )
    if DATE_FIELD not in query.select and any(order.field == DATE_FIELD for order in query.order_by):
        raise query_refused(
            "EXPECTED_REFERENCED_FIELD_IN_SELECT_CLAUSE",
            f"The following field must be present in SELECT clause: '{DATE_FIELD}'.",
        )


def _during(condition: Condition, today: date | None) -> tuple[date, date]:
    if today is None:
        raise query_refused("BAD_OPERATOR", "DURING cannot be answered without a clock. Use BETWEEN with two dates.")
    return days_during(str(condition.values[0].value), today)


def _days(query: GaqlQuery, today: date | None, *, required: bool) -> range | None:
    first, last = date.min.toordinal(), date.max.toordinal()
    low, high = first, last
    for condition in query.conditions:
        if condition.field != DATE_FIELD:
            continue
        if condition.operator is Operator.DURING:
            since, until = _during(condition, today)
            low, high = max(low, since.toordinal()), min(high, until.toordinal())
            continue
        if condition.operator not in _DATE_OPERATORS:
            raise query_refused(
                "BAD_OPERATOR",
                f"{DATE_FIELD} takes =, BETWEEN, DURING and comparisons here, not {condition.operator.value}.",
            )
        values = [_ordinal(str(literal.value)) for literal in condition.values]
        match condition.operator:
            case Operator.GREATER_OR_EQUAL | Operator.GREATER:
                low = max(low, values[0] + (condition.operator is Operator.GREATER))
            case Operator.LESS_OR_EQUAL | Operator.LESS:
                high = min(high, values[0] - (condition.operator is Operator.LESS))
            case _:
                low, high = max(low, values[0]), min(high, values[-1])
    if low > first and high < last:
        return range(low, high + 1)
    if required or (low, high) != (first, last):
        raise query_refused(
            "EXPECTED_FILTERS_ON_DATE_RANGE", "Expected filters on a finite date range: segments.date BETWEEN two days."
        )
    return None


def _ordinal(text: str) -> int:
    try:
        return date.fromisoformat(text).toordinal()
    except ValueError:
        raise query_refused("INVALID_DATE_FORMAT", f"Invalid date '{text}'; expected 'YYYY-MM-DD'.") from None
