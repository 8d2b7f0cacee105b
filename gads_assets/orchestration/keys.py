"""What the assets are called, and the pool that those of a query share."""

import dagster as dg

from gads_assets.catalog.specification import Catalog


def raw_key(catalog: Catalog, query_name: str) -> dg.AssetKey:
    return dg.AssetKey([catalog.source, "raw", query_name])


def table_key(catalog: Catalog, query_name: str) -> dg.AssetKey:
    return dg.AssetKey([catalog.source, query_name])


def assets_of_queries(catalog: Catalog) -> dg.AssetSelection:
    return dg.AssetSelection.assets(
        *(make(catalog, query) for query in catalog.queries for make in (raw_key, table_key))
    )


def mart_key(catalog: Catalog, name: str) -> dg.AssetKey:
    return dg.AssetKey([catalog.source, "marts", name])


def housekeeping_key(catalog: Catalog) -> dg.AssetKey:
    return dg.AssetKey([catalog.source, "housekeeping"])


def status_key(catalog: Catalog) -> dg.AssetKey:
    return dg.AssetKey([catalog.source, "partition_status"])


def api_pool(catalog: Catalog) -> str:
    """Whoever extracts from the source has a place in it; how many there are is how many steps extract at once."""
    return f"{catalog.source}_api"


def spark_pool(catalog: Catalog) -> str:
    """Whoever judges or publishes has a place in it: on one machine two would only wait for each other's cores."""
    return f"{catalog.source}_spark"
