"""Which runs live: the process of one is known to be there, and that of one that was killed to be gone."""

import os
from collections.abc import Iterable, Iterator, Mapping
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
def join(run_id: str, root_run_id: str | None = None) -> Iterator[IsPresent]:
    """Makes the run present as long as this process lives and the block lasts: locks of its database session. The
    ledger has what a repeated run does under the id of its root, which is at work then, and whose process is gone.

    If the database does not let it, the block runs all the same and nobody passes for gone: extraction needs the same
    rights, and says in one line what is wrong with them.
    """
    with ExitStack() as held:
        try:
            here = held.enter_context(Workplace(read_settings(os.environ), outlived_by_database=True))
            records = here.records_as(Role.EXTRACTOR)
            held.enter_context(records.shared([_process(run_id), _work(root_run_id or run_id)]))
        except GadsError:
            yield lambda _: True
        else:
            yield lambda other: bool(present(records, [other]))


def present(records: RunRecords, run_ids: Iterable[str]) -> set[str]:
    """Of these runs, the ones whose own process is still there."""
    return _held(records, {_process(run_id): run_id for run_id in run_ids})


def at_work(records: RunRecords, root_run_ids: Iterable[str]) -> set[str]:
    """Of these runs, as the ledger knows them, the ones that go on: they, or a repetition of them."""
    return _held(records, {_work(run_id): run_id for run_id in root_run_ids})


def _held(records: RunRecords, scopes: Mapping[str, str]) -> set[str]:
    return {scopes[scope] for scope in records.held(scopes)}


def _process(run_id: str) -> str:
    return f"process of run {run_id}"


def _work(root_run_id: str) -> str:
    return f"work of run {root_run_id}"
