"""Which runs live: the process of one is known to be there, and that of one that was killed to be gone."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import dagster as dg

from gads_assets.domain.roles import Role
from gads_assets.errors import GadsError
from gads_assets.orchestration.dagster_internals import IsPresent, PatientExecutor
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.state.run_records import RunRecords


@dg.executor(name="in_process")
def one_process_executor(_: dg.InitExecutorContext) -> dg.Executor:
    """One process a run: its steps share one Spark session, and a second one would cost more than it brings."""
    return PatientExecutor(join=join)


@contextmanager
def join(*run_ids: str) -> Iterator[IsPresent]:
    """Makes the runs present as long as this process lives and the block lasts: locks of its database session. A
    repeated run is present under the id of its root too, which is what the ledger has of it.

    If the database does not let it, the block runs all the same and nobody passes for gone: extraction needs the same
    rights, and says in one line what is wrong with them.
    """
    with ExitStack() as held:
        try:
            here = held.enter_context(Workplace(read_settings(os.environ), outlived_by_database=True))
            records = here.records_as(Role.EXTRACTOR)
            held.enter_context(records.shared([_scope(run_id) for run_id in run_ids]))
        except GadsError:
            yield lambda _: True
        else:
            yield lambda other: bool(living(records, [other]))


def living(records: RunRecords, run_ids: Iterable[str]) -> set[str]:
    """Of these runs, the ones whose process is still there."""
    scopes = {_scope(run_id): run_id for run_id in run_ids}
    return {scopes[scope] for scope in records.held(scopes)}


def _scope(run_id: str) -> str:
    return f"work in run {run_id}"
