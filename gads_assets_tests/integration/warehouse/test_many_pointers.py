"""A warehouse of many years and accounts: what is read and published in it does not depend on how much there is."""

import pyarrow as pa
from deltalake import write_deltalake

from gads_assets.warehouse.snapshots import take_snapshot
from gads_assets_tests.sealed_runs import QUERY, key, row, seal
from gads_assets_tests.warehouses import Warehouse, many_pointers

PUBLISHED, REPLACED, WITHDRAWN = (key(day=f"2024-06-0{day}") for day in range(1, 4))


def test_a_hundred_thousand_pointers_hide_and_double_nothing(warehouse: Warehouse) -> None:
    """Four generations of 25,000 partitions, all but a few of them superseded or withdrawn, and without rows."""
    runs = [seal(warehouse.sink, each, [row(each, 1), row(each, 2)]) for each in (PUBLISHED, REPLACED, WITHDRAWN)]
    authorities = {each.key: each for each in warehouse.accept(*runs)}
    warehouse.publisher.publish(QUERY, list(authorities.values()))
    like = warehouse.pointer_rows()
    for generation in range(4):
        for part in range(4):
            some = many_pointers(like, generation, part)
            empty = pa.array([0] * some.num_rows, pa.int64())
            some = some.set_column(some.schema.get_field_index("record_count"), "record_count", empty)
            write_deltalake(warehouse.layout.pointers(QUERY), some, mode="append")

    newer = seal(warehouse.sink, REPLACED, [row(REPLACED, 7)])
    warehouse.publisher.publish(QUERY, warehouse.accept(newer))
    warehouse.withdraw(authorities[WITHDRAWN])

    assert warehouse.content() == {
        (PUBLISHED.customer_id, "2024-06-01"): [(1, 10), (2, 20)],
        (REPLACED.customer_id, "2024-06-02"): [(7, 70)],
    }
    highest: dict[tuple[object, object], tuple[object, object, object]] = {}
    for each in warehouse.pointer_rows().to_pylist():
        place, order = (
            (each["customer_id"], each["logical_date"]),
            (each["state_version"], each["stage_id"], each["status"]),
        )
        highest[place] = max(highest.get(place, order), order)
    shown = {place for place, (_, _, status) in highest.items() if status == "active"}
    snapshot = take_snapshot(warehouse.layout, warehouse.catalog, QUERY)
    assert len(highest) == 25_003
    assert {(each.customer_id, each.logical_date) for each in snapshot.keys} == shown
    assert snapshot.pointers.num_rows == len(shown)
