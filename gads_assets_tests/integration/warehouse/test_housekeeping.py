"""Housekeeping removes what nobody can need, never what somebody can, and may be killed at any moment."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from gads_assets.catalog.specification import Column
from gads_assets.cli.main import main
from gads_assets.domain.keys import PartitionKey, StageId
from gads_assets.domain.pointer import Authority, Pointer, PointerStatus, current_pointers
from gads_assets.domain.retention import Upkeep
from gads_assets.domain.roles import Role
from gads_assets.state.run_records import RunRecords
from gads_assets.warehouse.housekeeping import Housekeeper
from gads_assets.warehouse.marks import readable_from, times_collected
from gads_assets.warehouse.pointers import append_pointers, read_pointers
from gads_assets.warehouse.publishing import publishing_scope
from gads_assets.warehouse.reading import published_rows, register_views
from gads_assets_tests.integration.conftest import wait_until, waiting_for_locks
from gads_assets_tests.sealed_runs import COLUMNS, QUERY, catalog, key, row, schema, seal
from gads_assets_tests.warehouses import Warehouse, let_pass, many_pointers

RETENTION = 48
FIRST, SECOND = key(day="2024-06-01"), key(day="2024-06-02")
NOTHING = Upkeep(query_name=QUERY)
Acting = Callable[[Role], Engine]


@pytest.fixture
def housekeeper(warehouse: Warehouse, acting: Acting) -> Housekeeper:
    return Housekeeper(
        session=lambda: warehouse.spark,
        records=lambda: RunRecords(acting(Role.LOADER)),
        layout=warehouse.layout,
        catalog=warehouse.catalog,
        retention_hours=RETENTION,
        now=lambda: datetime.now(UTC),
    )


def publish(warehouse: Warehouse, *keys: PartitionKey, campaigns: int = 2) -> list[Authority]:
    runs = [seal(warehouse.sink, each, [row(each, number) for number in range(1, 1 + campaigns)]) for each in keys]
    authorities = warehouse.accept(*runs)
    warehouse.publisher.publish(QUERY, authorities)
    return authorities


def abandon(warehouse: Warehouse, *keys: PartitionKey) -> None:
    """Staged by a loader that is killed before its swap."""
    authorities = warehouse.accept(*(seal(warehouse.sink, each, [row(each, 77)]) for each in keys))
    with pytest.raises(SystemExit):
        warehouse.publisher.publish(QUERY, authorities, before_swap=_crash)


def stage(warehouse: Warehouse, version: str = "1") -> DeltaTable:
    return DeltaTable(warehouse.layout.stage(QUERY, version))


def pointers(warehouse: Warehouse, version: int | None = None) -> DeltaTable:
    return DeltaTable(warehouse.layout.pointers(QUERY), version=version)


def staged(warehouse: Warehouse) -> list[tuple[PartitionKey, StageId]]:
    rows = stage(warehouse).to_pyarrow_table().to_pylist()
    return sorted({(key(line["customer_id"], str(line["logical_date"])), line["stage_id"]) for line in rows})


def shown(warehouse: Warehouse, version: int | None = None) -> list[Pointer]:
    current = read_pointers(pointers(warehouse, version)).values()
    return sorted((each for each in current if each.status is PointerStatus.ACTIVE), key=lambda each: each.key)


def readable_versions_are_whole(warehouse: Warehouse) -> bool:
    """Every version that calls itself readable finds all rows of all its pointers."""
    rows = stage(warehouse).to_pyarrow_table().select(["customer_id", "logical_date", "stage_id"]).to_pylist()
    found = [(line["customer_id"], line["logical_date"], line["stage_id"]) for line in rows]
    now = pointers(warehouse)
    return all(
        found.count((each.key.customer_id, each.key.logical_date, each.stage_id)) == each.record_count
        for version in range(readable_from(now), now.version() + 1)
        for each in shown(warehouse, version)
    )


def on_disk(warehouse: Warehouse) -> dict[str, int]:
    files = [path for path in (warehouse.root / "warehouse").rglob("*") if path.is_file()]
    return {str(path): path.stat().st_mtime_ns for path in files}


def test_a_warehouse_that_was_never_published_to_has_nothing_to_tidy(housekeeper: Housekeeper) -> None:
    assert housekeeper.tidy(QUERY) == NOTHING


def test_replaced_rows_stay_for_the_retention_and_go_after_it(warehouse: Warehouse, housekeeper: Housekeeper) -> None:
    publish(warehouse, FIRST, SECOND)
    publish(warehouse, FIRST, campaigns=3)
    before = warehouse.content()
    warehouse.let_pass(RETENTION - 1)
    assert housekeeper.tidy(QUERY) == NOTHING
    assert len(staged(warehouse)) == 3

    warehouse.let_pass(2)

    assert housekeeper.tidy(QUERY) == replace(NOTHING, superseded=1, pointer_rows=1)
    assert staged(warehouse) == [(each.key, each.stage_id) for each in shown(warehouse)]
    assert warehouse.pointer_rows().num_rows == 2
    assert warehouse.content() == before
    assert readable_from(pointers(warehouse)) == 1
    assert readable_versions_are_whole(warehouse)


def test_rows_replaced_within_the_retention_can_be_read_as_of_then(
    warehouse: Warehouse, housekeeper: Housekeeper
) -> None:
    publish(warehouse, FIRST)
    publish(warehouse, FIRST)
    warehouse.let_pass(RETENTION + 1)
    publish(warehouse, FIRST)
    publish(warehouse, FIRST, SECOND)
    warehouse.let_pass(RETENTION - 1)

    assert housekeeper.tidy(QUERY) == replace(NOTHING, superseded=1, pointer_rows=1)

    assert readable_from(pointers(warehouse)) == 1
    assert [len(shown(warehouse, version)) for version in (1, 2, 3, 4)] == [1, 1, 2, 2]
    assert readable_versions_are_whole(warehouse)


def test_a_stage_that_no_pointer_names_goes_once_no_loader_can_name_it(
    warehouse: Warehouse, housekeeper: Housekeeper
) -> None:
    publish(warehouse, FIRST)
    abandon(warehouse, FIRST, SECOND)
    warehouse.let_pass(23)
    assert housekeeper.tidy(QUERY) == NOTHING

    warehouse.let_pass(2)
    abandon(warehouse, SECOND)

    assert housekeeper.tidy(QUERY) == replace(NOTHING, abandoned=2)
    assert len(staged(warehouse)) == 2
    assert len(warehouse.content()) == 1
    assert readable_from(pointers(warehouse)) == 0


def test_a_tombstone_stays_and_keeps_a_late_loader_from_bringing_rejected_rows_back(
    warehouse: Warehouse, housekeeper: Housekeeper
) -> None:
    rejected = publish(warehouse, FIRST)
    late = shown(warehouse)
    publish(warehouse, SECOND)
    warehouse.withdraw(rejected[0])
    warehouse.let_pass(RETENTION + 1)

    assert housekeeper.tidy(QUERY) == replace(NOTHING, superseded=1, pointer_rows=1)

    assert "keeps what it shows" in warehouse.publisher.publish(QUERY, rejected).refused[FIRST]
    append_pointers(warehouse.layout, QUERY, late)
    assert list(warehouse.content()) == [("1234567890", "2024-06-02")]
    assert housekeeper.tidy(QUERY) == replace(NOTHING, pointer_rows=1)
    assert warehouse.pointer_rows()["status"].to_pylist() == ["unavailable", "active"]


def test_each_deletion_is_counted_in_the_stage_table_and_staging_goes_on_after_it(
    warehouse: Warehouse, housekeeper: Housekeeper
) -> None:
    publish(warehouse, FIRST)
    for number in (1, 2):
        publish(warehouse, FIRST)
        warehouse.let_pass(RETENTION + 1)
        housekeeper.tidy(QUERY)
        assert times_collected(stage(warehouse)) == number

    publish(warehouse, FIRST, campaigns=5)

    assert len(warehouse.with_spark()) == 5


def test_the_second_run_removes_nothing_and_writes_nothing(warehouse: Warehouse, housekeeper: Housekeeper) -> None:
    publish(warehouse, FIRST)
    publish(warehouse, FIRST)
    warehouse.let_pass(RETENTION + 1)
    housekeeper.tidy(QUERY)
    files = on_disk(warehouse)

    assert replace(housekeeper, session=_crash, records=_crash).tidy(QUERY) == NOTHING

    assert on_disk(warehouse) == files


def test_a_dry_run_says_what_would_go_and_changes_nothing(warehouse: Warehouse, housekeeper: Housekeeper) -> None:
    publish(warehouse, FIRST)
    publish(warehouse, FIRST)
    abandon(warehouse, SECOND)
    warehouse.let_pass(RETENTION + 1)
    housekeeper.tidy(QUERY)
    publish(warehouse, FIRST)
    abandon(warehouse, FIRST)
    warehouse.let_pass(RETENTION + 2)
    files = on_disk(warehouse)

    dry = replace(housekeeper, session=_crash, records=_crash)
    [told] = list(dry.tidy_all(dry_run=True))

    assert on_disk(warehouse) == files
    assert told.reason is None
    assert told.upkeep.files > 0
    assert told.upkeep.bytes > 0
    assert told.upkeep == replace(
        NOTHING, superseded=1, abandoned=1, pointer_rows=1, files=told.upkeep.files, bytes=told.upkeep.bytes
    )
    before = {path for path in files if path.endswith(".parquet")}
    assert housekeeper.tidy(QUERY) == told.upkeep
    assert len(before - on_disk(warehouse).keys()) == told.upkeep.files


def test_a_run_that_is_killed_at_any_step_leaves_readers_what_they_had_and_the_next_one_does_the_rest(
    warehouse: Warehouse, housekeeper: Housekeeper
) -> None:
    publish(warehouse, FIRST)
    publish(warehouse, FIRST)
    warehouse.let_pass(RETENTION + 1)
    housekeeper.tidy(QUERY)
    publish(warehouse, FIRST)
    abandon(warehouse, SECOND)
    warehouse.let_pass(RETENTION + 2)
    stage_in_many_files(warehouse)
    before = warehouse.content()
    due = housekeeper.survey(QUERY)
    assert min(due.superseded, due.abandoned, due.pointer_rows, due.small_files, due.files) > 0

    left = []
    for steps_with_spark in (0, 1, 2):
        with pytest.raises(SystemExit):
            replace(housekeeper, session=killed_after(warehouse.spark, steps_with_spark)).tidy(QUERY)
        left.append(housekeeper.survey(QUERY))
        assert warehouse.content() == before
        assert readable_versions_are_whole(warehouse)
    housekeeper.tidy(QUERY)

    assert [each.pointer_rows for each in left] == [0, 0, 0]
    assert [each.superseded + each.abandoned for each in left] == [2, 0, 0]
    assert [each.small_files > 0 for each in left] == [True, True, False]
    assert [each.files > 0 for each in left] == [True, True, True]
    assert housekeeper.survey(QUERY) == NOTHING
    assert warehouse.content() == before
    assert readable_versions_are_whole(warehouse)


def stage_in_many_files(warehouse: Warehouse) -> None:
    """By a loader that has just begun, so that all of them stay for now."""
    uri = warehouse.layout.stage(QUERY, "1")
    rows = warehouse.spark.read.format("delta").load(uri).selectExpr("* EXCEPT (stage_id)", "'young' AS stage_id")
    many = rows.crossJoin(warehouse.spark.range(50)).drop("id").repartition(25)
    many.write.format("delta").mode("append").save(uri)


def killed_after(spark: SparkSession, steps: int) -> Callable[[], SparkSession]:
    numbers = count(1)
    return lambda: spark if next(numbers) <= steps else _crash()


def test_a_reader_that_looked_before_still_reads_everything_after(
    warehouse: Warehouse, housekeeper: Housekeeper
) -> None:
    publish(warehouse, FIRST)
    publish(warehouse, FIRST)
    warehouse.let_pass(RETENTION + 1)
    publish(warehouse, FIRST, SECOND, campaigns=3)
    with_spark = published_rows(warehouse.spark, warehouse.layout, warehouse.catalog, QUERY)
    register_views(warehouse.spark, warehouse.layout, warehouse.catalog)
    snapshots = [pointers(warehouse), stage(warehouse)]
    seen = [table.to_pyarrow_table().num_rows for table in snapshots]
    publish(warehouse, FIRST)
    warehouse.let_pass(RETENTION - 1)

    assert housekeeper.tidy(QUERY).superseded == 1

    assert len(with_spark.collect()) == 6
    assert [table.to_pyarrow_table().num_rows for table in snapshots] == seen

    warehouse.let_pass(RETENTION + 1)
    housekeeper.tidy(QUERY)
    # A view that was registered before its rows were collected has them still, or says that they are gone.
    assert warehouse.spark.sql(f"SELECT count(*) AS rows FROM google_ads.{QUERY}").collect()[0].rows == 6


def test_a_reader_keeps_a_version_of_weeks_ago_that_is_replaced_while_it_reads(warehouse: Warehouse) -> None:
    publish(warehouse, FIRST)
    warehouse.let_pass(50 * 24)
    rows = published_rows(warehouse.spark, warehouse.layout, warehouse.catalog, QUERY)

    publish(warehouse, FIRST, campaigns=5)

    assert len(rows.collect()) == 2


def test_many_small_files_of_pointers_are_brought_together_without_spark(
    warehouse: Warehouse, housekeeper: Housekeeper
) -> None:
    publish(warehouse, FIRST)
    [first] = shown(warehouse)
    for number in range(2, 22):
        other = replace(first.key, logical_date=date(2024, 1, number))
        append_pointers(warehouse.layout, QUERY, [replace(first, key=other, record_count=0)])
    before = shown(warehouse)

    assert replace(housekeeper, session=_crash).tidy(QUERY) == replace(NOTHING, small_files=21)

    assert len(pointers(warehouse).file_uris()) == 1
    assert shown(warehouse) == before
    assert readable_from(pointers(warehouse)) == 0
    assert readable_versions_are_whole(warehouse)


def test_files_go_once_no_version_within_the_retention_needs_them(
    warehouse: Warehouse, housekeeper: Housekeeper
) -> None:
    """And the versions that lose them no longer call themselves readable."""
    for _ in range(2):
        publish(warehouse, FIRST)
        publish(warehouse, FIRST)
        warehouse.let_pass(RETENTION + 2)
        housekeeper.tidy(QUERY)
        assert readable_versions_are_whole(warehouse)
    assert readable_from(pointers(warehouse)) > 1
    warehouse.let_pass(RETENTION + 2)
    due = housekeeper.survey(QUERY)
    assert due == replace(NOTHING, files=due.files, bytes=due.bytes)
    assert due.files > 0

    assert housekeeper.tidy(QUERY) == due

    kept = {Path(uri).name for table in (pointers(warehouse), stage(warehouse)) for uri in table.file_uris()}
    assert {Path(path).name for path in on_disk(warehouse) if path.endswith(".parquet")} == kept
    assert readable_versions_are_whole(warehouse)
    assert housekeeper.survey(QUERY) == NOTHING


def test_a_longer_retention_does_not_call_readable_what_is_gone(warehouse: Warehouse, housekeeper: Housekeeper) -> None:
    publish(warehouse, FIRST)
    publish(warehouse, FIRST)
    warehouse.let_pass(RETENTION + 1)
    publish(warehouse, FIRST)
    warehouse.let_pass(RETENTION + 1)
    housekeeper.tidy(QUERY)
    assert readable_from(pointers(warehouse)) == 2

    assert replace(housekeeper, retention_hours=2 * RETENTION).tidy(QUERY) == NOTHING

    assert readable_from(pointers(warehouse)) == 2


def test_the_tables_of_older_schema_versions_are_tidied_too(warehouse: Warehouse, housekeeper: Housekeeper) -> None:
    publish(warehouse, FIRST, SECOND)
    wider = schema("2", (*COLUMNS, Column(name="campaign_status", field="campaign.status", type="string")))
    warehouse.catalog = catalog(wider, schema())
    rows = [row(FIRST, 1, campaign_status="ENABLED")]
    warehouse.publisher.publish(
        QUERY, warehouse.accept(seal(warehouse.sink, FIRST, rows, schema_version="2", run_seq=2))
    )
    before = warehouse.content()
    warehouse.let_pass(RETENTION + 1)

    tidied = replace(housekeeper, catalog=catalog(wider)).tidy(QUERY)

    assert tidied == replace(NOTHING, superseded=1, pointer_rows=1)
    assert {each for each, _ in staged(warehouse)} == {SECOND}
    assert stage(warehouse, "2").to_pyarrow_table().num_rows == 1
    assert warehouse.content() == before


def test_a_pointer_appended_while_the_others_are_rewritten_stays(
    warehouse: Warehouse, housekeeper: Housekeeper
) -> None:
    """By a loader that lost its lock, after housekeeping has read the table."""
    publish(warehouse, FIRST)
    publish(warehouse, FIRST)
    warehouse.let_pass(RETENTION + 1)
    [current] = shown(warehouse)
    newer = replace(current, stage_id=StageId("7ZZZZZZZZZZZZZZZZZZZZZZZZZ"), state_version=99, record_count=0)
    moments = moments_with(lambda: append_pointers(warehouse.layout, QUERY, [newer]), at=3)

    assert replace(housekeeper, now=moments.__next__).tidy(QUERY).pointer_rows == 1

    assert shown(warehouse) == [newer]
    assert warehouse.pointer_rows().num_rows == 2


def moments_with(happening: Callable[[], object], *, at: int) -> Iterator[datetime]:
    for number in count(1):
        if number == at:
            happening()
        yield datetime.now(UTC)


def test_housekeeping_waits_for_a_publisher_and_for_another_housekeeping(
    warehouse: Warehouse, housekeeper: Housekeeper, acting: Acting, engine: Engine
) -> None:
    publish(warehouse, FIRST)
    publish(warehouse, FIRST)
    warehouse.let_pass(RETENTION + 1)
    done: list[Upkeep] = []
    both = [threading.Thread(target=lambda: done.append(housekeeper.tidy(QUERY))) for _ in range(2)]
    with RunRecords(acting(Role.LOADER)).exclusive(publishing_scope("google_ads", QUERY)):
        for each in both:
            each.start()
        wait_until(lambda: waiting_for_locks(engine, "advisory") == 2)
        assert warehouse.pointer_rows().num_rows == 2
    for each in both:
        each.join()

    assert sorted(each.pointer_rows for each in done) == [0, 1]
    assert warehouse.pointer_rows().num_rows == 1


def test_a_query_that_cannot_be_tidied_is_named_with_the_reason_in_one_line(
    warehouse: Warehouse, housekeeper: Housekeeper
) -> None:
    publish(warehouse, FIRST)
    log = Path(warehouse.layout.pointers(QUERY)) / "_delta_log" / f"{0:020d}.json"
    log.write_text('{"add": ')

    [told] = list(housekeeper.tidy_all())

    assert told.upkeep == NOTHING
    assert told.reason is not None
    assert told.reason.startswith(f"the table at {warehouse.layout.pointers(QUERY)} cannot be used (")
    assert "\n" not in told.reason


def test_the_command_removes_what_the_dry_run_named(
    warehouse: Warehouse, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of pointers alone: Spark is started only for what it must do."""
    rejected = warehouse.accept(seal(warehouse.sink, FIRST, []))
    for _ in range(2):
        warehouse.withdraw(rejected[0])
    warehouse.let_pass(8 * 24)
    monkeypatch.setenv("GADS_HOME", str(warehouse.root))
    monkeypatch.setenv("GRPC_VERBOSITY", "ERROR")  # main sets it, and no other test should find it set
    monkeypatch.setenv("GADS_DATABASE_URL", database_url)

    told = []
    for arguments in (["--dry-run"], [], []):
        monkeypatch.setattr(sys, "argv", ["gads", "housekeeping", "--json", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        found = json.loads(capsys.readouterr().out)["warehouse"]["queries"]
        told.append([(each["outcome"], each["pointer_rows"]) for each in found if each["query_name"] == QUERY])

    assert told == [[("due", 1)], [("tidied", 1)], [("tidy", 0)]]
    assert warehouse.pointer_rows().num_rows == 1


def test_of_a_hundred_thousand_pointers_exactly_the_current_ones_stay(
    warehouse: Warehouse, housekeeper: Housekeeper
) -> None:
    publish(warehouse, FIRST)
    uri, like = warehouse.layout.pointers(QUERY), warehouse.pointer_rows()
    for generation in range(4):
        for part in range(4):
            write_deltalake(uri, many_pointers(like, generation, part), mode="append")
    let_pass(Path(uri), RETENTION + 1)
    stored = pointers(warehouse)
    expected = current_pointers(read_pointers(stored).values())

    tidied = replace(housekeeper, session=_crash).tidy(QUERY)

    assert tidied == replace(NOTHING, pointer_rows=75_000)
    assert warehouse.pointer_rows().num_rows == 25_001
    assert read_pointers(pointers(warehouse)) == expected
    assert replace(housekeeper, session=_crash, records=_crash).tidy(QUERY) == NOTHING


def _crash() -> NoReturn:
    raise SystemExit(137)
