"""The ledger on a real PostgreSQL: counted once, all or nothing, newest authority, and what loaders may see."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import count
from threading import Barrier

import pytest
from sqlalchemy import Engine, event, text
from ulid import ULID

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId, StageId
from gads_assets.domain.state import (
    AttemptOutcome,
    ExtractionAttempt,
    ExtractionOutcome,
    Judgement,
    LoadRecord,
    PartitionState,
    PartitionStatus,
    validation_id,
)
from gads_assets.errors import StateStoreError, TransitionError
from gads_assets.state.connection import open_engine
from gads_assets.state.judging import RecordedJudgement
from gads_assets.state.partition_states import AcceptedContent, StateStore
from gads_assets_tests.ledgers import SEAL

NOW = datetime(2024, 7, 1, 12, tzinfo=UTC)
FIRST_DAY = date(2024, 6, 1)
_seqs = count(1000)


def key(customer: int = 1, day: int = 0, query: str = "campaign") -> PartitionKey:
    return PartitionKey(
        source="google_ads",
        customer_id=CustomerId(f"{customer:010d}"),
        query_name=query,
        logical_date=FIRST_DAY + timedelta(days=day),
    )


def judgement(
    *, accepted: bool = True, seq: int | None = None, run_id: str | None = None, root: str = "dagster-run"
) -> Judgement:
    run = RunId(run_id or str(ULID()))
    return Judgement(
        run_id=run,
        run_seq=next(_seqs) if seq is None else seq,
        schema_version="1",
        record_count=3,
        content_digest="digest" if accepted else None,
        seal_sha256=SEAL if accepted else None,
        accepted=accepted,
        error_message=None if accepted else "two rows share a key",
        validation_id=validation_id(run, root),
    )


def record(store: StateStore, *pairs: tuple[PartitionKey, Judgement]) -> list[RecordedJudgement]:
    return store.record_judgements(pairs, now=NOW, dagster_run_id="dagster-run")


def attempts(engine: Engine) -> Sequence[tuple[str, int, int]]:
    with engine.begin() as connection:
        rows = connection.execute(
            text("SELECT outcome, attempt_number, state_version FROM partition_attempt ORDER BY attempt_number")
        )
        return [tuple(row) for row in rows]


def test_an_accepted_run_makes_its_partition_publishable_and_says_which_content_was_accepted(store: StateStore) -> None:
    judged = judgement()
    [recorded] = record(store, (key(), judged))
    expected = PartitionState(
        key=key(),
        status=PartitionStatus.SUCCESS,
        current_run_id=judged.run_id,
        current_run_seq=judged.run_seq,
        schema_version="1",
        record_count=3,
        updated_at=NOW,
        error_message=None,
        attempt_count=1,
        version=1,
    )
    assert recorded == RecordedJudgement(
        key=key(),
        validation_id=judged.validation_id,
        outcome=AttemptOutcome.ACCEPTED,
        attempt_number=1,
        state_version=1,
        state=expected,
        repeated=False,
        demotion_opened=None,
    )
    assert store.states([key(), key(day=1)]) == {key(): expected}
    assert store.publishable([key(), key(day=1)]) == [expected]
    assert store.accepted_contents([key()]) == {
        (key(), judged.run_id): AcceptedContent(content_digest="digest", record_count=3, seal_sha256=SEAL)
    }


def test_the_state_written_equals_the_state_read_for_every_outcome(store: StateStore) -> None:
    authority = judgement()
    history = [
        judgement(accepted=False),
        authority,
        judgement(accepted=False),
        judgement(seq=1),
        replace(judgement(accepted=False, run_id=authority.run_id, root="again"), run_seq=authority.run_seq),
    ]
    outcomes = []
    for judged in history:
        [recorded] = record(store, (key(), judged))
        outcomes.append(recorded.outcome.value)
        assert store.states([key()])[key()] == recorded.state
    assert outcomes == ["rejected", "accepted", "rejected", "superseded", "demoted"]


def test_a_repeated_validation_returns_what_was_recorded_and_changes_nothing(store: StateStore, engine: Engine) -> None:
    rejected = judgement(accepted=False)
    accepted = judgement()
    [first] = record(store, (key(), rejected))
    record(store, (key(), accepted))
    before = store.states([key()])
    # The repeat even claims the contrary: what counts is what was recorded under its validation id.
    [again] = record(store, (key(), replace(judgement(run_id=rejected.run_id), run_seq=rejected.run_seq)))
    assert (again.outcome, again.attempt_number, again.state_version) == (first.outcome, 1, 1)
    assert (again.repeated, again.state) == (True, before[key()])
    assert store.states([key()]) == before
    assert attempts(engine) == [("rejected", 1, 1), ("accepted", 2, 2)]


def test_the_same_validation_twice_in_one_call_counts_once(store: StateStore) -> None:
    judged = judgement()
    first, second = record(store, (key(), judged), (key(), judged))
    assert first == second
    assert store.states([key()])[key()].attempt_count == 1


def test_several_judgements_of_one_partition_apply_in_the_order_given(store: StateStore, engine: Engine) -> None:
    newer, newest = judgement(seq=2), judgement(seq=3)
    recorded = record(
        store, (key(), newest), (key(), newer), (key(day=1), judgement()), (key(), judgement(accepted=False))
    )
    assert [item.outcome.value for item in recorded] == ["accepted", "superseded", "accepted", "rejected"]
    assert [item.attempt_number for item in recorded] == [1, 2, 1, 3]
    assert store.states([key()])[key()].current_run_id == newest.run_id


def test_a_slow_older_run_cannot_take_over(store: StateStore) -> None:
    slow, fast = judgement(seq=10), judgement(seq=11)
    record(store, (key(), fast))
    [late] = record(store, (key(), slow))
    assert late.outcome is AttemptOutcome.SUPERSEDED
    state = store.states([key()])[key()]
    assert (state.current_run_id, state.current_run_seq, state.attempt_count) == (fast.run_id, 11, 2)


def test_a_rejected_reprocessing_leaves_the_success_publishable(store: StateStore) -> None:
    good = judgement()
    record(store, (key(), good))
    [reprocessed] = record(store, (key(), judgement(accepted=False)))
    assert reprocessed.outcome is AttemptOutcome.REJECTED
    [state] = store.publishable([key()])
    assert (state.current_run_id, state.error_message, state.attempt_count) == (good.run_id, None, 2)


def test_a_batch_with_one_forbidden_judgement_records_none_of_it(store: StateStore, engine: Engine) -> None:
    authority = judgement()
    record(store, (key(), authority))
    altered = judgement(run_id=authority.run_id, root="again")
    with pytest.raises(TransitionError, match="its seal was altered"):
        record(store, (key(day=1), judgement()), (key(), altered))
    assert store.states([key(day=1)]) == {}
    assert attempts(engine) == [("accepted", 1, 1)]


def test_a_run_judged_under_two_partitions_is_refused(store: StateStore) -> None:
    judged = judgement()
    record(store, (key(), judged))
    with pytest.raises(TransitionError, match="a run belongs to one partition"):
        record(store, (key(day=1), judged))
    assert store.states([key(day=1)]) == {}


def test_error_messages_that_quote_broken_text_are_recorded(store: StateStore) -> None:
    broken = replace(judgement(accepted=False), error_message="name 'a\x00b' and '\ud800' : %s {0} it's")
    store.record_judgements(
        [(key(), broken)], now=NOW, dagster_run_id=None, rule_results={broken.validation_id: [{"detail": "\x00"}]}
    )
    assert store.states([key()])[key()].error_message == "name 'a\ufffdb' and '?' : %s {0} it's"


def test_three_thousand_judgements_take_as_many_statements_as_one(store: StateStore, engine: Engine) -> None:
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    keys = [key(customer, day) for customer in range(100) for day in range(30)]
    record(store, (key(query="ad_group"), judgement()))
    for_one = len(statements)
    record(store, *((each, judgement()) for each in keys))
    assert len(statements) == 2 * for_one
    assert len(store.publishable(keys)) == 3000


def test_spend_is_recorded_with_its_attempt(store: StateStore, engine: Engine) -> None:
    record(store, (key(), replace(judgement(), spend_micros=12_500_000, comparable_spend_micros=None)))
    with engine.begin() as connection:
        found = connection.execute(text("SELECT spend_micros, comparable_spend_micros FROM partition_attempt")).one()
    assert tuple(found) == (12_500_000, None)
    with pytest.raises(StateStoreError, match="partition_attempt_spend_check"):
        record(store, (key(day=1), replace(judgement(), comparable_spend_micros=-1)))


def test_validators_racing_for_the_same_partitions_count_every_attempt_once_and_never_deadlock(
    database_url: str, store: StateStore, engine: Engine
) -> None:
    keys = [key(customer) for customer in range(4)]
    rounds = 100
    shared = [[judgement() for _ in keys] for _ in range(rounds)]
    own = {name: [[judgement() for _ in keys] for _ in range(rounds)] for name in ("a", "b")}
    together = Barrier(2)

    def validator(name: str) -> None:
        engine_of_its_own = open_engine(database_url)
        own_store = StateStore(engine_of_its_own)
        for repeated, single in zip(shared, own[name], strict=True):
            batch = [*zip(keys, repeated, strict=True), *zip(keys, single, strict=True)]
            together.wait(timeout=60)
            record(own_store, *(batch if name == "a" else reversed(batch)))
        engine_of_its_own.dispose()

    with ThreadPoolExecutor(2) as pool:
        for finished in [pool.submit(validator, name) for name in own]:
            finished.result(timeout=120)

    for each in keys:
        state = store.states([each])[each]
        assert (state.attempt_count, state.version) == (3 * rounds, 3 * rounds)
    with engine.begin() as connection:
        gaps = connection.execute(
            text("SELECT count(*) FROM partition_attempt WHERE attempt_number <> state_version")
        ).scalar_one()
        newest_accepted = connection.execute(
            text("SELECT customer_id, max(run_seq) FROM partition_attempt WHERE outcome = 'accepted' GROUP BY 1")
        ).all()
    assert gaps == 0
    assert {each.customer_id: store.states([each])[each].current_run_seq for each in keys} == dict(
        tuple(row) for row in newest_accepted
    )


def test_validators_racing_to_judge_a_partition_for_the_first_time_make_one_row_and_lose_nothing(
    database_url: str, store: StateStore
) -> None:
    rounds = 50
    fresh = [[key(customer, day) for day in range(5)] for customer in range(rounds)]
    shared = [[judgement() for _ in keys] for keys in fresh]
    together = Barrier(2)

    def validator() -> None:
        engine_of_its_own = open_engine(database_url)
        own_store = StateStore(engine_of_its_own)
        for keys, repeated in zip(fresh, shared, strict=True):
            together.wait(timeout=60)
            record(own_store, *zip(keys, repeated, strict=True), *((each, judgement()) for each in keys))
        engine_of_its_own.dispose()

    with ThreadPoolExecutor(2) as pool:
        for finished in [pool.submit(validator) for _ in range(2)]:
            finished.result(timeout=120)
    states = store.states(each for keys in fresh for each in keys)
    assert [(state.attempt_count, state.version) for state in states.values()] == [(3, 3)] * (5 * rounds)


def test_run_seqs_rise_and_are_never_given_twice(store: StateStore) -> None:
    [first] = store.allocate_run_seqs(1)
    more = store.allocate_run_seqs(500)
    assert more == sorted(set(more))
    assert first < more[0]
    assert store.allocate_run_seqs(1)[0] > more[-1]
    assert store.allocate_run_seqs(0) == []


def test_extractions_touch_no_partition_state_and_stay_as_first_written(store: StateStore, engine: Engine) -> None:
    failed = ExtractionAttempt(
        key=key(),
        run_id=RunId(str(ULID())),
        run_seq=1,
        outcome=ExtractionOutcome.FAILED,
        error_class="quota",
        error_message="wait",
        started_at=NOW,
        finished_at=NOW,
        dagster_run_id="dagster-run",
        retry_at=NOW + timedelta(hours=12),
    )
    store.record_extractions([failed])
    store.record_extractions([replace(failed, error_message="another"), replace(failed, run_id=RunId(str(ULID())))])
    with engine.begin() as connection:
        recorded = connection.execute(text("SELECT error_message, retry_at FROM extraction_attempt")).all()
    assert [tuple(row) for row in recorded] == [("wait", NOW + timedelta(hours=12))] * 2
    assert store.states([key()]) == {}


def test_the_first_load_record_of_a_run_stays(store: StateStore) -> None:
    accepted, newer = judgement(), judgement()
    record(store, (key(), accepted), (key(), newer))
    first = LoadRecord(
        key=key(),
        run_id=accepted.run_id,
        schema_version="1",
        record_count=3,
        content_digest="digest",
        stage_id=StageId("stage-1"),
        pointer_version=4,
        loaded_at=NOW,
    )
    later = replace(first, stage_id=StageId("stage-2"), loaded_at=NOW + timedelta(hours=1))
    of_another_run = replace(later, run_id=newer.run_id)
    store.record_loads([first])
    store.record_loads([later, of_another_run])
    assert store.load_records() == [first, of_another_run]
    assert store.load_records([key(day=1)]) == []
    assert store.load_records([key()]) == [first, of_another_run]
