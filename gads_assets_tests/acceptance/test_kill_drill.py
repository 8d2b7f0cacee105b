"""The drill finds the damage it looks for: tables and contents damaged on purpose are complained about."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from gads_assets.catalog.loading import load_catalog
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets_tests.drills.damage import Damage
from gads_assets_tests.drills.demo import common_days, compare, mixed_reads

DAY = date(2024, 6, 1)
CUSTOMER = "1234567890"
RUN, OTHER_RUN = "01HZX000000000000000000001", "01HZX000000000000000000002"
PARTITION = ("campaign", CUSTOMER, DAY.isoformat())


@pytest.fixture
def layout(tmp_path: Path) -> WarehouseLayout:
    return WarehouseLayout(root=str(tmp_path), source="google_ads")


def stage(layout: WarehouseLayout, run_ids: Sequence[str]) -> None:
    rows = [{"customer_id": CUSTOMER, "logical_date": DAY, "stage_id": "stage", "run_id": run} for run in run_ids]
    write_deltalake(layout.stage("campaign", "1"), pa.Table.from_pylist(rows), mode="append")


def point(layout: WarehouseLayout, *, record_count: int, run_id: str = RUN) -> None:
    pointer = {
        "source": "google_ads",
        "query_name": "campaign",
        "customer_id": CUSTOMER,
        "logical_date": DAY,
        "run_id": run_id,
        "stage_id": "stage",
        "schema_version": "1",
        "record_count": record_count,
        "content_digest": "",
        "state_version": 1,
        "stage_commit": 0,
        "status": "active",
        "loaded_at": datetime.now(UTC),
    }
    write_deltalake(layout.pointers("campaign"), pa.Table.from_pylist([pointer]), mode="append")


def complaints(layout: WarehouseLayout) -> list[str]:
    return mixed_reads(layout, load_catalog(None), "campaign")


def test_a_reader_has_no_complaint_about_whole_partitions_or_none(layout: WarehouseLayout) -> None:
    assert complaints(layout) == []
    stage(layout, [RUN, RUN])
    assert complaints(layout) == []
    point(layout, record_count=2)
    assert complaints(layout) == []


@pytest.mark.parametrize(
    ("staged", "record_count", "complaint"),
    [
        ([RUN], 2, "shows 1 rows, its pointer says 2"),
        ([RUN, RUN, RUN], 2, "shows 3 rows, its pointer says 2"),
        ([RUN, OTHER_RUN], 2, "shows rows of 2 runs"),
        ([OTHER_RUN, OTHER_RUN], 2, "shows 2 rows, its pointer says None"),
    ],
)
def test_a_reader_complains_about_partial_doubled_and_mixed_rows(
    layout: WarehouseLayout, staged: list[str], record_count: int, complaint: str
) -> None:
    stage(layout, staged)
    point(layout, record_count=record_count)
    assert complaint in " / ".join(complaints(layout))


def test_a_reader_complains_about_a_partition_that_is_pointed_at_and_not_there(layout: WarehouseLayout) -> None:
    write_deltalake(
        layout.stage("campaign", "1"),
        pa.Table.from_pylist([{"customer_id": "", "logical_date": DAY, "stage_id": "", "run_id": ""}]),
    )
    point(layout, record_count=2)
    assert "is pointed at and not shown" in " / ".join(complaints(layout))


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ([("a",), ("b",)], None),
        ([("a",), ("b",), ("b",)], "doubled"),
        ([("a",), ("c",)], "differing"),
        ([("a",)], "differing"),
        ([], "differing"),
    ],
)
def test_rows_too_many_and_rows_changed_are_told_apart(found: list[tuple[object, ...]], kind: str | None) -> None:
    damage = Damage()
    compare(damage, expected={PARTITION: [("a",), ("b",)]}, found={PARTITION: found}, partitions=[PARTITION])
    assert [name for name, count in damage.counts().items() if count] == ([kind] if kind else [])


def test_a_drill_past_midnight_compares_the_days_that_both_weeks_have() -> None:
    week = [("campaign", CUSTOMER, f"2024-06-{day:02}") for day in range(1, 8)]
    moved = [("campaign", CUSTOMER, f"2024-06-{day:02}") for day in range(2, 9)]
    assert common_days(week, week) == week
    assert common_days(week, moved) == week[1:]
    assert common_days(week, week[:3]) == week
