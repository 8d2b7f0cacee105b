"""A query's text, checked as the API would check it, and what answering it takes."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from gads_assets.catalog.fields import row_descriptor
from gads_assets.catalog.gaql import parse_gaql
from gads_assets.catalog.gaql_query import Condition, GaqlQuery, Operator
from gads_assets.emulator.accounts import EmulatedAccount
from gads_assets.emulator.compatibility import require_compatible
from gads_assets.emulator.conditions import predicate
from gads_assets.emulator.entities import KEYWORD, chain_of, level_of
from gads_assets.emulator.failures import query_refused
from gads_assets.emulator.rows import RowFacts
from gads_assets.emulator.values import SelectedField, follows_keyword, select_field
from gads_assets.emulator.windows import CORE_DATES, DATE_SEGMENTS, days_asked, during, require_answered_changes
from gads_assets.errors import CatalogError, GaqlError

CUSTOMER_CLIENT = "customer_client"
_OMIT_NAMES = "omit_unselected_resource_names"
_PARAMETERS = frozenset({"include_drafts", _OMIT_NAMES})


@dataclass(frozen=True, kw_only=True)
class AnswerPlan:
    """`fields` are what a row carries: the selected ones first, then its resource name, which the API adds by itself.

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
    orderings = [(_sortable(order.field, query.resource, api_version), order.descending) for order in query.order_by]
    require_compatible(query)
    if account.manager and any(field.group == "metrics" for field in (*fields, *(field for _, field in conditions))):
        raise query_refused(
            "REQUESTED_METRICS_FOR_MANAGER",
            "Metrics cannot be requested for a manager account. Issue separate requests against each client account.",
        )
    segments = [field for field in fields if field.group == "segments" and not follows_keyword(field.path)]
    date_segments = tuple(field.path for field in segments if field.path in DATE_SEGMENTS)
    _require_selected_segments(query)
    require_answered_changes(query, today)
    resource_name = f"{query.resource}.resource_name"
    omitted = _OMIT_NAMES in _switched_on(query) or resource_name in query.select
    return AnswerPlan(
        resource=query.resource,
        fields=fields if omitted else (*fields, select_field(resource_name, api_version)),
        selected=len(fields),
        order_by=tuple(orderings),
        limit=query.limit,
        days=days_asked(query, today, required=bool(date_segments)),
        date_segments=date_segments,
        other_segments=tuple(field for field in segments if field.path not in DATE_SEGMENTS),
        filters=tuple(
            _filter(condition, field, today) for condition, field in conditions if condition.field not in CORE_DATES
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
        first, last = (day.isoformat() for day in during(condition, today))
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
    """Days may be chosen without being selected; whatever else a segment is named for, it is."""
    filtered = [condition.field for condition in query.conditions if condition.field not in CORE_DATES]
    for path in (*filtered, *(order.field for order in query.order_by)):
        if path.startswith("segments.") and path not in query.select:
            raise query_refused(
                "EXPECTED_REFERENCED_FIELD_IN_SELECT_CLAUSE",
                f"The following field must be present in SELECT clause: '{path}'.",
            )


def _sortable(path: str, resource: str, api_version: str) -> SelectedField:
    field = _field(path, resource, api_version)
    if field.leaf.is_repeated or field.leaf.message_type is not None:
        raise query_refused("PROHIBITED_FIELD_IN_ORDER_BY_CLAUSE", f"{path} cannot be sorted by.")
    return field


def _switched_on(query: GaqlQuery) -> set[str]:
    """The names of PARAMETERS that are true."""
    for parameter in query.parameters:
        if parameter.name not in _PARAMETERS:
            raise query_refused("BAD_PARAMETER_NAME", f"{parameter.name} is not a parameter of a query.")
        if str(parameter.value.value).lower() not in ("true", "false"):
            raise query_refused("BAD_PARAMETER_VALUE", f"{parameter.name} is either true or false.")
    return {parameter.name for parameter in query.parameters if str(parameter.value.value).lower() == "true"}
