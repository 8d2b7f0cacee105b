"""How the newest try of a partition ended, told from what the ledger and its run say."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.retrying import MANUAL, UNCOUNTED, History, Last
from gads_assets.domain.scheduling import Purpose
from gads_assets.domain.state import AttemptOutcome, ExtractionOutcome, PartitionStatus

CANCELLED_BACKFILL: Final = "its backfill was cancelled"


class Disposition(StrEnum):
    DUE = "due"
    """It is to run, at `next_run_at` or after."""

    TERMINAL = "terminal"
    """It was rejected too often or for too long, or an operator wants it left alone."""

    BLOCKED = "blocked"
    """It cannot be extracted."""


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """A partition's row of the schedule, as far as a decision changes it. Without a batch it waits for its time, or for
    an operator."""

    purpose: Purpose
    disposition: Disposition
    backoff_strategy: str
    reason: str | None
    baseline_attempts: int
    baseline_run_seq: int
    seen_attempts: int
    seen_run_seq: int
    fruitless_runs: int
    failing_since: datetime | None
    of_cancelled_backfill: bool
    batch_id: str | None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    outcome: AttemptOutcome
    run_seq: int
    at: datetime
    error_message: str | None


@dataclass(frozen=True, kw_only=True)
class Extraction:
    outcome: ExtractionOutcome
    run_seq: int
    at: datetime
    error_class: str | None
    error_message: str | None
    retry_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class LedgerNews:
    """What is on record of a partition. `accepted` is the number of its last accepted attempt, 0 if there is none;
    counts are since the baseline."""

    key: PartitionKey
    status: PartitionStatus
    attempts: int
    accepted: int
    verdict: Verdict | None
    extraction: Extraction | None
    failures: int
    uncounted: int
    scheduled: Scheduled | None

    @property
    def baseline(self) -> int:
        return max(self.accepted, self.scheduled.baseline_attempts if self.scheduled else 0)

    @property
    def run_seq(self) -> int:
        return self.extraction.run_seq if self.extraction else 0

    @property
    def failing_since(self) -> datetime | None:
        """As the last decision had it, unless it was a success since."""
        row = self.scheduled
        return row.failing_since if row and self.accepted <= row.seen_attempts else None


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """How the run of a batch ended; `reason` is what it said, in one line."""

    cancelled: bool
    reason: str


def history_of(news: LedgerNews, end: RunEnd | None, *, now: datetime) -> History:
    """`end` is that of the run of the partition's batch, if it is in one and that is over."""
    row = news.scheduled
    if row and row.batch_id and end is None:
        return History(last=Last.UNDER_WAY, at=now)
    if row and _is_accepted_again(news, row):
        return History(last=Last.ACCEPTED, at=now)
    last, at, reason = _newest(news, now=now)
    if row and last is not Last.ACCEPTED and (left_alone := _left_alone(news, row, now=now)):
        return left_alone
    if row and end and (news.attempts, news.run_seq) == (row.seen_attempts, row.seen_run_seq):
        return _after_idle_run(news, row, end, now=now)
    extraction = news.extraction if last is Last.NOT_EXTRACTED else None
    is_failing = extraction is None or extraction.error_class not in UNCOUNTED
    return History(
        last=last,
        at=at,
        attempts=news.attempts - news.baseline,
        failures=news.failures,
        uncounted=news.uncounted,
        fruitless=row.fruitless_runs + 1 if row and end and last is Last.UNJUDGED else 0,
        began_at=news.failing_since or (now if is_failing else None),
        error_class=extraction.error_class if extraction else None,
        retry_at=extraction.retry_at if extraction else None,
        reason=reason,
    )


def _is_accepted_again(news: LedgerNews, row: Scheduled) -> bool:
    """An older run was judged again, and is good: whatever was extracted in vain after it was known by then."""
    return (
        news.status is PartitionStatus.SUCCESS
        and news.accepted == news.attempts > row.seen_attempts
        and news.run_seq == row.seen_run_seq
    )


def _left_alone(news: LedgerNews, row: Scheduled, *, now: datetime) -> History | None:
    """Marked by an operator, or of a backfill that was cancelled. What the latter left no trace of needs no marker."""
    if row.disposition is Disposition.TERMINAL and row.backoff_strategy == MANUAL:
        return History(last=Last.MARKED, at=now, reason=row.reason)
    if not row.of_cancelled_backfill or row.purpose is not Purpose.BACKFILL:
        return None
    if news.verdict is None and news.extraction is None:
        return History(last=Last.NOTHING, at=now)
    return History(last=Last.MARKED, at=now, reason=CANCELLED_BACKFILL)


def _after_idle_run(news: LedgerNews, row: Scheduled, end: RunEnd, *, now: datetime) -> History:
    if end.cancelled:
        return History(last=Last.CANCELLED, at=now, fruitless=row.fruitless_runs, began_at=news.failing_since)
    return History(
        last=Last.CAME_TO_NOTHING,
        at=now,
        attempts=news.attempts - news.baseline,
        fruitless=row.fruitless_runs + 1,
        began_at=news.failing_since or now,
        reason=end.reason,
    )


def _newest(news: LedgerNews, *, now: datetime) -> tuple[Last, datetime, str | None]:
    verdict, extraction = news.verdict, news.extraction
    if extraction and (verdict is None or extraction.run_seq > verdict.run_seq):
        if extraction.outcome is ExtractionOutcome.FAILED:
            return Last.NOT_EXTRACTED, extraction.at, extraction.error_message
        return Last.UNJUDGED, extraction.at, None
    if verdict is None:
        return Last.NOTHING, now, None
    if verdict.outcome in {AttemptOutcome.ACCEPTED, AttemptOutcome.SUPERSEDED}:
        return Last.ACCEPTED, verdict.at, None
    return Last.REJECTED, verdict.at, verdict.error_message
