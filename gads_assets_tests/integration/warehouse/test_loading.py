"""From PartitionState to what readers see, with the real database between the two."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest
from sqlalchemy import Engine, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionStatus
from gads_assets.errors import PublishRefusedError
from gads_assets.warehouse.pointers import pointer_table
from gads_assets_tests.pipelines import Pipeline
from gads_assets_tests.sealed_runs import QUERY, catalog, key, row, schema
from gads_assets_tests.warehouses import Warehouse

DAYS = [key(day=f"2024-06-0{number}") for number in range(1, 8)]


@pytest.fixture
def pipeline(warehouse: Warehouse, acting: Callable[[Role], Engine]) -> Pipeline:
    return Pipeline(warehouse=warehouse, acting=acting)


def rows(partition: PartitionKey, *campaigns: int) -> list[dict[str, object]]:
    return [row(partition, campaign, metrics_clicks=1) for campaign in campaigns]


def spoil(pipeline: Pipeline, partition: PartitionKey) -> None:
    """The sealed run of a partition is not what it was any more: its next judging will reject it."""
    run_id = pipeline.sink.sealed_runs(partition)[-1]
    [payload] = pipeline.sink.payload_uris(pipeline.sink.manifest(partition, run_id))
    Path(payload).write_bytes(b"")


def test_only_successes_are_loaded_and_each_refusal_has_its_reason(pipeline: Pipeline) -> None:
    """Never extracted, sealed and not judged, rejected, being withdrawn, withdrawn; and two that are good."""
    _, unjudged, rejected, demoting, demoted, good, empty = DAYS
    pipeline.extract(unjudged, rows(unjudged, 1))
    pipeline.judge(pipeline.extract(rejected, rows(rejected, 1, 1)))
    for partition in (demoting, demoted, good):
        pipeline.judge(pipeline.extract(partition, rows(partition, 1, 2)))
    pipeline.judge(pipeline.extract(empty, []))
    for partition in (demoting, demoted):
        spoil(pipeline, partition)
    pipeline.judge_again(demoted)
    replace(pipeline.validator, withdraw=_dies).validate([demoting], dagster_run_id="killed")
    before = _ledger(pipeline)

    published = pipeline.loader.load(DAYS)

    assert [pointer.key for pointer in published.pointers] == [good, empty]
    assert set(published.refused) == set(DAYS) - {good, empty}
    assert set(published.refused.values()) == {"state does not call it a success"}
    assert pipeline.warehouse.content() == {("1234567890", str(good.logical_date)): [(1, 1), (2, 1)]}
    assert _ledger(pipeline) == before
    assert [record.key for record in pipeline.store().load_records()] == [good, empty]


def test_a_load_writes_nothing_but_its_record(pipeline: Pipeline) -> None:
    run = pipeline.extract(DAYS[0], rows(DAYS[0], 1))
    pipeline.judge(run)
    raw = {path: path.read_bytes() for path in (pipeline.warehouse.root / "raw").rglob("*") if path.is_file()}

    pipeline.loader.load([DAYS[0]])

    assert {path: path.read_bytes() for path in (pipeline.warehouse.root / "raw").rglob("*") if path.is_file()} == raw
    assert [state.status for state in pipeline.store().states(DAYS).values()] == [PartitionStatus.SUCCESS]


def test_a_load_that_took_too_long_publishes_nothing_and_the_next_does(pipeline: Pipeline) -> None:
    pipeline.judge(pipeline.extract(DAYS[0], rows(DAYS[0], 1)))
    slow = replace(pipeline.loader, clock=count(0, 7 * 3600).__next__)

    with pytest.raises(PublishRefusedError, match=r"took more than 6 hours.*; nothing was published, run it again"):
        slow.load([DAYS[0]])
    assert pipeline.warehouse.content() == {}

    assert pipeline.loader.load([DAYS[0]]).refused == {}
    assert len(pipeline.warehouse.content()) == 1


def test_the_same_run_loaded_again_elsewhere_and_in_other_groups_changes_nothing(
    pipeline: Pipeline, database_url: str
) -> None:
    """In this process one by one, then all at once, then from another process."""
    for partition in DAYS:
        pipeline.judge(pipeline.extract(partition, rows(partition, 1, 2, 3)))
    for partition in DAYS:
        pipeline.loader.load([partition])
    shown, records = pipeline.warehouse.with_spark(), pipeline.store().load_records()
    pointers = pipeline.warehouse.pointer_rows()

    together = pipeline.loader.load(DAYS)
    done = subprocess.run(
        [sys.executable, "-c", _LOAD_ELSEWHERE, str(pipeline.warehouse.root), database_url],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GADS_SPARK_MASTER": "local[1]"},
    )

    assert done.returncode == 0, done.stderr
    digests = [record.content_digest for record in records]
    assert done.stdout.split() == [pointer.content_digest for pointer in together.pointers] == digests
    assert pipeline.warehouse.with_spark() == shown
    assert pipeline.warehouse.pointer_rows() == pointers
    assert pipeline.store().load_records() == records


def test_a_run_staged_again_after_its_rows_were_lost_has_the_same_digest_and_its_first_load_record(
    pipeline: Pipeline,
) -> None:
    """The warehouse is gone and the ledger is there: everything is loaded once more, from the sealed runs."""
    for partition in DAYS:
        pipeline.judge(pipeline.extract(partition, rows(partition, 1, 2, 3)))
    first = pipeline.loader.load(DAYS)
    shown, records = pipeline.warehouse.with_spark(), pipeline.store().load_records()
    (pipeline.warehouse.root / "warehouse").rename(pipeline.warehouse.root / "lost")

    again = [pointer for partition in DAYS for pointer in pipeline.loader.load([partition]).pointers]

    assert [pointer.content_digest for pointer in again] == [pointer.content_digest for pointer in first.pointers]
    assert pipeline.warehouse.with_spark() == shown
    assert pipeline.store().load_records() == records


def test_a_day_goes_to_another_schema_version_and_back_by_new_runs_only(pipeline: Pipeline) -> None:
    pipeline.warehouse.catalog = catalog(schema("2"), schema())
    versions = []
    for version, campaigns in (("1", (1, 2)), ("2", (1, 2, 3)), ("1", (7,)), ("2", ())):
        pipeline.publish(DAYS[0], rows(DAYS[0], *campaigns), schema_version=version)
        shown = pipeline.warehouse.with_spark()
        assert shown == pipeline.warehouse.without_jvm()
        assert [line["campaign_id"] for line in shown] == list(campaigns)
        assert {line["schema_version"] for line in shown} <= {version}
        versions.append(pipeline.store().load_records([DAYS[0]])[-1].schema_version)
    assert versions == ["1", "2", "1", "2"]
    table = pointer_table(pipeline.warehouse.layout, QUERY)
    assert table is not None
    assert table.version() == 3


def test_nothing_is_recorded_as_loaded_that_was_not_shown(pipeline: Pipeline, engine: Engine) -> None:
    pipeline.judge(pipeline.extract(DAYS[0], rows(DAYS[0], 1)))
    crashed = replace(pipeline.loader, publisher=replace(pipeline.warehouse.publisher, now=_crash))
    with pytest.raises(SystemExit):
        crashed.load([DAYS[0]])
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM load_record")).scalar_one() == 0
    assert pipeline.warehouse.content() == {}


def _ledger(pipeline: Pipeline) -> object:
    store = pipeline.store()
    return store.states(DAYS), store.open_demotions()


def _dies(_: object) -> None:
    raise PublishRefusedError("the storage is away")


def _crash() -> NoReturn:
    raise SystemExit(137)


_LOAD_ELSEWHERE = """
import os, sys
from pathlib import Path
from typing import NoReturn
from gads_assets.domain.roles import Role
from gads_assets.orchestration.workplace import open_session
from gads_assets.settings import read_settings
from gads_assets.state.connection import open_engine
from gads_assets_tests.integration.warehouse.test_loading import DAYS
from gads_assets_tests.pipelines import Pipeline
from gads_assets_tests.warehouses import Warehouse
root, url = sys.argv[1:]
session = open_session(read_settings(os.environ))
pipeline = Pipeline(Warehouse(spark=session, root=Path(root)), lambda role: open_engine(url, role))
for group in (DAYS[:3], DAYS[3:]):
    for pointer in pipeline.loader.load(group).pointers:
        print(pointer.content_digest)
session.stop()
"""
