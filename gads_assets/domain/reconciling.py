"""What the ledger and the pointers disagree about, partition by partition, and what makes them agree again."""

from collections.abc import Mapping
from enum import StrEnum

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.domain.state import PartitionState, PartitionStatus, Reconcilable


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


def _difference(entry: Reconcilable, pointer: Pointer | None) -> Difference | None:
    state = entry.state
    if state is None or (pointer and _is_foreign(state, entry, pointer)):
        return Difference.ESTRANGED
    if entry.is_being_withdrawn:
        return Difference.DEMOTED_HALF_WAY
    shown = (pointer.run_id, pointer.schema_version) if pointer and pointer.status is PointerStatus.ACTIVE else None
    if state.status is PartitionStatus.SUCCESS:
        return None if shown == (state.current_run_id, state.schema_version) else Difference.NOT_LOADED
    if shown:
        # What it does not know it does not take away.
        return Difference.NOT_WITHDRAWN if entry.knows_pointer else Difference.ESTRANGED
    return None


def _is_foreign(state: PartitionState, entry: Reconcilable, pointer: Pointer) -> bool:
    """It has a version that the ledger has not reached, or reached with another outcome."""
    if pointer.state_version != state.version or entry.is_being_withdrawn:
        return pointer.state_version > state.version
    if pointer.status is PointerStatus.ACTIVE and state.status is PartitionStatus.SUCCESS:
        return (pointer.run_id, pointer.schema_version) != (state.current_run_id, state.schema_version)
    return (pointer.status is PointerStatus.ACTIVE) != (state.status is PartitionStatus.SUCCESS)
