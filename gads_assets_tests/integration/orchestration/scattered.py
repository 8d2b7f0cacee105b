"""Partitions that no rectangle holds, and what Dagster knows of a run over them."""

from typing import Any

import dagster as dg

from gads_assets_tests.worlds import (
    BERLIN,
    NEW_YORK,
    TOKYO,
    World,
)

AD_GROUP = dg.AssetKey(["google_ads", "raw", "ad_group"]), dg.AssetKey(["google_ads", "ad_group"])
FRESHNESS = dg.AssetKey(["google_ads", "marts", "freshness"])
GOOD = {f"{NEW_YORK}|2024-06-01", f"{NEW_YORK}|2024-06-20", f"{BERLIN}|2024-06-07"}
REJECTED = f"{BERLIN}|2024-06-02"
UNEXTRACTED = {f"{TOKYO}|2024-06-03", f"{TOKYO}|2024-06-05"}
SCATTERED = [*GOOD, REJECTED, *UNEXTRACTED]
REJECTS = f"duplicated_rows@{BERLIN}/campaign/2024-06-02"


def observations(world: World, asset: dg.AssetKey, label: str) -> list[dg.AssetObservation]:
    """Oldest first."""
    chosen = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[label])
    records = world.instance.fetch_observations(chosen, limit=100, ascending=True).records
    return [record.asset_observation for record in records if record.asset_observation]


def reasons(world: World, asset: dg.AssetKey, label: str) -> list[Any]:
    found = [each.metadata.get("reason") for each in observations(world, asset, label)]
    return [reason.value for reason in found if reason]


def steps_begun(result: dg.JobExecutionResult) -> set[str | None]:
    return {each.step_key for each in result.all_events if each.event_type is dg.DagsterEventType.STEP_START}


def run_failure(world: World, result: dg.JobExecutionResult) -> str:
    [entry] = world.instance.all_logs(result.run_id, dg.DagsterEventType.RUN_FAILURE)
    error = entry.get_dagster_event().job_failure_data.error
    assert error is not None
    return error.to_string()
