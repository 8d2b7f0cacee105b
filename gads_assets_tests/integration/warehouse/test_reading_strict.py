"""Strict readers see only what PartitionState says too: the pointer may lag behind a newer success."""

import pytest

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.manifest import RunManifest
from gads_assets.state.partition_states import StateStore
from gads_assets.warehouse.selection import Selection
from gads_assets_tests.ledgers import judgement, record
from gads_assets_tests.sealed_runs import QUERY, key, row, seal
from gads_assets_tests.warehouses import Warehouse

MOVED, STEADY = key(day="2024-06-01"), key(day="2024-06-02")


@pytest.fixture
def published(warehouse: Warehouse, store: StateStore) -> dict[PartitionKey, RunManifest]:
    """Two partitions, published as their states say."""
    runs = [seal(warehouse.sink, partition, [row(partition, 1)]) for partition in (MOVED, STEADY)]
    for run in runs:
        record(store, judgement(run.run_id, 1), run.key)
    warehouse.publisher.publish(QUERY, warehouse.accept(*runs))
    return {run.key: run for run in runs}


def read(warehouse: Warehouse, selection: Selection) -> set[PartitionKey]:
    return {key(*place) for place in warehouse.content(selection)}


def test_a_strict_reader_waits_for_the_load_of_a_newer_success(
    warehouse: Warehouse, store: StateStore, published: dict[PartitionKey, RunManifest]
) -> None:
    strict = Selection(strict=store.publishable)
    assert read(warehouse, strict) == {MOVED, STEADY}
    newer = seal(warehouse.sink, MOVED, [row(MOVED, 2)], run_seq=2)
    record(store, judgement(newer.run_id, 2), MOVED)

    assert read(warehouse, Selection()) == {MOVED, STEADY}
    assert read(warehouse, strict) == {STEADY}

    warehouse.publisher.publish(QUERY, warehouse.accept(newer))

    assert read(warehouse, strict) == {MOVED, STEADY}
    assert read(warehouse, Selection(strict=store.publishable, as_of=0)) == {STEADY}


def test_a_strict_reader_leaves_out_what_is_being_withdrawn_and_what_no_state_speaks_of(
    warehouse: Warehouse, store: StateStore, published: dict[PartitionKey, RunManifest]
) -> None:
    record(store, judgement(published[MOVED].run_id, 1, accepted=False), MOVED)
    unjudged = key(day="2024-06-03")
    warehouse.publisher.publish(QUERY, warehouse.accept(seal(warehouse.sink, unjudged, [row(unjudged, 1)])))

    assert [intent.key for intent in store.open_demotions()] == [MOVED]
    assert read(warehouse, Selection()) == {MOVED, STEADY, unjudged}
    assert read(warehouse, Selection(strict=store.publishable)) == {STEADY}
