"""After reconciling, the publishing drill finds whatever does not equal state."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gads_assets.domain.keys import StageId
from gads_assets.domain.pointer import PointerStatus
from gads_assets.domain.state import DemotionIntent, LoadRecord, PartitionStatus
from gads_assets_tests import agreeing
from gads_assets_tests.agreeing import NOW, RUN
from gads_assets_tests.agreeing import OTHER_RUN as OLD
from gads_assets_tests.drills.journal import Rows
from gads_assets_tests.drills.settling import Found, differences
from gads_assets_tests.sealed_runs import key

SHOWN, RETRACTED, OTHER = key(day="2024-06-01"), key(day="2024-06-02"), key(day="2024-06-03")
ROWS: Rows = [(1, "one", 10, 0.5), (2, "two", 10, 0.5)]
EXPECTED = {SHOWN: RUN, RETRACTED: None}

STATE = replace(agreeing.SUCCESS, key=SHOWN)
FAILED = replace(STATE, key=RETRACTED, status=PartitionStatus.FAILED, current_run_id=OLD, version=3)
POINTER = replace(agreeing.SHOWN, key=SHOWN)
TOMBSTONE = replace(POINTER, key=RETRACTED, run_id=OLD, status=PointerStatus.UNAVAILABLE, state_version=2)
RECORD = LoadRecord(
    key=SHOWN,
    run_id=RUN,
    schema_version="1",
    record_count=2,
    content_digest="digest",
    stage_id=StageId("stage"),
    pointer_version=1,
    loaded_at=NOW,
)
INTENT = DemotionIntent(
    key=RETRACTED, run_id=OLD, state_version=2, validation_id="", error_message="bad", started_at=NOW
)
SOUND = Found(
    states={SHOWN: STATE, RETRACTED: FAILED},
    demotions=[],
    pointers={SHOWN: POINTER, RETRACTED: TOMBSTONE},
    records=[RECORD],
    reads={"spark": {SHOWN: {RUN: ROWS}}, "delta_rs": {SHOWN: {RUN: ROWS}}},
)


def test_there_is_nothing_to_say_where_everything_equals_state() -> None:
    assert differences(SOUND, EXPECTED, {RUN: ROWS}) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda: replace(SOUND, demotions=[INTENT]),
        lambda: replace(SOUND, states={SHOWN: replace(STATE, current_run_id=OLD), RETRACTED: FAILED}),
        lambda: replace(SOUND, states={RETRACTED: FAILED}),
        lambda: replace(SOUND, pointers={RETRACTED: TOMBSTONE}),
        lambda: replace(SOUND, pointers={**SOUND.pointers, SHOWN: replace(POINTER, run_id=OLD)}),
        lambda: replace(SOUND, pointers={**SOUND.pointers, SHOWN: replace(POINTER, schema_version="2")}),
        lambda: replace(SOUND, pointers={**SOUND.pointers, RETRACTED: replace(POINTER, key=RETRACTED, run_id=OLD)}),
        lambda: replace(SOUND, pointers={**SOUND.pointers, OTHER: replace(POINTER, key=OTHER)}),
        lambda: replace(SOUND, records=[]),
        lambda: replace(SOUND, records=[RECORD, RECORD]),
        lambda: replace(SOUND, records=[replace(RECORD, content_digest="other")]),
        lambda: replace(SOUND, reads={**SOUND.reads, "delta_rs": {}}),
        lambda: replace(SOUND, reads={**SOUND.reads, "delta_rs": {SHOWN: {RUN: ROWS[:1]}}}),
        lambda: replace(SOUND, reads={**SOUND.reads, "spark": {SHOWN: {RUN: ROWS}, RETRACTED: {OLD: ROWS}}}),
    ],
)
def test_whatever_does_not_equal_state_is_said(damage: Callable[[], Found]) -> None:
    assert differences(damage(), EXPECTED, {RUN: ROWS})
