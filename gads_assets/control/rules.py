"""What the catalog says about when partitions are due, in the control plane's terms."""

from gads_assets.catalog.shapes import days_back
from gads_assets.catalog.specification import Catalog, QuerySpecification
from gads_assets.domain.retrying import RetryPolicy
from gads_assets.state.opening import OpeningRule


def opening_rule(query: QuerySpecification) -> OpeningRule:
    return OpeningRule(
        query_name=query.name,
        start_date=query.start_date,
        settling=query.settling_delay,
        ages=tuple(age for age in query.due_ages if age > 1),
        reach_days=days_back(query.gaql),
    )


def opening_rules(catalog: Catalog) -> list[OpeningRule]:
    return [opening_rule(query) for query in catalog.queries.values()]


def retry_policies(catalog: Catalog) -> dict[str, RetryPolicy]:
    return {name: query.retry for name, query in catalog.queries.items()}


def days_per_call(catalog: Catalog) -> dict[str, int | None]:
    return {name: query.shape.days_per_call for name, query in catalog.queries.items()}
