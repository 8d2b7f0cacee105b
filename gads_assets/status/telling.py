"""What is told of partitions, to people and to scripts: counts, flags, and why one is stale."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final

from sqlalchemy import RowMapping

from gads_assets.domain.partition_status import DisplayStatus, Outcome, StaleReason
from gads_assets.status.deriving import Facts, facts_of

Document = dict[str, Any]

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(kw_only=True)
class Summary:
    """`counts` by what is displayed. Flags stand beside it: a partition may have several, whatever is displayed."""

    partitions: int = 0
    counts: Counter[DisplayStatus] = field(default_factory=Counter)
    stale: Counter[StaleReason] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)

    def add(self, facts: Facts, partitions: int) -> None:
        self.partitions += partitions
        self.counts[facts.display] += partitions
        if facts.stale_reason and facts.is_materialized:
            self.stale[facts.stale_reason] += partitions
        for flag in flags_of(facts):
            self.flags[flag] += partitions

    def document(self) -> Document:
        return {
            "partitions": self.partitions,
            "counts": {status.value: self.counts[status] for status in DisplayStatus},
            "flags": {flag: self.flags[flag] for flag in FLAGS},
            "stale_reasons": {reason.value: self.stale[reason] for reason in StaleReason},
        }


FLAGS: Final = ("stale", "last_attempt_failed", "last_attempt_cancelled", "overdue", "withdrawn")


def flags_of(facts: Facts) -> Iterator[str]:
    """What stands beside the display status, so that neither failure nor staleness hides the other."""
    if facts.stale_reason:
        yield "stale" if facts.is_materialized else "overdue"
    if facts.last_attempt is Outcome.FAILED:
        yield "last_attempt_failed"
    if facts.last_attempt is Outcome.CANCELLED:
        yield "last_attempt_cancelled"
    if facts.is_withdrawn:
        yield "withdrawn"


def summaries(counted: Iterable[tuple[str, Facts, int]]) -> Mapping[str, Summary]:
    """By asset; an empty one for an asset that has no partition."""
    found: dict[str, Summary] = defaultdict(Summary)
    for asset_key, facts, partitions in counted:
        found[asset_key].add(facts, partitions)
    return found


def told(row: RowMapping) -> Document:
    """A partition as scripts get it: ADR-026's facts, every reason why it is stale, and what is displayed."""
    facts = facts_of(row["code"])
    made = row["last_materialization_run_id"] is not None
    attempted = row["last_attempt_run_id"] is not None
    return {
        "asset_key": row["asset_key"],
        "partition_key": row["partition_key"],
        "customer_id": row["customer_id"],
        "customer_name": row["customer_name"],
        "logical_date": written(row["logical_date"]),
        "display": facts.display.value,
        "flags": list(flags_of(facts)),
        "last_materialization": {
            "run_id": row["last_materialization_run_id"],
            "at": written(row["last_materialization_at"]),
            "code_version": row["last_materialization_code_version"],
        }
        if made
        else None,
        "last_attempt": {
            "run_id": row["last_attempt_run_id"],
            "at": written(row["last_attempt_at"]),
            "outcome": row["last_attempt_outcome"],
        }
        if attempted
        else None,
        "stale_since": written(row["is_stale_since"]),
        "stale_reason_code": facts.stale_reason and facts.stale_reason.value,
        "staleness": [*_staleness(row)],
    }


def _staleness(row: RowMapping) -> Iterator[Document]:
    reasons = (
        (StaleReason.FRESHNESS_POLICY, row["late_since"], _late(row)),
        (
            StaleReason.UPSTREAM_CHANGED,
            row["upstream_since"],
            "what it is made of was materialized again, and this was not",
        ),
        (
            StaleReason.CODE_CHANGED,
            row["code_since"],
            f"made by code {row['last_materialization_code_version'] or 'of no version'}; today's is "
            f"{row['current_code_version']}",
        ),
    )
    for reason, since, explanation in sorted(reasons, key=lambda each: each[1] or _NEVER):
        if since:
            yield {"reason_code": reason.value, "since": written(since), "explanation": explanation}


def _late(row: RowMapping) -> str:
    due, deadline = row["due_at"], row["deadline"]
    if due is None:
        return ""
    again = "to be asked for again" if row["last_materialization_run_id"] else "to be there"
    return f"was due {again} at {due:%Y-%m-%d %H:%M} UTC, and until {deadline:%Y-%m-%d %H:%M} UTC at the latest"


def written(value: object) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value.isoformat() if isinstance(value, date) else value
