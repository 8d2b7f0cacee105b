"""What this project needs from Dagster and Dagster does not offer in public.

`test_dagster_runs.py` fails when an upgrade changes any of it.
"""

from collections.abc import Mapping, Sequence

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluation,
    AssetCheckEvaluationTargetMaterializationData,
)

from gads_assets.orchestration.partitions import CustomerDays

__all__ = ["AssetCheckEvaluation", "describe_partition", "materialization_targets", "narrow_output"]


def narrow_output(
    context: dg.OutputContext, partitions_def: CustomerDays, keys: Sequence[dg.MultiPartitionKey]
) -> None:
    """Makes Dagster log materializations for these keys only.

    A step's output stands for every partition of its run; after a mixed outcome that would mark the failed ones
    materialized too.
    """
    context._asset_partitions_subset = partitions_def.subset_with_partition_keys(keys)


def describe_partition(
    context: dg.OutputContext, key: dg.MultiPartitionKey, metadata: Mapping[str, dg.MetadataValue]
) -> None:
    """Metadata for one partition's materialization; the public call puts the same on all of a run's."""
    context.step_context.add_asset_metadata(metadata, asset_key=context.asset_key, partition_key=key)


def materialization_targets(
    instance: dg.DagsterInstance, asset_key: dg.AssetKey, keys: Sequence[str]
) -> dict[str, AssetCheckEvaluationTargetMaterializationData]:
    """The latest materialization of each key. An evaluation without one is missing from the check's partition view."""
    latest = instance.event_log_storage.get_latest_storage_id_by_partition(
        asset_key, dg.DagsterEventType.ASSET_MATERIALIZATION, partitions=set(keys)
    )
    if not latest:
        return {}
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=asset_key, storage_ids=list(latest.values())), limit=len(latest)
    ).records
    by_id = {record.storage_id: record for record in records}
    return {
        key: AssetCheckEvaluationTargetMaterializationData(
            storage_id=storage_id, run_id=by_id[storage_id].run_id, timestamp=by_id[storage_id].timestamp
        )
        for key, storage_id in latest.items()
        if storage_id in by_id
    }
