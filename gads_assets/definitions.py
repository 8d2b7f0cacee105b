"""What Dagster loads. Loading it starts no Spark, no database and no network."""

import os
import warnings

import dagster as dg

from gads_assets.catalog.loading import load_catalog
from gads_assets.orchestration.code_location import code_location
from gads_assets.orchestration.lineage import lineage_backend
from gads_assets.orchestration.resources import SparkResource
from gads_assets.settings import read_settings

# Single-run backfills and partitioned checks are young in Dagster; it would say so on every command, many times.
for _category in (dg.BetaWarning, dg.PreviewWarning):
    warnings.filterwarnings("ignore", category=_category)

_settings = read_settings(os.environ)

defs = code_location(
    load_catalog(_settings.catalog_path),
    SparkResource(),
    status_url=_settings.status_url,
    lineage=lineage_backend(_settings),
)
