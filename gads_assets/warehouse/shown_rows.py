"""Exactly the rows of some pointers, as a condition on their stage table: reading them then takes no join."""

from collections import defaultdict
from collections.abc import Collection
from datetime import date
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from gads_assets.domain.rectangles import stretches
from gads_assets.warehouse.delta_tables import readable_delta_errors
from gads_assets.warehouse.selection import among

MOST_PIECES: Final = 50
"""Each row is held against them one by one, where a join looks it up once."""
_MOST_NAMES: Final = 5_000
"""Of customers, and of stages."""

Stretch = tuple[date, date]


def condition_of(pointers: pa.Table, *, whole: Collection[str] = ()) -> str | None:
    """SQL for Spark, true of the rows of these pointers and no others of their stage table; None where it would be too
    long. Batches are rectangles of customers × days as a rule, and so is what is asked for: a few pieces tell all.

    Of stages that are `whole`, the pointers show every row: their name is enough.
    """
    pointers = pointers.filter(pc.field("record_count") > 0)
    named = sorted(set(pc.unique(pointers["stage_id"]).to_pylist()) & set(whole))
    pointers = pointers.filter(~pc.field("stage_id").isin(pa.array(named, pa.string())))
    if pc.count_distinct(pointers["stage_id"]).as_py() > MOST_PIECES or len(named) > _MOST_NAMES:
        return None
    days: dict[tuple[str, str], list[date]] = defaultdict(list)
    columns = (pointers[name].to_pylist() for name in ("stage_id", "customer_id", "logical_date"))
    for stage_id, customer_id, day in zip(*columns, strict=True):
        days[stage_id, customer_id].append(day)
    customers: dict[tuple[str, Stretch], set[str]] = defaultdict(set)
    for (stage_id, customer_id), some in days.items():
        for stretch in stretches(day.toordinal() for day in some):
            between = date.fromordinal(stretch[0]), date.fromordinal(stretch[-1])
            customers[stage_id, between].add(f"'{customer_id}'")
    if len(customers) > MOST_PIECES or sum(map(len, customers.values())) > _MOST_NAMES:
        return None
    pieces = [
        f"(stage_id = '{stage_id}' AND logical_date BETWEEN DATE '{first}' AND DATE '{last}' "
        f"AND {among('customer_id', some)})"
        for (stage_id, (first, last)), some in sorted(customers.items())
    ]
    if named:
        names = ", ".join(f"'{stage_id}'" for stage_id in named)
        pieces.insert(0, f"stage_id IN ({names})")
    return " OR ".join(pieces)


def whole_stages(stage: DeltaTable, pointers: pa.Table) -> set[str]:
    """The stages of which these pointers show every row, as far as the statistics of files can tell.

    It stays so: a stage is written in one commit, and afterwards only loses rows that nobody is shown. The table must
    have been opened after the snapshot was taken.
    """
    shown: dict[str, int] = defaultdict(int)
    for stage_id, rows in zip(pointers["stage_id"].to_pylist(), pointers["record_count"].to_pylist(), strict=True):
        shown[stage_id] += rows
    with readable_delta_errors(stage.table_uri):
        files = pa.table(stage.get_add_actions(flatten=True))
    if not {"num_records", "min.stage_id", "max.stage_id"} <= set(files.column_names):
        return set()
    staged: dict[str, int] = defaultdict(int)
    mixed: list[tuple[str, str]] = []
    for rows, first, last in zip(
        files["num_records"].to_pylist(),
        files["min.stage_id"].to_pylist(),
        files["max.stage_id"].to_pylist(),
        strict=True,
    ):
        if rows is None or first is None or last is None:
            return set()
        if first == last:
            staged[first] += rows
        else:
            mixed.append((first, last))
    if pc.sum(files["num_records"]).as_py() == sum(shown.values()):
        return set(shown)
    return {
        stage_id
        for stage_id, rows in shown.items()
        if staged[stage_id] == rows and not any(first <= stage_id <= last for first, last in mixed)
    }
