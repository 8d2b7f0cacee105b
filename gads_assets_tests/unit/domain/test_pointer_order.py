from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import permutations

import pytest

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId, StageId
from gads_assets.domain.pointer import Authority, Pointer, PointerStatus, current_pointers, plan_load

KEY = PartitionKey(
    source="google_ads", customer_id=CustomerId("1234567890"), query_name="campaign", logical_date=date(2024, 6, 1)
)
POINTER = Pointer(
    key=KEY,
    run_id=RunId("run 1"),
    stage_id=StageId("A"),
    schema_version="1",
    record_count=1,
    content_digest="1-" + "0" * 32,
    state_version=3,
    stage_commit=0,
    status=PointerStatus.ACTIVE,
    loaded_at=datetime(2024, 6, 3, tzinfo=UTC),
)
AUTHORITY = Authority(
    key=KEY, run_id=RunId("run 1"), schema_version="1", record_count=1, content_digest="1-" + "0" * 32, state_version=3
)


def test_the_highest_state_version_is_current_in_whatever_order_loaders_finished() -> None:
    newest = replace(POINTER, state_version=5, stage_id=StageId("B"))
    history = [POINTER, replace(POINTER, state_version=4, stage_id=StageId("Z")), newest]
    for order in permutations(history):
        assert current_pointers(order) == {KEY: newest}


def test_two_stages_of_one_state_are_ordered_by_stage_so_that_readers_agree() -> None:
    later = replace(POINTER, stage_id=StageId("B"))
    assert current_pointers([later, POINTER]) == current_pointers([POINTER, later]) == {KEY: later}


@pytest.mark.parametrize(
    ("authority", "pointers", "expected"),
    [
        pytest.param(AUTHORITY, [], "to_stage", id="never published"),
        pytest.param(AUTHORITY, [POINTER], "already_published", id="published"),
        pytest.param(replace(AUTHORITY, state_version=9), [POINTER], "already_published", id="judged again since"),
        pytest.param(replace(AUTHORITY, run_id=RunId("run 2"), state_version=4), [POINTER], "to_stage", id="new run"),
        pytest.param(replace(AUTHORITY, schema_version="2", state_version=4), [POINTER], "to_stage", id="new schema"),
        pytest.param(replace(AUTHORITY, state_version=2), [POINTER], "overtaken", id="the loader is late"),
        pytest.param(
            AUTHORITY, [replace(POINTER, status=PointerStatus.UNAVAILABLE)], "overtaken", id="withdrawn in this state"
        ),
        pytest.param(
            replace(AUTHORITY, state_version=4),
            [replace(POINTER, status=PointerStatus.UNAVAILABLE)],
            "to_stage",
            id="accepted again after a withdrawal",
        ),
    ],
)
def test_a_load_does_what_state_and_pointer_ask_for(
    authority: Authority, pointers: Sequence[Pointer], expected: str
) -> None:
    plan = plan_load([authority], current_pointers(pointers))
    outcome = {name: getattr(plan, name) for name in ("to_stage", "already_published", "overtaken")}
    assert outcome == {name: (authority,) if name == expected else () for name in outcome}
