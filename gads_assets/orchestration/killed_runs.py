"""Runs whose processes were killed: for Dagster they stay started, and keep their place in its queue, until somebody
says otherwise."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import dagster as dg

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.roles import Role
from gads_assets.orchestration.living import present
from gads_assets.orchestration.workplace import Workplace

ENDED: Final = frozenset({dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED})
RUNNING: Final = (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
_LAST_WORDS: Final = 20
_LONGEST_SILENCE: Final = timedelta(minutes=5)
"""In Dagster's log, of a run whose process has not shown up yet, or is about to write that it has ended."""


def report_killed_runs(here: Workplace, instance: dg.DagsterInstance) -> None:
    """Ends them in Dagster; what they had of partitions is free. Reported first: a lease that is gone tells nobody."""
    leases = here.leases_as(Role.OPERATOR)
    asked = {*leases.expired(), *_silent_runs(here, instance)}
    # One that only missed its turn still holds its session; one that lost that, as the database restarted, its lease.
    there = present(here.records_as(Role.OPERATOR), asked) | leases.living(asked)
    for run_id in sorted(asked - there):
        _report(instance, run_id)
        leases.remove_expired(run_id)


def _silent_runs(here: Workplace, instance: dg.DagsterInstance) -> list[str]:
    """One that was killed before it had a lease is found here only."""
    now = here.schedule_as(Role.OPERATOR).clock()
    started = instance.get_runs(dg.RunsFilter(statuses=list(RUNNING)))
    return [run.run_id for run in started if _is_ours(here.catalog, run) and _is_silent(instance, run, now=now)]


def _is_ours(catalog: Catalog, run: dg.DagsterRun) -> bool:
    """Others that Dagster runs show us no sign of life."""
    checked: Iterable[dg.AssetCheckKey] = run.asset_check_selection or ()
    keys = {*(run.asset_selection or ()), *(check.asset_key for check in checked)}
    of_a_schedule = run.job_name.startswith(f"{catalog.source}_")
    return of_a_schedule or any(key.path[0] == catalog.source for key in keys)


def _is_silent(instance: dg.DagsterInstance, run: dg.DagsterRun, *, now: datetime) -> bool:
    """By the latest of its last words: they are of the daemon's clock and of that of the run's machine, which may be
    behind."""
    last = instance.get_records_for_run(run.run_id, limit=_LAST_WORDS, ascending=False).records
    said_at = max((record.timestamp for record in last), default=None)
    return said_at is not None and now - datetime.fromtimestamp(said_at, UTC) >= _LONGEST_SILENCE


def _report(instance: dg.DagsterInstance, run_id: str) -> None:
    run = instance.get_run_by_id(run_id)
    if run is None or run.status in ENDED:
        return
    if run.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, "its process is gone, and was to be cancelled")
    else:
        instance.report_run_failed(run, "its process is gone, and left no word")
