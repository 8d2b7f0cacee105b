"""Every transition of partition state, and what must hold along any sequence of them."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.state import (
    AttemptOutcome,
    Decision,
    DemotionIntent,
    Judgement,
    PartitionState,
    PartitionStatus,
    decide,
    state_after,
    state_after_demotion,
    state_returned_to_pending,
    validation_id,
)
from gads_assets.errors import TransitionError

PENDING, SUCCESS, FAILED = PartitionStatus.PENDING, PartitionStatus.SUCCESS, PartitionStatus.FAILED
ACCEPTED, REJECTED = AttemptOutcome.ACCEPTED, AttemptOutcome.REJECTED
SUPERSEDED, DEMOTED = AttemptOutcome.SUPERSEDED, AttemptOutcome.DEMOTED

NOW = datetime(2024, 6, 2, 8, tzinfo=UTC)
KEY = PartitionKey(
    source="google_ads", customer_id=CustomerId("1234567890"), query_name="campaign", logical_date=date(2024, 6, 1)
)
AUTHORITY_SEQ = 50


def run(seq: int) -> RunId:
    return RunId(f"01HZ{seq:022d}")


def judgement(seq: int, *, accepted: bool, root: str = "dagster-run") -> Judgement:
    return Judgement(
        run_id=run(seq),
        run_seq=seq,
        schema_version="2",
        record_count=seq,
        content_digest="digest" if accepted else None,
        seal_sha256="5" * 64 if accepted else None,
        accepted=accepted,
        error_message=None if accepted else f"run {seq} is bad",
        validation_id=validation_id(run(seq), root),
    )


def state_with_authority(status: PartitionStatus) -> PartitionState:
    return PartitionState(
        key=KEY,
        status=status,
        current_run_id=run(AUTHORITY_SEQ),
        current_run_seq=AUTHORITY_SEQ,
        schema_version="1",
        record_count=7,
        updated_at=NOW - timedelta(days=1),
        error_message="an earlier failure" if status is FAILED else None,
        attempt_count=3,
        version=9,
    )


def without_authority(status: PartitionStatus) -> PartitionState:
    return replace(
        state_with_authority(status),
        current_run_id=None,
        current_run_seq=None,
        schema_version=None,
        record_count=None,
    )


def after(state: PartitionState | None, given_judgement: Judgement) -> PartitionState:
    decision = decide(state, given_judgement)
    return state_after(state, key=KEY, judgement=given_judgement, decision=decision, now=NOW)


OLDER, SAME, NEWER = AUTHORITY_SEQ - 1, AUTHORITY_SEQ, AUTHORITY_SEQ + 1


@pytest.mark.parametrize(
    ("status", "judged_seq", "accepted", "outcome", "status_after", "authority_after"),
    [
        (PENDING, NEWER, True, ACCEPTED, SUCCESS, NEWER),
        (PENDING, SAME, True, ACCEPTED, SUCCESS, SAME),
        (PENDING, OLDER, True, SUPERSEDED, PENDING, SAME),
        (PENDING, NEWER, False, REJECTED, FAILED, SAME),
        (PENDING, SAME, False, REJECTED, FAILED, SAME),
        (PENDING, OLDER, False, REJECTED, FAILED, SAME),
        (FAILED, NEWER, True, ACCEPTED, SUCCESS, NEWER),
        (FAILED, SAME, True, ACCEPTED, SUCCESS, SAME),
        (FAILED, OLDER, True, SUPERSEDED, FAILED, SAME),
        (FAILED, NEWER, False, REJECTED, FAILED, SAME),
        (FAILED, SAME, False, REJECTED, FAILED, SAME),
        (FAILED, OLDER, False, REJECTED, FAILED, SAME),
        (SUCCESS, NEWER, True, ACCEPTED, SUCCESS, NEWER),
        (SUCCESS, SAME, True, ACCEPTED, SUCCESS, SAME),
        (SUCCESS, OLDER, True, SUPERSEDED, SUCCESS, SAME),
        (SUCCESS, NEWER, False, REJECTED, SUCCESS, SAME),
        (SUCCESS, SAME, False, DEMOTED, SUCCESS, SAME),
        (SUCCESS, OLDER, False, REJECTED, SUCCESS, SAME),
    ],
)
def test_each_status_run_and_verdict_has_one_outcome_and_only_an_accepted_newer_run_moves_authority(
    *,
    status: PartitionStatus,
    judged_seq: int,
    accepted: bool,
    outcome: AttemptOutcome,
    status_after: PartitionStatus,
    authority_after: int,
) -> None:
    before = state_with_authority(status)
    judged = judgement(judged_seq, accepted=accepted)
    decision = decide(before, judged)
    result = after(before, judged)
    assert decision == Decision(outcome=outcome, status=status_after, moves_authority=authority_after != SAME)
    assert decision.opens_demotion == (outcome is DEMOTED)
    assert (result.status, result.current_run_id, result.current_run_seq) == (
        status_after,
        run(authority_after),
        authority_after,
    )
    assert (result.attempt_count, result.version, result.updated_at) == (4, 10, NOW)


@pytest.mark.parametrize("before", [None, without_authority(PENDING), without_authority(FAILED)])
def test_the_first_accepted_run_becomes_the_authority_however_old(before: PartitionState | None) -> None:
    result = after(before, judgement(1, accepted=True))
    assert (result.status, result.current_run_id, result.current_run_seq) == (SUCCESS, run(1), 1)
    assert (result.schema_version, result.record_count, result.error_message) == ("2", 1, None)


@pytest.mark.parametrize("before", [None, without_authority(PENDING), without_authority(FAILED)])
def test_a_rejected_run_never_becomes_current(before: PartitionState | None) -> None:
    result = after(before, judgement(1, accepted=False))
    assert (result.status, result.error_message) == (FAILED, "run 1 is bad")
    assert (result.current_run_id, result.current_run_seq, result.record_count) == (None, None, None)


def test_the_first_attempt_of_a_partition_without_a_row_makes_version_one() -> None:
    result = after(None, judgement(1, accepted=True))
    assert (result.key, result.attempt_count, result.version) == (KEY, 1, 1)


def test_a_rejected_reprocessing_leaves_the_success_and_its_description_as_they_were() -> None:
    before = state_with_authority(SUCCESS)
    result = after(before, judgement(NEWER, accepted=False))
    assert result == replace(before, attempt_count=4, version=10, updated_at=NOW)


def test_a_superseded_run_leaves_the_standing_failure_and_its_reason() -> None:
    before = state_with_authority(FAILED)
    result = after(before, judgement(OLDER, accepted=True))
    assert result == replace(before, attempt_count=4, version=10, updated_at=NOW)


def test_a_run_judged_under_another_run_seq_than_it_was_accepted_with_is_refused() -> None:
    altered = replace(judgement(SAME, accepted=True), run_seq=NEWER)
    with pytest.raises(TransitionError, match=r"run_seq 51 but was accepted with 50.*retry the partition"):
        decide(state_with_authority(SUCCESS), altered)


def test_a_finished_demotion_shows_the_failure_and_keeps_the_authority_it_withdrew() -> None:
    opened = after(state_with_authority(SUCCESS), judgement(SAME, accepted=False))
    result = state_after_demotion(opened, intent_for(opened), now=NOW)
    assert result == replace(opened, status=FAILED, error_message="it was bad", version=opened.version + 1)


def test_a_demotion_finished_after_a_newer_run_took_over_leaves_that_success() -> None:
    opened = after(state_with_authority(SUCCESS), judgement(SAME, accepted=False))
    overtaken = after(opened, judgement(NEWER, accepted=True))
    assert state_after_demotion(overtaken, intent_for(opened), now=NOW) == overtaken


def intent_for(opened: PartitionState) -> DemotionIntent:
    return DemotionIntent(
        key=KEY,
        run_id=run(SAME),
        state_version=opened.version,
        validation_id="v",
        error_message="it was bad",
        started_at=NOW,
    )


def test_a_failure_returns_to_pending_with_its_count_and_its_authority() -> None:
    before = state_with_authority(FAILED)
    assert state_returned_to_pending(before, key=KEY, now=NOW) == replace(
        before, status=PENDING, error_message=None, updated_at=NOW, version=10
    )


@pytest.mark.parametrize("state", [None, state_with_authority(SUCCESS), without_authority(PENDING)])
def test_nothing_but_a_failure_returns_to_pending(state: PartitionState | None) -> None:
    with pytest.raises(TransitionError, match=rf"is {state.status if state else PENDING}; only a failed partition"):
        state_returned_to_pending(state, key=KEY, now=NOW)


@given(st.lists(st.tuples(st.integers(1, 8), st.booleans()), min_size=1, max_size=30))
def test_along_any_history_counts_rise_by_one_authority_rises_and_only_accepted_runs_hold_it(
    history: list[tuple[int, bool]],
) -> None:
    state: PartitionState | None = None
    accepted_runs: set[RunId | None] = {None}
    for attempt, (seq, accepted) in enumerate(history, start=1):
        before = state
        state = after(before, judgement(seq, accepted=accepted))
        if accepted:
            accepted_runs.add(run(seq))
        assert (state.attempt_count, state.version) == (attempt, attempt)
        assert state.current_run_id in accepted_runs
        assert (state.current_run_seq or 0) >= ((before.current_run_seq if before else None) or 0)
        assert (state.error_message is None) == (state.status is not FAILED)
        assert state.status is not PENDING


def test_the_same_judging_has_the_same_validation_id_and_any_other_a_different_one() -> None:
    first = validation_id(run(1), "root-a")
    assert first == validation_id(run(1), "root-a")
    assert len({first, validation_id(run(2), "root-a"), validation_id(run(1), "root-b")}) == 3


@pytest.mark.parametrize(
    ("accepted", "digest", "error"),
    [(True, None, None), (True, "digest", "but bad"), (False, "digest", None), (False, None, "")],
)
def test_a_judgement_that_says_both_or_neither_cannot_be_made(
    accepted: bool, digest: str | None, error: str | None
) -> None:
    with pytest.raises(ValueError, match="run 01HZ"):
        replace(judgement(1, accepted=True), accepted=accepted, content_digest=digest, error_message=error)
