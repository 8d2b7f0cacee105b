"""What is on record of a partition, in words and as JSON."""

from collections.abc import Sequence
from typing import Any, Final

from gads_assets.cli.output import isoformat, number_of, say, span_of, to_the_minute
from gads_assets.domain.desk import DeskRow, waits_in_queue
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.ledger_news import Disposition
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.domain.retrying import MANUAL

_SAME: Final = "the same"


def told_key(key: PartitionKey) -> dict[str, Any]:
    return {"query": key.query_name, "customer_id": key.customer_id, "logical_date": key.logical_date.isoformat()}


def name_of(key: PartitionKey) -> str:
    return f"{key.query_name} {key.label}"


def scope_of(keys: Sequence[PartitionKey]) -> str:
    """Whose, and when: a wrong customer or a wrong year is seen here."""
    customers = sorted({key.customer_id for key in keys})
    days = [key.logical_date for key in keys]
    whose = f"customer {customers[0]}" if len(customers) == 1 else f"{len(customers)} customers"
    return f"{whose}, {'day' if min(days) == max(days) else 'days'} {span_of(min(days), max(days))}"


def told_schedule(row: DeskRow) -> dict[str, Any] | None:
    if row.disposition is None:
        return None
    return {
        "purpose": row.purpose,
        "disposition": row.disposition,
        "next_run_at": isoformat(row.next_run_at),
        "backoff_strategy": row.backoff_strategy,
        "reason": row.reason,
    }


def told_row(row: DeskRow, pointer: Pointer | None) -> dict[str, Any]:
    return {
        **told_key(row.key),
        "status": row.status,
        "attempts": row.attempts,
        "attempts_since_baseline": row.counted,
        "failed_extractions": row.failed_extractions,
        "state_version": row.version,
        "updated_at": isoformat(row.updated_at),
        "authority": row.authority and {"run_id": row.authority, "record_count": row.record_count},
        "last_error": row.error_class and {"class": row.error_class, "message": row.error_message},
        "has_sealed_run": row.has_sealed_run,
        "schedule": told_schedule(row),
        "held_by": row.held_by,
        "waits_in_batch": row.waits_in_batch,
        "shown": pointer
        and {
            "status": pointer.status.value,
            "run_id": pointer.run_id,
            "record_count": pointer.record_count,
            "state_version": pointer.state_version,
            "loaded_at": isoformat(pointer.loaded_at),
        },
        "load_record": row.loaded_run and {"run_id": row.loaded_run, "loaded_at": isoformat(row.loaded_at)},
    }


def told_given_up(row: DeskRow) -> dict[str, Any]:
    return {
        **told_key(row.key),
        "disposition": row.disposition,
        "since": isoformat(row.scheduled_at),
        "reason": row.reason,
        "backoff_strategy": row.backoff_strategy,
        "status": row.status,
        "attempts": row.attempts,
        "attempts_since_baseline": row.counted,
        "failed_extractions": row.failed_extractions,
        "error_class": row.error_class,
    }


def runs_of(row: DeskRow, pointer: Pointer | None) -> str:
    """The authority, what readers see and what was loaded: three that are the same run, once all is done."""
    authority = f"authority {row.authority}, {number_of(row.record_count or 0, 'row')}" if row.authority else ""
    if pointer is None:
        seen = "readers see nothing"
    elif pointer.status is not PointerStatus.ACTIVE:
        seen = f"readers see nothing, {pointer.run_id} is withdrawn"
    else:
        seen = f"readers see {_SAME if pointer.run_id == row.authority else pointer.run_id}"
    loaded = "never loaded"
    if row.loaded_run:
        run = _SAME if row.loaded_run == row.authority else row.loaded_run
        loaded = f"loaded {run}, {to_the_minute(row.loaded_at)}"
    return "; ".join([authority or "no authority", seen, loaded, *_failures_of(row)])


def _failures_of(row: DeskRow) -> list[str]:
    return [f"{number_of(row.failed_extractions, 'failed extraction')} since"] if row.failed_extractions else []


def state_of(row: DeskRow) -> str:
    last = [f"last error {row.error_class}"] if row.error_class else []
    return "; ".join([f"{row.status}, attempts {attempts_of(row)}", *_failures_of(row), *last])


def error_of(row: DeskRow) -> str:
    return f"{row.error_class}: {row.error_message}" if row.error_class else ""


def attempts_of(row: DeskRow) -> str:
    return f"{row.attempts} ({row.counted})"


def next_of(row: DeskRow) -> str:
    """Without the last error, which stands beside it."""
    if row.held_by:
        return f"run {row.held_by} has it"
    if row.waits_in_batch:
        return waits_in_queue(row.waits_in_batch)
    if row.disposition is None:
        return ""
    if row.disposition is Disposition.DUE:
        why = f"{MANUAL}: {row.reason}" if row.backoff_strategy == MANUAL and row.reason else row.backoff_strategy
        return f"{row.purpose} {to_the_minute(row.next_run_at)} ({why})"
    reason = row.reason or ""
    if row.error_message:
        reason = reason.removesuffix(row.error_message).rstrip(": ")
    return f"nothing, it is {row.disposition}" + (f": {reason}" if reason else "")


def say_if_cut(truncated: bool, limit: int) -> None:
    if truncated:
        say(f"no more than {limit} are shown; narrow them down, or raise --limit")
