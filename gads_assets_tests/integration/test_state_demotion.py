"""An authority found bad: three steps, a crash after each, and no moment at which a loader could publish it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy import Engine
from ulid import ULID

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.state import AttemptOutcome, DemotionIntent, Judgement, PartitionStatus, validation_id
from gads_assets.errors import TransitionError
from gads_assets.state.connection import open_engine
from gads_assets.state.judging import RecordedJudgement
from gads_assets.state.partition_states import StateStore
from gads_assets_tests.ledgers import SEAL

NOW = datetime(2024, 7, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
KEY = PartitionKey(
    source="google_ads", customer_id=CustomerId("1234567890"), query_name="campaign", logical_date=date(2024, 6, 1)
)
NEIGHBOUR = replace(KEY, logical_date=date(2024, 6, 2))

Restart = Callable[[], StateStore]


@pytest.fixture
def restarted(database_url: str, request: pytest.FixtureRequest) -> Restart:
    """A store as the next process has it: nothing survives but the database."""

    def open_store() -> StateStore:
        engine = open_engine(database_url)
        request.addfinalizer(engine.dispose)
        return StateStore(engine)

    return open_store


def judged(run_id: str, seq: int, *, accepted: bool, root: str) -> Judgement:
    return Judgement(
        run_id=RunId(run_id),
        run_seq=seq,
        schema_version="1",
        record_count=3,
        content_digest="digest" if accepted else None,
        seal_sha256=SEAL if accepted else None,
        accepted=accepted,
        error_message=None if accepted else f"bad, says {root}",
        validation_id=validation_id(RunId(run_id), root),
    )


def record(store: StateStore, judgement: Judgement, key: PartitionKey = KEY) -> RecordedJudgement:
    [recorded] = store.record_judgements([(key, judgement)], now=NOW, dagster_run_id="dagster-run")
    return recorded


@pytest.fixture
def published(store: StateStore) -> Judgement:
    """The partition has an authority, at version 1."""
    authority = judged(str(ULID()), 10, accepted=True, root="first")
    record(store, authority)
    record(store, judged(str(ULID()), 11, accepted=True, root="first"), NEIGHBOUR)
    return authority


def demote(store: StateStore, authority: Judgement) -> DemotionIntent:
    recorded = record(store, judged(authority.run_id, authority.run_seq, accepted=False, root="revalidation"))
    assert recorded.outcome is AttemptOutcome.DEMOTED
    assert recorded.demotion_opened is not None
    return recorded.demotion_opened


def publishable(store: StateStore) -> list[PartitionKey]:
    return [state.key for state in store.publishable([KEY, NEIGHBOUR])]


def test_an_undisturbed_demotion_ends_failed_two_versions_later_with_one_attempt_more(
    store: StateStore, published: Judgement
) -> None:
    intent = demote(store, published)
    finished = store.finish_demotions([intent], now=LATER)[0]
    assert intent.state_version == 2
    assert (finished.status, finished.version, finished.attempt_count) == (PartitionStatus.FAILED, 3, 2)
    assert (finished.current_run_id, finished.error_message) == (published.run_id, "bad, says revalidation")
    assert store.states([KEY])[KEY] == finished
    assert store.open_demotions() == []
    assert publishable(store) == [NEIGHBOUR]


def test_a_crash_after_the_intent_leaves_the_status_success_and_nothing_publishable(
    store: StateStore, published: Judgement, restarted: Restart
) -> None:
    intent = demote(store, published)
    survivor = restarted()
    state = survivor.states([KEY])[KEY]
    assert (state.status, state.version) == (PartitionStatus.SUCCESS, 2)
    assert survivor.open_demotions() == [intent]
    assert publishable(survivor) == [NEIGHBOUR]


def test_a_step_executed_again_after_a_crash_is_handed_the_open_intent_to_finish(
    store: StateStore, published: Judgement, restarted: Restart
) -> None:
    intent = demote(store, published)
    again = record(restarted(), judged(published.run_id, published.run_seq, accepted=False, root="revalidation"))
    assert (again.repeated, again.demotion_opened, again.state.version) == (True, intent, 2)


def test_a_crash_before_the_failure_shows_is_finished_by_whoever_lists_the_open_intents(
    store: StateStore, published: Judgement, restarted: Restart
) -> None:
    demote(store, published)
    reconciler = restarted()
    [found] = reconciler.open_demotions()
    assert reconciler.finish_demotions([found], now=LATER)[0].status is PartitionStatus.FAILED


def test_a_crash_after_the_failure_shows_leaves_nothing_to_do_and_repeating_changes_nothing(
    store: StateStore, published: Judgement, restarted: Restart
) -> None:
    intent = demote(store, published)
    finished = store.finish_demotions([intent], now=NOW)[0]
    survivor = restarted()
    assert survivor.finish_demotions([intent], now=LATER)[0] == finished
    again = record(survivor, judged(published.run_id, published.run_seq, accepted=False, root="revalidation"))
    assert (again.repeated, again.demotion_opened) == (True, None)
    assert survivor.states([KEY])[KEY] == finished


def test_a_newer_run_accepted_meanwhile_stays_unpublishable_until_the_withdrawal_is_finished_and_then_stands(
    store: StateStore, published: Judgement
) -> None:
    intent = demote(store, published)
    newer = judged(str(ULID()), 20, accepted=True, root="retry")
    record(store, newer)
    assert publishable(store) == [NEIGHBOUR]
    finished = store.finish_demotions([intent], now=LATER)[0]
    assert (finished.status, finished.current_run_id, finished.version) == (PartitionStatus.SUCCESS, newer.run_id, 3)
    assert publishable(store) == [KEY, NEIGHBOUR]


def test_rejecting_the_authority_again_while_it_is_withdrawn_counts_and_keeps_the_first_intent(
    store: StateStore, published: Judgement
) -> None:
    intent = demote(store, published)
    second = record(store, judged(published.run_id, published.run_seq, accepted=False, root="another"))
    assert (second.outcome, second.demotion_opened, second.state.attempt_count) == (AttemptOutcome.DEMOTED, intent, 3)
    assert store.finish_demotions([intent], now=LATER)[0].version == 4


def test_a_second_authority_found_bad_while_the_first_is_withdrawn_takes_over_the_intent(
    store: StateStore, published: Judgement
) -> None:
    first = demote(store, published)
    newer = judged(str(ULID()), 20, accepted=True, root="retry")
    record(store, newer)
    second = demote(store, newer)
    assert store.open_demotions() == [second]
    assert store.finish_demotions([first], now=LATER)[0].status is PartitionStatus.SUCCESS
    assert publishable(store) == [NEIGHBOUR]
    assert store.finish_demotions([second], now=LATER)[0].status is PartitionStatus.FAILED


def test_a_demoted_run_that_passes_again_becomes_publishable_again(store: StateStore, published: Judgement) -> None:
    store.finish_demotions([demote(store, published)], now=NOW)
    restored = record(store, judged(published.run_id, published.run_seq, accepted=True, root="restored"))
    assert (restored.state.status, restored.state.version) == (PartitionStatus.SUCCESS, 4)
    assert publishable(store) == [KEY, NEIGHBOUR]


def test_finishing_a_demotion_of_a_partition_without_state_is_refused(store: StateStore, engine: Engine) -> None:
    invented = DemotionIntent(
        key=KEY,
        run_id=RunId(str(ULID())),
        state_version=1,
        validation_id="v",
        error_message="bad",
        started_at=NOW,
    )
    with pytest.raises(TransitionError, match="has no state"):
        store.finish_demotions([invented], now=NOW)
