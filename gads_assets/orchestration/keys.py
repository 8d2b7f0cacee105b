"""What the assets of a query are called."""

import dagster as dg

from gads_assets.catalog.specification import Catalog


def raw_key(catalog: Catalog, query_name: str) -> dg.AssetKey:
    return dg.AssetKey([catalog.source, "raw", query_name])


def table_key(catalog: Catalog, query_name: str) -> dg.AssetKey:
    return dg.AssetKey([catalog.source, query_name])
