"""Whatever is selected, Spark and delta-rs give the same rows, and open no file that they do not need."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gads_assets.catalog.specification import Column
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.pointer import Authority
from gads_assets.errors import PartitionKeyError, ReadError
from gads_assets.warehouse import shown_rows
from gads_assets.warehouse.arrow import near
from gads_assets.warehouse.delta_tables import open_table
from gads_assets.warehouse.pointers import pointer_table
from gads_assets.warehouse.reading import are_registered, published_rows, register_views, rows_of
from gads_assets.warehouse.selection import EVERYTHING, Selection
from gads_assets.warehouse.snapshots import take_snapshot
from gads_assets_tests.integration.warehouse.independent_reader import read as read_independently
from gads_assets_tests.sealed_runs import COLUMNS, QUERY, catalog, key, row, schema, seal
from gads_assets_tests.warehouses import Warehouse

KEPT, REPLACED, RETRACTED, EMPTY = (key(day=f"2024-06-0{number}") for number in (1, 2, 3, 4))
ELSEWHERE, RESTORED = key("2222222222", "2024-06-01"), key("2222222222", "2024-06-02")

Shown = dict[PartitionKey, int]
"""Partition → the clicks of its rows, which differ from run to run."""


@dataclass
class History:
    """What was done to a warehouse, one pointer commit after the other, and what each version shows by now."""

    warehouse: Warehouse
    shown: list[Shown]

    def publish(self, clicks: int, *keys: PartitionKey, schema_version: str = "1") -> dict[PartitionKey, Authority]:
        columns = {"campaign_status": "ENABLED"} if schema_version == "2" else {}
        runs = [
            seal(
                self.warehouse.sink,
                partition,
                [row(partition, campaign, metrics_clicks=clicks, **columns) for campaign in (1, 2) if clicks],
                schema_version=schema_version,
            )
            for partition in keys
        ]
        authorities = self.warehouse.accept(*runs)
        self.warehouse.publisher.publish(QUERY, authorities)
        return {authority.key: authority for authority in authorities}

    def committed(self, version: int) -> datetime:
        table = pointer_table(self.warehouse.layout, QUERY)
        assert table is not None
        [moment] = [commit["timestamp"] for commit in table.history() if commit["version"] == version]
        return datetime.fromtimestamp(moment / 1000, UTC)


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    wider = schema("2", (*COLUMNS, Column(name="campaign_status", field="campaign.status", type="string")))
    warehouse = Warehouse(spark=spark, root=tmp_path_factory.mktemp("history"), catalog=catalog(wider, schema()))
    history = History(warehouse=warehouse, shown=[])
    first = history.publish(1, KEPT, REPLACED, RETRACTED, ELSEWHERE)
    restored = warehouse.accept(seal(warehouse.sink, RESTORED, [row(RESTORED, 1, metrics_clicks=9)]))[0]
    warehouse.publisher.publish(QUERY, [restored])
    history.publish(2, REPLACED, schema_version="2")
    history.publish(0, EMPTY)
    warehouse.withdraw(first[RETRACTED])
    warehouse.withdraw(restored)
    warehouse.publisher.publish(QUERY, [replace(restored, state_version=warehouse.versions())])
    then = {KEPT: 1, REPLACED: 1, ELSEWHERE: 1}
    now = {**then, REPLACED: 2}
    history.shown = [then, {**then, RESTORED: 9}, *[{**now, RESTORED: 9}] * 3, now, {**now, RESTORED: 9}]
    return history


def clicks_shown(history: History, selection: Selection) -> Shown:
    """What both readers show, whose rows are equal to the last column."""
    shown: dict[tuple[str, str], set[object]] = {
        place: {clicks for _, clicks in rows} for place, rows in history.warehouse.content(selection).items()
    }
    assert all(len(clicks) == 1 for clicks in shown.values())
    return {key(*place): int(str(clicks.pop())) for place, clicks in shown.items()}


SELECTIONS: Mapping[str, tuple[Selection, Callable[[PartitionKey], bool]]] = {
    "everything": (EVERYTHING, lambda _: True),
    "a customer": (Selection(customers=[ELSEWHERE.customer_id]), lambda key: key.customer_id == ELSEWHERE.customer_id),
    "a customer as people write it": (
        Selection(customers=[CustomerId("222-222-2222")]),
        lambda key: key.customer_id == ELSEWHERE.customer_id,
    ),
    "days with a gap": (
        Selection(days=[KEPT.logical_date, RETRACTED.logical_date, EMPTY.logical_date]),
        lambda key: key.logical_date.day in {1, 3, 4},
    ),
    "a customer's day": (
        Selection(customers=[KEPT.customer_id], days=[REPLACED.logical_date]),
        lambda key: key == REPLACED,
    ),
    "partitions that are no rectangle": (
        Selection(partitions=[KEPT, RESTORED, EMPTY]),
        lambda key: key in {KEPT, RESTORED},
    ),
    "partitions of a customer": (
        Selection(partitions=[KEPT, RESTORED], customers=[KEPT.customer_id]),
        lambda key: key == KEPT,
    ),
    "no customers": (Selection(customers=[]), lambda _: False),
    "no days": (Selection(days=[]), lambda _: False),
    "no partitions": (Selection(partitions=[]), lambda _: False),
    "a customer that is not there": (Selection(customers=[CustomerId("9999999999")]), lambda _: False),
    "the older schema version": (EVERYTHING.for_version("1"), lambda key: key != REPLACED),
    "a day of the newer schema version": (
        Selection(days=[REPLACED.logical_date]).for_version("2"),
        lambda key: key == REPLACED,
    ),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_spark_and_delta_rs_read_the_same_rows_of_a_selection(history: History, name: str) -> None:
    selection, selected = SELECTIONS[name]
    expected = {key: clicks for key, clicks in history.shown[-1].items() if selected(key)}
    assert clicks_shown(history, selection) == expected


@pytest.mark.parametrize(
    "name", ["everything", "partitions that are no rectangle", "a day of the newer schema version"]
)
def test_rows_that_no_short_condition_tells_from_the_others_are_the_same(
    history: History, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_rows, "MOST_PIECES", -1)
    test_spark_and_delta_rs_read_the_same_rows_of_a_selection(history, name)
    selection, _ = SELECTIONS[name]
    then = replace(selection, as_of=1)
    assert history.warehouse.with_spark(then) == history.warehouse.without_jvm(then)


def test_what_was_shown_then_is_read_by_version_and_by_time_without_what_was_retracted_since(history: History) -> None:
    days = {REPLACED.logical_date}
    for version, shown in enumerate(history.shown):
        assert clicks_shown(history, Selection(as_of=version)) == shown, version
        assert clicks_shown(history, Selection(as_of=history.committed(version), days=days)) == {
            key: clicks for key, clicks in shown.items() if key.logical_date in days
        }
    assert clicks_shown(history, Selection(as_of=1).for_version("2")) == {}


def test_a_schema_version_is_read_with_its_own_columns(history: History) -> None:
    warehouse = history.warehouse
    own = ["customer_id", "logical_date", "run_id", "schema_version", *(column.name for column in COLUMNS[1:])]
    rows = published_rows(warehouse.spark, warehouse.layout, warehouse.catalog, QUERY, EVERYTHING.for_version("1"))
    assert rows.columns == own
    assert set(own) < set(warehouse.with_spark()[0])
    for reader in (warehouse.with_spark, warehouse.without_jvm):
        with pytest.raises(ReadError, match="campaign has no schema version 3 in this catalog; it has 1, 2"):
            reader(EVERYTHING.for_version("3"))


def test_what_is_no_customer_is_refused_before_it_is_part_of_a_statement(history: History) -> None:
    for reader in (history.warehouse.with_spark, history.warehouse.without_jvm):
        with pytest.raises(PartitionKeyError, match="is not ten digits"):
            reader(Selection(customers=[CustomerId("1' OR '1' = '1")]))


def test_a_snapshot_knows_a_published_day_without_rows_from_one_that_is_not_published(history: History) -> None:
    wanted = Selection(partitions=[KEPT, EMPTY, RETRACTED, key(day="2024-06-09")])
    snapshot = take_snapshot(history.warehouse.layout, history.warehouse.catalog, QUERY, wanted)
    assert snapshot.keys == {KEPT, EMPTY}


def test_an_independent_reader_of_the_documented_layout_sees_what_ours_see(history: History) -> None:
    found = read_independently(Path(history.warehouse.layout.pointers(QUERY)).parent)
    ours = history.warehouse.without_jvm()
    assert ours == history.warehouse.with_spark()
    assert sorted(({"campaign_status": None} | line for line in found), key=_place) == sorted(ours, key=_place)
    assert {line["schema_version"] for line in ours} == {"1", "2"}


def _place(line: Mapping[str, object]) -> tuple[str, ...]:
    return str(line["customer_id"]), str(line["logical_date"]), str(line["campaign_id"])


CUSTOMERS = [CustomerId(f"{number}000000000") for number in (1, 2, 3)]
DAYS = [date(2024, 6, day) for day in (1, 2)]


@pytest.fixture(scope="module")
def one_file_a_partition(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(spark=spark, root=tmp_path_factory.mktemp("files"))
    partitions = [key(customer, day.isoformat()) for customer in CUSTOMERS for day in DAYS]
    runs = [seal(warehouse.sink, partition, [row(partition, 1)]) for partition in partitions]
    for authority in warehouse.accept(*runs):
        warehouse.publisher.publish(QUERY, [authority])
    return warehouse


@contextmanager
def only_files(warehouse: Warehouse, names: Collection[str]) -> Iterator[None]:
    """Whoever opens another one meanwhile fails."""
    hidden = [file for file in Path(warehouse.layout.stage(QUERY, "1")).glob("*.parquet") if file.name not in names]
    for file in hidden:
        file.rename(file.with_suffix(".hidden"))
    yield
    for file in hidden:
        file.with_suffix(".hidden").rename(file)


@pytest.mark.parametrize(
    ("selection", "files"),
    [
        (EVERYTHING, 6),
        (Selection(customers=CUSTOMERS[:1]), 2),
        (Selection(days=DAYS[1:]), 3),
        (Selection(customers=CUSTOMERS[1:2], days=DAYS[:1]), 1),
        (Selection(partitions=[key(CUSTOMERS[2], DAYS[0].isoformat())]), 1),
    ],
)
def test_only_the_files_of_the_selected_customers_and_days_are_opened(
    one_file_a_partition: Warehouse, selection: Selection, files: int
) -> None:
    warehouse = one_file_a_partition
    rows = published_rows(warehouse.spark, warehouse.layout, warehouse.catalog, QUERY, selection)
    by_spark = {Path(file).name for file in rows.inputFiles() if "/stage_v1/" in file}
    assert len(by_spark) == files

    stage = open_table(warehouse.layout.stage(QUERY, "1")).to_pyarrow_dataset()
    pointers = take_snapshot(warehouse.layout, warehouse.catalog, QUERY, selection).pointers
    assert {Path(fragment.path).name for fragment in stage.get_fragments(filter=near(pointers))} == by_spark

    with only_files(warehouse, by_spark):
        assert len(warehouse.content(selection)) == files


def test_a_view_opens_only_the_files_of_the_customers_and_days_that_a_statement_asks_for(
    one_file_a_partition: Warehouse,
) -> None:
    warehouse = one_file_a_partition
    register_views(warehouse.spark, warehouse.layout, warehouse.catalog)
    for condition, files in (
        (f"customer_id = '{CUSTOMERS[0]}'", 2),
        (f"logical_date >= DATE '{DAYS[1]}'", 3),
        (f"customer_id IN ('{CUSTOMERS[2]}') AND logical_date = '{DAYS[0]}'", 1),
    ):
        rows = warehouse.spark.sql(f"SELECT * FROM google_ads.{QUERY} WHERE {condition}")
        assert sum("/stage_v1/" in file for file in rows.inputFiles()) == files
        assert rows.count() == files


def test_a_view_shows_one_snapshot_until_it_is_registered_again_and_its_registration_can_be_told(
    history: History,
) -> None:
    warehouse = history.warehouse
    count = f"SELECT count(*) AS rows FROM google_ads.{QUERY}"
    now = register_views(warehouse.spark, warehouse.layout, warehouse.catalog)
    shown = warehouse.spark.sql(count).collect()[0].rows
    assert shown == len(warehouse.without_jvm())
    assert are_registered(warehouse.spark, [f"google_ads.{QUERY}"], now)

    then = register_views(warehouse.spark, warehouse.layout, warehouse.catalog, as_of=history.committed(0))

    assert warehouse.spark.sql(count).collect()[0].rows == len(warehouse.without_jvm(Selection(as_of=0))) < shown
    assert are_registered(warehouse.spark, [f"google_ads.{QUERY}"], then)
    assert not are_registered(warehouse.spark, [f"google_ads.{QUERY}"], now)


def test_no_partition_is_lost_whichever_batches_the_snapshot_came_in(history: History) -> None:
    """Spark takes an Arrow table up to its first empty batch."""
    warehouse = history.warehouse
    whole = take_snapshot(warehouse.layout, warehouse.catalog, QUERY, Selection(partitions=[KEPT, ELSEWHERE]))
    batches = [whole.pointers.slice(0, 1), whole.pointers.slice(0, 0), whole.pointers.slice(1)]
    rows = rows_of(warehouse.spark, replace(whole, pointers=pa.concat_tables(batches)))
    assert {each.customer_id for each in rows.collect()} == {KEPT.customer_id, ELSEWHERE.customer_id}
