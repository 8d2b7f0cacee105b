"""One look at everything: what has ended is settled, what has opened or failed is scheduled, what is due is dispatched.

A tick may be broken off between any two of its steps, and two may happen at once: each step is a transaction that the
next tick would make just as well, and a batch that was dispatched is asked for until there is a run of it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, assert_never

from gads_assets.domain.ledger_news import Disposition, LedgerNews, RunEnd, history_of
from gads_assets.domain.retrying import (
    Blocked,
    History,
    Last,
    Nothing,
    RetryAt,
    RetryPolicy,
    Terminal,
    Wait,
    next_step,
)
from gads_assets.domain.scheduling import Purpose
from gads_assets.state.deciding import Decided
from gads_assets.state.dispatching import Dispatcher, OpenBatch
from gads_assets.state.opening import Opened, OpeningRule
from gads_assets.state.schedule import Schedule

_CURSOR: Final = "news"
_SWEPT: Final = "all news"
_OVERLAP: Final = timedelta(minutes=10)
"""Times on record are those of many clocks."""
_MOST_NEWS: Final = 5_000
_TIME_TO_CREATE: Final = timedelta(minutes=2)
"""From a dispatch until Dagster has made a run of it, unless the daemon was killed in between."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """What became of the runs of some batches: those that have ended, and those of which Dagster knows nothing. All
    others wait or run."""

    ended: Mapping[str, RunEnd] = field(default_factory=dict)
    missing: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class Tick:
    """What a look came to. `requests` are batches that Dagster is to make runs of."""

    requests: Sequence[OpenBatch]
    opened: Opened
    settled: int
    not_asked: str | None


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """`runs_of` looks batches up in Dagster; `not_asked` says why nothing may be asked of the API now, if so, and
    `reserved_for_fresh` whether what is left of the day's operations is only enough for days that open. All of the
    ledger is looked through every `sweep_every`, and in between what is new in it."""

    schedule: Schedule
    policies: Mapping[str, RetryPolicy]
    rules: Sequence[OpeningRule]
    dispatcher: Dispatcher
    runs_of: Callable[[Sequence[OpenBatch]], Runs]
    not_asked: str | None
    reserved_for_fresh: bool
    random: Callable[[], float]
    sweep_every: timedelta = timedelta(hours=1)

    def tick(self, *, now: datetime) -> Tick:
        known = self.schedule.open_batches()
        runs = self.runs_of(known)
        settled = self.settle(runs.ended, now=now)
        self.schedule.let_go_of_others(self.policies, over=[*runs.ended, *runs.missing])
        opened = self.schedule.schedule_opened(self.rules, now=now)
        dispatched = self.schedule.dispatch(self.dispatcher, self._most_open(), over=runs.ended, now=now)
        requests = [
            batch
            for batch in self.schedule.open_batches()
            if batch.batch_id in dispatched
            or (batch.batch_id in runs.missing and now - batch.dispatched_at > _TIME_TO_CREATE)
        ]
        return Tick(requests=requests, opened=opened, settled=settled, not_asked=self.not_asked)

    def settle(self, ended: Mapping[str, RunEnd], *, now: datetime) -> int:
        """Decides about everything that is news; returns how much that was.

        What failed together comes back together, in one run: chance is drawn once a look.
        """
        reached, swept = self.schedule.reached(_CURSOR), self.schedule.reached(_SWEPT)
        # Before the news: what is on record of a run that lives now, and is over when they are read, is news next time.
        horizon = self.schedule.horizon(now=now)
        # One that lies well ahead was left by a clock that has been set right since; a little, by the other daemon.
        is_ahead = any(moment and moment - _OVERLAP > now for moment in (reached, swept))
        is_sweep = reached is None or swept is None or is_ahead or now - swept >= self.sweep_every
        since = None if is_sweep or reached is None else reached - _OVERLAP
        settled, chance = 0, self.random()
        while news := self.schedule.news(list(self.policies), over=ended, since=since, now=now, most=_MOST_NEWS):
            steps = (self._decided(each, ended, looked_at=reached, now=now, chance=chance) for each in news)
            decided = [step for step in steps if step]
            self.schedule.decide(decided, now=now)
            settled += len(decided)
            if len(news) < _MOST_NEWS or not decided:
                break
        self.schedule.reach(_CURSOR, horizon, now=now)
        if is_sweep:
            self.schedule.reach(_SWEPT, now, now=now)
        return settled

    def _decided(
        self,
        news: LedgerNews,
        ended: Mapping[str, RunEnd],
        *,
        looked_at: datetime | None,
        now: datetime,
        chance: float,
    ) -> Decided | None:
        row = news.scheduled
        end = ended.get(row.batch_id) if row and row.batch_id else None
        history = history_of(news, end, looked_at=looked_at, now=now)
        step = next_step(history, self.policies[news.key.query_name], now=now, random=lambda: chance)
        match step:
            case Wait():
                return None
            case Nothing():
                return Decided(news=news)
            case RetryAt():
                return Decided(
                    news=news,
                    purpose=_purpose_of_next(news, history),
                    disposition=Disposition.DUE,
                    next_run_at=step.at,
                    backoff_strategy=step.strategy,
                    reason=step.reason,
                    fruitless_runs=history.fruitless,
                    failing_since=history.began_at,
                )
            case Terminal() | Blocked():
                return Decided(
                    news=news,
                    purpose=_purpose_of_next(news, history),
                    disposition=Disposition.TERMINAL if isinstance(step, Terminal) else Disposition.BLOCKED,
                    backoff_strategy=step.strategy,
                    reason=step.reason,
                    fruitless_runs=history.fruitless,
                    failing_since=history.began_at,
                )
            case _:
                assert_never(step)

    def _most_open(self) -> dict[Purpose, int]:
        most = {}
        for purpose in sorted(Purpose, key=lambda each: -each.priority):
            if purpose.asks_api and self.not_asked is not None:
                continue
            if self.reserved_for_fresh and purpose in {Purpose.RESTATEMENT, Purpose.BACKFILL}:
                continue
            most[purpose] = purpose.open_batches
        return most


def _purpose_of_next(news: LedgerNews, history: History) -> Purpose:
    """What was not tried keeps its place; history that failed still gives way to everything else."""
    row = news.scheduled
    if row and row.purpose is Purpose.BACKFILL:
        return Purpose.BACKFILL
    if row and history.last in {Last.CAME_TO_NOTHING, Last.CANCELLED, Last.MARKED, Last.WANTED}:
        return row.purpose
    return Purpose.RETRY
