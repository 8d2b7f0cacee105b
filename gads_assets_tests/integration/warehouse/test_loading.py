"""From PartitionState to what readers see, with the real database between the two."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import NoReturn

import pytest
from sqlalchemy import Engine, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.pointer import Pointer
from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionStatus
from gads_assets.errors import PublishRefusedError
from gads_assets.warehouse.pointers import pointer_table
from gads_assets_tests.sealed_runs import QUERY, catalog, key, row, schema
from gads_assets_tests.sites import Site
from gads_assets_tests.warehouses import Warehouse

DAYS = [key(day=f"2024-06-0{number}") for number in range(1, 8)]


def rows(partition: PartitionKey, *campaigns: int) -> list[dict[str, object]]:
    return [row(partition, campaign, metrics_clicks=1) for campaign in campaigns]


def accept(
    site: Site, partition: PartitionKey, content: Sequence[Mapping[str, object]], *, schema_version: str = "1"
) -> None:
    """Extracted and judged; not accepted, if the content is bad."""
    site.extract(partition, content, schema_version=schema_version)
    site.judge(partition, run="dagster-run")


def test_only_successes_are_loaded_and_each_refusal_has_its_reason(site: Site, warehouse: Warehouse) -> None:
    """Never extracted, sealed and not judged, rejected, being withdrawn, withdrawn; and two that are good."""
    _, unjudged, rejected, demoting, demoted, good, empty = DAYS
    site.extract(unjudged, rows(unjudged, 1))
    accept(site, rejected, rows(rejected, 1, 1))
    for partition in (demoting, demoted, good):
        accept(site, partition, rows(partition, 1, 2))
    accept(site, empty, [])
    for partition in (demoting, demoted):
        site.spoil(partition)
    site.judge(demoted, run="check")
    replace(site.here.validator, withdraw=_dies).validate([demoting], dagster_run_id="killed")
    before = _ledger(site)

    published = site.here.loader.load(DAYS)

    assert [pointer.key for pointer in published.pointers] == [good, empty]
    assert set(published.refused) == set(DAYS) - {good, empty}
    assert set(published.refused.values()) == {"state does not call it a success"}
    assert warehouse.content() == {("1234567890", str(good.logical_date)): [(1, 1), (2, 1)]}
    assert _ledger(site) == before
    assert [record.key for record in site.here.store_as(Role.OPERATOR).load_records()] == [good, empty]


def test_a_load_writes_nothing_but_its_record(site: Site, warehouse: Warehouse) -> None:
    accept(site, DAYS[0], rows(DAYS[0], 1))
    raw = {path: path.read_bytes() for path in (warehouse.root / "raw").rglob("*") if path.is_file()}

    site.here.loader.load([DAYS[0]])

    assert {path: path.read_bytes() for path in (warehouse.root / "raw").rglob("*") if path.is_file()} == raw
    assert [state.status for state in site.here.store_as(Role.OPERATOR).states(DAYS).values()] == [
        PartitionStatus.SUCCESS
    ]


def test_a_load_that_took_too_long_publishes_nothing_and_the_next_does(site: Site, warehouse: Warehouse) -> None:
    accept(site, DAYS[0], rows(DAYS[0], 1))
    slow = replace(site.here.loader, clock=count(0, 7 * 3600).__next__)

    with pytest.raises(PublishRefusedError, match=r"took more than 6 hours.*; nothing was published, run it again"):
        slow.load([DAYS[0]])
    assert warehouse.content() == {}

    assert site.here.loader.load([DAYS[0]]).refused == {}
    assert len(warehouse.content()) == 1


def test_the_same_run_loaded_again_elsewhere_and_in_other_groups_changes_nothing(
    site: Site, warehouse: Warehouse, database_url: str
) -> None:
    """In this process one by one, then all at once, then from another process."""
    for partition in DAYS:
        accept(site, partition, rows(partition, 1, 2, 3))
    for partition in DAYS:
        site.here.loader.load([partition])
    shown, records = warehouse.with_spark(), site.here.store_as(Role.OPERATOR).load_records()
    pointers = warehouse.pointer_rows()

    together = site.here.loader.load(DAYS)
    done = subprocess.run(
        [sys.executable, "-c", _LOAD_ELSEWHERE, str(warehouse.root), database_url],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GADS_SPARK_MASTER": "local[1]"},
    )

    assert done.returncode == 0, done.stderr
    digests = [record.content_digest for record in records]
    assert done.stdout.split() == [pointer.content_digest for pointer in together.pointers] == digests
    assert warehouse.with_spark() == shown
    assert warehouse.pointer_rows() == pointers
    assert site.here.store_as(Role.OPERATOR).load_records() == records


def test_a_run_staged_again_after_its_rows_were_lost_has_the_same_digest_and_its_first_load_record(
    site: Site, warehouse: Warehouse
) -> None:
    """The warehouse is gone and the ledger is there: everything is loaded once more, from the sealed runs."""
    for partition in DAYS:
        accept(site, partition, rows(partition, 1, 2, 3))
    first = site.here.loader.load(DAYS)
    shown, records = warehouse.with_spark(), site.here.store_as(Role.OPERATOR).load_records()
    (warehouse.root / "warehouse").rename(warehouse.root / "lost")

    again = [pointer for partition in DAYS for pointer in site.here.loader.load([partition]).pointers]

    assert [pointer.content_digest for pointer in again] == [pointer.content_digest for pointer in first.pointers]
    assert warehouse.with_spark() == shown
    assert site.here.store_as(Role.OPERATOR).load_records() == records


def test_a_new_run_is_loaded_also_when_its_rows_are_the_same(site: Site, warehouse: Warehouse) -> None:
    loads: list[Pointer] = []
    for _ in range(2):
        accept(site, DAYS[0], rows(DAYS[0], 1, 2))
        loads += site.here.loader.load([DAYS[0]]).pointers
    first, second = loads
    assert first.content_digest == second.content_digest
    assert (first.run_id, first.stage_id) < (second.run_id, second.stage_id)
    assert {line["run_id"] for line in warehouse.with_spark()} == {second.run_id}
    assert warehouse.with_spark() == warehouse.without_jvm()


def test_a_day_goes_to_another_schema_version_and_back_by_new_runs_only(site: Site, warehouse: Warehouse) -> None:
    warehouse.catalog = site.here.catalog = catalog(schema("2"), schema())
    versions = []
    for version, campaigns in (("1", (1, 2)), ("2", (1, 2, 3)), ("1", (7,)), ("2", ())):
        accept(site, DAYS[0], rows(DAYS[0], *campaigns), schema_version=version)
        site.here.loader.load([DAYS[0]])
        shown = warehouse.with_spark()
        assert shown == warehouse.without_jvm()
        assert [line["campaign_id"] for line in shown] == list(campaigns)
        assert {line["schema_version"] for line in shown} <= {version}
        versions.append(site.here.store_as(Role.OPERATOR).load_records([DAYS[0]])[-1].schema_version)
    assert versions == ["1", "2", "1", "2"]
    table = pointer_table(warehouse.layout, QUERY)
    assert table is not None
    assert table.version() == 3


def test_nothing_is_recorded_as_loaded_that_was_not_shown(site: Site, warehouse: Warehouse, engine: Engine) -> None:
    accept(site, DAYS[0], rows(DAYS[0], 1))
    crashed = replace(site.here.loader, publisher=replace(site.here.loader.publisher, now=_crash))
    with pytest.raises(SystemExit):
        crashed.load([DAYS[0]])
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM load_record")).scalar_one() == 0
    assert warehouse.content() == {}


def _ledger(site: Site) -> object:
    store = site.here.store_as(Role.OPERATOR)
    return store.states(DAYS), store.open_demotions()


def _dies(_: object) -> None:
    raise PublishRefusedError("the storage is away")


def _crash() -> NoReturn:
    raise SystemExit(137)


_LOAD_ELSEWHERE = """
import os, sys
from pathlib import Path
from gads_assets.orchestration.workplace import open_session
from gads_assets.settings import read_settings
from gads_assets_tests.integration.warehouse.test_loading import DAYS
from gads_assets_tests.sites import make_site
root, url = sys.argv[1:]
session = open_session(read_settings(os.environ))
with make_site(Path(root), url, lambda: session).here as here:
    for group in (DAYS[:3], DAYS[3:]):
        for pointer in here.loader.load(group).pointers:
            print(pointer.content_digest)
session.stop()
"""
