"""A whole query's pointers against its states: those that plainly agree are told apart without looking at each."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from gads_assets.domain.pointer import PointerStatus
from gads_assets.domain.state import PartitionStatus

_PLACE: Final = ["customer_id", "logical_date"]

_STATES: Final = pa.schema(
    [
        ("customer_id", pa.string()),
        ("logical_date", pa.date32()),
        ("status", pa.string()),
        ("authority", pa.string()),
        ("authority_schema_version", pa.string()),
        ("version", pa.int64()),
        ("is_being_withdrawn", pa.bool_()),
    ]
)


def split_by_agreement(states: Mapping[str, Sequence[object]], pointers: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The places, customer and day, that agree for certain and show something, and those that are worth a closer look.

    What is left out of both agrees for certain and shows nothing. `domain.reconciling` decides about the closer look,
    and would find no difference in what agrees here.
    """
    ours = pa.table(dict(states), schema=_STATES).rename_columns({"status": "state_status"})
    theirs = pointers.select([*_PLACE, "run_id", "schema_version", "state_version", "status"])
    both = ours.join(
        theirs.append_column("is_pointed", pa.repeat(True, theirs.num_rows)), _PLACE, join_type="full outer"
    )
    is_success = pc.equal(both["state_status"], PartitionStatus.SUCCESS.value)
    is_active = pc.equal(both["status"], PointerStatus.ACTIVE.value)
    is_undisturbed = _all(
        pc.invert(both["is_being_withdrawn"]),
        # A pointer that is not there is above nothing.
        pc.greater_equal(both["version"], pc.coalesce(both["state_version"], pa.scalar(0))),
    )
    shows_authority = _all(
        is_undisturbed,
        is_success,
        is_active,
        pc.equal(both["run_id"], both["authority"]),
        pc.equal(both["schema_version"], both["authority_schema_version"]),
    )
    shows_nothing = _all(is_undisturbed, pc.invert(is_success), pc.invert(pc.coalesce(is_active, pa.scalar(False))))
    doubtful = pc.invert(pc.or_(shows_authority, shows_nothing))
    return both.filter(shows_authority).select(_PLACE), both.filter(doubtful).select(_PLACE)


def _all(*conditions: pa.ChunkedArray) -> pa.ChunkedArray:
    """What is not known does not hold."""
    first, *others = (pc.coalesce(condition, pa.scalar(False)) for condition in conditions)
    for other in others:
        first = pc.and_(first, other)
    return first
