"""How the newest try of a partition ended, told from what the ledger and its run say."""

from collections.abc import Iterable
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
    an operator. `decided_at` is by the database's clock: when it was put there, or dispatched."""

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
    decided_at: datetime
    overridden: bool
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
    """What is on record of a partition. `accepted` is the number of its last accepted attempt, 0 if there is none, and
    `accepted_knew` the highest number of an extraction that was on record then; counts are since the baseline."""

    key: PartitionKey
    status: PartitionStatus
    attempts: int
    accepted: int
    accepted_knew: int
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


def history_of(news: LedgerNews, end: RunEnd | None, *, looked_at: datetime | None, now: datetime) -> History:
    """`end` is that of the run of the partition's batch, if it is in one and that is over. `looked_at` is up to when
    the ledger was looked through before: what is news now was not there then."""
    row = news.scheduled
    if row and row.batch_id and end is None:
        return History(last=Last.UNDER_WAY)
    if row and _is_still_wanted(news, row):
        return _after_idle_run(news, row, end) if end else _wanted(row)
    if row and _is_accepted_again(news, row):
        return History(last=Last.ACCEPTED)
    last, at, reason = _newest(news)
    if row and last is not Last.ACCEPTED and (left_alone := _left_alone(news, row)):
        return left_alone
    if row and end and (news.attempts, news.run_seq) == (row.seen_attempts, row.seen_run_seq):
        return _after_idle_run(news, row, end)
    extraction = news.extraction if last is Last.NOT_EXTRACTED else None
    is_failing = last is Last.REJECTED or (extraction is not None and extraction.error_class not in UNCOUNTED)
    return History(
        last=last,
        at=_believed(at, [moment for moment in (looked_at, row and row.decided_at) if moment], now=now),
        attempts=news.attempts - news.baseline,
        failures=news.failures,
        uncounted=news.uncounted,
        fruitless=row.fruitless_runs + (not end.cancelled) if row and end and last is Last.UNJUDGED else 0,
        began_at=news.failing_since or (now if is_failing else None),
        error_class=extraction.error_class if extraction else None,
        delay=extraction.retry_at - extraction.at if extraction and extraction.retry_at else None,
        reason=reason,
    )


def _believed(at: datetime | None, before: Iterable[datetime], *, now: datetime) -> datetime | None:
    """A moment by the clock of whoever tried, which may be wrong: it was certainly after those, and before now."""
    if at is None:
        return None
    return min(max([at, *before]), now)


def _is_still_wanted(news: LedgerNews, row: Scheduled) -> bool:
    """By an operator, or because of its age; and what was judged since is what had been extracted before."""
    by_operator = row.purpose is Purpose.RETRY and row.overridden and row.baseline_run_seq == news.run_seq
    return (
        (by_operator or row.purpose is Purpose.RESTATEMENT)
        and row.disposition is Disposition.DUE
        and news.run_seq == row.seen_run_seq
        and _is_accepted_again(news, row)
    )


def _wanted(row: Scheduled) -> History:
    return History(last=Last.WANTED, strategy=row.backoff_strategy, reason=row.reason, fruitless=row.fruitless_runs)


def _is_accepted_again(news: LedgerNews, row: Scheduled) -> bool:
    """An older run was judged again, and is good: whatever was extracted in vain after it was known by then."""
    return (
        news.status is PartitionStatus.SUCCESS
        and news.accepted == news.attempts > row.seen_attempts
        and news.run_seq <= max(news.accepted_knew, row.seen_run_seq)
    )


def _left_alone(news: LedgerNews, row: Scheduled) -> History | None:
    """Marked by an operator, or of a backfill that was cancelled. What the latter left no trace of needs no marker."""
    if row.disposition is Disposition.TERMINAL and row.backoff_strategy == MANUAL:
        return History(last=Last.MARKED, reason=row.reason)
    if not row.of_cancelled_backfill or row.purpose is not Purpose.BACKFILL:
        return None
    if news.verdict is None and news.extraction is None:
        return History(last=Last.NOTHING)
    return History(last=Last.MARKED, reason=CANCELLED_BACKFILL)


def _after_idle_run(news: LedgerNews, row: Scheduled, end: RunEnd) -> History:
    """It says nothing about the partition, which may wait for weeks until the next run tries it for the first time."""
    if end.cancelled:
        return History(last=Last.CANCELLED, fruitless=row.fruitless_runs, began_at=news.failing_since)
    return History(
        last=Last.CAME_TO_NOTHING,
        attempts=news.attempts - news.baseline,
        fruitless=row.fruitless_runs + 1,
        began_at=news.failing_since,
        reason=end.reason,
    )


def _newest(news: LedgerNews) -> tuple[Last, datetime | None, str | None]:
    verdict, extraction = news.verdict, news.extraction
    if extraction and (verdict is None or extraction.run_seq > verdict.run_seq):
        if extraction.outcome is ExtractionOutcome.FAILED:
            return Last.NOT_EXTRACTED, extraction.at, extraction.error_message
        return Last.UNJUDGED, extraction.at, None
    if verdict is None:
        return Last.NOTHING, None, None
    if verdict.outcome in {AttemptOutcome.ACCEPTED, AttemptOutcome.SUPERSEDED}:
        return Last.ACCEPTED, verdict.at, None
    return Last.REJECTED, verdict.at, verdict.error_message
