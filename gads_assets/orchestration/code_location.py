"""Everything Dagster is told about: assets, checks, sensors, schedules, resources, and how steps run."""

import dagster as dg

from gads_assets.catalog.specification import Catalog
from gads_assets.orchestration.assets import raw_asset, table_asset
from gads_assets.orchestration.checks import validator_checks
from gads_assets.orchestration.control import control_sensor
from gads_assets.orchestration.housekeeping import housekeeping_asset, housekeeping_schedule
from gads_assets.orchestration.io_managers import PublishedTableIOManager, RawRunIOManager
from gads_assets.orchestration.lineage import LineageBackend, lineage_sensor
from gads_assets.orchestration.marts import MartIOManager, account_day_asset, freshness_asset, marts_sensor
from gads_assets.orchestration.partitions import customer_days
from gads_assets.orchestration.presence import one_process_executor
from gads_assets.orchestration.resources import SparkResource, WorkplaceResource
from gads_assets.orchestration.sensors import reconcile_sensor
from gads_assets.orchestration.status import status_asset, status_schedule
from gads_assets.orchestration.watching import watch_sensor


def code_location(
    catalog: Catalog, spark: SparkResource, *, status_url: str, lineage: LineageBackend | None = None
) -> dg.Definitions:
    """`status_url` is where `gads status serve` is reached, for the links on Dagster's pages. Without `lineage` no
    catalog is told of materializations."""
    partitions_def = customer_days(catalog)
    queries = catalog.queries.values()
    workplace = WorkplaceResource(spark=spark)
    by_query = [
        make(catalog, query, partitions_def, status_url=status_url)
        for query in queries
        for make in (raw_asset, table_asset)
    ]
    assets = [
        *by_query,
        account_day_asset(catalog, partitions_def, status_url=status_url),
        freshness_asset(catalog, status_url=status_url),
        housekeeping_asset(catalog),
        status_asset(catalog, status_url=status_url),
    ]
    sensors = [control_sensor(catalog), reconcile_sensor(catalog), marts_sensor(catalog), watch_sensor(catalog)]
    if lineage_told := lineage_sensor(catalog, assets, lineage):
        sensors.append(lineage_told)
    return dg.Definitions(
        assets=assets,
        asset_checks=[validator_checks(catalog, query, partitions_def) for query in queries],
        sensors=sensors,
        schedules=[housekeeping_schedule(catalog), status_schedule(catalog)],
        resources={
            "spark": spark,
            "workplace": workplace,
            "raw_runs": RawRunIOManager(workplace=workplace),
            "published_tables": PublishedTableIOManager(workplace=workplace),
            "refreshed_marts": MartIOManager(),
        },
        executor=one_process_executor,
    )
