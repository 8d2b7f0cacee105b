"""Runs of batches that ended before their processes began: cancelled in the queue, or never started."""

from collections.abc import Sequence

import dagster as dg

from gads_assets.control.ticking import Runs
from gads_assets.domain.roles import Role
from gads_assets.orchestration.batches import labels_by_query
from gads_assets.orchestration.dagster_internals import plan_partitions, planned_assets, plans_partitions
from gads_assets.orchestration.killed_runs import ENDED
from gads_assets.orchestration.runs import BATCH
from gads_assets.orchestration.workplace import Workplace
from gads_assets.state.batch_keys import unclaimed_keys
from gads_assets.state.dispatching import OpenBatch


def plan_unclaimed(here: Workplace, instance: dg.DagsterInstance, batches: Sequence[OpenBatch], runs: Runs) -> None:
    """Says in their place which partitions they were for, so that each has an attempt that was cancelled or failed.

    To be called before the batches are settled: then nothing tells any more what was in them. Once is enough, and again
    changes nothing.
    """
    over = [batch.batch_id for batch in batches if batch.dagster_run_id is None and batch.batch_id in runs.ended]
    if not over:
        return
    newest: dict[str, dg.DagsterRun] = {}
    for run in instance.get_runs(dg.RunsFilter(tags={BATCH: over}, statuses=list(ENDED))):
        newest.setdefault(run.tags[BATCH], run)
    for batch_id, keys in unclaimed_keys(here.engine_as(Role.OPERATOR), list(newest)).items():
        run = newest[batch_id]
        if not plans_partitions(instance, run):
            plan_partitions(instance, run, planned_assets(instance, run), labels_by_query(keys))
