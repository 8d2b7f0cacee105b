"""Which runs live: the process of one is known to be there, and that of one that was killed to be gone."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Final

import dagster as dg

from gads_assets.domain.roles import Role
from gads_assets.errors import GadsError
from gads_assets.orchestration.batches import partitions_of_batch
from gads_assets.orchestration.dagster_executor import IsPresent, PatientExecutor
from gads_assets.orchestration.leasing import sign_of_life
from gads_assets.orchestration.living import present, process_scope, work_scope
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings

_PATIENCE: Final = timedelta(seconds=10)
"""With a database that does not answer: it may be restarting."""
_PAUSE: Final = timedelta(seconds=1)


@dg.executor(name="in_process")
def one_process_executor(_: dg.InitExecutorContext) -> dg.Executor:
    """One process a run: its steps share one Spark session, and a second one would cost more than it brings."""
    return PatientExecutor(join=join, batch=partitions_of_batch)


@contextmanager
def join(run_id: str, root_run_id: str | None = None) -> Iterator[IsPresent]:
    """Makes the run present as long as this process lives and the block lasts: locks of its database session, and signs
    of life that outlast a restart of the database. The ledger has what a repeated run does under the id of its root,
    which is at work then, and whose process is gone.

    Without that there is no block: others would take the run for killed, and its partitions from it. Raises
    ScopeTakenError if another process has the run.
    """
    with ExitStack() as held:
        here = held.enter_context(Workplace(read_settings(os.environ), outlived_by_database=True))
        deadline = time.monotonic() + _PATIENCE.total_seconds()
        while True:
            try:
                held.enter_context(_shown(here, run_id, root_run_id or run_id))
                break
            except GadsError as error:
                if not error.retryable or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE.total_seconds())
        records, leases = here.records_as(Role.EXTRACTOR), here.leases_as(Role.EXTRACTOR)
        # One that lost its session, as the database restarted, still has its lease.
        yield lambda other: bool(present(records, [other]) or leases.living([other]))


@contextmanager
def _shown(here: Workplace, run_id: str, root_run_id: str) -> Iterator[None]:
    shared = here.records_as(Role.EXTRACTOR).shared([work_scope(root_run_id)], alone=process_scope(run_id))
    with shared as keep_present, sign_of_life(here.leases_as(Role.EXTRACTOR), run_id, keep_present):
        yield
