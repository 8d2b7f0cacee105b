"""Loaders that know nothing of each other, and batches as large as a backfill's."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.roles import Role
from gads_assets_tests.sealed_runs import QUERY, key, row, seal
from gads_assets_tests.sites import Site
from gads_assets_tests.warehouses import Warehouse

DAYS = [key(day=f"2024-06-{number:02}") for number in range(1, 13)]
PROCESSES = 4


def test_two_loaders_that_stage_the_same_run_in_different_batches_show_each_row_once(warehouse: Warehouse) -> None:
    """Neither holds the lock, and each staged before the other swapped."""
    first, shared, last = DAYS[:3]
    runs = {
        partition: seal(warehouse.sink, partition, [row(partition, 1), row(partition, 2)]) for partition in DAYS[:3]
    }
    authorities = {authority.key: authority for authority in warehouse.accept(*runs.values())}

    def publish(*keys: PartitionKey, meanwhile: tuple[PartitionKey, ...] = ()) -> None:
        warehouse.publisher.publish(
            QUERY,
            [authorities[each] for each in keys],
            before_swap=lambda: publish(*meanwhile) if meanwhile else None,
        )

    publish(first, shared, meanwhile=(shared, last))

    assert warehouse.pointer_rows().num_rows == 4
    shown = Counter((line["logical_date"], line["campaign_id"]) for line in warehouse.with_spark())
    assert warehouse.with_spark() == warehouse.without_jvm()
    assert shown == Counter((each.logical_date, campaign) for each in DAYS[:3] for campaign in (1, 2))


def test_processes_that_publish_the_same_and_other_partitions_at_once_do_not_get_in_each_others_way(
    site: Site, warehouse: Warehouse, database_url: str
) -> None:
    for partition in DAYS:
        site.extract(partition)
    site.judge(*DAYS, run="dagster-run")

    loaders = [
        subprocess.Popen(
            [sys.executable, "-c", _LOAD, str(warehouse.root), database_url, str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "GADS_SPARK_MASTER": "local[1]"},
        )
        for number in range(PROCESSES)
    ]
    for loader in loaders:
        _, complaints = loader.communicate()
        assert loader.returncode == 0, complaints

    states = site.here.store_as(Role.OPERATOR).states(DAYS)
    pointers = warehouse.pointer_rows().to_pylist()
    assert {each["logical_date"]: each["run_id"] for each in pointers} == {
        partition.logical_date: states[partition].current_run_id for partition in DAYS
    }
    assert len(pointers) == len(DAYS)
    assert {place: len(rows) for place, rows in warehouse.content().items()} == {
        (partition.customer_id, str(partition.logical_date)): 2 for partition in DAYS
    }
    assert len(site.here.store_as(Role.OPERATOR).load_records()) == len(DAYS)


def test_a_backfill_is_one_commit_and_its_one_bad_run_neither_blocks_nor_leaks(warehouse: Warehouse) -> None:
    days = [f"2024-{month:02}-{day:02}" for month in range(1, 7) for day in range(1, 26)]
    keys = [key(f"10000000{customer:02}", day) for customer in range(20) for day in days]
    runs = [seal(warehouse.sink, partition, [row(partition, 1)]) for partition in keys]
    authorities = warehouse.accept(*runs)
    bad = runs[1_234]
    other = seal(warehouse.sink, bad.key, [row(bad.key, 1, metrics_clicks=99)])
    payload, exchanged = (Path(warehouse.sink.payload_uris(run)[0]) for run in (bad, other))
    payload.write_bytes(exchanged.read_bytes())

    published = warehouse.publisher.publish(QUERY, authorities)

    assert (len(keys), published.pointer_version, list(published.refused)) == (3_000, 0, [bad.key])
    shown = warehouse.without_jvm()
    assert Counter((line["customer_id"], line["logical_date"]) for line in shown) == Counter(
        (each.customer_id, each.logical_date) for each in keys if each != bad.key
    )
    assert 99 not in {line["metrics_clicks"] for line in shown}


_LOAD = """
import os, random, sys
from pathlib import Path
from gads_assets.orchestration.workplace import open_session
from gads_assets.settings import read_settings
from gads_assets_tests.integration.warehouse.test_loading_at_once import DAYS
from gads_assets_tests.sites import make_site
root, url, number = sys.argv[1:]
session = open_session(read_settings(os.environ))
chosen = random.Random(int(number))
with make_site(Path(root), url, lambda: session).here as here:
    for _ in range(3):
        assert not here.loader.load(chosen.sample(DAYS, 6)).refused
    assert not here.loader.load(DAYS[int(number)::4]).refused
session.stop()
"""
