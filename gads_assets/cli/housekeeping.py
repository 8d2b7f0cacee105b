"""`gads housekeeping`: removes what no run needs any more."""

import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, assert_never

import typer
from rich.progress import track

from gads_assets.cli.output import JsonOption, messages, print_json, print_table
from gads_assets.errors import RawSinkError, WarehouseError
from gads_assets.raw.housekeeping import GRACE, Fate, Inventory, OrphanKind, Outcome, find_orphans, remove_orphans
from gads_assets.settings import read_settings

if TYPE_CHECKING:
    from gads_assets.warehouse.housekeeping import TidiedQuery


def housekeeping(
    grace_hours: Annotated[
        int,
        typer.Option(
            "--grace-hours", min=0, max=24 * 365, help="Leave alone what changed in the raw sink within so many hours."
        ),
    ] = GRACE // timedelta(hours=1),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed; change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what no run and no reader needs: from the raw sink what killed extractions left, from the warehouse rows
    that were replaced, withdrawn or abandoned longer ago than GADS_RETENTION_HOURS. A sealed run is never removed.

    The grace must be longer than any extraction lasts: one that is still writing loses its files and must start again.
    """
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    with Workplace(read_settings(os.environ)) as here:
        housekeeper, now, grace = here.housekeeper, datetime.now(UTC), timedelta(hours=grace_hours)
        inventory = find_orphans(here.sink, now=now)
        outcomes = remove_orphans(here.sink, inventory.orphans, now=now, grace=grace, dry_run=dry_run)
        queries = track(
            housekeeper.tidy_all(dry_run=dry_run),
            description="warehouse",
            total=len(here.catalog.queries),
            console=messages,
            disable=not messages.is_terminal,
            transient=True,
        )
        tidied = list(queries)
    if as_json:
        print_json(
            {
                "dry_run": dry_run,
                "grace_hours": grace_hours,
                "retention_hours": housekeeper.retention_hours,
                "raw": _document(outcomes, inventory.foreign),
                "warehouse": _warehouse_document(tidied, dry_run=dry_run),
            }
        )
    else:
        _show(outcomes, inventory)
        _show_warehouse(tidied, dry_run=dry_run)
    messages.print(_summary(outcomes, inventory), soft_wrap=True)
    messages.print(_warehouse_summary(tidied, dry_run=dry_run), soft_wrap=True)
    _require_done(outcomes, tidied)


def _require_done(outcomes: Sequence[Outcome], tidied: "Sequence[TidiedQuery]") -> None:
    failed = [outcome for outcome in outcomes if outcome.fate is Fate.FAILED]
    if failed:
        raise RawSinkError(f"{len(failed)} of {len(outcomes)} orphans could not be removed: {failed[0].reason}")
    untidy = [each for each in tidied if each.reason]
    if untidy:
        names = ", ".join(each.upkeep.query_name for each in untidy)
        raise WarehouseError(
            f"{len(untidy)} of {len(tidied)} queries could not be tidied ({names}): {untidy[0].reason}"
        )


def _warehouse_document(tidied: "Sequence[TidiedQuery]", *, dry_run: bool) -> dict[str, object]:
    return {
        "queries": [
            {
                "query_name": each.upkeep.query_name,
                "superseded_partitions": each.upkeep.superseded,
                "abandoned_partitions": each.upkeep.abandoned,
                "pointer_rows": each.upkeep.pointer_rows,
                "small_files": each.upkeep.small_files,
                "files": each.upkeep.files,
                "bytes": each.upkeep.bytes,
                "outcome": _outcome(each, dry_run=dry_run),
                "reason": each.reason,
            }
            for each in tidied
        ]
    }


def _show_warehouse(tidied: "Sequence[TidiedQuery]", *, dry_run: bool) -> None:
    touched = [each for each in tidied if each.reason or not each.upkeep.is_nothing]
    if touched:
        print_table(
            None,
            ["query", "superseded", "abandoned", "pointer rows", "small files", "files", "bytes", "outcome"],
            [
                (
                    each.upkeep.query_name,
                    each.upkeep.superseded,
                    each.upkeep.abandoned,
                    each.upkeep.pointer_rows,
                    each.upkeep.small_files,
                    each.upkeep.files,
                    each.upkeep.bytes,
                    _outcome(each, dry_run=dry_run),
                )
                for each in touched
            ],
        )


def _outcome(tidied: "TidiedQuery", *, dry_run: bool) -> str:
    if tidied.reason:
        return "failed"
    if tidied.upkeep.is_nothing:
        return "tidy"
    return "due" if dry_run else "tidied"


def _warehouse_summary(tidied: "Sequence[TidiedQuery]", *, dry_run: bool) -> str:
    found = [each.upkeep for each in tidied]
    return (
        f"warehouse: {'would go' if dry_run else 'gone'}: {sum(each.superseded for each in found)} superseded and "
        f"{sum(each.abandoned for each in found)} abandoned partitions, {sum(each.pointer_rows for each in found)} "
        f"pointer rows, {sum(each.files for each in found)} files ({sum(each.bytes for each in found)} bytes)"
    )


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
