"""What an operator is shown of a partition, and what the desk refuses to do with one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum
from typing import Final

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.ledger_news import Disposition
from gads_assets.domain.retrying import MANUAL
from gads_assets.domain.scheduling import Purpose
from gads_assets.domain.state import PartitionStatus

CONFIRMED_ABOVE: Final = 50
"""Unless the settings say otherwise: so many partitions change after a yes; for more, their number is asked for."""

REJECTED: Final = "rejected"
"""The error class of a partition whose newest run was judged and is bad; other classes are those of extractions."""


class Action(StrEnum):
    RETRY = "retry"
    """Extract it again: a failure is pending again, and its attempts count anew."""

    REVALIDATE = "revalidate"
    """Judge its sealed run again; nothing is asked of the API."""

    MARK = "terminal"
    """Leave it alone until the marker is cleared."""

    CLEAR = "clear"
    """Take a marker away, or the end that its attempts had come to: they count anew."""


@dataclass(frozen=True, kw_only=True)
class PartitionChoice:
    """Which partitions an operator means; None leaves a choice open. Both days are included."""

    queries: Sequence[str]
    customer_ids: Sequence[CustomerId] | None = None
    first: date | None = None
    last: date | None = None
    error_class: str | None = None
    statuses: Sequence[PartitionStatus] | None = None
    dispositions: Sequence[Disposition] | None = None


@dataclass(frozen=True, kw_only=True)
class DeskRow:
    """A partition of which anything is on record, or scheduled. `attempts` are verdicts, ever; `counted` those since
    the baseline, and `failed_extractions` the runs that failed to extract it since, as far as they count for the limit.
    `held_by` is the run that has it; `waits_in_batch` the batch in which it waits for one."""

    key: PartitionKey
    status: PartitionStatus
    attempts: int
    counted: int
    failed_extractions: int
    version: int
    authority: RunId | None
    record_count: int | None
    updated_at: datetime | None
    error_class: str | None
    error_message: str | None
    has_sealed_run: bool
    purpose: Purpose | None
    disposition: Disposition | None
    next_run_at: datetime | None
    backoff_strategy: str | None
    reason: str | None
    scheduled_at: datetime | None
    held_by: str | None
    waits_in_batch: str | None
    loaded_run: RunId | None
    loaded_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What an action would do: `changed` partitions, and `refused` ones, each with why."""

    action: Action
    changed: Sequence[DeskRow]
    refused: Sequence[tuple[DeskRow, str]]


def plan_action(action: Action, rows: Iterable[DeskRow]) -> Plan:
    changed: list[DeskRow] = []
    refused: list[tuple[DeskRow, str]] = []
    for row in rows:
        reason = _under_way(row) or _REFUSALS[action](row)
        if reason is None:
            changed.append(row)
        else:
            refused.append((row, reason))
    return Plan(action=action, changed=changed, refused=refused)


def refuse_also(plan: Plan, reasons: Mapping[PartitionKey, str]) -> Plan:
    """The plan without these partitions, for what the ledger alone does not tell."""
    return replace(
        plan,
        changed=[row for row in plan.changed if row.key not in reasons],
        refused=[*plan.refused, *((row, reasons[row.key]) for row in plan.changed if row.key in reasons)],
    )


def _under_way(row: DeskRow) -> str | None:
    if row.held_by:
        return f"run {row.held_by} has it; wait for its end, or cancel it in Dagster"
    if row.waits_in_batch:
        return f"{waits_in_queue(row.waits_in_batch)}; wait for its run, or cancel it in Dagster"
    return None


def waits_in_queue(batch_id: str) -> str:
    """It was asked for, and no run has come for it yet."""
    return f"it waits in Dagster's queue (tag gads/batch={batch_id})"


def _not_retried(row: DeskRow) -> str | None:
    if row.disposition is Disposition.DUE and row.backoff_strategy == MANUAL:
        return f"a {row.purpose} of it is due already, since somebody asked for one; Dagster's daemon runs it"
    return None


def _not_revalidated(row: DeskRow) -> str | None:
    if not row.has_sealed_run:
        return "no sealed run of it exists; retry it instead"
    return _not_retried(row)


def _not_marked(row: DeskRow) -> str | None:
    is_given_up = row.disposition in {Disposition.TERMINAL, Disposition.BLOCKED}
    if row.status is PartitionStatus.SUCCESS and not is_given_up:
        return "it is a success; only what failed, or was not extracted, is marked"
    if row.disposition is Disposition.TERMINAL and row.backoff_strategy == MANUAL:
        return f"it is marked already: {row.reason}"
    return None


def _not_cleared(row: DeskRow) -> str | None:
    if row.disposition is Disposition.TERMINAL:
        return None
    if row.disposition is Disposition.BLOCKED:
        return "it is blocked, not terminal; `gads state retry` tries it again once the cause is mended"
    return "it is not terminal, so there is nothing to clear; `gads state retry` tries it again at once"


_REFUSALS: Final = {
    Action.RETRY: _not_retried,
    Action.REVALIDATE: _not_revalidated,
    Action.MARK: _not_marked,
    Action.CLEAR: _not_cleared,
}
