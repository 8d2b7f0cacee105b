"""What a step may know about the Dagster run it is part of, and how a run says which partitions it could not do."""

from collections.abc import Mapping

import dagster as dg

from gads_assets.domain.keys import PartitionKey

_NAMED = 20


def root_run_id(run: dg.DagsterRun) -> str:
    """The same for a run and all its re-executions, so that a repeated step finds what the first try did."""
    return run.root_run_id or run.run_id


def includes_asset(run: dg.DagsterRun, key: dg.AssetKey) -> bool:
    return run.asset_selection is None or key in run.asset_selection


def includes_check(run: dg.DagsterRun, key: dg.AssetCheckKey) -> bool:
    return run.asset_check_selection is None or key in run.asset_check_selection


def partition_failure(what: str, reasons: Mapping[PartitionKey, str], *, of: int) -> dg.Failure:
    """Ends the step as failed, naming the partitions. Dagster must not repeat it: the control plane decides that."""
    named = [f"{key.label}: {reason}" for key, reason in sorted(reasons.items())]
    more = [f"and {len(named) - _NAMED} more"] if len(named) > _NAMED else []
    return dg.Failure(
        description=f"{len(named)} of {of} partitions {what}. " + "; ".join(named[:_NAMED] + more),
        metadata={
            "partitions": dg.MetadataValue.table(
                [
                    dg.TableRecord({"partition": key.label, "reason": reason})
                    for key, reason in sorted(reasons.items())[:500]
                ]
            )
        },
        allow_retries=False,
    )
