"""A demotion that is killed at each of its steps: whatever was done, reconciling does the rest."""

from collections.abc import Callable
from typing import NoReturn

import dagster as dg
import pytest
from deltalake import write_deltalake

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.state import PartitionStatus
from gads_assets.orchestration.reconciling import Reconciliation, reconcile
from gads_assets.state.partition_states import StateStore
from gads_assets.warehouse.pointers import pointer_table
from gads_assets_tests.drills.failpoints import DiedError, die_alone, unanswered, uncommitted_write
from gads_assets_tests.sealed_runs import QUERY, key
from gads_assets_tests.sites import Site
from gads_assets_tests.warehouses import Warehouse

STORE = "gads_assets.state.partition_states.StateStore"
SWAP = "gads_assets.warehouse.pointers.write_deltalake"


def die(*_: object, **__: object) -> NoReturn:
    die_alone()


STEPS: dict[str, tuple[str, Callable[..., None]]] = {
    "before the verdict": (f"{STORE}.record_judgements", die),
    "after the verdict, unheard": (f"{STORE}.record_judgements", unanswered(StateStore.record_judgements, die_alone)),
    "before the withdrawal": ("gads_assets.warehouse.publishing.Publisher.withdraw", die),
    "in the middle of the swap": (SWAP, uncommitted_write(die_alone)),
    "after the swap, unheard": (SWAP, unanswered(write_deltalake, die_alone)),
    "before the failure shows": (f"{STORE}.finish_demotions", die),
    "after the failure shows, unheard": (
        f"{STORE}.finish_demotions",
        unanswered(StateStore.finish_demotions, die_alone),
    ),
}
DAYS = {step: key(day=f"2024-06-{number:02}") for number, step in enumerate(STEPS, start=1)}
KEYS = list(DAYS.values())


def judge_and_die(site: Site, step: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(*STEPS[step])
        with pytest.raises(DiedError):
            site.judge(DAYS[step], run="revalidation")


def hidden(warehouse: Warehouse) -> set[PartitionKey]:
    shown = {line["logical_date"] for line in warehouse.without_jvm()}
    return {partition for partition in KEYS if partition.logical_date not in shown}


def test_a_demotion_killed_at_any_step_ends_withdrawn_and_failed_and_newer_runs_win_afterwards(
    site: Site, warehouse: Warehouse
) -> None:
    for partition in KEYS:
        site.extract(partition)
    site.judge(*KEYS, run="dagster-run")
    site.here.loader.load(KEYS)
    rejected = {partition: site.shown(partition) for partition in KEYS}
    assert hidden(warehouse) == set()
    for partition in KEYS:
        site.spoil(partition)

    for step in STEPS:
        judge_and_die(site, step)
    unjudged, *_, swapped, unfinished, failed = KEYS

    # No failure shows before the rows are gone, and no loader brings them back.
    assert hidden(warehouse) == {swapped, unfinished, failed}
    assert [each for each in KEYS if site.state(each).status is PartitionStatus.FAILED] == [failed]
    assert set(site.here.loader.load(KEYS).refused) == set(KEYS) - {unjudged}
    pointers, commits = warehouse.pointer_rows().num_rows, version(warehouse)

    assert _reconciled(site).demoted == dict.fromkeys(KEYS[1:-1])

    # All that were not withdrawn yet in one commit; of the first, nothing was recorded.
    assert (warehouse.pointer_rows().num_rows, version(warehouse)) == (pointers + 3, commits + 1)
    assert site.state(unjudged).status is PartitionStatus.SUCCESS
    site.judge(unjudged, run="revalidation")
    assert _reconciled(site).is_clean
    assert {site.state(partition).status for partition in KEYS} == {PartitionStatus.FAILED}
    assert hidden(warehouse) == set(KEYS)
    assert warehouse.with_spark() == []
    assert {site.state(partition).version for partition in KEYS} == {3}

    assert set(site.here.loader.load(KEYS).refused) == set(KEYS)
    newer = {partition: site.publish(partition, run="newer").run_id for partition in KEYS}

    assert {partition: site.shown(partition) for partition in KEYS} == newer
    assert not set(newer.values()) & set(rejected.values())
    assert hidden(warehouse) == set()
    assert site.here.loader.compare("google_ads", QUERY).differences == {}


def version(warehouse: Warehouse) -> int:
    table = pointer_table(warehouse.layout, QUERY)
    assert table is not None
    return table.version()


def _reconciled(site: Site) -> Reconciliation:
    with dg.DagsterInstance.ephemeral() as instance:
        return reconcile(site.here, instance)
