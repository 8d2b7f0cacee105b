"""What the catalog says about each query, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from gads_assets.catalog.gaql import GaqlQuery
from gads_assets.catalog.gaql_query import CHANGE_TIME_FIELDS, DATE_FIELD
from gads_assets.catalog.gaql_tokens import shortened
from gads_assets.catalog.shapes import Shape, shape_of
from gads_assets.domain.expectations import SpendPolicy, VolumePolicy
from gads_assets.domain.retrying import RetryPolicy
from gads_assets.errors import CatalogError

DEFAULT_FRESHNESS: Final = timedelta(hours=24)
DEFAULT_RETRY: Final = RetryPolicy()
DEFAULT_ALERT_AFTER: Final = timedelta(hours=48)
NUMBER_TYPES: Final = frozenset({"bigint", "int", "double"})

_DAY_EXPRESSIONS: Final = {
    DATE_FIELD: "`{}`",
    **dict.fromkeys(CHANGE_TIME_FIELDS.values(), "CAST(left(`{}`, 10) AS DATE)"),
}


@dataclass(frozen=True, kw_only=True)
class Column:
    """One selected field: `campaign.id` becomes the column `campaign_id`, with a Spark SQL type."""

    name: str
    field: str
    type: str


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What decides, beside the columns, which rows a version holds and which it refuses.

    `conditions` are those of the query's WHERE and `parameters` its PARAMETERS, as printed. `never_above` pairs
    columns: in no row may the first exceed the second, or the run is rejected. ORDER BY and LIMIT are no terms: a run
    as long as its LIMIT is never sealed, so they decide no row.
    """

    resource: str
    conditions: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    never_above: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class QuerySchema:
    """A schema version, whole: runs are judged and read by the version they were extracted under, for ever.

    `natural_key` names columns (`campaign_id`, not `campaign.id`): together unique, none null, within a partition.
    """

    query_name: str
    version: str
    columns: tuple[Column, ...]
    natural_key: tuple[str, ...]
    terms: Terms

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    @property
    def report_columns(self) -> tuple[Column, ...]:
        """What is published beside the partition's key, whose `customer_id` stands in for the row's own."""
        return tuple(column for column in self.columns if column.field != "customer.id")

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def customer_column(self) -> str:
        return self._required_column("customer.id")

    @property
    def day_expression(self) -> str | None:
        """Spark SQL for the day that a row says it is of; None for a snapshot, whose rows say nothing of it."""
        for field, expression in _DAY_EXPRESSIONS.items():
            if name := self.column_of(field):
                return expression.format(name)
        if any(column.field.startswith(("metrics.", "segments.")) for column in self.columns):
            raise self._of_no_partition(DATE_FIELD)
        return None

    def _required_column(self, field: str) -> str:
        name = self.column_of(field)
        if name is None:
            raise self._of_no_partition(field)
        return name

    def _of_no_partition(self, field: str) -> CatalogError:
        return CatalogError(
            f"schema version {self.version} of {self.query_name} has no {field}, so its rows belong to no partition"
        )

    def column_of(self, field: str) -> str | None:
        """The name of the column that holds this field of the API."""
        return next((column.name for column in self.columns if column.field == field), None)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is worth a warning. What rejects a run is in the Terms of its version."""

    volume: VolumePolicy | None = None
    spend: SpendPolicy | None = None


@dataclass(frozen=True, kw_only=True)
class Restatement:
    """Google goes on changing a day's figures for `window_days`, so days are asked for again at these ages.

    The newest open day has age 1. Ages rise, and none is beyond the window.
    """

    window_days: int
    repull_days_ago: tuple[int, ...]

    def days_to_repull(self, newest: date, *, start_date: date) -> tuple[date, ...]:
        """Oldest first; `newest` is the account's newest open day. None is before `start_date`."""
        days = (newest + timedelta(days=1 - age) for age in reversed(self.repull_days_ago))
        return tuple(day for day in days if day >= start_date)


@dataclass(frozen=True, kw_only=True)
class QuerySpecification:
    """`freshness`: how long after a day opens, or is due to be asked for again, what is published of it passes for
    current; `alert_after`: how much longer it may be stale before somebody is told."""

    name: str
    description: str
    gaql: GaqlQuery
    schema: QuerySchema
    start_date: date
    settling_delay: timedelta
    limits: Limits = Limits()
    restatement: Restatement | None = None
    retry: RetryPolicy = DEFAULT_RETRY
    freshness: timedelta = DEFAULT_FRESHNESS
    alert_after: timedelta = DEFAULT_ALERT_AFTER

    @property
    def due_ages(self) -> tuple[int, ...]:
        """How old a day is, in days, when it is due to be asked for: when it opens, and at each age of a re-pull."""
        return tuple(sorted({1, *(self.restatement.repull_days_ago if self.restatement else ())}))

    @property
    def resource(self) -> str:
        return self.gaql.resource

    @property
    def shape(self) -> Shape:
        return shape_of(self.gaql)


@dataclass(frozen=True, kw_only=True)
class Catalog:
    source: str
    api_version: str
    queries: Mapping[str, QuerySpecification]
    schemas: Mapping[tuple[str, str], QuerySchema]
    """Every stored version, by (query name, version); the current ones are also in `queries`."""

    @property
    def spend_policies(self) -> Mapping[str, SpendPolicy]:
        return {name: query.limits.spend for name, query in self.queries.items() if query.limits.spend}

    @property
    def volume_days(self) -> Mapping[str, int]:
        """How many days back a query's rows are compared."""
        return {name: query.limits.volume.days for name, query in self.queries.items() if query.limits.volume}

    def limits(self, query_name: str) -> Limits:
        """None for a query that is gone: its older runs are judged by their versions alone."""
        query = self.queries.get(query_name)
        return query.limits if query else Limits()

    def query(self, name: str) -> QuerySpecification:
        try:
            return self.queries[name]
        except KeyError:
            known = ", ".join(sorted(self.queries))
            raise CatalogError(f"query {shortened(name, 40)} is not in the catalog; it has {known}") from None

    def schema(self, query_name: str, version: str) -> QuerySchema:
        try:
            return self.schemas[query_name, version]
        except KeyError:
            raise CatalogError(
                f"schema version {version!r} of query {query_name!r} is not stored with the catalog"
            ) from None
