"""One table over all schema versions: missing columns are null, types widen where nothing is lost, else it says no."""

import pytest

from gads_assets.catalog.specification import Column, QuerySchema
from gads_assets.domain.keys import PartitionKey
from gads_assets.errors import ReadError
from gads_assets.warehouse.reading import published_rows
from gads_assets.warehouse.selection import EVERYTHING, Selection
from gads_assets_tests.sealed_runs import COLUMNS, QUERY, catalog, key, row, schema, seal
from gads_assets_tests.warehouses import Warehouse

OLD, NEW = key(day="2024-06-01"), key(day="2024-06-02")


def with_columns(version: str, **types: str) -> QuerySchema:
    added = [Column(name=name, field=name.replace("_", ".", 1), type=type_) for name, type_ in types.items()]
    return schema(version, (*COLUMNS, *added))


def publish(warehouse: Warehouse, partition: PartitionKey, version: str, **values: object) -> None:
    run = seal(warehouse.sink, partition, [row(partition, 1, **values)], schema_version=version)
    warehouse.publisher.publish(QUERY, warehouse.accept(run))


NARROW = {"campaign_a": "int", "campaign_b": "int", "campaign_c": "array<int>", "campaign_d": "array<int>"}
WIDE = {"campaign_a": "bigint", "campaign_b": "double", "campaign_c": "array<bigint>", "campaign_d": "array<double>"}
SMALL: dict[str, object] = {"campaign_a": 7, "campaign_b": -7, "campaign_c": [7, -8], "campaign_d": [7]}
LARGE: dict[str, object] = {"campaign_a": 2**40, "campaign_b": 0.25, "campaign_c": [2**40], "campaign_d": [0.25]}


@pytest.mark.parametrize("current", ["1", "2"])
def test_a_column_is_read_in_the_wider_type_whichever_version_is_current(warehouse: Warehouse, current: str) -> None:
    versions = {"1": with_columns("1", **NARROW), "2": with_columns("2", **WIDE)}
    warehouse.catalog = catalog(versions.pop(current), *versions.values())
    publish(warehouse, OLD, "1", **SMALL)
    publish(warehouse, NEW, "2", **LARGE)

    types = dict(published_rows(warehouse.spark, warehouse.layout, warehouse.catalog, QUERY).dtypes)
    old, new = warehouse.with_spark()

    assert [old, new] == warehouse.without_jvm()
    assert types.items() >= WIDE.items()
    assert old.items() >= SMALL.items()
    assert new.items() >= LARGE.items()


def test_versions_whose_types_cannot_be_reconciled_are_refused_together_and_read_apart(warehouse: Warehouse) -> None:
    warehouse.catalog = catalog(with_columns("2", campaign_rank="double"), with_columns("1", campaign_rank="bigint"))
    publish(warehouse, OLD, "1", campaign_rank=2**53 + 1)
    assert [line["campaign_rank"] for line in warehouse.with_spark()] == [2**53 + 1]
    publish(warehouse, NEW, "2", campaign_rank=0.25)

    for reader in (warehouse.with_spark, warehouse.without_jvm):
        with pytest.raises(ReadError) as refused:
            reader()
        assert str(refused.value) == (
            "column campaign_rank of campaign is double in schema version 2 and bigint in version 1; "
            "read one version at a time, or publish its days again under one of them"
        )
        for selection, value in (
            (EVERYTHING.for_version("1"), 2**53 + 1),
            (EVERYTHING.for_version("2"), 0.25),
            (Selection(days={NEW.logical_date}), 0.25),
        ):
            assert [line["campaign_rank"] for line in reader(selection)] == [value]

    publish(warehouse, OLD, "2", campaign_rank=0.5)

    assert warehouse.with_spark() == warehouse.without_jvm()
    assert [line["campaign_rank"] for line in warehouse.with_spark()] == [0.5, 0.25]
