"""After reconciling: does everything equal state, and state what the drill did to it?"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import dagster as dg

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.domain.roles import Role
from gads_assets.domain.state import DemotionIntent, LoadRecord, PartitionState, PartitionStatus
from gads_assets.orchestration.reconciling import reconcile
from gads_assets.orchestration.workplace import Workplace
from gads_assets.warehouse.publishing import current_state
from gads_assets_tests.drills.journal import Rows, Seen, by_partition
from gads_assets_tests.drills.readers import every_reader
from gads_assets_tests.sealed_runs import QUERY


@dataclass(frozen=True, kw_only=True)
class Found:
    states: Mapping[PartitionKey, PartitionState]
    demotions: Sequence[DemotionIntent]
    pointers: Mapping[PartitionKey, Pointer]
    records: Sequence[LoadRecord]
    reads: Mapping[str, Seen]
    """By reader."""


def settle(here: Workplace) -> list[str]:
    """Does what reconciling says is to be done; returns what it should not have said."""
    instance = dg.DagsterInstance.ephemeral()
    # These loads are of no Dagster run: that none reported them is no news.
    first = reconcile(here, instance, looks_back=timedelta())
    # The same that reconciling does some minutes later, when a loader must have recorded what it shows.
    recorded = {(record.key, record.run_id) for record in here.store_as(Role.OPERATOR).load_records()}
    unrecorded = [
        key
        for key, pointer in here.loader.compare(here.catalog.source, QUERY).shown().items()
        if (key, pointer.run_id) not in recorded
    ]
    if to_load := [*first.to_load, *unrecorded]:
        here.loader.load(to_load)
    left = reconcile(here, instance, looks_back=timedelta())
    unexpected = {
        "not judged": {*first.to_judge, *left.to_judge},
        "estranged": {*first.estranged, *left.estranged},
        "withdrawn for no reason": {*first.withdrawn, *left.withdrawn},
        "demoted half way": left.demoted,
        "not loaded": left.to_load,
    }
    return [f"{key} is {what} in the eyes of reconcile" for what, keys in unexpected.items() for key in keys]


def look_around(here: Workplace, keys: Sequence[PartitionKey]) -> Found:
    store = here.store_as(Role.OPERATOR)
    return Found(
        states=store.states(keys),
        demotions=store.open_demotions(),
        pointers=current_state(here.layout, QUERY),
        records=store.load_records(),
        reads={name: by_partition(read()) for name, read in every_reader(here).items()},
    )


def differences(
    found: Found, expected: Mapping[PartitionKey, RunId | None], contents: Mapping[RunId, Rows]
) -> list[str]:
    """Where state, pointers, readers or load records do not say that each partition shows its expected run, all of it
    and once; None is nothing."""
    complaints = [f"{intent.key} is still being withdrawn" for intent in found.demotions]
    complaints += [f"{key} has a pointer, and nobody loaded it" for key in found.pointers.keys() - expected.keys()]
    for key, run_id in expected.items():
        state, pointer = found.states.get(key), found.pointers.get(key)
        complaints += _state_and_pointer(key, run_id, state, pointer)
        rows = contents[run_id] if run_id else []
        for reader, seen in found.reads.items():
            if seen.get(key, {}) != ({run_id: rows} if rows else {}):
                complaints.append(f"{key} is not shown by {reader} as run {run_id}")
        if pointer and run_id:
            complaints += _record(pointer, [each for each in found.records if (each.key, each.run_id) == (key, run_id)])
    return complaints


def _state_and_pointer(
    key: PartitionKey, run_id: RunId | None, state: PartitionState | None, pointer: Pointer | None
) -> Iterable[str]:
    succeeded = state if state and state.status is PartitionStatus.SUCCESS else None
    if (succeeded and succeeded.current_run_id) != run_id:
        yield f"{key} should be the success of run {run_id}, and its state is {state}"
    active = pointer if pointer and pointer.status is PointerStatus.ACTIVE else None
    shown = active and (active.run_id, active.schema_version, active.record_count)
    if shown != (succeeded and (succeeded.current_run_id, succeeded.schema_version, succeeded.record_count)):
        yield f"{key} has the pointer {pointer}, and its state is {state}"


def _record(pointer: Pointer, records: Sequence[LoadRecord]) -> Iterable[str]:
    shown = (pointer.schema_version, pointer.record_count, pointer.content_digest)
    if [(each.schema_version, each.record_count, each.content_digest) for each in records] != [shown]:
        yield f"{pointer.key} shows run {pointer.run_id}, and the records of its load are {records}"
