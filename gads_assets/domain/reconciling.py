"""What the ledger and the pointers disagree about, partition by partition, and what makes them agree again."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.domain.state import DemotionIntent, PartitionState, PartitionStatus, Reconcilable

TIME_TO_REPORT: Final = timedelta(minutes=10)
"""From a swap until its load record and its event are there, unless they were lost."""
_LOOKS_AGAIN: Final = timedelta(hours=1)
"""At all that rests, for what leaves no mark: events that somebody deleted, a backup that happens to look the same."""


@dataclass(frozen=True, kw_only=True)
class Rest:
    """What was last found of a query. Its `mark` changes with every state and every pointer, and was first seen at
    `since`; all of it was last compared, and agreed, at `agreed_at`."""

    mark: str
    since: datetime
    agreed_at: datetime | None = None


def is_at_rest(rest: Rest | None, mark: str, *, now: datetime) -> bool:
    """Whether comparing it would find nothing: nothing has changed since it agreed, and what changed last was reported
    by then."""
    return (
        rest is not None
        and rest.mark == mark
        and rest.agreed_at is not None
        and rest.agreed_at - rest.since > TIME_TO_REPORT
        and now - rest.agreed_at < _LOOKS_AGAIN
    )


def rest_after_comparing(rest: Rest | None, mark: str, *, agreed: bool, now: datetime) -> Rest:
    since = rest.since if rest and rest.mark == mark else now
    return Rest(mark=mark, since=since, agreed_at=now if agreed else None)


class Difference(StrEnum):
    NOT_LOADED = "not loaded"
    """A success that readers do not see, or see another run or schema version of: to be loaded."""

    NOT_WITHDRAWN = "not withdrawn"
    """Readers see a run that the ledger accepted once and does not call a success any more: to be withdrawn."""

    DEMOTED_HALF_WAY = "demoted half way"
    """Its authority was rejected, and the withdrawal of the rows was not finished: to be finished."""

    ESTRANGED = "estranged"
    """The pointer is from a history that this ledger does not have: it was lost, or restored from a backup. Readers
    keep what they see; to be adopted."""


def compare(
    ledger: Mapping[PartitionKey, Reconcilable], pointers: Mapping[PartitionKey, Pointer]
) -> dict[PartitionKey, Difference]:
    """Of every partition in the ledger, which has all that have a pointer; where the two agree it is left out."""
    differences = {key: _difference(entry, pointers.get(key)) for key, entry in ledger.items()}
    return {key: difference for key, difference in differences.items() if difference}


def may_replace(entry: Reconcilable, pointer: Pointer) -> bool:
    """Whether the authority of a success may take the place of this pointer, which is not its own: only a ledger that
    has the pointer's history, or has adopted it, can tell that what it shows, or hides, is over."""
    is_known = pointer.status is PointerStatus.UNAVAILABLE or entry.knows_pointer or entry.adopted_pointer
    return is_known and entry.spoke_since_pointer


def may_withdraw(entry: Reconcilable, pointer: Pointer, intent: DemotionIntent) -> bool:
    """Whether this pointer goes with the authority that was rejected. In a history without gaps it does: it shows that
    run, or an earlier one which the ledger accepted."""
    return pointer.status is PointerStatus.UNAVAILABLE or pointer.run_id == intent.run_id or entry.knows_pointer


def _difference(entry: Reconcilable, pointer: Pointer | None) -> Difference | None:
    state = entry.state
    if state is None or (pointer and pointer.state_version > state.version):
        return Difference.ESTRANGED
    if entry.is_being_withdrawn:
        return Difference.DEMOTED_HALF_WAY
    if state.status is PartitionStatus.SUCCESS:
        return _of_success(state, entry, pointer)
    if pointer is None or pointer.status is PointerStatus.UNAVAILABLE:
        return None
    # What it does not know it does not take away; and what it reached with this very version was no success.
    is_known = entry.knows_pointer and pointer.state_version < state.version
    return Difference.NOT_WITHDRAWN if is_known else Difference.ESTRANGED


def _of_success(state: PartitionState, entry: Reconcilable, pointer: Pointer | None) -> Difference | None:
    if pointer is None:
        return Difference.NOT_LOADED
    if pointer.status is PointerStatus.ACTIVE and (pointer.run_id, pointer.schema_version) == (
        state.current_run_id,
        state.schema_version,
    ):
        return None
    return Difference.NOT_LOADED if may_replace(entry, pointer) else Difference.ESTRANGED
