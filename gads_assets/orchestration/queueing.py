"""Dagster's queue of runs, in which history is one thing, whoever asked for it."""

from typing import Final

import dagster as dg
from dagster._core.run_coordinator import QueuedRunCoordinator, SubmitRunContext
from dagster._core.storage.tags import BACKFILL_ID_TAG

_HISTORY: Final = {"gads/purpose": "backfill"}
"""As `runs.PURPOSE` has it: this module is loaded by every process of Dagster, and that one brings Spark."""


class QueueWithOneHistory(QueuedRunCoordinator):
    """Tags what Dagster's partition launcher asks for as `gads backfill` is tagged: limits of two tags would let each
    of them have a place, and together they would have all. dagster.yaml names this class."""

    def submit_run(self, context: SubmitRunContext) -> dg.DagsterRun:
        run = context.dagster_run
        if BACKFILL_ID_TAG in run.tags:
            self._instance.add_run_tags(run.run_id, _HISTORY)
        return super().submit_run(context)
