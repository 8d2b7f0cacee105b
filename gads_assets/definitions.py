"""What Dagster loads: wiring only. Loading it starts no Spark, no database and no network."""

import os
import warnings

import dagster as dg

from gads_assets.catalog.loading import load_catalog
from gads_assets.orchestration.assets import raw_asset, table_asset
from gads_assets.orchestration.checks import verdict_check
from gads_assets.orchestration.io_managers import PublishedTableIOManager, RawRunIOManager
from gads_assets.orchestration.partitions import customer_days
from gads_assets.orchestration.resources import SparkResource, WorkplaceResource
from gads_assets.settings import read_settings


# Single-run backfills and partitioned checks are young in Dagster; it would say so on every command, many times.
for _category in (dg.BetaWarning, dg.PreviewWarning):
    warnings.filterwarnings("ignore", category=_category)


def _definitions() -> dg.Definitions:
    catalog = load_catalog(read_settings(os.environ).catalog_path)
    partitions_def = customer_days(catalog)
    queries = catalog.queries.values()
    spark = SparkResource()
    workplace = WorkplaceResource(spark=spark)
    return dg.Definitions(
        assets=[make(catalog, query, partitions_def) for query in queries for make in (raw_asset, table_asset)],
        asset_checks=[verdict_check(catalog, query, partitions_def) for query in queries],
        resources={
            "spark": spark,
            "workplace": workplace,
            "raw_runs": RawRunIOManager(workplace=workplace),
            "published_tables": PublishedTableIOManager(workplace=workplace),
        },
        # One process a run: its steps share one Spark session, and a second one would cost more than it brings.
        executor=dg.in_process_executor,
    )


defs = _definitions()
