"""Which staged run readers see: the order of pointers, and what a load has to do."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from gads_assets.domain.keys import PartitionKey, RunId, StageId


class PointerStatus(Enum):
    ACTIVE = "active"
    """Readers see the rows of this stage."""
    UNAVAILABLE = "unavailable"
    """Readers see nothing: the partition lost its success."""


@dataclass(frozen=True, kw_only=True)
class Pointer:
    """One row of a query's append-only pointer table. `stage_commit` is the stage table's version that has the rows."""

    key: PartitionKey
    run_id: RunId
    stage_id: StageId
    schema_version: str
    record_count: int
    content_digest: str
    state_version: int
    stage_commit: int
    status: PointerStatus
    loaded_at: datetime

    @property
    def order(self) -> tuple[int, str]:
        """The highest one of a partition is its current pointer, in whatever order loaders finished."""
        return self.state_version, self.stage_id


@dataclass(frozen=True, kw_only=True)
class Authority:
    """What PartitionState says may be published: a judged run, and the content the validator saw in it."""

    key: PartitionKey
    run_id: RunId
    schema_version: str
    record_count: int
    content_digest: str
    state_version: int


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """`overtaken` partitions have a pointer of a newer state than the one that was read: this loader is late."""

    to_stage: tuple[Authority, ...]
    already_published: tuple[Authority, ...]
    overtaken: tuple[Authority, ...]


def current_pointers(pointers: Iterable[Pointer]) -> dict[PartitionKey, Pointer]:
    current: dict[PartitionKey, Pointer] = {}
    for pointer in pointers:
        known = current.get(pointer.key)
        if known is None or pointer.order > known.order:
            current[pointer.key] = pointer
    return current


def plan_load(authorities: Sequence[Authority], current: Mapping[PartitionKey, Pointer]) -> LoadPlan:
    """A reload of what is already published stages nothing; a state older than the pointer publishes nothing."""
    to_stage, published, overtaken = [], [], []
    for authority in sorted(authorities, key=lambda item: item.key):
        pointer = current.get(authority.key)
        if pointer is None:
            to_stage.append(authority)
        elif pointer.state_version > authority.state_version:
            overtaken.append(authority)
        elif pointer.status is PointerStatus.ACTIVE and (pointer.run_id, pointer.schema_version) == (
            authority.run_id,
            authority.schema_version,
        ):
            published.append(authority)
        elif pointer.state_version == authority.state_version:
            # A tombstone of this very state: a demotion is under way, and it wins.
            overtaken.append(authority)
        else:
            to_stage.append(authority)
    return LoadPlan(to_stage=tuple(to_stage), already_published=tuple(published), overtaken=tuple(overtaken))
