"""How the files of a batch are divided among the tasks that stage them."""

from datetime import date, timedelta

import pytest

from gads_assets.domain.pointer import Authority
from gads_assets.warehouse.staging import pieces_of
from gads_assets_tests.sealed_runs import key, unused_run_id


def authority(customer: int, day: int, rows: int) -> Authority:
    return Authority(
        key=key(f"{customer}000000000", str(date(2024, 6, 1) + timedelta(days=day))),
        run_id=unused_run_id(),
        schema_version="1",
        record_count=rows,
        content_digest="",
        state_version=1,
    )


def name(authority: Authority) -> str:
    return f"{authority.key.logical_date.day}/{authority.key.customer_id[0]}"


@pytest.mark.parametrize(
    ("rows_per_file", "pieces"),
    [
        (400, [["1/1", "1/2", "2/1", "2/2"]]),
        (200, [["1/1", "1/2"], ["2/1", "2/2"]]),
        (1, [["1/1"], ["1/2"], ["2/1"], ["2/2"]]),
    ],
)
def test_pieces_hold_as_many_rows_each_and_follow_the_order_of_the_table(
    rows_per_file: int, pieces: list[list[str]]
) -> None:
    batch = [authority(customer, day, 100) for customer in (2, 1) for day in (1, 0)]
    uris = {each.key: [name(each)] for each in batch}
    assert pieces_of(batch, uris, rows_per_file=rows_per_file) == pieces


def test_a_long_run_is_not_divided_and_one_without_files_has_no_place() -> None:
    short, long, empty = authority(1, 0, 1), authority(1, 1, 1000), authority(1, 2, 0)
    uris = {short.key: ["short"], long.key: ["first", "second"]}
    assert pieces_of([empty, long, short], uris, rows_per_file=100) == [["short", "first", "second"]]
    assert pieces_of([empty], {}, rows_per_file=100) == []
