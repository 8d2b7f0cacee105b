"""What the ledger and the pointers disagree about, partition by partition, and what makes them agree again."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.domain.state import PartitionState, PartitionStatus


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


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    state: PartitionState
    is_being_demoted: bool


def compare(
    ledger: Mapping[PartitionKey, LedgerEntry],
    pointers: Mapping[PartitionKey, Pointer],
    *,
    accepted: Callable[[Collection[PartitionKey]], Collection[tuple[PartitionKey, RunId]]],
) -> dict[PartitionKey, Difference]:
    """In key order; partitions about which the two agree are left out. `accepted` tells which runs of some partitions
    the ledger ever accepted: it takes away none that it does not know."""
    found = {key: _difference(ledger.get(key), pointers.get(key)) for key in sorted({*ledger, *pointers})}
    differences = {key: difference for key, difference in found.items() if difference}
    doubtful = [key for key, difference in differences.items() if difference is Difference.NOT_WITHDRAWN]
    known = set(accepted(doubtful)) if doubtful else set()
    foreign = [key for key in doubtful if (key, pointers[key].run_id) not in known]
    return differences | dict.fromkeys(foreign, Difference.ESTRANGED)


def _difference(entry: LedgerEntry | None, pointer: Pointer | None) -> Difference | None:
    if entry is None:
        return Difference.ESTRANGED
    if pointer and _is_foreign(entry, pointer):
        return Difference.ESTRANGED
    if entry.is_being_demoted:
        return Difference.DEMOTED_HALF_WAY
    shown = (pointer.run_id, pointer.schema_version) if pointer and pointer.status is PointerStatus.ACTIVE else None
    if entry.state.status is not PartitionStatus.SUCCESS:
        return Difference.NOT_WITHDRAWN if shown else None
    return None if shown == (entry.state.current_run_id, entry.state.schema_version) else Difference.NOT_LOADED


def _is_foreign(entry: LedgerEntry, pointer: Pointer) -> bool:
    """It has a version that the ledger has not reached, or reached with another outcome."""
    if pointer.state_version != entry.state.version or entry.is_being_demoted:
        return pointer.state_version > entry.state.version
    return (pointer.status is PointerStatus.ACTIVE) != (entry.state.status is PartitionStatus.SUCCESS)
