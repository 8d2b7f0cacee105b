from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from deltalake import DeltaTable
from ulid import ULID

from gads_assets.catalog.specification import Column
from gads_assets.domain.keys import PartitionKey, StageId
from gads_assets.domain.manifest import RunManifest
from gads_assets.errors import StagedRowsError, WarehouseError
from gads_assets.warehouse import staging
from gads_assets.warehouse.delta_tables import sql_name
from gads_assets.warehouse.marks import COLLECTED, times_collected
from gads_assets.warehouse.pointers import append_pointers
from gads_assets_tests.sealed_runs import COLUMNS, QUERY, catalog, key, row, schema, seal
from gads_assets_tests.warehouses import Warehouse


def _rows(partition: PartitionKey, *campaigns: int, clicks: int = 1) -> list[dict[str, object]]:
    return [row(partition, campaign, metrics_clicks=clicks) for campaign in campaigns]


def test_nothing_is_read_before_the_first_publish(warehouse: Warehouse) -> None:
    assert warehouse.content() == {}


def test_a_batch_is_published_in_one_pointer_commit_and_every_reader_sees_the_sealed_rows(warehouse: Warehouse) -> None:
    keys = [key(customer, day) for customer in ("1111111111", "2222222222") for day in ("2024-06-01", "2024-06-02")]
    runs = [seal(warehouse.sink, partition, _rows(partition, 1, 2)) for partition in keys]

    published = warehouse.publisher.publish(QUERY, warehouse.accept(*runs))

    assert published.pointer_version == 0
    assert len(published.pointers) == 4
    assert warehouse.content() == {
        (partition.customer_id, str(partition.logical_date)): [(1, 1), (2, 1)] for partition in keys
    }
    assert {line["run_id"] for line in warehouse.with_spark()} == {run.run_id for run in runs}


def test_a_large_batch_is_staged_in_one_commit_of_several_files_each_with_a_range_of_the_key(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "ROWS_PER_FILE", 4)
    keys = [key(customer, f"2024-06-0{day}") for customer in ("1111111111", "2222222222") for day in (1, 2, 3)]
    runs = [seal(warehouse.sink, partition, _rows(partition, 1, 2)) for partition in keys]

    warehouse.publisher.publish(QUERY, warehouse.accept(*runs))

    stage = DeltaTable(warehouse.layout.stage(QUERY, "1"))
    files = stage.get_add_actions(flatten=True)
    days = [str(day) for day in files["min.logical_date"].to_pylist()]
    assert sorted(days) == ["2024-06-01", "2024-06-02", "2024-06-03"]
    assert days == [str(day) for day in files["max.logical_date"].to_pylist()]
    assert stage.version() == 1
    assert len(warehouse.content()) == 6


def test_an_empty_day_is_published_as_a_pointer_without_rows(warehouse: Warehouse) -> None:
    run = seal(warehouse.sink, key(), [])

    published = warehouse.publisher.publish(QUERY, warehouse.accept(run))

    assert [pointer.record_count for pointer in published.pointers] == [0]
    assert warehouse.content() == {}


def test_a_new_run_replaces_every_row_of_its_partition_and_no_other(warehouse: Warehouse) -> None:
    first, other = key(day="2024-06-01"), key(day="2024-06-02")
    before = [seal(warehouse.sink, partition, _rows(partition, 1, 2, 3)) for partition in (first, other)]
    warehouse.publisher.publish(QUERY, warehouse.accept(*before))
    again = seal(warehouse.sink, first, _rows(first, 2, 9, clicks=7), run_seq=2)

    warehouse.publisher.publish(QUERY, warehouse.accept(again))

    assert warehouse.content() == {
        ("1234567890", "2024-06-01"): [(2, 7), (9, 7)],
        ("1234567890", "2024-06-02"): [(1, 1), (2, 1), (3, 1)],
    }


def test_publishing_the_same_run_again_appends_nothing(warehouse: Warehouse) -> None:
    authorities = warehouse.accept(seal(warehouse.sink, key(), _rows(key(), 1)))
    first = warehouse.publisher.publish(QUERY, authorities)

    again = warehouse.publisher.publish(QUERY, authorities)

    assert again.pointers == first.pointers
    assert again.pointer_version == first.pointer_version
    assert warehouse.pointer_rows().num_rows == 1


def test_a_late_loader_cannot_overrule_a_newer_authority(warehouse: Warehouse) -> None:
    old = warehouse.accept(seal(warehouse.sink, key(), _rows(key(), 1, clicks=1)))
    new = warehouse.accept(seal(warehouse.sink, key(), _rows(key(), 1, clicks=2), run_seq=2))
    warehouse.publisher.publish(QUERY, new)

    other = warehouse.accept(seal(warehouse.sink, key(day="2024-06-02"), []))

    published = warehouse.publisher.publish(QUERY, [*old, *other])

    assert [pointer.key for pointer in published.pointers] == [other[0].key]
    assert list(published.refused) == [key()]
    assert "shows a newer state of it than the database has" in published.refused[key()]
    assert warehouse.pointer_rows().num_rows == 2
    assert warehouse.content() == {("1234567890", "2024-06-01"): [(1, 2)]}


def test_a_loader_that_looked_before_the_newer_swap_still_loses_to_it(warehouse: Warehouse) -> None:
    old = warehouse.accept(seal(warehouse.sink, key(), _rows(key(), 1, clicks=1)))
    slow = warehouse.publisher.publish(QUERY, old).pointers
    new = warehouse.accept(seal(warehouse.sink, key(), _rows(key(), 1, clicks=2), run_seq=2))
    warehouse.publisher.publish(QUERY, new)

    append_pointers(warehouse.layout, QUERY, slow)

    assert warehouse.content() == {("1234567890", "2024-06-01"): [(1, 2)]}


def test_rows_of_an_unnamed_stage_are_invisible(warehouse: Warehouse) -> None:
    authorities = warehouse.accept(seal(warehouse.sink, key(), _rows(key(), 1)))
    crashed = replace(warehouse.publisher, now=_crash)
    with pytest.raises(SystemExit):
        crashed.publish(QUERY, authorities)
    assert warehouse.content() == {}

    warehouse.publisher.publish(QUERY, authorities)

    assert warehouse.content() == {("1234567890", "2024-06-01"): [(1, 1)]}


def test_content_that_changed_since_it_was_judged_is_not_published(warehouse: Warehouse) -> None:
    partition = key()
    run = seal(warehouse.sink, partition, _rows(partition, 1))
    authorities = warehouse.accept(run)
    payload = Path(warehouse.sink.payload_uris(run)[0])
    other = seal(warehouse.sink, partition, _rows(partition, 1, clicks=99))
    payload.write_bytes(Path(warehouse.sink.payload_uris(other)[0]).read_bytes())

    published = warehouse.publisher.publish(QUERY, authorities)

    assert published.pointers == ()
    assert "not what the validator saw" in published.refused[partition]
    assert warehouse.content() == {}


def _exchanged(payload: Path, warehouse: Warehouse, run: RunManifest) -> None:
    other = seal(warehouse.sink, run.key, _rows(run.key, 1, clicks=99))
    payload.write_bytes(Path(warehouse.sink.payload_uris(other)[0]).read_bytes())


def _cut_short(payload: Path, warehouse: Warehouse, run: RunManifest) -> None:
    payload.write_bytes(payload.read_bytes()[:-12])


def _deleted(payload: Path, warehouse: Warehouse, run: RunManifest) -> None:
    payload.unlink()


def _unsealed(payload: Path, warehouse: Warehouse, run: RunManifest) -> None:
    (payload.parent / "metadata.json").unlink()


@pytest.mark.parametrize("spoil", [_exchanged, _cut_short, _deleted, _unsealed])
def test_a_run_that_was_spoiled_after_it_was_judged_is_left_out_and_holds_back_no_other(
    warehouse: Warehouse, spoil: Callable[[Path, Warehouse, RunManifest], None]
) -> None:
    """Two schema versions, of which only one has the spoiled run, and a day without rows."""
    warehouse.catalog = catalog(schema("2"), schema())
    days = [key(day=f"2024-06-0{number}") for number in range(1, 6)]
    runs = [
        seal(warehouse.sink, day, _rows(day, 1), schema_version=version)
        for day, version in zip(days, "11122", strict=True)
    ]
    empty = seal(warehouse.sink, key(day="2024-06-06"), [])
    authorities = warehouse.accept(*runs, empty)
    spoil(Path(warehouse.sink.payload_uris(runs[1])[0]), warehouse, runs[1])

    published = warehouse.publisher.publish(QUERY, authorities)

    assert list(published.refused) == [days[1]]
    assert [pointer.key for pointer in published.pointers] == [days[0], *days[2:], empty.key]
    assert warehouse.pointer_rows().num_rows == 5
    assert warehouse.content() == {(day.customer_id, str(day.logical_date)): [(1, 1)] for day in days if day != days[1]}


def test_a_partition_that_readers_see_already_stays_as_it_is_when_its_replacement_is_spoiled(
    warehouse: Warehouse,
) -> None:
    warehouse.publisher.publish(QUERY, warehouse.accept(seal(warehouse.sink, key(), _rows(key(), 1))))
    again = seal(warehouse.sink, key(), _rows(key(), 2), run_seq=2)
    authorities = warehouse.accept(again)
    _deleted(Path(warehouse.sink.payload_uris(again)[0]), warehouse, again)

    assert list(warehouse.publisher.publish(QUERY, authorities).refused) == [key()]

    assert warehouse.content() == {("1234567890", "2024-06-01"): [(1, 1)]}


def test_a_loader_whose_stage_was_collected_publishes_nothing(warehouse: Warehouse) -> None:
    authorities = warehouse.accept(seal(warehouse.sink, key(), _rows(key(), 1)))

    with pytest.raises(StagedRowsError, match="collected as abandoned; run it again"):
        warehouse.publisher.publish(QUERY, authorities, before_swap=lambda: _collect(warehouse, rows="true"))
    assert warehouse.content() == {}

    published = warehouse.publisher.publish(
        QUERY, authorities, before_swap=lambda: _collect(warehouse, rows="stage_id = 'of another'")
    )
    assert [pointer.key for pointer in published.pointers] == [key()]
    assert warehouse.content() == {("1234567890", "2024-06-01"): [(1, 1)]}


def _collect(warehouse: Warehouse, *, rows: str) -> None:
    """As housekeeping does: the mark, then the rows."""
    uri = warehouse.layout.stage(QUERY, "1")
    mark = times_collected(DeltaTable(uri)) + 1
    nothing = warehouse.spark.read.format("delta").load(uri).limit(0)
    nothing.write.format("delta").mode("append").options(txnAppId=COLLECTED, txnVersion=mark).save(uri)
    warehouse.spark.sql(f"DELETE FROM {sql_name(uri)} WHERE {rows}")


def test_a_withdrawn_partition_vanishes_for_every_reader_and_a_newer_run_brings_it_back(warehouse: Warehouse) -> None:
    authorities = warehouse.accept(seal(warehouse.sink, key(), _rows(key(), 1)))
    warehouse.publisher.publish(QUERY, authorities)

    warehouse.withdraw(authorities[0])

    assert warehouse.content() == {}
    assert "keeps what it shows" in warehouse.publisher.publish(QUERY, authorities).refused[key()]
    assert warehouse.content() == {}
    warehouse.publisher.publish(QUERY, warehouse.accept(seal(warehouse.sink, key(), _rows(key(), 5), run_seq=2)))
    assert warehouse.content() == {("1234567890", "2024-06-01"): [(5, 1)]}


def test_a_loader_that_comes_after_the_withdrawal_of_a_day_never_published_shows_nothing(warehouse: Warehouse) -> None:
    authorities = warehouse.accept(seal(warehouse.sink, key(), _rows(key(), 1)))

    warehouse.publisher.publish(QUERY, authorities, before_swap=lambda: warehouse.withdraw(authorities[0]))

    assert warehouse.pointer_rows().num_rows == 2
    assert warehouse.content() == {}


def test_a_query_of_which_everything_was_withdrawn_before_it_was_shown_reads_as_empty(warehouse: Warehouse) -> None:
    warehouse.withdraw(warehouse.accept(seal(warehouse.sink, key(), []))[0])
    assert warehouse.content() == {}


def test_a_loader_that_may_not_swap_publishes_nothing(warehouse: Warehouse) -> None:
    authorities = warehouse.accept(seal(warehouse.sink, key(), _rows(key(), 1)))
    with pytest.raises(SystemExit):
        warehouse.publisher.publish(QUERY, authorities, before_swap=_crash)
    assert warehouse.content() == {}


def test_a_checkpoint_that_fails_after_the_commit_does_not_make_a_publish_fail(warehouse: Warehouse) -> None:
    authorities = warehouse.accept(seal(warehouse.sink, key(), _rows(key(), 1)))
    [pointer] = warehouse.publisher.publish(QUERY, authorities).pointers
    log = Path(warehouse.layout.pointers(QUERY)) / "_delta_log"
    (log / "_last_checkpoint").mkdir()
    versions = [
        append_pointers(
            warehouse.layout, QUERY, [replace(pointer, state_version=number, stage_id=StageId(str(ULID())))]
        )
        for number in range(2, 25)
    ]
    assert versions == list(range(1, 24))
    assert list(log.glob("*.checkpoint.parquet"))


def test_a_damaged_pointer_log_is_said_in_one_line(warehouse: Warehouse) -> None:
    warehouse.publisher.publish(QUERY, warehouse.accept(seal(warehouse.sink, key(), [])))
    log = Path(warehouse.layout.pointers(QUERY)) / "_delta_log" / f"{0:020d}.json"
    log.write_text('{"add": ')
    with pytest.raises(WarehouseError, match=r"^the table at .* cannot be used \(.*\); mend the storage") as refused:
        warehouse.content()
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_schema_versions_are_kept_apart_and_read_together(warehouse: Warehouse) -> None:
    old, new = key(day="2024-06-01"), key(day="2024-06-02")
    warehouse.publisher.publish(QUERY, warehouse.accept(seal(warehouse.sink, old, _rows(old, 1))))
    wider = schema("2", (*COLUMNS, Column(name="campaign_status", field="campaign.status", type="string")))
    warehouse.catalog = catalog(wider, schema())
    rows = [row(new, 1, metrics_clicks=1, campaign_status="ENABLED")]

    warehouse.publisher.publish(QUERY, warehouse.accept(seal(warehouse.sink, new, rows, schema_version="2")))

    assert warehouse.with_spark() == warehouse.without_jvm()
    assert [(line["schema_version"], line["campaign_status"]) for line in warehouse.with_spark()] == [
        ("1", None),
        ("2", "ENABLED"),
    ]


def _crash() -> NoReturn:
    raise SystemExit(137)
