"""The code location, with a job that extracts and does nothing else: no check, and so no Spark."""

import dagster as dg

from gads_assets import definitions
from gads_assets_tests.worlds import RAW

SELECTED = dg.AssetSelection.assets(RAW, ["google_ads", "raw", "ad_group"]).without_checks()

defs = dg.Definitions.merge(
    definitions.defs, dg.Definitions(jobs=[dg.define_asset_job("raw_alone", selection=SELECTED)])
)
