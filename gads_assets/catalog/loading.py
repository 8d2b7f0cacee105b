"""google_apis.yaml and the schema versions beside it, as a Catalog.

Definitions load through here, so nothing slow is imported: column types come from the stored versions, not from
google-ads. `checking` compares those with the API.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from gads_assets.catalog.conversions import uncounted_by_conversion
from gads_assets.catalog.fields import column_name, require_distinct_columns
from gads_assets.catalog.gaql import GaqlQuery
from gads_assets.catalog.gaql_query import print_condition, print_parameter
from gads_assets.catalog.gaql_tokens import shortened
from gads_assets.catalog.limits import read_limits, read_never_above, require_comparable_spend
from gads_assets.catalog.schema_store import QUERY_NAME, SCHEMA_VERSION, read_stored_schemas, schemas_beside
from gads_assets.catalog.shapes import Shape, day_field, days_back, require_change_limit, shape_of
from gads_assets.catalog.specification import (
    DEFAULT_ALERT_AFTER,
    DEFAULT_FRESHNESS,
    DEFAULT_RETRY,
    Catalog,
    Limits,
    QuerySchema,
    QuerySpecification,
    Restatement,
    Terms,
)
from gads_assets.catalog.yaml_document import Entry, read_yaml
from gads_assets.domain.retrying import RetryPolicy
from gads_assets.errors import CatalogError

PACKAGED_CATALOG: Final = Path(__file__).resolve().parent.parent / "config" / "google_apis.yaml"

_CUSTOMER_FIELD: Final = "customer.id"
_KEYWORD_SEGMENT: Final = "segments.keyword."
_KEYWORD_RESOURCES: Final = frozenset({"keyword_view"})
_EARLIEST_START: Final = date(2000, 1, 1)
_LONGEST_SETTLING_HOURS: Final = 168
_LONGEST_RESTATEMENT_DAYS: Final = 365
_MOST_ATTEMPTS: Final = 20
_MOST_EXTRACTION_ATTEMPTS: Final = 50
_LONGEST_RETRY_DAYS: Final = 90
_LONGEST_BACKOFF_MINUTES: Final = 1_440
_LONGEST_FRESHNESS_HOURS: Final = 720
_LONGEST_DIFFERENCE: Final = 2_000
_API_VERSION: Final = re.compile(r"v[1-9][0-9]{0,2}\Z")
_IDENTIFIER_RULE: Final = "a name; use lower-case letters, digits and _, a letter first, at most 63"


@dataclass(frozen=True, kw_only=True)
class QueryDraft:
    """A query as the YAML file has it; its entries are the places to complain about, later."""

    name: str
    description: str
    gaql: GaqlQuery
    schema_version: str
    natural_key: tuple[str, ...]
    start_date: date
    settling_delay: timedelta
    never_above: tuple[tuple[str, str], ...]
    limits: Limits
    restatement: Restatement | None
    retry: RetryPolicy
    freshness: timedelta
    alert_after: timedelta
    entry: Entry
    gaql_entry: Entry
    version_entry: Entry


@dataclass(frozen=True, kw_only=True)
class CatalogDraft:
    path: Path
    source: str
    api_version: str
    api_version_entry: Entry
    queries: tuple[QueryDraft, ...]


def load_catalog(path: Path | None = None) -> Catalog:
    """The catalog at `path`, else the packaged one; raises CatalogFileError for the first thing that is wrong."""
    return resolve_draft(read_draft(path))


def resolve_draft(draft: CatalogDraft) -> Catalog:
    """Each query with its stored schema version, from which it may not differ."""
    stored = read_stored_schemas(schemas_beside(draft.path))
    return Catalog(
        source=draft.source,
        api_version=draft.api_version,
        queries={query.name: _specification(query, stored) for query in draft.queries},
        schemas=stored,
    )


def read_draft(path: Path | None = None) -> CatalogDraft:
    """The YAML file alone, fully checked but for what the stored schema versions say."""
    path = path or PACKAGED_CATALOG
    entries = read_yaml(path).mapping(known=("source", "api_version", "queries"))
    queries = entries["queries"].mapping()
    if not queries:
        raise entries["queries"].problem("has no query; add one, as the packaged catalog shows")
    drafts = {name: _query_draft(name, entry) for name, entry in queries.items()}
    require_comparable_spend({name: (queries[name], draft.gaql, draft.limits) for name, draft in drafts.items()})
    return CatalogDraft(
        path=path,
        source=entries["source"].matching(QUERY_NAME, _IDENTIFIER_RULE),
        api_version=entries["api_version"].matching(_API_VERSION, "an API version; write it as v26"),
        api_version_entry=entries["api_version"],
        queries=tuple(drafts.values()),
    )


def _query_draft(name: str, entry: Entry) -> QueryDraft:
    if not QUERY_NAME.match(name):
        raise entry.problem(f"{name[:80]!r} is not {_IDENTIFIER_RULE}")
    entries = entry.mapping(
        known=("description", "gaql", "schema_version", "natural_key", "start_date", "settling_delay_hours"),
        optional=("restatement", "max_attempts", "retry", "freshness_hours", "alert_after_hours", "limits"),
    )
    gaql = _partitioned_query(entries["gaql"])
    start_date = entries["start_date"].day()
    if start_date < _EARLIEST_START:
        raise entries["start_date"].problem(f"{start_date} is before {_EARLIEST_START}; there is no data then")
    settling_delay = timedelta(
        hours=entries["settling_delay_hours"].whole_number(lowest=0, highest=_LONGEST_SETTLING_HOURS)
    )
    return QueryDraft(
        name=name,
        description=entries["description"].sentence(),
        gaql=gaql,
        schema_version=entries["schema_version"].matching(
            SCHEMA_VERSION, 'a version; write a whole number in quotes: "1"'
        ),
        natural_key=_natural_key(entries["natural_key"], gaql),
        start_date=start_date,
        settling_delay=settling_delay,
        never_above=read_never_above(entries["limits"], gaql) if "limits" in entries else (),
        limits=read_limits(entries["limits"], name) if "limits" in entries else Limits(),
        restatement=_restatement(entries["restatement"], gaql, settling_delay) if "restatement" in entries else None,
        retry=_retry_policy(entries),
        freshness=_hours(entries, "freshness_hours", DEFAULT_FRESHNESS),
        alert_after=_hours(entries, "alert_after_hours", DEFAULT_ALERT_AFTER),
        entry=entry,
        gaql_entry=entries["gaql"],
        version_entry=entries["schema_version"],
    )


def _hours(entries: Mapping[str, Entry], name: str, default: timedelta) -> timedelta:
    if name not in entries:
        return default
    return timedelta(hours=entries[name].whole_number(lowest=1, highest=_LONGEST_FRESHNESS_HOURS))


def _retry_policy(entries: Mapping[str, Entry]) -> RetryPolicy:
    policy = DEFAULT_RETRY
    if "max_attempts" in entries:
        policy = replace(policy, max_attempts=entries["max_attempts"].whole_number(lowest=1, highest=_MOST_ATTEMPTS))
    if "retry" not in entries:
        return policy
    given = entries["retry"].mapping(known=(), optional=("max_extraction_attempts", "max_age_days", "backoff_minutes"))
    if "max_extraction_attempts" in given:
        most = given["max_extraction_attempts"].whole_number(lowest=1, highest=_MOST_EXTRACTION_ATTEMPTS)
        policy = replace(policy, max_extraction_attempts=most)
    if "max_age_days" in given:
        days = given["max_age_days"].whole_number(lowest=1, highest=_LONGEST_RETRY_DAYS)
        policy = replace(policy, max_age=timedelta(days=days))
    if "backoff_minutes" in given:
        policy = replace(policy, backoff=_backoff(given["backoff_minutes"]))
    return policy


def _backoff(entry: Entry) -> tuple[timedelta, ...]:
    waits: list[int] = []
    for item in entry.items():
        minutes = item.whole_number(lowest=1, highest=_LONGEST_BACKOFF_MINUTES)
        if waits and minutes < waits[-1]:
            raise item.problem(f"{minutes} comes after {waits[-1]}; each wait is at least as long as the one before")
        waits.append(minutes)
    return tuple(timedelta(minutes=minutes) for minutes in waits)


def _partitioned_query(entry: Entry) -> GaqlQuery:
    """The query can be cut into customer-days: it says whose and which day each row is, and leaves the days to us."""
    query = entry.gaql()
    shape = shape_of(query)
    for field in filter(None, (_CUSTOMER_FIELD, day_field(query))):
        if field not in query.select:
            raise entry.problem(f"does not select {field}, by which rows are split into partitions; add it to SELECT")
    try:
        require_distinct_columns(query.select)
        if shape is Shape.CHANGES:
            require_change_limit(query)
    except CatalogError as error:
        raise entry.problem(str(error)) from None
    if query.date_conditions:
        condition = shortened(print_condition(query.date_conditions[0]))
        raise entry.problem(f"has the condition {condition}, but partitions choose the days; remove the condition")
    if query.limit is not None and shape is not Shape.CHANGES:
        raise entry.problem(f"has LIMIT {query.limit}, which would cut days short; remove it")
    _require_rows_without_keyword(entry, query)
    if pair := uncounted_by_conversion(query):
        segment, metric = map(shortened, pair)
        raise entry.problem_with_name(
            pair[1],
            f"{metric} is not counted by conversion, and Google refuses it beside {segment}; remove one of them",
        )
    return query


def _require_rows_without_keyword(entry: Entry, query: GaqlQuery) -> None:
    if query.resource in _KEYWORD_RESOURCES:
        return
    for field in query.fields:
        if field.startswith(_KEYWORD_SEGMENT):
            raise entry.problem_with_name(
                field,
                f"{shortened(field)} makes Google leave out every row that no keyword brought, so sums fall short; "
                "remove it, and ask for ad_group_criterion.keyword.text FROM keyword_view in a query of its own",
            )


def _natural_key(entry: Entry, query: GaqlQuery) -> tuple[str, ...]:
    fields: list[str] = []
    for item in entry.items():
        field = item.text()
        if field not in query.select:
            name = shortened(field)
            raise item.problem(f"{name} is not selected by the query; add it to SELECT or leave it out of the key")
        if field in fields:
            raise item.problem(f"{shortened(field)} is in the key twice; keep one")
        fields.append(field)
    return tuple(map(column_name, fields))


def _restatement(entry: Entry, query: GaqlQuery, settling_delay: timedelta) -> Restatement:
    oldest = days_back(query)
    if oldest == 0:
        raise entry.problem("asks for earlier days of a snapshot, which cannot be taken later; remove the key")
    entries = entry.mapping(known=("window_days", "repull_days_ago"))
    window_days = entries["window_days"].whole_number(lowest=1, highest=_LONGEST_RESTATEMENT_DAYS)
    if oldest is not None and window_days > oldest:
        raise entries["window_days"].problem(
            f"{query.resource} answers for {oldest} days back only, not for {window_days}; write {oldest} or less"
        )
    ages: list[int] = []
    for item in entries["repull_days_ago"].items():
        age = item.whole_number(lowest=1, highest=window_days)
        if ages and age <= ages[-1]:
            raise item.problem(f"{age} comes after {ages[-1]}; write each age once, the youngest first")
        # The newest open day has age 1, and is itself as many days back as it took to open.
        if age + settling_delay.days > window_days:
            raise item.problem(
                f"age {age} is {age + settling_delay.days} days back with this settling_delay_hours, and window_days "
                f"is {window_days}; remove it, or lower settling_delay_hours"
            )
        ages.append(age)
    return Restatement(window_days=window_days, repull_days_ago=tuple(ages))


def _specification(draft: QueryDraft, stored: Mapping[tuple[str, str], QuerySchema]) -> QuerySpecification:
    place = draft.version_entry
    schema = stored.get((draft.name, draft.schema_version))
    if schema is None:
        raise place.problem(
            f"version {draft.schema_version!r} is not stored; store it with `gads catalog check {place.file} --store`"
        )
    if difference := schema_difference(draft, schema):
        free = 1 + max(int(version) for name, version in stored if name == draft.name)
        raise place.problem(
            f"the query differs from stored version {schema.version} ({difference}); raise schema_version to "
            f'"{free}", then store it with `gads catalog check {place.file} --store`'
        )
    return QuerySpecification(
        name=draft.name,
        description=draft.description,
        gaql=draft.gaql,
        schema=schema,
        start_date=draft.start_date,
        settling_delay=draft.settling_delay,
        limits=draft.limits,
        restatement=draft.restatement,
        retry=draft.retry,
        freshness=draft.freshness,
        alert_after=draft.alert_after,
    )


def schema_difference(draft: QueryDraft, schema: QuerySchema) -> str:
    """What the query has that its stored version has not, and the other way round; empty when they agree.

    Order is no difference: the stored version keeps its own, and rows are read by name.
    """
    ours = {column_name(field): field for field in draft.gaql.select}
    stored = {column.name: column.field for column in schema.columns}
    shared = ours.keys() & stored.keys()
    parts = [
        _set_difference("columns", set(ours), set(stored)),
        _set_difference("fields", {ours[name] for name in shared}, {stored[name] for name in shared}),
        _set_difference("natural key", set(draft.natural_key), set(schema.natural_key)),
        *_terms_difference(terms_of(draft), schema.terms),
    ]
    return "; ".join(filter(None, parts))


def terms_of(draft: QueryDraft) -> Terms:
    return Terms(
        resource=draft.gaql.resource,
        conditions=tuple(map(print_condition, draft.gaql.conditions)),
        parameters=tuple(map(print_parameter, draft.gaql.parameters)),
        never_above=draft.never_above,
    )


def _terms_difference(ours: Terms, stored: Terms) -> list[str]:
    return [
        _set_difference("FROM", {ours.resource}, {stored.resource}),
        _set_difference("WHERE", set(ours.conditions), set(stored.conditions), show=shortened),
        _set_difference("PARAMETERS", set(ours.parameters), set(stored.parameters), show=shortened),
        _set_difference(
            "never_above",
            {f"{name}:{limit}" for name, limit in ours.never_above},
            {f"{name}:{limit}" for name, limit in stored.never_above},
        ),
    ]


def _set_difference(what: str, ours: set[str], stored: set[str], *, show: Callable[[str], str] = str) -> str:
    changes = [f"+{show(item)}" for item in sorted(ours - stored)] + [
        f"-{show(item)}" for item in sorted(stored - ours)
    ]
    text = " ".join([what, *changes])
    if not changes:
        return ""
    return text if len(text) <= _LONGEST_DIFFERENCE else f"{text[:_LONGEST_DIFFERENCE]}…"
