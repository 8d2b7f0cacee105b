"""What the assets are called, and the pool that those of a query share."""

import dagster as dg

from gads_assets.catalog.specification import Catalog


def raw_key(catalog: Catalog, query_name: str) -> dg.AssetKey:
    return dg.AssetKey([catalog.source, "raw", query_name])


def table_key(catalog: Catalog, query_name: str) -> dg.AssetKey:
    return dg.AssetKey([catalog.source, query_name])


def mart_key(catalog: Catalog, name: str) -> dg.AssetKey:
    return dg.AssetKey([catalog.source, "marts", name])


def housekeeping_key(catalog: Catalog) -> dg.AssetKey:
    return dg.AssetKey([catalog.source, "housekeeping"])


def status_key(catalog: Catalog) -> dg.AssetKey:
    return dg.AssetKey([catalog.source, "partition_status"])


def api_pool(catalog: Catalog) -> str:
    """Whoever extracts from the source has a place in it; how many there are is how many steps extract at once."""
    return f"{catalog.source}_api"
