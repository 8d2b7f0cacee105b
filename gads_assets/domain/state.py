"""What a judgement, or the control plane, does to a partition's state: the transitions, decided without a database.

How the judged run stands to the authority (the run that `current_run_id` names), and the verdict, decide:

    status before    | accepted, newer | accepted, authority | accepted, older | rejected, authority | rejected, other
    -----------------|-----------------|---------------------|-----------------|---------------------|----------------
    pending, no row  | success, moves  | success             | pending         | failed              | failed
    failed           | success, moves  | success             | failed          | failed              | failed
    success          | success, moves  | success             | success         | demotion            | success

Every one of them is an attempt: it is counted once and raises the state's version by one. Only an accepted, newer
run moves authority; "newer" is a higher run_seq, so a slow, older run never takes over.

Two more changes raise the version without being attempts: a demotion that is finished turns success into failed, and
the control plane, nobody else, returns failed to pending. A success never returns to pending.

The warehouse's pointers carry versions too, and those never fall. Where the ledger was lost or restored, the control
plane adopts a partition: it logs its pointer's version as a floor, and the next verdict makes the version above it.
"""

import hashlib
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum
from typing import Final, assert_never

from gads_assets.domain.keys import PartitionKey, RunId, StageId
from gads_assets.domain.manifest import RunManifest
from gads_assets.errors import TransitionError


class PartitionStatus(StrEnum):
    PENDING = "pending"
    """No trustworthy data yet; a partition without a row is pending too."""

    SUCCESS = "success"
    """A validator accepted the run that `current_run_id` names: safe to consume."""

    FAILED = "failed"
    """A run was judged and rejected, and no accepted run stands: nobody may read this partition."""


class AttemptOutcome(StrEnum):
    ACCEPTED = "accepted"
    """The run is good; it is the authority now."""

    REJECTED = "rejected"
    """The run is bad; an earlier success, if any, stands."""

    SUPERSEDED = "superseded"
    """The run is good but older than the authority, which stays."""

    DEMOTED = "demoted"
    """The authority itself was judged again and is bad: its rows are being withdrawn."""


class ExtractionOutcome(StrEnum):
    SEALED = "sealed"
    """The run directory is complete and may be judged."""

    FAILED = "failed"
    """The API did not give us the day; nothing was sealed and no state changed."""


class _Standing(StrEnum):
    NEWER = "newer"
    AUTHORITY = "authority"
    OLDER = "older"


@dataclass(frozen=True, kw_only=True)
class PartitionState:
    """The ledger's row for one partition. `schema_version` and `record_count` describe the authority, also while
    the status is failed. `version` rises with every change, counted attempts included, so a higher version does
    not mean another authority."""

    key: PartitionKey
    status: PartitionStatus
    current_run_id: RunId | None
    current_run_seq: int | None
    schema_version: str | None
    record_count: int | None
    updated_at: datetime
    error_message: str | None
    attempt_count: int
    version: int


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A validator's verdict on one sealed run. Accepted means digests of its content and of its seal, and no error
    message; rejected means an error message. `spend_micros` is what the run's rows cost, in millionths of the account's
    currency; `comparable_spend_micros` is what they were held against. Either is None where it was not measured."""

    run_id: RunId
    run_seq: int
    schema_version: str
    record_count: int
    content_digest: str | None
    seal_sha256: str | None
    accepted: bool
    error_message: str | None
    validation_id: str
    spend_micros: int | None = None
    comparable_spend_micros: int | None = None

    def __post_init__(self) -> None:
        if self.accepted and (self.error_message is not None or not self.content_digest or not self.seal_sha256):
            raise ValueError(f"run {self.run_id} is accepted: it needs both digests and no error message")
        if not self.accepted and not self.error_message:
            raise ValueError(f"run {self.run_id} is rejected: it needs an error message")


@dataclass(frozen=True, kw_only=True)
class Decision:
    outcome: AttemptOutcome
    status: PartitionStatus
    moves_authority: bool = False

    @property
    def opens_demotion(self) -> bool:
        return self.outcome is AttemptOutcome.DEMOTED


@dataclass(frozen=True, kw_only=True)
class DemotionIntent:
    """An authority found bad whose rows are not withdrawn yet. Nothing of this partition may be published while it is
    open; the pointer that withdraws the rows carries `state_version`."""

    key: PartitionKey
    run_id: RunId
    state_version: int
    validation_id: str
    error_message: str
    started_at: datetime


@dataclass(frozen=True, kw_only=True)
class ExtractionAttempt:
    """One try at extracting a partition. A failed one carries the error's class and message, and in `retry_at` the
    moment before which another try is in vain, where that is known; neither touches state."""

    key: PartitionKey
    run_id: RunId
    run_seq: int
    outcome: ExtractionOutcome
    error_class: str | None
    error_message: str | None
    started_at: datetime
    finished_at: datetime
    dagster_run_id: str | None
    retry_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class UnjudgedRun:
    """A sealed run that no attempt judged, and newer than its partition's authority: left by a crash between seal and
    verdict, unless the Dagster run that sealed it still lives."""

    key: PartitionKey
    run_id: RunId
    run_seq: int
    dagster_run_id: str | None


@dataclass(frozen=True, kw_only=True)
class Reconcilable:
    """What the ledger has to say of a partition that has a state or a pointer.

    `knows_pointer`: the run that the pointer names was accepted here, or judged above the pointer's version. Otherwise
    the pointer is of a history that this ledger has lost, and nothing here speaks against what it shows.
    `spoke_since_pointer`: above the pointer's version the authority was accepted, or the pointer's run was judged.
    Otherwise the pointer is what came last, and the ledger was restored from before it.
    `adopted_pointer`: it was adopted, and since then its run was judged, or the authority accepted. `version_floor` is
    that of an adoption whose verdict is still to come.
    """

    state: PartitionState | None
    is_being_withdrawn: bool
    knows_pointer: bool
    spoke_since_pointer: bool
    adopted_pointer: bool
    version_floor: int | None


@dataclass(frozen=True, kw_only=True)
class LoadRecord:
    """The first complete load of a run under a schema version; later loads of the same leave it as it is."""

    key: PartitionKey
    run_id: RunId
    schema_version: str
    record_count: int
    content_digest: str
    stage_id: StageId
    pointer_version: int
    loaded_at: datetime


@dataclass(frozen=True, kw_only=True)
class DayRange:
    """Both ends included."""

    first: date
    last: date


RESTORED: Final = "restored from its seal"
"""In place of a Dagster run: nobody knows any more which one it was."""


def extraction_from_seal(manifest: RunManifest) -> ExtractionAttempt:
    """What the ledger would hold of a sealed run, if it had not been lost."""
    return ExtractionAttempt(
        key=manifest.key,
        run_id=manifest.run_id,
        run_seq=manifest.run_seq,
        outcome=ExtractionOutcome.SEALED,
        error_class=None,
        error_message=None,
        started_at=manifest.extraction_started_at,
        finished_at=manifest.extraction_finished_at,
        dagster_run_id=RESTORED,
    )


def validation_id(run_id: RunId, root_dagster_run_id: str) -> str:
    """Names one counted attempt: the same for every execution of the same judging, so that a re-executed step
    changes nothing. For a revalidation pass the override's id in place of the Dagster run."""
    # A run id has a fixed length, so the two parts cannot be confused.
    return hashlib.sha256(f"{run_id}{root_dagster_run_id}".encode()).hexdigest()[:32]


def decide(state: PartitionState | None, judgement: Judgement) -> Decision:
    """Raises TransitionError when the judgement contradicts what is known about the authoritative run."""
    status = state.status if state else PartitionStatus.PENDING
    standing = _standing(state, judgement)
    if judgement.accepted:
        return _accept(status, standing)
    return _reject(status, standing)


def _accept(status: PartitionStatus, standing: _Standing) -> Decision:
    match standing:
        case _Standing.NEWER:
            return Decision(outcome=AttemptOutcome.ACCEPTED, status=PartitionStatus.SUCCESS, moves_authority=True)
        case _Standing.AUTHORITY:
            return Decision(outcome=AttemptOutcome.ACCEPTED, status=PartitionStatus.SUCCESS)
        case _Standing.OLDER:
            return Decision(outcome=AttemptOutcome.SUPERSEDED, status=status)
        case _:
            assert_never(standing)


def _reject(status: PartitionStatus, standing: _Standing) -> Decision:
    match status:
        case PartitionStatus.PENDING | PartitionStatus.FAILED:
            return Decision(outcome=AttemptOutcome.REJECTED, status=PartitionStatus.FAILED)
        case PartitionStatus.SUCCESS if standing is _Standing.AUTHORITY:
            # Still success: readers hold its pointer, and no failure may show before the rows are withdrawn.
            return Decision(outcome=AttemptOutcome.DEMOTED, status=PartitionStatus.SUCCESS)
        case PartitionStatus.SUCCESS:
            return Decision(outcome=AttemptOutcome.REJECTED, status=PartitionStatus.SUCCESS)
        case _:
            assert_never(status)


def _standing(state: PartitionState | None, judgement: Judgement) -> _Standing:
    if state is None or state.current_run_id is None or state.current_run_seq is None:
        return _Standing.NEWER
    if judgement.run_id == state.current_run_id:
        if judgement.run_seq != state.current_run_seq:
            raise TransitionError(
                f"run {judgement.run_id} of {state.key} is judged with run_seq {judgement.run_seq} but was accepted "
                f"with {state.current_run_seq}; its seal was altered: retry the partition"
            )
        return _Standing.AUTHORITY
    return _Standing.NEWER if judgement.run_seq > state.current_run_seq else _Standing.OLDER


def state_after(
    state: PartitionState | None,
    *,
    key: PartitionKey,
    judgement: Judgement,
    decision: Decision,
    now: datetime,
    version_floor: int = 0,
) -> PartitionState:
    """The row to write: one attempt more than `state`, and the version after its own, or after the floor of an adoption
    that it has not passed yet."""
    before = state or PartitionState(
        key=key,
        status=PartitionStatus.PENDING,
        current_run_id=None,
        current_run_seq=None,
        schema_version=None,
        record_count=None,
        updated_at=now,
        error_message=None,
        attempt_count=0,
        version=0,
    )
    counted = replace(
        before,
        status=decision.status,
        error_message=_error_after(before, judgement, decision),
        updated_at=now,
        attempt_count=before.attempt_count + 1,
        version=max(before.version, version_floor) + 1,
    )
    if not decision.moves_authority:
        return counted
    return replace(
        counted,
        current_run_id=judgement.run_id,
        current_run_seq=judgement.run_seq,
        schema_version=judgement.schema_version,
        record_count=judgement.record_count,
    )


def _error_after(before: PartitionState, judgement: Judgement, decision: Decision) -> str | None:
    match decision.outcome:
        case AttemptOutcome.ACCEPTED | AttemptOutcome.DEMOTED:
            return None
        case AttemptOutcome.SUPERSEDED:
            return before.error_message
        case AttemptOutcome.REJECTED:
            return judgement.error_message if decision.status is PartitionStatus.FAILED else None
        case _:
            assert_never(decision.outcome)


def state_after_demotion(state: PartitionState, intent: DemotionIntent, *, now: datetime) -> PartitionState:
    """The failure that shows once the rows are withdrawn; `state` itself when a newer run has become the authority
    in between, which the withdrawn rows do not concern."""
    if state.status is not PartitionStatus.SUCCESS or state.current_run_id != intent.run_id:
        return state
    return replace(
        state,
        status=PartitionStatus.FAILED,
        error_message=intent.error_message,
        updated_at=now,
        version=state.version + 1,
    )


def state_returned_to_pending(state: PartitionState | None, *, key: PartitionKey, now: datetime) -> PartitionState:
    """What the control plane makes of a failure that it wants tried again: the attempts stay counted, and an authority
    that was demoted stays the bar that a newer run must pass. Raises TransitionError unless the state is failed."""
    if state is None or state.status is not PartitionStatus.FAILED:
        status = state.status if state else PartitionStatus.PENDING
        raise TransitionError(f"{key} is {status}; only a failed partition returns to pending")
    return replace(state, status=PartitionStatus.PENDING, error_message=None, updated_at=now, version=state.version + 1)
