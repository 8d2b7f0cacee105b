"""Which runs live, told by the locks that their processes hold: one that was killed holds none."""

from collections.abc import Iterable, Mapping

from gads_assets.state.leases import PROCESS_SCOPE
from gads_assets.state.run_records import RunRecords


def present(records: RunRecords, run_ids: Iterable[str]) -> set[str]:
    """Of these runs, the ones whose own process is still there."""
    return _held(records, {process_scope(run_id): run_id for run_id in run_ids})


def at_work(records: RunRecords, root_run_ids: Iterable[str]) -> set[str]:
    """Of these runs, as the ledger knows them, the ones that go on: they, or a repetition of them."""
    return _held(records, {work_scope(run_id): run_id for run_id in root_run_ids})


def process_scope(run_id: str) -> str:
    return f"{PROCESS_SCOPE}{run_id}"


def work_scope(root_run_id: str) -> str:
    return f"work of run {root_run_id}"


def _held(records: RunRecords, scopes: Mapping[str, str]) -> set[str]:
    return {scopes[scope] for scope in records.held(scopes)}
