"""Whoever reads the published tables reads all of what is published, or is told why not."""

import base64
from datetime import date
from pathlib import Path

import pytest

from gads_assets.catalog.specification import Catalog, Column
from gads_assets.domain.keys import PartitionKey
from gads_assets.errors import ReadError
from gads_assets.warehouse.arrow import read_first_rows, read_published
from gads_assets.warehouse.reading import published_rows
from gads_assets.warehouse.selection import Selection
from gads_assets_tests.sealed_runs import COLUMNS, QUERY, catalog, key, row, schema, seal
from gads_assets_tests.warehouses import Warehouse

VALUES: dict[str, object] = {
    "bigint": 2**40,
    "int": 7,
    "double": 0.25,
    "boolean": True,
    "string": "Größe",
    "date": date(2024, 5, 31),
    "binary": b"\x00\xff",
}
FIRST, SECOND = key(day="2024-06-01"), key(day="2024-06-02")
ELSEWHERE = key("2222222222", "2024-06-01")


def publish(warehouse: Warehouse, *keys: PartitionKey, schema_version: str = "1", campaigns: int = 2) -> None:
    """One batch; a partition published again gets its rows anew, in another stage."""
    runs = [
        seal(
            warehouse.sink,
            partition,
            [row(partition, campaign) for campaign in range(1, 1 + campaigns)],
            schema_version=schema_version,
        )
        for partition in keys
    ]
    warehouse.publisher.publish(QUERY, warehouse.accept(*runs))


def remove_staged_file(warehouse: Warehouse, number: int) -> None:
    """Whoever opens it from now on fails."""
    staged = Path(warehouse.layout.stage(QUERY, "1")).glob("*.parquet")
    sorted(staged, key=lambda file: file.stat().st_mtime_ns)[number].unlink()


def one_newer_version(warehouse: Warehouse) -> Catalog:
    """The second of three partitions is published under version 2; what is returned knows version 1 only."""
    warehouse.catalog = catalog(schema("2"), schema("1"))
    publish(warehouse, FIRST, ELSEWHERE)
    publish(warehouse, SECOND, schema_version="2")
    return catalog(schema("1"))


def test_columns_of_every_type_and_lists_of_them_are_read_alike_with_and_without_a_jvm(warehouse: Warehouse) -> None:
    plain = [Column(name=f"campaign_a_{name}", field=f"campaign.a_{name}", type=name) for name in VALUES]
    lists = [Column(name=f"campaign_of_{name}", field=f"campaign.of_{name}", type=f"array<{name}>") for name in VALUES]
    warehouse.catalog = catalog(schema("1", (*COLUMNS, *plain, *lists)))
    given = {column.name: VALUES[column.type] for column in plain}
    given |= {f"campaign_of_{name}": [value, value] for name, value in VALUES.items()}
    written = {name: _as_json(value) for name, value in given.items()}
    nothing = dict.fromkeys(given)
    rows = [row(FIRST, 1, **written), row(FIRST, 2, **nothing), row(FIRST, 3, **{**nothing, "campaign_of_string": []})]

    warehouse.publisher.publish(QUERY, warehouse.accept(seal(warehouse.sink, FIRST, rows)))

    read = warehouse.without_jvm()
    assert read == warehouse.with_spark()
    assert read[0].items() >= given.items()
    assert {read[1][name] for name in given} == {None}
    assert read[2]["campaign_of_string"] == []


def _as_json(value: object) -> object:
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date) else value


def test_a_customer_is_read_without_opening_the_files_of_others(warehouse: Warehouse) -> None:
    publish(warehouse, FIRST)
    publish(warehouse, ELSEWHERE)
    remove_staged_file(warehouse, 0)

    rows = read_published(warehouse.layout, warehouse.catalog, QUERY, Selection(customers={ELSEWHERE.customer_id}))

    assert rows["campaign_id"].to_pylist() == [1, 2]


def test_what_was_published_again_is_read_without_opening_what_it_replaced(warehouse: Warehouse) -> None:
    publish(warehouse, FIRST)
    publish(warehouse, SECOND)
    publish(warehouse, SECOND)
    remove_staged_file(warehouse, 1)

    assert read_published(warehouse.layout, warehouse.catalog, QUERY).num_rows == 4


def test_superseded_rows_between_those_asked_for_are_left_out(warehouse: Warehouse) -> None:
    publish(warehouse, FIRST)
    publish(warehouse, FIRST, SECOND, ELSEWHERE, campaigns=3)
    publish(warehouse, SECOND)

    selection = Selection(customers={FIRST.customer_id}, days={FIRST.logical_date})
    rows = read_published(warehouse.layout, warehouse.catalog, QUERY, selection)
    assert rows["campaign_id"].to_pylist() == [1, 2, 3]
    assert {place: len(found) for place, found in warehouse.content().items()} == {
        ("1234567890", "2024-06-01"): 3,
        ("1234567890", "2024-06-02"): 2,
        ("2222222222", "2024-06-01"): 3,
    }


def test_the_first_rows_of_a_pointer_are_those_of_its_own_stage(warehouse: Warehouse) -> None:
    publish(warehouse, FIRST, ELSEWHERE, campaigns=9)
    runs = [seal(warehouse.sink, FIRST, [row(FIRST, campaign) for campaign in (21, 22, 23, 24)])]
    published = warehouse.publisher.publish(QUERY, warehouse.accept(*runs))

    first = read_first_rows(warehouse.layout, warehouse.catalog, published.pointers, limit=3)

    assert first.keys() == {FIRST}
    assert first[FIRST]["campaign_id"].to_pylist() == [21, 22, 23]
    assert set(first[FIRST]["run_id"].to_pylist()) == {runs[0].run_id}


def test_a_partition_of_a_schema_version_that_the_catalog_lacks_is_refused_and_not_left_out(
    warehouse: Warehouse,
) -> None:
    older = one_newer_version(warehouse)

    for refused in (
        lambda: read_published(warehouse.layout, older, QUERY),
        lambda: published_rows(warehouse.spark, warehouse.layout, older, QUERY),
        lambda: published_rows(warehouse.spark, warehouse.layout, older, QUERY, Selection(partitions=[FIRST, SECOND])),
    ):
        with pytest.raises(ReadError, match=r"schema version 2.* knows 1 of campaign; read it with the catalog or"):
            refused()


def test_partitions_of_known_schema_versions_are_read_beside_one_that_is_not(warehouse: Warehouse) -> None:
    older = one_newer_version(warehouse)

    without_jvm = read_published(warehouse.layout, older, QUERY, Selection(days={FIRST.logical_date}))
    with_spark = published_rows(
        warehouse.spark, warehouse.layout, older, QUERY, Selection(partitions=[FIRST, ELSEWHERE])
    )

    assert without_jvm.num_rows == with_spark.count() == 4


def test_an_unknown_schema_version_that_was_replaced_by_a_known_one_is_no_obstacle(warehouse: Warehouse) -> None:
    older = one_newer_version(warehouse)
    publish(warehouse, SECOND)

    assert read_published(warehouse.layout, older, QUERY).num_rows == 6
    assert published_rows(warehouse.spark, warehouse.layout, older, QUERY).count() == 6
