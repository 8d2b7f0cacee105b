"""The ledger against the pointers, and against Dagster's events: what can be mended at once is; the rest takes runs."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg
from ulid import ULID

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.reconciling import TIME_TO_REPORT, Difference
from gads_assets.domain.roles import Role
from gads_assets.errors import GadsError
from gads_assets.orchestration.dagster_internals import materialized_runs
from gads_assets.orchestration.keys import table_key
from gads_assets.orchestration.living import at_work
from gads_assets.orchestration.requested_runs import not_launchable
from gads_assets.orchestration.workplace import Workplace
from gads_assets.warehouse.loading import Standing

if TYPE_CHECKING:
    from gads_assets.extract.restoring import Restored


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """What was found of a source, by partition. `to_load` and `to_judge` take runs, and say beside each partition what
    changes when another is worth it."""

    demoted: Mapping[PartitionKey, str | None] = field(default_factory=dict)
    """Withdrawals that were half way, or could not be begun: None where it is done now, else why it could not be."""
    withdrawn: Collection[PartitionKey] = ()
    """Not a success any more, and hidden now."""
    to_load: Mapping[PartitionKey, str] = field(default_factory=dict)
    """A success that readers do not see, or that was shown and neither recorded nor reported."""
    to_judge: Mapping[PartitionKey, str] = field(default_factory=dict)
    """Sealed and never judged, or adopted and not judged since."""
    estranged: Collection[PartitionKey] = ()
    """From a history that the database lost: left alone, until somebody adopts it."""
    not_launchable: Mapping[PartitionKey, str] = field(default_factory=dict)
    """Why no run can be made for some of those that take one."""
    differing: Collection[str] = ()
    """Queries of which anything is not as it should be, also where a run that lives is about to mend it."""

    @property
    def is_clean(self) -> bool:
        return not (self.demoted or self.withdrawn or self.to_load or self.to_judge or self.estranged)


def reconcile(
    here: Workplace,
    instance: dg.DagsterInstance,
    *,
    queries: Collection[str] | None = None,
    looks_back: timedelta | None = None,
    dry_run: bool = False,
) -> Reconciliation:
    """Finishes demotions that a crash left half way, hides what is no success any more, and tells what takes runs.

    Only `queries` are compared, if given. Partitions of runs that live are left to them. Whether loads were recorded
    and reported is asked of those within `looks_back`, or of all. A dry run changes nothing: what it would finish and
    hide is listed as if it had.
    """
    catalog, loader = here.catalog, here.loader
    demoted = _demote(here, dry_run=dry_run)
    withdrawn: list[PartitionKey] = []
    estranged: list[PartitionKey] = []
    to_load: dict[PartitionKey, str] = {}
    adopted: dict[PartitionKey, str] = {}
    for query_name in catalog.queries if queries is None else queries:
        found = loader.compare(catalog.source, query_name)
        if due := found.with_difference(Difference.NOT_WITHDRAWN):
            try:
                withdrawn += due if dry_run else loader.sweep(catalog.source, query_name)
            except GadsError as error:
                demoted |= dict.fromkeys(due, f"its rows could not be withdrawn: {error}")
        estranged += found.with_difference(Difference.ESTRANGED)
        to_load |= {
            key: f"version {state.version}"
            for key in found.with_difference(Difference.NOT_LOADED)
            if (state := found.ledger[key].state)
        }
        adopted |= {
            key: f"floor {floor}"
            for key in found.with_difference(Difference.ESTRANGED)
            if (floor := found.ledger[key].version_floor) is not None
        }
        to_load |= _unreported(here, instance, query_name, found, looks_back)
    differing = {key.query_name for key in (*demoted, *withdrawn, *estranged, *to_load)}
    records = here.records_as(Role.OPERATOR)
    waiting = records.unjudged(list(catalog.queries), source=catalog.source)
    judged_in = records.last_judged_in(to_load)
    run_ids = {*judged_in.values(), *(run.dagster_run_id for run in waiting.values())}
    living = at_work(records, (run_id for run_id in run_ids if run_id))
    # A run that lost its session, as the database restarted, still has its leases.
    held = here.leases_as(Role.OPERATOR).all_held(catalog.source)
    to_load = {key: mark for key, mark in to_load.items() if key not in held and judged_in.get(key) not in living}
    to_judge = {key: mark for key, mark in adopted.items() if key not in held} | {
        key: run.run_id for key, run in waiting.items() if key not in held and run.dagster_run_id not in living
    }
    return Reconciliation(
        demoted=demoted,
        withdrawn=withdrawn,
        to_load=to_load,
        to_judge=to_judge,
        estranged=[key for key in estranged if key not in adopted],
        not_launchable=not_launchable(catalog, instance, to_load | to_judge),
        differing=differing,
    )


def adopt(here: Workplace, *, actor: str, reason: str) -> "Restored":
    """Makes a database that was lost, or restored from a backup, go on from what readers see.

    Sealed runs are put on record again, and partitions from a history that the database lacks go on above the versions
    of their pointers: by the verdict that `reconcile` asks for next. Until then readers see what they saw.
    """
    from gads_assets.extract.restoring import restore_extractions  # noqa: PLC0415

    restored = restore_extractions(here.sink, here.store_as(Role.EXTRACTOR), here.catalog.source)
    for query_name in here.catalog.queries:
        found = here.loader.compare(here.catalog.source, query_name)
        pointers = [found.pointers[key] for key in found.with_difference(Difference.ESTRANGED)]
        if pointers:
            here.store_as(Role.OPERATOR).adopt(
                pointers,
                actor=actor,
                reason=reason,
                now=datetime.now(UTC),
                new_override_id=lambda: str(ULID()),
            )
    return restored


def describe(found: Reconciliation) -> str:
    """One line, for people."""
    unfinished = {key: reason for key, reason in found.demoted.items() if reason}
    parts = [
        (len(found.demoted) - len(unfinished), "withdrawals that were half way are finished"),
        (len(found.withdrawn), "partitions that are no success any more are hidden"),
        (len(found.to_judge), "sealed runs wait for a verdict"),
        (len(found.to_load), "successes wait to be loaded"),
        (len(unfinished), f"withdrawals cannot be finished: {next(iter(unfinished.values()), '')}"),
        (
            len(found.estranged),
            "partitions are shown from a history that the database does not have, and stay as they are; if it was lost "
            "or restored, run `gads reconcile --adopt`",
        ),
    ]
    told = [f"{number} {what}" for number, what in parts if number]
    told += [
        f"{number} of them cannot be launched: {why}" for why, number in Counter(found.not_launchable.values()).items()
    ]
    return "; ".join(told) or "readers see what the ledger says"


def _demote(here: Workplace, *, dry_run: bool) -> dict[PartitionKey, str | None]:
    intents = [
        intent
        for intent in here.store_as(Role.OPERATOR).open_demotions()
        if intent.key.source == here.catalog.source and intent.key.query_name in here.catalog.queries
    ]
    unfinished = here.validator.finish_demotions(intents) if intents and not dry_run else {}
    return {intent.key: unfinished.get(intent.key) for intent in intents}


def _unreported(
    here: Workplace, instance: dg.DagsterInstance, query_name: str, found: Standing, looks_back: timedelta | None
) -> dict[PartitionKey, str]:
    """Shown to readers by a loader that was killed before it had recorded the load, or Dagster its event."""
    now = datetime.now(UTC)
    shown = found.shown(
        loaded_after=None if looks_back is None else now - looks_back, loaded_before=now - TIME_TO_REPORT
    )
    if not shown:
        return {}
    recorded = {(record.key, record.run_id) for record in here.store_as(Role.OPERATOR).load_records(shown)}
    reported = materialized_runs(instance, table_key(here.catalog, query_name), [key.label for key in shown])
    return {
        key: f"stage {pointer.stage_id}"
        for key, pointer in shown.items()
        if (key, pointer.run_id) not in recorded or reported.get(key.label) != pointer.run_id
    }
