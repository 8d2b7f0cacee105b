"""What follows a try: told from the ledger's word, and decided without a clock or a database."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.ledger_news import Disposition, Extraction, LedgerNews, RunEnd, Scheduled, Verdict, history_of
from gads_assets.domain.retrying import (
    BY_HAND_ONLY,
    MANUAL,
    UNCOUNTED,
    Blocked,
    History,
    Last,
    NextStep,
    Nothing,
    RetryAt,
    RetryPolicy,
    Terminal,
    Wait,
    next_step,
)
from gads_assets.domain.scheduling import Purpose
from gads_assets.domain.state import AttemptOutcome, ExtractionOutcome, PartitionStatus

NOW = datetime(2024, 7, 1, 12, tzinfo=UTC)
FAILED_AT = NOW - timedelta(minutes=1)
POLICY = RetryPolicy()
MINUTES = (5, 30, 120, 120)
KEY = PartitionKey(
    source="google_ads", customer_id=CustomerId("1234567890"), query_name="campaign", logical_date=date(2024, 6, 1)
)


def step(history: History, *, random: float = 1.0, policy: RetryPolicy = POLICY) -> NextStep:
    return next_step(history, policy, now=NOW, random=lambda: random)


def rejected(times: int, **more: object) -> History:
    return replace(History(last=Last.REJECTED, attempts=times, reason="bad rows"), **more)  # type: ignore[arg-type]


def not_extracted(times: int, error: str = "transient", **more: object) -> History:
    known = History(last=Last.NOT_EXTRACTED, failures=times, error_class=error, reason="unavailable")
    return replace(known, **more)  # type: ignore[arg-type]


def fruitless(runs: int) -> History:
    return History(last=Last.CAME_TO_NOTHING, fruitless=runs, reason="it was killed")


@pytest.mark.parametrize("last", [Last.NOTHING, Last.ACCEPTED])
def test_what_is_as_it_should_be_is_left_alone(last: Last) -> None:
    assert step(History(last=last)) == Nothing()


def test_what_a_run_has_is_waited_for() -> None:
    assert step(History(last=Last.UNDER_WAY)) == Wait()


@pytest.mark.parametrize("make", [rejected, not_extracted, fruitless])
@pytest.mark.parametrize(("times", "longest"), list(enumerate(MINUTES, start=1)))
def test_waits_grow_to_two_hours_and_are_between_half_and_the_whole_of_it(
    make: Callable[[int], History], times: int, longest: int
) -> None:
    soonest, latest = step(make(times), random=0.0), step(make(times), random=1.0)
    assert isinstance(soonest, RetryAt)
    assert isinstance(latest, RetryAt)
    assert (soonest.at - NOW, latest.at - NOW) == (
        timedelta(minutes=longest / 2),
        timedelta(minutes=longest),
    )
    assert str(longest) in latest.strategy


@given(st.integers(0, 4), st.floats(0, 1, exclude_max=True), st.integers(0, 600))
def test_no_try_comes_before_the_errors_own_delay_nor_without_a_wait(
    failures: int, random: float, minutes: int
) -> None:
    delay = timedelta(minutes=minutes)
    found = step(not_extracted(failures, delay=delay), random=random)
    assert isinstance(found, RetryAt)
    assert found.at >= NOW + max(delay, timedelta(minutes=2.5))
    assert found.at <= NOW + max(delay, timedelta(hours=2))


def test_the_errors_own_delay_is_told_when_it_decides() -> None:
    assert step(not_extracted(1, delay=timedelta(hours=12))) == RetryAt(
        at=NOW + timedelta(hours=12), strategy="the error's own delay", reason="unavailable"
    )
    found = step(not_extracted(1, delay=timedelta(seconds=30)))
    assert isinstance(found, RetryAt)
    assert (found.at, found.strategy) == (NOW + timedelta(minutes=5), "exponential, try 2, within 5 min")


def test_so_many_rejections_since_the_baseline_are_terminal() -> None:
    assert isinstance(step(rejected(POLICY.max_attempts - 1)), RetryAt)
    found = step(rejected(POLICY.max_attempts))
    assert found == Terminal(reason="rejected 5 times, and 5 are allowed: bad rows")


def test_so_many_runs_that_could_not_extract_are_blocked() -> None:
    assert isinstance(step(not_extracted(POLICY.max_extraction_attempts - 1)), RetryAt)
    found = step(not_extracted(POLICY.max_extraction_attempts))
    assert found == Blocked(reason="not extracted 8 times, and 8 are allowed: unavailable")


def test_so_many_runs_that_never_tried_are_blocked() -> None:
    assert isinstance(step(fruitless(POLICY.max_extraction_attempts - 1)), RetryAt)
    assert step(fruitless(POLICY.max_extraction_attempts)) == Blocked(
        reason="8 runs ended before they tried it: it was killed"
    )


def test_what_has_failed_for_the_longest_time_is_tried_no_more() -> None:
    young, old = NOW - POLICY.max_age + timedelta(seconds=1), NOW - POLICY.max_age
    assert isinstance(step(rejected(1, began_at=young)), RetryAt)
    assert isinstance(step(not_extracted(1, began_at=young)), RetryAt)
    assert step(rejected(1, began_at=old)) == Terminal(
        reason="failing since 2024-06-17, and after 14 days nothing is tried again: bad rows"
    )
    assert step(not_extracted(1, began_at=old)) == Blocked(
        reason="failing since 2024-06-17, and after 14 days nothing is tried again: unavailable"
    )


@pytest.mark.parametrize("error", sorted(BY_HAND_ONLY))
def test_what_fails_until_somebody_changes_something_is_blocked_at_once(error: str) -> None:
    assert step(not_extracted(1, error)) == Blocked(reason="unavailable")


@pytest.mark.parametrize("error", sorted(UNCOUNTED))
def test_a_quota_uses_up_no_try_and_still_makes_the_next_one_wait(error: str) -> None:
    found = step(not_extracted(POLICY.max_extraction_attempts - 1, error, uncounted=50, began_at=NOW - timedelta(60)))
    assert isinstance(found, RetryAt)
    assert found.at == NOW + timedelta(hours=2)
    mixed = step(not_extracted(1, uncounted=1))
    assert isinstance(mixed, RetryAt)
    assert mixed.at == NOW + timedelta(minutes=30)


def test_a_marked_partition_is_terminal_for_the_operators_reason() -> None:
    assert step(History(last=Last.MARKED, reason="the client left")) == Terminal(
        reason="the client left", strategy=MANUAL
    )
    assert step(History(last=Last.MARKED)) == Terminal(reason="marked by hand", strategy=MANUAL)


@pytest.mark.parametrize(("runs", "minutes"), [(0, 30), (1, 30), (2, 120), (7, 120)])
def test_the_reconciler_gets_the_second_wait_at_least_to_judge_what_is_sealed(runs: int, minutes: int) -> None:
    found = step(History(last=Last.UNJUDGED, fruitless=runs))
    assert isinstance(found, RetryAt)
    assert (found.at, found.strategy) == (NOW + timedelta(minutes=minutes), "verdict")


def test_so_many_runs_that_sealed_and_never_judged_are_blocked() -> None:
    assert step(History(last=Last.UNJUDGED, fruitless=POLICY.max_extraction_attempts)) == Blocked(
        reason="8 runs sealed it and ended before they judged it"
    )


@pytest.mark.parametrize(("waits", "expected"), [((5, 30, 120), 30), ((7,), 7)])
def test_what_somebody_cancelled_rests_for_the_second_wait(waits: tuple[int, ...], expected: int) -> None:
    policy = RetryPolicy(backoff=tuple(timedelta(minutes=minutes) for minutes in waits))
    found = step(History(last=Last.CANCELLED, fruitless=99), policy=policy)
    assert isinstance(found, RetryAt)
    assert (found.at, found.strategy) == (NOW + timedelta(minutes=expected), "cancelled")


# What the ledger says

BATCH = "01HZ0000000000000000000001"
ROW = Scheduled(
    purpose=Purpose.FRESH,
    disposition=Disposition.DUE,
    backoff_strategy="its day has opened",
    reason=None,
    baseline_attempts=0,
    baseline_run_seq=0,
    seen_attempts=0,
    seen_run_seq=0,
    fruitless_runs=0,
    failing_since=None,
    decided_at=FAILED_AT - timedelta(days=90),
    overridden=False,
    of_cancelled_backfill=False,
    batch_id=BATCH,
)
UNTRIED = LedgerNews(
    key=KEY,
    status=PartitionStatus.PENDING,
    attempts=0,
    accepted=0,
    accepted_knew=0,
    verdict=None,
    extraction=None,
    failures=0,
    uncounted=0,
    scheduled=ROW,
)
ENDED = RunEnd(cancelled=False, reason="some of its partitions failed")
KILLED = RunEnd(cancelled=False, reason="it was killed")
CANCELLED = RunEnd(cancelled=True, reason="somebody cancelled it")


def verdict(outcome: AttemptOutcome, run_seq: int = 7) -> Verdict:
    is_bad = outcome in {AttemptOutcome.REJECTED, AttemptOutcome.DEMOTED}
    return Verdict(outcome=outcome, run_seq=run_seq, at=FAILED_AT, error_message="bad rows" if is_bad else None)


def extraction(outcome: ExtractionOutcome, run_seq: int = 7) -> Extraction:
    if outcome is ExtractionOutcome.SEALED:
        return Extraction(
            outcome=outcome, run_seq=run_seq, at=FAILED_AT, error_class=None, error_message=None, retry_at=None
        )
    return Extraction(
        outcome=outcome, run_seq=run_seq, at=FAILED_AT, error_class="quota", error_message="too fast", retry_at=NOW
    )


def told(news: LedgerNews, end: RunEnd | None = ENDED) -> History:
    return history_of(news, end, looked_at=None, now=NOW)


def test_a_partition_of_which_nothing_is_known_needs_nothing() -> None:
    assert told(replace(UNTRIED, scheduled=None)).last is Last.NOTHING


@pytest.mark.parametrize("scheduled", [None, ROW, replace(ROW, batch_id=None)])
@pytest.mark.parametrize(
    ("outcome", "last"),
    [
        (AttemptOutcome.ACCEPTED, Last.ACCEPTED),
        (AttemptOutcome.SUPERSEDED, Last.ACCEPTED),
        (AttemptOutcome.REJECTED, Last.REJECTED),
        (AttemptOutcome.DEMOTED, Last.REJECTED),
    ],
)
def test_the_verdict_on_the_newest_extraction_counts(
    outcome: AttemptOutcome, last: Last, scheduled: Scheduled | None
) -> None:
    news = replace(
        UNTRIED,
        attempts=1,
        verdict=verdict(outcome),
        extraction=extraction(ExtractionOutcome.SEALED),
        scheduled=scheduled,
    )
    history = told(news, KILLED)
    assert history.last is last
    assert history.reason == ("bad rows" if last is Last.REJECTED else None)


def test_what_was_extracted_after_the_last_verdict_is_newer() -> None:
    rejected_before = replace(UNTRIED, attempts=1, verdict=verdict(AttemptOutcome.REJECTED, 6))
    sealed = replace(rejected_before, extraction=extraction(ExtractionOutcome.SEALED))
    assert told(sealed).last is Last.UNJUDGED
    failed = replace(
        rejected_before,
        extraction=extraction(ExtractionOutcome.FAILED),
        failures=2,
        uncounted=3,
        scheduled=replace(ROW, failing_since=FAILED_AT),
    )
    assert told(failed) == History(
        last=Last.NOT_EXTRACTED,
        at=FAILED_AT,
        attempts=1,
        failures=2,
        uncounted=3,
        began_at=FAILED_AT,
        error_class="quota",
        delay=NOW - FAILED_AT,
        reason="too fast",
    )


@pytest.mark.parametrize(
    ("wrong_by", "looked_at", "believed"),
    [
        (timedelta(), None, FAILED_AT),
        (timedelta(days=60), None, NOW),
        (timedelta(days=-60), None, FAILED_AT - timedelta(days=60)),
        (timedelta(), FAILED_AT - timedelta(hours=1), FAILED_AT),
        (timedelta(days=-60), FAILED_AT - timedelta(hours=1), FAILED_AT - timedelta(hours=1)),
        (timedelta(days=60), FAILED_AT - timedelta(hours=1), NOW),
        (timedelta(), NOW + timedelta(days=60), NOW),
    ],
)
def test_a_clock_of_those_who_try_is_believed_only_for_the_time_in_which_nobody_looked(
    wrong_by: timedelta, looked_at: datetime | None, believed: datetime
) -> None:
    noted = replace(extraction(ExtractionOutcome.FAILED), at=FAILED_AT + wrong_by)
    history = history_of(replace(UNTRIED, extraction=noted), ENDED, looked_at=looked_at, now=NOW)
    assert history.at == believed
    later = step(replace(history, delay=timedelta(hours=9)))
    assert later == RetryAt(at=believed + timedelta(hours=9), strategy="the error's own delay", reason="too fast")


def test_a_try_was_certainly_after_its_partition_was_dispatched() -> None:
    dispatched_at = FAILED_AT - timedelta(minutes=3)
    behind = replace(extraction(ExtractionOutcome.FAILED), at=FAILED_AT - timedelta(days=60))
    news = replace(UNTRIED, extraction=behind, scheduled=replace(ROW, decided_at=dispatched_at))
    assert history_of(news, ENDED, looked_at=FAILED_AT - timedelta(hours=6), now=NOW).at == dispatched_at


def test_a_verdict_after_the_last_failed_extraction_is_newer() -> None:
    news = replace(
        UNTRIED,
        attempts=1,
        verdict=verdict(AttemptOutcome.REJECTED, 8),
        extraction=extraction(ExtractionOutcome.FAILED),
    )
    history = told(news)
    assert (history.last, history.error_class, history.delay) == (Last.REJECTED, None, None)


@pytest.mark.parametrize(("accepted", "baseline", "left"), [(0, 0, 9), (6, 2, 3), (2, 6, 3)])
def test_attempts_count_from_the_last_success_or_the_operators_word(accepted: int, baseline: int, left: int) -> None:
    news = replace(
        UNTRIED,
        attempts=9,
        accepted=accepted,
        verdict=verdict(AttemptOutcome.REJECTED),
        scheduled=replace(ROW, baseline_attempts=baseline),
    )
    assert told(news).attempts == left


def test_a_run_that_ended_and_left_no_trace_came_to_nothing() -> None:
    known = replace(
        UNTRIED,
        attempts=3,
        accepted=1,
        verdict=verdict(AttemptOutcome.REJECTED),
        extraction=extraction(ExtractionOutcome.SEALED),
        scheduled=replace(ROW, seen_attempts=3, seen_run_seq=7, fruitless_runs=2),
    )
    assert told(known, KILLED) == History(last=Last.CAME_TO_NOTHING, attempts=2, fruitless=3, reason="it was killed")
    waited = history_of(known, KILLED, looked_at=None, now=NOW - timedelta(days=60))
    rejected_first_today = replace(
        known,
        attempts=4,
        verdict=verdict(AttemptOutcome.REJECTED),
        scheduled=replace(known.scheduled or ROW, failing_since=waited.began_at),
    )
    assert isinstance(step(told(rejected_first_today)), RetryAt)
    cancelled = told(known, CANCELLED)
    assert (cancelled.last, cancelled.fruitless) == (Last.CANCELLED, 2)


def test_a_run_that_left_a_trace_is_told_by_that_however_it_ended() -> None:
    sealed = replace(UNTRIED, extraction=extraction(ExtractionOutcome.SEALED))
    assert told(sealed, CANCELLED).last is Last.UNJUDGED
    rejected = replace(sealed, attempts=1, verdict=verdict(AttemptOutcome.REJECTED))
    assert (told(rejected, KILLED).last, told(rejected, KILLED).fruitless) == (Last.REJECTED, 0)


def test_a_run_that_sealed_and_was_killed_before_the_verdict_counts_as_one_that_came_to_nothing() -> None:
    sealed = replace(UNTRIED, extraction=extraction(ExtractionOutcome.SEALED), scheduled=replace(ROW, fruitless_runs=3))
    assert told(sealed, KILLED).fruitless == 4
    assert told(sealed, CANCELLED).fruitless == 3
    by_hand = replace(sealed, scheduled=replace(ROW, batch_id=None))
    assert told(by_hand, None).fruitless == 0


def test_what_waits_for_its_run_or_is_in_it_is_under_way() -> None:
    assert told(UNTRIED, None).last is Last.UNDER_WAY


def test_a_failure_is_as_old_as_the_control_plane_knows_of_it_whatever_clocks_say() -> None:
    rejected = replace(UNTRIED, attempts=1, verdict=verdict(AttemptOutcome.REJECTED))
    assert told(rejected).began_at == NOW
    known = replace(rejected, attempts=2, scheduled=replace(ROW, seen_attempts=1, failing_since=FAILED_AT))
    assert told(known).began_at == FAILED_AT
    good_since = replace(known, attempts=3, accepted=2)
    assert told(good_since).began_at == NOW
    for_want_of_quota = replace(UNTRIED, extraction=extraction(ExtractionOutcome.FAILED))
    assert told(for_want_of_quota).began_at is None


def test_an_older_run_that_is_judged_again_and_good_ends_all_tries() -> None:
    row = replace(ROW, seen_attempts=1, seen_run_seq=9)
    accepted = replace(
        UNTRIED,
        status=PartitionStatus.SUCCESS,
        attempts=2,
        accepted=2,
        verdict=verdict(AttemptOutcome.ACCEPTED),
        extraction=extraction(ExtractionOutcome.FAILED, 9),
        scheduled=row,
    )
    assert told(accepted).last is Last.ACCEPTED
    failed_since = replace(accepted, extraction=extraction(ExtractionOutcome.FAILED, 10))
    assert told(failed_since).last is Last.NOT_EXTRACTED
    failed_before_the_verdict = replace(failed_since, accepted_knew=10)
    assert told(failed_before_the_verdict).last is Last.ACCEPTED
    rejected_again = replace(accepted, accepted=0, verdict=verdict(AttemptOutcome.REJECTED))
    assert told(rejected_again).last is Last.NOT_EXTRACTED


@pytest.mark.parametrize(
    ("purpose", "asked_for_after", "strategy", "last"),
    [
        (Purpose.RETRY, 7, MANUAL, Last.WANTED),
        (Purpose.RETRY, 7, "cancelled", Last.WANTED),
        (Purpose.RESTATEMENT, None, "7 days old", Last.WANTED),
        (Purpose.RETRY, None, "exponential", Last.ACCEPTED),
        (Purpose.RETRY, 6, "exponential", Last.ACCEPTED),  # extracted since, in vain
        (Purpose.REVALIDATE, 7, MANUAL, Last.ACCEPTED),
    ],
)
def test_what_is_to_be_extracted_stays_so_when_an_older_run_is_judged_again(
    purpose: Purpose, asked_for_after: int | None, strategy: str, last: Last
) -> None:
    row = replace(
        ROW,
        batch_id=None,
        purpose=purpose,
        overridden=asked_for_after is not None,
        baseline_run_seq=asked_for_after or 0,
        backoff_strategy=strategy,
        seen_attempts=1,
        seen_run_seq=7,
    )
    news = replace(
        UNTRIED,
        status=PartitionStatus.SUCCESS,
        attempts=2,
        accepted=2,
        verdict=verdict(AttemptOutcome.ACCEPTED),
        extraction=extraction(ExtractionOutcome.SEALED),
        scheduled=row,
    )
    history = told(news, None)
    assert history.last is last
    if last is Last.WANTED:
        assert step(history) == RetryAt(at=NOW, strategy=strategy, reason=row.reason)
        in_a_batch = replace(news, scheduled=replace(row, batch_id=BATCH, fruitless_runs=2))
        assert (told(in_a_batch, KILLED).last, told(in_a_batch, KILLED).fruitless) == (Last.CAME_TO_NOTHING, 3)
        assert told(in_a_batch, CANCELLED).last is Last.CANCELLED


def test_what_a_cancelled_backfill_left_is_tried_no_more() -> None:
    row = replace(ROW, purpose=Purpose.BACKFILL, of_cancelled_backfill=True)
    untouched = replace(UNTRIED, scheduled=row)
    assert told(untouched, CANCELLED).last is Last.NOTHING
    failed = replace(untouched, attempts=1, verdict=verdict(AttemptOutcome.REJECTED))
    assert told(failed) == History(last=Last.MARKED, reason="its backfill was cancelled")
    good = replace(failed, verdict=verdict(AttemptOutcome.ACCEPTED))
    assert told(good).last is Last.ACCEPTED
    asked_for_by_hand = replace(failed, scheduled=replace(row, purpose=Purpose.RETRY))
    assert told(asked_for_by_hand).last is Last.REJECTED


def test_what_an_operator_marked_stays_so_until_a_run_is_good() -> None:
    marked = replace(
        ROW, batch_id=None, disposition=Disposition.TERMINAL, backoff_strategy=MANUAL, reason="the client left"
    )
    bad = replace(UNTRIED, attempts=1, verdict=verdict(AttemptOutcome.REJECTED), scheduled=marked)
    assert told(bad) == History(last=Last.MARKED, reason="the client left")
    good = replace(bad, verdict=verdict(AttemptOutcome.ACCEPTED))
    assert told(good).last is Last.ACCEPTED
    terminal_by_count = replace(bad, scheduled=replace(marked, backoff_strategy="terminal"))
    assert told(terminal_by_count).last is Last.REJECTED
