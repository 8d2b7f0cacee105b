"""Adoption: logged by the operator, taken up by the next verdict, never twice; new runs are numbered above the old."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest
from sqlalchemy import Engine, text

from gads_assets.domain.keys import PartitionKey, RunId, StageId
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.domain.roles import Role
from gads_assets.domain.state import Reconcilable, extraction_from_seal
from gads_assets.errors import StateStoreError
from gads_assets.state.partition_states import StateStore
from gads_assets.state.run_records import RunRecords
from gads_assets_tests.ledgers import (
    KEY,
    NEWER_RUN,
    NEWER_SEQ,
    NOW,
    RUN,
    demoting,
    judgement,
    neighbour,
    new_override_id,
    record,
    succeeded,
)
from gads_assets_tests.sealed_runs import MANIFEST


def pointer(version: int, *, key: PartitionKey = KEY, run_id: RunId = NEWER_RUN) -> Pointer:
    return Pointer(
        key=key,
        run_id=run_id,
        stage_id=StageId("stage"),
        schema_version="1",
        record_count=3,
        content_digest="digest",
        state_version=version,
        stage_commit=1,
        status=PointerStatus.ACTIVE,
        loaded_at=NOW,
    )


def adopt(store: StateStore, *pointers: Pointer) -> dict[PartitionKey, int]:
    return store.adopt(pointers, actor="ana", reason="restored", now=NOW, new_override_id=new_override_id)


def logged(engine: Engine) -> list[tuple[object, ...]]:
    with engine.begin() as connection:
        rows = connection.execute(
            text("SELECT logical_date, action, version_floor, run_id, actor FROM override_log ORDER BY 1, 3")
        )
        return [tuple(row) for row in rows]


@pytest.fixture
def operator(acting: Callable[[Role], Engine]) -> StateStore:
    return StateStore(acting(Role.OPERATOR))


@pytest.fixture
def validator(acting: Callable[[Role], Engine]) -> StateStore:
    return StateStore(acting(Role.VALIDATOR))


@pytest.mark.parametrize("accepted", [True, False])
def test_the_first_verdict_on_what_was_adopted_is_above_the_floor_and_the_next_goes_on_from_there(
    operator: StateStore, validator: StateStore, accepted: bool
) -> None:
    assert adopt(operator, pointer(7)) == {KEY: 7}
    first = record(validator, judgement(accepted=accepted))
    assert (first.attempt_number, first.state_version, first.state.version) == (1, 8, 8)
    assert record(validator, judgement(NEWER_RUN, NEWER_SEQ)).state_version == 9


def test_an_adoption_changes_no_state_until_its_verdict(
    store: StateStore, operator: StateStore, validator: StateStore
) -> None:
    succeeded(store)
    before = store.states([KEY])
    assert adopt(operator, pointer(7)) == {KEY: 7}
    assert store.states([KEY]) == before
    assert validator.open_adoptions([KEY, neighbour(1)]) == {KEY: 7}
    assert record(validator, judgement(NEWER_RUN, NEWER_SEQ)).state.version == 8
    assert validator.open_adoptions([KEY]) == {}


def test_several_verdicts_at_once_use_a_floor_once(operator: StateStore, validator: StateStore) -> None:
    adopt(operator, pointer(7))
    verdicts = [(KEY, judgement(accepted=False)), (KEY, judgement(NEWER_RUN, NEWER_SEQ))]
    recorded = validator.record_judgements(verdicts, now=NOW, dagster_run_id="run")
    assert [each.state_version for each in recorded] == [8, 9]


def test_what_waits_for_its_verdict_is_not_logged_again(
    engine: Engine, operator: StateStore, validator: StateStore
) -> None:
    for version in (7, 7, 6):
        assert adopt(operator, pointer(version)) == {KEY: 7}
    assert logged(engine) == [(KEY.logical_date, "adopt", 7, NEWER_RUN, "ana")]

    record(validator, judgement())
    assert validator.open_adoptions([KEY]) == {}
    assert adopt(operator, pointer(9)) == {KEY: 9}
    assert record(validator, judgement(NEWER_RUN, NEWER_SEQ)).state.version == 10


def test_a_state_that_has_passed_the_pointer_since_it_was_restored_waits_for_a_verdict_above_itself(
    store: StateStore, operator: StateStore, validator: StateStore
) -> None:
    succeeded(store)
    assert adopt(operator, pointer(1)) == {KEY: 2}
    assert not operator.reconcilable({KEY: pointer(1)})[KEY].adopted_pointer
    assert record(validator, judgement(NEWER_RUN, NEWER_SEQ)).state.version == 3
    assert operator.open_adoptions([KEY]) == {}
    assert operator.reconcilable({KEY: pointer(1)})[KEY].adopted_pointer
    assert not operator.reconcilable({KEY: pointer(1, run_id=RUN)})[KEY].adopted_pointer


def test_a_pointer_at_the_states_own_version_waits_for_a_verdict_too(
    store: StateStore, operator: StateStore, validator: StateStore
) -> None:
    succeeded(store)
    assert adopt(operator, pointer(2)) == {KEY: 2}
    record(validator, judgement())
    assert operator.open_adoptions([KEY]) == {}


def test_two_adopters_at_once_log_each_floor_once(acting: Callable[[Role], Engine], engine: Engine) -> None:
    pointers = [pointer(7, key=neighbour(day)) for day in range(50)]
    together = Barrier(2)

    def adopter(given: list[Pointer]) -> dict[PartitionKey, int]:
        own = StateStore(acting(Role.OPERATOR))
        together.wait(timeout=60)
        return adopt(own, *given)

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(adopter, [pointers, pointers[::-1]]))
    assert answers[0] == answers[1] == {each.key: 7 for each in pointers}
    assert len(logged(engine)) == len(pointers)


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.OPERATOR])
def test_nobody_but_the_operator_adopts(acting: Callable[[Role], Engine], engine: Engine, role: Role) -> None:
    with pytest.raises(StateStoreError, match="permission denied"):
        adopt(StateStore(acting(role)), pointer(7))
    assert logged(engine) == []


def test_a_demotion_and_a_return_to_pending_take_up_no_floor(
    store: StateStore, operator: StateStore, validator: StateStore
) -> None:
    demoting(store)
    adopt(operator, pointer(7))
    [intent] = validator.open_demotions()
    assert validator.finish_demotions([intent], now=NOW)[0].version == 4
    [after] = operator.return_to_pending([KEY], actor="ana", reason="mended", now=NOW, new_override_id=new_override_id)
    assert after.version == 5
    assert record(validator, judgement(NEWER_RUN, NEWER_SEQ)).state.version == 8


def test_all_that_a_reconciler_compares_comes_at_once(store: StateStore, operator: StateStore) -> None:
    """By day: being withdrawn, of a lost history, without a pointer, without a state, rejected above its pointer."""
    withdrawn, unknown, unpublished, lost, rejected = (neighbour(day) for day in range(5))
    demoting(store)
    failed_here = judgement(accepted=False)
    for key in (unknown, unpublished):
        record(store, judgement(accepted=False, root=key.label), key)
    record(store, judgement(NEWER_RUN, NEWER_SEQ, accepted=False), rejected)
    record(store, replace(failed_here, validation_id="again"), rejected)
    adopt(operator, pointer(7, key=lost))
    pointers = [
        pointer(2, run_id=RUN),
        pointer(7, key=unknown),
        pointer(7, key=lost),
        pointer(0, key=rejected),
    ]

    found = operator.reconcilable({unpublished: None, **{each.key: each for each in pointers}})

    states = store.states([withdrawn, unknown, unpublished, rejected])
    assert found == {
        withdrawn: Reconcilable(
            state=states[withdrawn],
            is_being_withdrawn=True,
            knows_pointer=True,
            spoke_since_pointer=True,
            adopted_pointer=False,
            version_floor=None,
        ),
        unknown: Reconcilable(
            state=states[unknown],
            is_being_withdrawn=False,
            knows_pointer=False,
            spoke_since_pointer=False,
            adopted_pointer=False,
            version_floor=None,
        ),
        unpublished: Reconcilable(
            state=states[unpublished],
            is_being_withdrawn=False,
            knows_pointer=False,
            spoke_since_pointer=False,
            adopted_pointer=False,
            version_floor=None,
        ),
        lost: Reconcilable(
            state=None,
            is_being_withdrawn=False,
            knows_pointer=False,
            spoke_since_pointer=False,
            adopted_pointer=False,
            version_floor=7,
        ),
        rejected: Reconcilable(
            state=states[rejected],
            is_being_withdrawn=False,
            knows_pointer=True,
            spoke_since_pointer=True,
            adopted_pointer=False,
            version_floor=None,
        ),
    }
    assert list(found) == sorted(found)


def test_all_states_of_a_query_come_as_columns(store: StateStore, operator: StateStore) -> None:
    nothing = operator.standings("campaign")
    assert set(nothing.values()) == {()}
    demoting(store)
    record(store, judgement(accepted=False), neighbour(1))

    found = operator.standings("campaign")

    assert list(found) == list(nothing)
    rows = sorted(zip(*found.values(), strict=True), key=lambda row: str(row[1]))
    assert rows == [
        (KEY.customer_id, KEY.logical_date, "success", RUN, "1", 3, True),
        (KEY.customer_id, neighbour(1).logical_date, "failed", None, None, 1, False),
    ]
    assert operator.standings("campaign", source="another") == nothing
    assert operator.standings("ad_group") == nothing


def test_numbers_are_raised_and_never_lowered_by_whoever_may_take_them(acting: Callable[[Role], Engine]) -> None:
    extractor = StateStore(acting(Role.EXTRACTOR))
    extractor.raise_run_seq(2_500_000)
    [after] = extractor.allocate_run_seqs(1)
    assert after == 2_500_001
    extractor.raise_run_seq(10)
    assert extractor.allocate_run_seqs(1)[0] > after
    with pytest.raises(StateStoreError, match="no history is that long"):
        extractor.raise_run_seq(10**18)
    with pytest.raises(StateStoreError, match="permission denied"):
        StateStore(acting(Role.OPERATOR)).raise_run_seq(10)


def test_two_who_raise_at_once_and_one_who_takes_numbers_never_get_one_twice(acting: Callable[[Role], Engine]) -> None:
    together = Barrier(3)

    def raising(to: int) -> list[int]:
        own = StateStore(acting(Role.EXTRACTOR))
        together.wait(timeout=60)
        own.raise_run_seq(to)
        return own.allocate_run_seqs(1)

    def taking(_: int) -> list[int]:
        own = StateStore(acting(Role.EXTRACTOR))
        together.wait(timeout=60)
        return [number for _ in range(100) for number in own.allocate_run_seqs(10)]

    with ThreadPoolExecutor(3) as pool:
        raised = [pool.submit(raising, 100_000), pool.submit(raising, 200_000)]
        taken = pool.submit(taking, 0).result(timeout=60)
        above = [number for each in raised for number in each.result(timeout=60)]
    assert len({*taken, *above}) == len(taken) + len(above)
    assert above[0] > 100_000
    assert above[1] > 200_000


def test_a_sealed_run_is_put_back_on_record_once_and_waits_for_its_verdict(acting: Callable[[Role], Engine]) -> None:
    extractor, records = StateStore(acting(Role.EXTRACTOR)), RunRecords(acting(Role.OPERATOR))
    for _ in range(2):
        extractor.record_extractions([extraction_from_seal(MANIFEST)])
    [run] = records.unjudged(["campaign"]).values()
    assert (run.key, run.run_id, run.run_seq) == (MANIFEST.key, MANIFEST.run_id, MANIFEST.run_seq)
    assert run.dagster_run_id == "restored from its seal"
