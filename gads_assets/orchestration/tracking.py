"""What the status of partitions has to know of the catalog's assets."""

from gads_assets.catalog.shapes import days_back
from gads_assets.catalog.specification import Catalog
from gads_assets.orchestration.assets import raw_code_version, table_code_version
from gads_assets.orchestration.keys import mart_key, raw_key, table_key
from gads_assets.orchestration.marts import MART_CODE_VERSION
from gads_assets.orchestration.partitions import first_day
from gads_assets.status.tracking import AssetKind, FreshnessPolicy, TrackedAsset
from gads_assets.warehouse.marts.account_day import performance_queries
from gads_assets.warehouse.marts.tables import ACCOUNT_DAY, FRESHNESS


def tracked_assets(catalog: Catalog) -> list[TrackedAsset]:
    """Those whose partitions are customers, or customers' days; what somebody adds downstream is not ours to judge."""
    tables, raws = [], []
    for query in catalog.queries.values():
        policy = FreshnessPolicy(
            settling=query.settling_delay,
            allowance=query.freshness,
            due_ages=query.due_ages,
            reach_days=days_back(query.gaql),
        )
        raw = raw_key(catalog, query.name).to_user_string()
        raws.append(
            TrackedAsset(
                asset_key=raw,
                title=f"raw/{query.name}",
                kind=AssetKind.RAW,
                query_name=query.name,
                first_day=query.start_date,
                code_version=raw_code_version(catalog, query),
                receipt="run_seq",
                policy=policy,
            )
        )
        tables.append(
            TrackedAsset(
                asset_key=table_key(catalog, query.name).to_user_string(),
                title=query.name,
                kind=AssetKind.TABLE,
                query_name=query.name,
                first_day=query.start_date,
                code_version=table_code_version(query),
                receipt="pointer_version",
                upstream=(raw,),
                policy=policy,
            )
        )
    first = first_day(catalog)
    made_of_tables = FreshnessPolicy(settling=min(query.settling_delay for query in catalog.queries.values()))
    account_day = TrackedAsset(
        asset_key=mart_key(catalog, ACCOUNT_DAY.name).to_user_string(),
        title=f"marts/{ACCOUNT_DAY.name}",
        kind=AssetKind.MART,
        query_name=None,
        first_day=first,
        code_version=MART_CODE_VERSION,
        receipt="inputs",
        upstream=tuple(table_key(catalog, name).to_user_string() for name in performance_queries(catalog)),
        policy=made_of_tables,
    )
    freshness = TrackedAsset(
        asset_key=mart_key(catalog, FRESHNESS.name).to_user_string(),
        title=f"marts/{FRESHNESS.name}",
        kind=AssetKind.MART,
        query_name=None,
        first_day=first,
        has_days=False,
        code_version=MART_CODE_VERSION,
        receipt="pointer_versions",
        upstream=tuple(asset.asset_key for asset in tables),
        policy=made_of_tables,
    )
    return [*tables, *raws, account_day, freshness]
