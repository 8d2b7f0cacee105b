"""`gads housekeeping`: removes what no run needs any more."""

import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, assert_never

import typer

from gads_assets.cli.output import JsonOption, messages, print_json, print_table
from gads_assets.errors import RawSinkError
from gads_assets.raw.housekeeping import GRACE, Fate, Inventory, OrphanKind, Outcome, find_orphans, remove_orphans
from gads_assets.raw.sink import RawSink
from gads_assets.settings import read_settings


def housekeeping(
    grace_hours: Annotated[
        int,
        typer.Option("--grace-hours", min=0, max=24 * 365, help="Leave alone what changed within so many hours."),
    ] = GRACE // timedelta(hours=1),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed; change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what killed extractions left in the raw sink. A sealed run is never removed.

    The grace must be longer than any extraction lasts: one that is still writing loses its files and must start again.
    """
    sink = RawSink(read_settings(os.environ).raw_uri)
    now, grace = datetime.now(UTC), timedelta(hours=grace_hours)
    inventory = find_orphans(sink, now=now)
    outcomes = remove_orphans(sink, inventory.orphans, now=now, grace=grace, dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, "grace_hours": grace_hours, "raw": _document(outcomes, inventory.foreign)})
    else:
        _show(outcomes, inventory)
    messages.print(_summary(outcomes, inventory), soft_wrap=True)
    failed = [outcome for outcome in outcomes if outcome.fate is Fate.FAILED]
    if failed:
        raise RawSinkError(f"{len(failed)} of {len(outcomes)} orphans could not be removed: {failed[0].reason}")


def _document(outcomes: Sequence[Outcome], foreign: Sequence[str]) -> dict[str, object]:
    orphans = [
        {
            "source": outcome.orphan.key.source,
            "customer_id": outcome.orphan.key.customer_id,
            "query_name": outcome.orphan.key.query_name,
            "logical_date": outcome.orphan.key.logical_date.isoformat(),
            "run_id": outcome.orphan.run_id,
            "kind": outcome.orphan.kind.value,
            "age_hours": _hours(outcome),
            "bytes": outcome.orphan.bytes,
            "outcome": outcome.fate.value,
            "reason": outcome.reason,
        }
        for outcome in outcomes
    ]
    return {"orphans": orphans, "foreign": list(foreign)}


def _show(outcomes: Sequence[Outcome], inventory: Inventory) -> None:
    settled = [outcome for outcome in outcomes if outcome.fate is not Fate.YOUNG]
    if settled:
        print_table(
            None,
            ["query", "customer", "day", "run", "what", "age", "bytes", "outcome"],
            [
                (
                    outcome.orphan.key.query_name,
                    outcome.orphan.key.customer_id,
                    outcome.orphan.key.logical_date,
                    outcome.orphan.run_id,
                    outcome.orphan.kind.value,
                    f"{_hours(outcome)} h",
                    outcome.orphan.bytes,
                    _told(outcome),
                )
                for outcome in settled
            ],
        )
    if inventory.foreign:
        print_table(None, ["not ours, left alone"], [(path,) for path in inventory.foreign])


def _told(outcome: Outcome) -> str:
    match outcome.fate:
        case Fate.DUE:
            displaced = outcome.orphan.kind is OrphanKind.DISPLACED_RUN
            return "would be put back" if displaced else "would be removed"
        case Fate.YOUNG:
            return "within the grace"
        case Fate.REMOVED:
            return "removed"
        case Fate.SEALED:
            return "sealed, in its place"
        case Fate.FAILED:
            return "failed"
        case _:
            assert_never(outcome.fate)


def _summary(outcomes: Sequence[Outcome], inventory: Inventory) -> str:
    counted = Counter(map(_told, outcomes))
    freed = sum(outcome.orphan.bytes for outcome in outcomes if outcome.fate is Fate.REMOVED)
    found = ", ".join(f"{number} {told}" for told, number in sorted(counted.items()))
    return (
        f"raw sink: orphans: {len(outcomes)}{f' ({found})' if found else ''}, bytes freed: {freed}, "
        f"foreign entries left alone: {len(inventory.foreign)}"
    )


def _hours(outcome: Outcome) -> float:
    return round(outcome.orphan.age / timedelta(hours=1), 1)
