"""What can be read of the past, and which pointers are shown of it."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from gads_assets.domain.keys import PartitionKey, RunId, StageId
from gads_assets.domain.pointer import Pointer, PointerStatus, current_pointers
from gads_assets.errors import ReadError
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.marks import READABLE_FROM
from gads_assets.warehouse.pointer_order import shown_sql
from gads_assets.warehouse.pointers import append_pointers, pointer_table
from gads_assets.warehouse.selection import Selection
from gads_assets.warehouse.snapshots import take_snapshot
from gads_assets_tests.sealed_runs import QUERY, catalog, key

KEYS = [key(day=f"2024-06-{day:02d}") for day in range(1, 26)]
POINTER = Pointer(
    key=KEYS[0],
    run_id=RunId("run"),
    stage_id=StageId("A"),
    schema_version="1",
    record_count=0,
    content_digest="",
    state_version=1,
    stage_commit=0,
    status=PointerStatus.ACTIVE,
    loaded_at=datetime(2024, 7, 1, tzinfo=UTC),
)


@pytest.fixture
def layout(tmp_path: Path) -> WarehouseLayout:
    return WarehouseLayout(root=str(tmp_path), source="google_ads")


def publish_empty_days(layout: WarehouseLayout, count: int) -> DeltaTable:
    """One commit a day."""
    for partition in KEYS[:count]:
        append_pointers(layout, QUERY, [replace(POINTER, key=partition)])
    table = pointer_table(layout, QUERY)
    assert table is not None
    return table


def committed(table: DeltaTable, version: int) -> datetime:
    [moment] = [commit["timestamp"] for commit in table.history() if commit["version"] == version]
    return datetime.fromtimestamp(moment / 1000, UTC)


def shown(layout: WarehouseLayout, as_of: int | datetime | None) -> set[PartitionKey]:
    return set(take_snapshot(layout, catalog(), QUERY, Selection(as_of=as_of)).keys)


def refusal(layout: WarehouseLayout, as_of: int | datetime) -> str:
    with pytest.raises(ReadError) as refused:
        take_snapshot(layout, catalog(), QUERY, Selection(as_of=as_of))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_before_the_first_publish_there_was_nothing_and_no_version(layout: WarehouseLayout) -> None:
    assert shown(layout, datetime.now(UTC)) == set()
    assert refusal(layout, 0) == "campaign has no pointer version 0: nothing of it was published yet"

    table = publish_empty_days(layout, 2)

    assert shown(layout, committed(table, 0) - timedelta(milliseconds=1)) == set()
    assert shown(layout, committed(table, 0)) == set(KEYS[:1])
    assert shown(layout, datetime.now(UTC)) == set(KEYS[:2])


def test_a_moment_is_found_however_many_commits_ago_it_was(layout: WarehouseLayout) -> None:
    for _ in range(2):
        table = publish_empty_days(layout, 25)
    assert shown(layout, committed(table, 3)) == set(KEYS[:4])


def test_what_is_still_to_come_is_refused(layout: WarehouseLayout) -> None:
    publish_empty_days(layout, 3)
    assert "is in the future; give one up to now, 2" in refusal(layout, datetime.now(UTC) + timedelta(minutes=1))
    assert "has no zone; give one, for example 2024-06-01T00:00:00+00:00" in refusal(layout, datetime(2024, 6, 1))  # noqa: DTZ001
    for version in (3, -1):
        assert refusal(layout, version) == (
            f"campaign cannot be read as of pointer version {version}: its readable pointer versions are 0 to 2; "
            "choose one of these"
        )


def test_a_version_whose_rows_may_be_collected_is_refused_naming_the_oldest_that_is_whole(
    layout: WarehouseLayout,
) -> None:
    table = publish_empty_days(layout, 4)
    mark = CommitProperties(app_transactions=[Transaction(app_id=READABLE_FROM, version=2)])
    write_deltalake(table, table.to_pyarrow_table().slice(length=0), mode="append", commit_properties=mark)

    assert shown(layout, 2) == set(KEYS[:3])
    assert "as of pointer version 1: its readable pointer versions are 2 to 4" in refusal(layout, 1)
    assert "(pointer version 1): its readable pointer versions are 2 to 4" in refusal(layout, committed(table, 1))


def test_a_version_of_which_delta_has_removed_the_log_is_refused(layout: WarehouseLayout) -> None:
    table = publish_empty_days(layout, 25)
    moments = {version: committed(table, version) for version in (1, 22)}
    log = Path(layout.pointers(QUERY)) / "_delta_log"
    assert list(log.glob("*.checkpoint.parquet"))
    for version in range(19):
        (log / f"{version:020d}.json").unlink()

    assert shown(layout, None) == set(KEYS)
    assert shown(layout, 22) == shown(layout, moments[22]) == set(KEYS[:23])
    for as_of in (1, moments[1]):
        assert "any more: Delta has removed that part of its log or its files; choose a later" in refusal(layout, as_of)


def test_a_version_of_which_delta_has_removed_the_files_is_refused(layout: WarehouseLayout) -> None:
    table = publish_empty_days(layout, 3)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    assert shown(layout, None) == set(KEYS[:3])
    assert "as of 1 any more: Delta has removed" in refusal(layout, 1)


POINTERS = st.builds(
    replace,
    st.just(POINTER),
    key=st.sampled_from(KEYS[:2]),
    run_id=st.sampled_from([RunId("run 1"), RunId("run 2")]),
    stage_id=st.sampled_from([StageId(letter) for letter in "ABC"]),
    state_version=st.integers(1, 3),
    status=st.sampled_from(PointerStatus),
)
# No two pointers of a partition are equally high: each stage and each tombstone has an id of its own.
HISTORIES = st.lists(
    POINTERS, min_size=1, max_size=8, unique_by=lambda pointer: (pointer.key, pointer.state_version, pointer.stage_id)
)


def shown_by_rule(history: Sequence[Pointer], then: int) -> set[tuple[PartitionKey, RunId]]:
    found = set()
    for pointer in current_pointers(history[:then]).values():
        own = [each for each in history if (each.key, each.run_id) == (pointer.key, pointer.run_id)]
        retracted = max(own, key=lambda each: each.order).status is PointerStatus.UNAVAILABLE
        if pointer.status is PointerStatus.ACTIVE and not retracted:
            found.add((pointer.key, pointer.run_id))
    return found


@settings(max_examples=20, deadline=None)
@given(HISTORIES)
def test_of_any_history_delta_rs_shows_the_highest_pointers_but_for_runs_retracted_since(
    history: list[Pointer],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layout = WarehouseLayout(root=folder, source="google_ads")
        for pointer in history:
            append_pointers(layout, QUERY, [pointer])
        for version in range(len(history)):
            snapshot = take_snapshot(layout, catalog(), QUERY, Selection(as_of=version))
            assert _found(snapshot.pointers) == shown_by_rule(history, version + 1)


@settings(max_examples=6, deadline=None)
@given(history=HISTORIES, data=st.data())
def test_of_any_history_spark_shows_the_same(spark: SparkSession, history: list[Pointer], data: st.DataObject) -> None:
    then = data.draw(st.integers(1, len(history)))
    for name, part in (("pointers_then", history[:then]), ("pointers_now", history)):
        spark.createDataFrame(_rows(part)).createOrReplaceTempView(name)
    rows = spark.sql(shown_sql("pointers_then", condition="true", newest="pointers_now"))
    assert _found(rows.toArrow()) == shown_by_rule(history, then)


def _rows(pointers: Iterable[Pointer]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "customer_id": pointer.key.customer_id,
                "logical_date": pointer.key.logical_date,
                "run_id": pointer.run_id,
                "stage_id": pointer.stage_id,
                "state_version": pointer.state_version,
                "status": pointer.status.value,
            }
            for pointer in pointers
        ]
    )


def _found(pointers: pa.Table) -> set[tuple[PartitionKey, RunId]]:
    return {
        (key(row["customer_id"], row["logical_date"].isoformat()), RunId(row["run_id"])) for row in pointers.to_pylist()
    }
