"""`gads reconcile`: what the sensor does every minute, to the end; and adoption, which only people start."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import track

from gads_assets.cli.confirming import acting_user
from gads_assets.cli.output import JsonOption, messages, print_json, print_table
from gads_assets.cli.setup import require_spark
from gads_assets.domain.keys import PartitionKey
from gads_assets.errors import WarehouseError
from gads_assets.settings import read_settings

if TYPE_CHECKING:
    import dagster as dg

    from gads_assets.orchestration.reconciling import Reconciliation
    from gads_assets.orchestration.requested_runs import RunTask
    from gads_assets.orchestration.workplace import Workplace


def reconcile(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what differs; change nothing.")] = False,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="After the database was lost or restored: go on from what readers see."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make what readers see agree with the ledger again. Nothing is extracted.

    Finishes withdrawals that a crash left half way, hides what is no success any more, judges runs that were sealed and
    never judged, and loads what is not shown, newest days first. With --adopt also what the database has lost: sealed
    runs are put on record again, and each partition is judged again before anything of it changes.
    """
    from gads_assets.orchestration import reconciling  # noqa: PLC0415
    from gads_assets.orchestration.customers import dagster_instance  # noqa: PLC0415
    from gads_assets.orchestration.requested_runs import RunTask  # noqa: PLC0415
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    settings = read_settings(os.environ)
    if not dry_run:
        require_spark(settings)
    with Workplace(settings) as here, dagster_instance(here) as instance:
        if adopt and not dry_run:
            restored = reconciling.adopt(here, actor=acting_user(), reason="gads reconcile --adopt")
            messages.print(f"{restored.runs} sealed runs are on record", soft_wrap=True)
            for reason in restored.broken:
                messages.print(f"left out: {reason}", soft_wrap=True, markup=False)
        first = found = reconciling.reconcile(here, instance, dry_run=dry_run)
        failures: list[str] = []
        # Twice, since a run that is newer than the one that readers see is judged after it.
        for task in () if dry_run else (RunTask.JUDGE, RunTask.JUDGE, RunTask.LOAD):
            if marks := found.to_load if task is RunTask.LOAD else found.to_judge:
                failures += _run(here, instance, task, marks)
                found = reconciling.reconcile(here, instance)
    if as_json:
        print_json({"dry_run": dry_run, "found": _counts(first), "left": _counts(found)})
    else:
        rows = [(query, what, number) for query, some in _counts(first).items() for what, number in some.items()]
        if rows:
            print_table(None, ["query", "found", "partitions"], rows)
    for failure in failures:
        messages.print(failure, soft_wrap=True, markup=False)
    if not (dry_run or found.is_clean):
        raise WarehouseError(reconciling.describe(found))
    messages.print(reconciling.describe(found), soft_wrap=True, markup=False)


def _run(
    here: "Workplace", instance: "dg.DagsterInstance", task: "RunTask", marks: Mapping[PartitionKey, str]
) -> list[str]:
    """Why some runs failed."""
    from gads_assets.orchestration.code_location import code_location  # noqa: PLC0415
    from gads_assets.orchestration.requested_runs import carry_out, run_requests  # noqa: PLC0415
    from gads_assets.orchestration.resources import SparkResource  # noqa: PLC0415
    from gads_assets.orchestration.runs import step_failure  # noqa: PLC0415

    definitions = code_location(here.catalog, SparkResource(), status_url=here.settings.status_url)
    requests = run_requests(here.catalog, instance, task, marks)
    shown = track(requests, description=task.value, console=messages, disable=not messages.is_terminal)
    return [
        step_failure(event)
        for request in shown
        for event in carry_out(definitions, instance, request).all_events
        if event.is_step_failure
    ]


def _counts(found: "Reconciliation") -> dict[str, dict[str, int]]:
    """By query: what was found, and how often."""
    kinds: dict[str, Iterable[PartitionKey]] = {
        "demoted half way": found.demoted,
        "not withdrawn": found.withdrawn,
        "sealed and not judged": found.to_judge,
        "not loaded": found.to_load,
        "estranged": found.estranged,
    }
    counted = Counter((key.query_name, kind) for kind, keys in kinds.items() for key in keys)
    counts: dict[str, dict[str, int]] = {}
    for (query_name, kind), number in sorted(counted.items()):
        counts.setdefault(query_name, {})[kind] = number
    return counts
