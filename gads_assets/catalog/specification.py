"""What the catalog says about each query, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from gads_assets.catalog.gaql import GaqlQuery
from gads_assets.errors import CatalogError


@dataclass(frozen=True, kw_only=True)
class Column:
    """One selected field: `campaign.id` becomes the column `campaign_id`, with a Spark SQL type."""

    name: str
    field: str
    type: str


@dataclass(frozen=True, kw_only=True)
class QuerySchema:
    """A schema version, whole: runs are judged and read by the version they were extracted under, for ever.

    `natural_key` names columns (`campaign_id`, not `campaign.id`): together unique, none null, within a partition.
    """

    query_name: str
    version: str
    columns: tuple[Column, ...]
    natural_key: tuple[str, ...]

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


@dataclass(frozen=True, kw_only=True)
class QuerySpecification:
    name: str
    description: str
    gaql: GaqlQuery
    schema: QuerySchema
    start_date: date
    settling_delay: timedelta

    @property
    def resource(self) -> str:
        return self.gaql.resource


@dataclass(frozen=True, kw_only=True)
class Catalog:
    source: str
    api_version: str
    queries: Mapping[str, QuerySpecification]
    schemas: Mapping[tuple[str, str], QuerySchema]
    """Every stored version, by (query name, version); the current ones are also in `queries`."""

    def query(self, name: str) -> QuerySpecification:
        try:
            return self.queries[name]
        except KeyError:
            known = ", ".join(sorted(self.queries))
            raise CatalogError(f"query {name!r} is not in the catalog; it has {known}") from None

    def schema(self, query_name: str, version: str) -> QuerySchema:
        try:
            return self.schemas[query_name, version]
        except KeyError:
            raise CatalogError(
                f"schema version {version!r} of query {query_name!r} is not stored with the catalog"
            ) from None
