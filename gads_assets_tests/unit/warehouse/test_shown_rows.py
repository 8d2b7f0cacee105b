"""The condition that stands for some pointers, asked of every row that could lie beside theirs."""

from collections.abc import Collection
from datetime import date, timedelta
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from gads_assets.warehouse.delta_tables import open_table, select
from gads_assets.warehouse.shown_rows import condition_of, whole_stages

STAGES = ("01A", "01B", "01C")
CUSTOMERS = tuple(f"{number}000000000" for number in range(1, 5))
DAYS = tuple(date(2024, 2, 27) + timedelta(days=number) for number in range(5))
PLACES = list(product(STAGES, CUSTOMERS, DAYS))

Place = tuple[str, str, date]


def table_of(places: Collection[Place], *, rows: int = 2) -> pa.Table:
    return pa.table(
        {
            "stage_id": pa.array([place[0] for place in places], pa.string()),
            "customer_id": pa.array([place[1] for place in places], pa.string()),
            "logical_date": pa.array([place[2] for place in places], pa.date32()),
            "record_count": pa.array([rows] * len(places), pa.int64()),
        }
    )


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 40])
def test_the_condition_is_true_of_the_rows_of_these_pointers_and_no_others(tmp_path: Path, step: int) -> None:
    write_deltalake(str(tmp_path), table_of(PLACES))
    some = PLACES[::step]

    condition = condition_of(table_of(some))

    found = select(open_table(str(tmp_path)), f"SELECT stage_id, customer_id, logical_date FROM this WHERE {condition}")
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(some)


def test_a_batch_is_one_piece_however_many_partitions_it_has() -> None:
    batch = table_of([place for place in PLACES if place[0] == "01B"])
    assert condition_of(batch) == (
        "(stage_id = '01B' AND logical_date BETWEEN DATE '2024-02-27' AND DATE '2024-03-02' "
        "AND customer_id BETWEEN '1000000000' AND '4000000000' "
        "AND customer_id IN ('1000000000', '2000000000', '3000000000', '4000000000'))"
    )


@pytest.mark.parametrize(
    ("files", "shown", "whole"),
    [
        ([["01A"], ["01B"]], ["01A", "01B"], {"01A", "01B"}),
        ([["01A"], ["01B"], ["01B"]], ["01A", "01B"], {"01A"}),
        ([["01A"], ["01B"]], ["01B"], {"01B"}),
        ([["01A", "01B"], ["01C"]], ["01A", "01B", "01C"], {"01A", "01B", "01C"}),
        ([["01A", "01B"], ["01C"]], ["01B", "01C"], {"01C"}),
        ([["01A", "01C"], ["01B"]], ["01B", "01C"], set()),
    ],
)
def test_a_stage_is_whole_if_the_files_can_hold_no_row_of_it_that_is_not_shown(
    tmp_path: Path, files: list[list[str]], shown: list[str], whole: set[str]
) -> None:
    for stages in files:
        write_deltalake(str(tmp_path), table_of([(stage, CUSTOMERS[0], DAYS[0]) for stage in stages]), mode="append")

    pointers = table_of([(stage, CUSTOMERS[0], DAYS[0]) for stage in shown], rows=1)

    assert whole_stages(open_table(str(tmp_path)), pointers) == whole


def test_of_a_whole_stage_its_name_is_enough() -> None:
    shown = table_of([("01A", CUSTOMERS[0], DAYS[0]), ("01B", CUSTOMERS[0], DAYS[0]), ("01C", CUSTOMERS[1], DAYS[1])])
    assert condition_of(shown, whole={"01A", "01C", "01D"}) == (
        "stage_id IN ('01A', '01C') OR (stage_id = '01B' AND logical_date BETWEEN DATE '2024-02-27' AND "
        "DATE '2024-02-27' AND customer_id BETWEEN '1000000000' AND '1000000000' AND customer_id IN ('1000000000'))"
    )


def test_a_partition_without_rows_adds_nothing_to_the_condition() -> None:
    some = PLACES[:3]
    assert condition_of(pa.concat_tables([table_of(some), table_of(PLACES[9:], rows=0)])) == condition_of(
        table_of(some)
    )


@pytest.mark.parametrize(
    "places",
    [
        [(f"{number:03}", CUSTOMERS[0], DAYS[0]) for number in range(51)],
        [("01A", CUSTOMERS[0], DAYS[0] + timedelta(days=2 * number)) for number in range(51)],
        [("01A", f"{1_000_000_000 + number}", DAYS[0]) for number in range(5001)],
    ],
    ids=["stages", "gaps", "customers"],
)
def test_what_would_be_too_long_is_not_told_by_a_condition(places: list[Place]) -> None:
    assert condition_of(table_of(places)) is None
    assert condition_of(table_of(places[1:])) is not None
