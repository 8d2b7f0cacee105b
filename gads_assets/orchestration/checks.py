"""The validator as an asset check: it judges sealed runs, writes PartitionState, and gates what is published."""

from collections.abc import Iterator
from typing import Final

import dagster as dg

from gads_assets.catalog.specification import Catalog, QuerySpecification
from gads_assets.orchestration import metadata
from gads_assets.orchestration.dagster_internals import AssetCheckEvaluation, materialization_targets
from gads_assets.orchestration.keys import raw_key, table_key
from gads_assets.orchestration.partitions import CustomerDays, partition_keys
from gads_assets.orchestration.resources import WorkplaceResource
from gads_assets.orchestration.runs import includes_asset, partition_failure, readable_failures, root_run_id

VERDICT: Final = "verdict"


def verdict_check(
    catalog: Catalog, specification: QuerySpecification, partitions_def: CustomerDays
) -> dg.AssetChecksDefinition:
    asset_key = raw_key(catalog, specification.name)

    @dg.asset_check(  # type: ignore[arg-type]  # Dagster runs generators too; its annotation says otherwise
        asset=asset_key,
        name=VERDICT,
        blocking=True,
        partitions_def=partitions_def,
        description="Judges the sealed run: bytes as sealed, the account's day over, columns, row count, account, day, "
        "natural key, bounds. The outcome goes into the state store, and only a partition that passes is published.",
    )
    def verdict(
        context: dg.AssetCheckExecutionContext, workplace: WorkplaceResource
    ) -> Iterator[AssetCheckEvaluation | dg.Output[None]]:
        op_context = context.op_execution_context
        keys = partition_keys(op_context.partition_keys, source=catalog.source, query_name=specification.name)
        with readable_failures():
            validation = workplace.get().validator.validate(keys, dagster_run_id=root_run_id(op_context.run))
        targets = materialization_targets(op_context.instance, asset_key, [key.label for key in keys])
        for key, judged in validation.judged.items():
            yield AssetCheckEvaluation(
                asset_key=asset_key,
                check_name=VERDICT,
                partition=key.label,
                passed=judged.verdict.accepted,
                description=judged.verdict.error_message,
                metadata=metadata.verdict(judged),
                target_materialization_data=targets.get(key.label),
                # In a run of many, one bad partition must not hold back the rest: PartitionState gates each.
                blocking=len(keys) == 1,
            )
        yield dg.Output(None, output_name=next(iter(op_context.op_def.output_dict)))
        refused = dict(validation.unjudged) | {
            key: judged.verdict.error_message or "rejected"
            for key, judged in validation.judged.items()
            if not judged.verdict.accepted
        }
        if refused and (len(keys) == 1 or not includes_asset(op_context.run, table_key(catalog, specification.name))):
            raise partition_failure("were not accepted", refused, of=len(keys))

    return verdict
