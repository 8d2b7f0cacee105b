"""Readers look again and again while partitions are replaced: each look is one run a partition, and all of it."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

from gads_assets.domain.manifest import RunManifest
from gads_assets_tests.sealed_runs import QUERY, key, row, seal
from gads_assets_tests.warehouses import Warehouse

KEYS = [key(day="2024-06-01"), key(day="2024-06-02")]
REPLACEMENTS = 30


def test_every_look_is_one_whole_batch_while_both_partitions_are_replaced_together(warehouse: Warehouse) -> None:
    generations = [
        [seal(warehouse.sink, partition, [row(partition, number) for number in range(rows)]) for partition in KEYS]
        for rows in (3, 5)
    ]
    whole = [Counter(_run(run) for run in runs for _ in range(run.record_count)) for runs in generations]
    accepted = [warehouse.accept(*runs) for runs in generations]
    warehouse.publisher.publish(QUERY, accepted[0])
    done = Event()

    with ThreadPoolExecutor() as pool:
        looks = [pool.submit(_look, read, done) for read in (warehouse.with_spark, warehouse.without_jvm)]
        try:
            for number in range(1, REPLACEMENTS + 1):
                batch = [replace(each, state_version=100 + number) for each in accepted[number % 2]]
                warehouse.publisher.publish(QUERY, batch)
        finally:
            done.set()

    for look in looks:
        seen = look.result()
        assert len(seen) > 3
        assert all(each in whole for each in seen), seen
        assert seen[-1] == whole[REPLACEMENTS % 2]


def _look(read: Callable[[], list[dict[str, object]]], done: Event) -> list[Counter[tuple[object, ...]]]:
    """The last look begins after the last replacement."""
    seen: list[Counter[tuple[object, ...]]] = []
    last = False
    while not last:
        last = done.is_set()
        seen.append(Counter((line["customer_id"], line["logical_date"], line["run_id"]) for line in read()))
    return seen


def _run(run: RunManifest) -> tuple[object, ...]:
    return run.key.customer_id, run.key.logical_date, run.run_id
