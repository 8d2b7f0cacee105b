"""What the ledger should hold, told from the specification alone: plain values, and nothing of the product decides."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

from sqlalchemy import Connection, text

from gads_assets.domain.keys import RunId
from gads_assets.domain.state import DemotionIntent, Judgement

Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    validation_id: str
    run_id: RunId
    outcome: str
    state_version: int


@dataclass(frozen=True, kw_only=True)
class Extraction:
    run_id: RunId
    run_seq: int
    outcome: str


@dataclass(frozen=True, kw_only=True)
class Demotion:
    run_id: RunId
    state_version: int
    validation_id: str
    error_message: str


@dataclass(frozen=True, kw_only=True, order=True)
class Pointer:
    """No run means that readers see nothing."""

    state_version: int
    stage: str
    run_id: RunId | None


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition nobody judged is this without arguments, and has no row. `changed_at` is in seconds."""

    status: str = "pending"
    authority: RunId | None = None
    authority_seq: int | None = None
    record_count: int | None = None
    error_message: str | None = None
    changed_at: int = 0
    version: int = 0
    attempts: tuple[Attempt, ...] = ()
    demotion: Demotion | None = None
    overridden_versions: tuple[int, ...] = ()
    floors: tuple[int, ...] = ()
    extractions: tuple[Extraction, ...] = ()
    loads: tuple[tuple[RunId, str], ...] = ()
    pointers: tuple[Pointer, ...] = ()

    @property
    def is_ready(self) -> bool:
        return self.status == "success" and self.demotion is None

    @property
    def shown(self) -> RunId | None:
        """What a reader sees: the pointer of the highest version, in whatever order they were appended."""
        return max(self.pointers).run_id if self.pointers else None


def judged(before: Partition, judgement: Judgement, *, at: int) -> Partition:
    """Every attempt counts once; only an accepted run that is not older than the authority becomes it."""
    if any(attempt.validation_id == judgement.validation_id for attempt in before.attempts):
        return before
    outcome = _outcome(before, judgement)
    version = max(before.version, *before.floors, 0) + 1
    attempt = Attempt(
        validation_id=judgement.validation_id,
        run_id=judgement.run_id,
        outcome=outcome,
        state_version=version,
    )
    counted = replace(before, version=version, changed_at=at, attempts=(*before.attempts, attempt))
    if outcome == "accepted":
        return replace(
            counted,
            status="success",
            authority=judgement.run_id,
            authority_seq=judgement.run_seq,
            record_count=judgement.record_count,
            error_message=None,
        )
    if outcome == "rejected" and before.status != "success":
        return replace(counted, status="failed", error_message=judgement.error_message)
    if outcome == "demoted" and (before.demotion is None or before.demotion.run_id != judgement.run_id):
        return replace(
            counted,
            demotion=Demotion(
                run_id=judgement.run_id,
                state_version=counted.version,
                validation_id=judgement.validation_id,
                error_message=judgement.error_message or "",
            ),
        )
    return counted


def _outcome(before: Partition, judgement: Judgement) -> str:
    is_authority = judgement.run_id == before.authority
    if judgement.accepted:
        is_older = before.authority_seq is not None and judgement.run_seq < before.authority_seq
        return "superseded" if is_older else "accepted"
    return "demoted" if is_authority and before.status == "success" else "rejected"


def finished(before: Partition, intent: DemotionIntent, *, at: int) -> Partition:
    """The failure shows, unless a newer run has become the authority. Another intent than the open one does nothing."""
    if before.demotion is None or before.demotion.state_version != intent.state_version:
        return before
    closed = replace(before, demotion=None)
    if before.authority != before.demotion.run_id:
        return closed
    return replace(
        closed,
        status="failed",
        error_message=before.demotion.error_message,
        version=before.version + 1,
        changed_at=at,
    )


def returned(before: Partition, *, at: int) -> Partition:
    version = before.version + 1
    return replace(
        before,
        status="pending",
        error_message=None,
        version=version,
        changed_at=at,
        overridden_versions=(*before.overridden_versions, version),
    )


def adopted(before: Partition, floor: int) -> Partition:
    """Nothing but a record, never below the state's own version, and none beside one that is as high."""
    floor = max(floor, before.version)
    return before if any(known >= floor for known in before.floors) else replace(before, floors=(*before.floors, floor))


def withdrawn(before: Partition, intent: DemotionIntent, *, stage: str) -> Partition:
    if before.pointers and max(before.pointers).state_version >= intent.state_version:
        return before
    tombstone = Pointer(state_version=intent.state_version, stage=stage, run_id=None)
    return replace(before, pointers=(*before.pointers, tombstone))


def extracted(before: Partition, extraction: Extraction) -> Partition:
    """The first record of a run stays; none of them is an attempt, nor changes the state."""
    if any(known.run_id == extraction.run_id for known in before.extractions):
        return before
    by_number = sorted([*before.extractions, extraction], key=lambda known: known.run_seq)
    return replace(before, extractions=tuple(by_number))


def loaded(before: Partition, run_id: RunId, *, stage: str) -> Partition:
    """The first record of a run stays."""
    if any(known == run_id for known, _ in before.loads):
        return before
    return replace(before, loads=tuple(sorted([*before.loads, (run_id, stage)])))


def expected_rows(model: Mapping[date, Partition]) -> Rows:
    rows: Rows = {name: [] for name in ("states", "attempts", "demotions", "overrides", "extractions", "loads")}
    for day, partition in sorted(model.items()):
        of_day = {"logical_date": day.isoformat()}
        if partition.version:
            state = {
                "status": partition.status,
                "current_run_id": partition.authority,
                "current_run_seq": partition.authority_seq,
                "record_count": partition.record_count,
                "error_message": partition.error_message,
                "attempt_count": len(partition.attempts),
                "version": partition.version,
                "changed_at": partition.changed_at,
            }
            rows["states"].append(of_day | state)
        for number, attempt in enumerate(partition.attempts, start=1):
            rows["attempts"].append(of_day | {"attempt_number": number} | asdict(attempt))
        if partition.demotion:
            rows["demotions"].append(of_day | asdict(partition.demotion))
        overrides: list[tuple[int | None, int | None]] = [(version, None) for version in partition.overridden_versions]
        overrides += [(None, floor) for floor in partition.floors]
        rows["overrides"] += [
            of_day | {"state_version": version, "version_floor": floor} for version, floor in overrides
        ]
        rows["extractions"] += [of_day | asdict(extraction) for extraction in partition.extractions]
        rows["loads"] += [of_day | {"run_id": run_id, "stage_id": stage} for run_id, stage in partition.loads]
    return rows


def check_promises(rows: Rows, previous: Rows, shown: Mapping[str, RunId | None]) -> None:
    """What must hold of the stored rows by themselves, and against those of one step before. By ISO day."""
    known = {row["logical_date"]: row for row in previous["states"]}
    demoting = {row["logical_date"] for row in rows["demotions"]}
    states = {row["logical_date"]: row for row in rows["states"]}
    assert states.keys() == {row["logical_date"] for row in rows["attempts"]}, "a row for what was never judged"
    assert states.keys() >= known.keys(), "a row is gone"
    for day, state in states.items():
        attempts = [row for row in rows["attempts"] if row["logical_date"] == day]
        assert [row["attempt_number"] for row in attempts] == list(range(1, state["attempt_count"] + 1))
        on_authority = [row["outcome"] for row in attempts if row["run_id"] == state["current_run_id"]]
        if state["status"] == "success":
            assert "accepted" in on_authority, "a success without an accepted attempt of its run"
            assert day in demoting or on_authority[-1] == "accepted", "a success that was last rejected"
        else:
            assert shown.get(day) is None, "rows are shown without a success"
            assert day not in demoting, "the failure shows before the demotion is finished"
        if before := known.get(day):
            assert state["attempt_count"] >= before["attempt_count"], "attempt_count fell"
            assert state["version"] >= before["version"], "version fell"
            assert state == before or state["version"] > before["version"], "a change without a version"


def _listed(table: str, columns: str, order: str) -> str:
    chosen = f"SELECT logical_date, {columns} FROM {table} WHERE source = 'google_ads' AND customer_id = :customer_id"
    return f"(SELECT coalesce(jsonb_agg(to_jsonb(r) ORDER BY logical_date, {order}), '[]') FROM ({chosen}) AS r)"


_STATE_COLUMNS = (
    "status, current_run_id, current_run_seq, record_count, error_message, attempt_count, version, "
    "CAST(extract(epoch FROM updated_at) AS bigint) AS changed_at"
)
_ATTEMPT_COLUMNS = "attempt_number, validation_id, run_id, outcome, state_version"

_STORED_ROWS = text(f"""
    SELECT jsonb_build_object(
        'states', {_listed("partition_state", _STATE_COLUMNS, "version")},
        'attempts', {_listed("partition_attempt", _ATTEMPT_COLUMNS, "attempt_number")},
        'demotions', {_listed("demotion", "run_id, state_version, validation_id, error_message", "state_version")},
        'overrides', {_listed("override_log", "state_version, version_floor", "state_version, version_floor")},
        'extractions', {_listed("extraction_attempt", "run_id, run_seq, outcome", "run_seq")},
        'loads', {_listed("load_record", "run_id, stage_id", "run_id")}
    )
""")


def stored_rows(connection: Connection, customer_id: str) -> Rows:
    """All that the ledger holds of a customer, in one statement."""
    rows: Rows = connection.execute(_STORED_ROWS, {"customer_id": customer_id}).scalar_one()
    return rows
