"""Runs as Dagster would make them of batches, in simulated time: they wait, work, are killed, lost and cancelled.

What they do to the ledger they do through the product, in the roles that a run has. Who has which partition, and how
often each was judged, is kept here beside it, so that the database is not its own witness.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count, groupby
from random import Random
from typing import Final

from ulid import ULID

from gads_assets.control.ticking import Runs
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.ledger_news import RunEnd
from gads_assets.domain.scheduling import Purpose
from gads_assets.domain.state import ExtractionAttempt, ExtractionOutcome, Judgement, validation_id
from gads_assets.domain.windows import plan_windows
from gads_assets.state.dispatching import OpenBatch
from gads_assets.state.leases import Leases
from gads_assets.state.partition_states import StateStore
from gads_assets.state.schedule import Schedule
from gads_assets_tests.integration.control.simulated_agency import SOURCE, Refusal, SimulatedApi
from gads_assets_tests.integration.control.witness import SimulatedRun, Trouble, Witness
from gads_assets_tests.ledgers import SEAL

LEASE: Final = timedelta(minutes=25)
_SLOTS: Final = 2
_TIME_TO_NOTICE: Final = timedelta(minutes=10)
"""Until Dagster itself notices that a run's process is not there."""


_WEIGHTS: Final = dict.fromkeys(Trouble, 1.5) | {Trouble.NONE: 89.5}
_WRONG_CLOCKS: Final = (timedelta(hours=3), timedelta(hours=-3), timedelta(days=40), timedelta(days=-40))


@dataclass
class Clock:
    """Simulated time: what is to happen, in order. Whatever waits for something lets time pass here."""

    now: datetime
    _events: list[tuple[datetime, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=count)

    def __call__(self) -> datetime:
        return self.now

    def after(self, delay: timedelta, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._numbers), action))

    def pass_until(self, moment: datetime) -> None:
        while self._events and self._events[0][0] <= moment:
            at, _, action = heapq.heappop(self._events)
            self.now = max(self.now, at)
            action()
        self.now = max(self.now, moment)


@dataclass
class SimulatedRuns:
    """Dagster's queue, its runs, and their processes. `restless` runs get into trouble."""

    clock: Clock
    api: SimulatedApi
    random: Random
    schedule: Schedule
    leases: Leases
    extractor: StateStore
    validator: StateStore
    witness: Witness = field(default_factory=Witness)
    restless: bool = True
    happened: Counter[str] = field(default_factory=Counter)
    runs: list[SimulatedRun] = field(default_factory=list)
    by_key: dict[str, list[SimulatedRun]] = field(default_factory=dict)
    by_id: dict[str, SimulatedRun] = field(default_factory=dict)

    # What a daemon does with Dagster

    def request(self, batch: OpenBatch) -> None:
        """One run a key, unless two daemons ask at the same moment."""
        if batch.run_key in self.by_key:
            self.happened["asked for a run that exists"] += 1
            return
        [trouble] = self.random.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))
        self._create(batch, trouble if self.restless else Trouble.NONE)
        if self.restless and self.random.random() < 0.03:
            self.happened["run created twice"] += 1
            self._create(batch, Trouble.NONE)

    def runs_of(self, batches: Sequence[OpenBatch]) -> Runs:
        """Of a batch that was claimed, the run that did; of others any that may still come."""
        ended, missing = {}, []
        for batch in batches:
            runs = self.by_key.get(batch.run_key, [])
            decisive = [run for run in runs if run.run_id == batch.dagster_run_id] or runs
            ends = [run.end for run in decisive if run.end]
            if not runs:
                missing.append(batch.batch_id)
            elif len(ends) == len(decisive):
                ended[batch.batch_id] = ends[0]
        return Runs(ended=ended, missing=missing)

    def report_failed(self, run_id: str) -> None:
        run = self.by_id[run_id]
        if run.end is None:
            self._end(run, RunEnd(cancelled=False, reason="it showed no sign of life"))

    def launch_by_hand(self, keys: Sequence[PartitionKey], lasts: timedelta) -> None:
        """A person's run waits for nobody, and keeps its partitions for hours."""
        run = SimulatedRun(
            run_id=str(ULID()),
            run_key="",
            batch_id=None,
            purpose=None,
            dispatched=next(self.witness.moments),
            created_at=self.clock.now,
        )
        self.by_id[run.run_id] = run
        self.happened["run by hand"] += 1
        self._take(run, keys, lasts)

    # The queue

    def _create(self, batch: OpenBatch, trouble: Trouble) -> None:
        run = SimulatedRun(
            run_id=str(ULID()),
            run_key=batch.run_key,
            batch_id=batch.batch_id,
            purpose=batch.purpose,
            dispatched=self.witness.dispatches[batch.batch_id][0],
            created_at=self.clock.now,
            trouble=trouble,
            wrong_by=self._wrong_by(),
        )
        self.runs.append(run)
        self.by_id[run.run_id] = run
        self.by_key.setdefault(run.run_key, []).append(run)
        self.happened[f"{batch.purpose} run"] += 1
        self.happened[trouble.value] += 1
        self._start_next()

    def _wrong_by(self) -> timedelta:
        """Of the clock of the machine on which a run comes to be."""
        if not self.restless or self.random.random() >= 0.08:
            return timedelta()
        self.happened["wrong clock"] += 1
        return self.random.choice(_WRONG_CLOCKS)

    def _start_next(self) -> None:
        while True:
            running = [run for run in self.runs if run.is_running]
            backfilling = any(run.purpose is Purpose.BACKFILL for run in running)
            waiting = [
                run
                for run in self.runs
                if not run.is_running and not run.end and not (backfilling and run.purpose is Purpose.BACKFILL)
            ]
            self.runs = [run for run in self.runs if not run.end]
            if len(running) >= _SLOTS or not waiting:
                return
            run = min(waiting, key=lambda each: (-each.priority, each.created_at))
            run.is_running = True
            self.witness.started(run, self.clock.now)
            if run.trouble is Trouble.CANCELLED_IN_QUEUE:
                self._end(run, RunEnd(cancelled=True, reason="cancelled"), start_next=False)
            else:
                self.clock.after(timedelta(minutes=1), lambda run=run: self._claim(run))  # type: ignore[misc]

    def _end(self, run: SimulatedRun, end: RunEnd, *, start_next: bool = True) -> None:
        run.is_running, run.end = False, end
        if start_next:
            self._start_next()

    def _die(self, run: SimulatedRun) -> None:
        """Its process is gone. What leases it has run out; Dagster notices before that, or goes on showing it."""
        self.witness.killed(run)
        if not run.keys or self.random.random() < 0.5:
            self.clock.after(_TIME_TO_NOTICE, lambda: self.report_failed(run.run_id))

    # A run's process

    def _claim(self, run: SimulatedRun) -> None:
        if run.trouble is Trouble.LOST:
            return self._die(run)
        assert run.batch_id
        keys, first = self.schedule.claim_batch(run.batch_id, run.run_id)
        if not keys:
            self.happened["batch was another run's" if first else "batch was over"] += 1
            return self._end(run, RunEnd(cancelled=False, reason="its batch has a run"))
        if run.trouble is Trouble.KILLED_AFTER_CLAIM:
            return self._die(run)
        minutes = 90 if run.purpose is Purpose.BACKFILL else self.random.uniform(3, 15)
        return self._take(run, keys, timedelta(minutes=minutes))

    def _take(self, run: SimulatedRun, keys: Sequence[PartitionKey], lasts: timedelta) -> None:
        taken_by_others = self.leases.take(run.run_id, keys)
        for key in taken_by_others:
            self.witness.refused(run, key)
        self.happened["partition was another run's"] += len(taken_by_others)
        run.keys = [key for key in keys if key not in taken_by_others]
        self.witness.take(run)
        self._work(run, lasts)

    def _work(self, run: SimulatedRun, left: timedelta) -> None:
        self.leases.extend(run.run_id)
        if left > LEASE:
            self.clock.after(LEASE * 0.9, lambda: self._work(run, left - LEASE * 0.9))
        else:
            self.clock.after(left, lambda: self._extract(run))

    def _extract(self, run: SimulatedRun) -> None:
        broken_off = run.trouble in {Trouble.KILLED_EXTRACTING, Trouble.CANCELLED}
        done = run.keys[: len(run.keys) // 2] if broken_off else run.keys
        sealed = self._record(run, done)
        if run.trouble is Trouble.KILLED_EXTRACTING:
            self._die(run)
            return self._judge_later(sealed)
        if run.trouble is Trouble.CANCELLED:
            self._release(run)
            return self._end(run, RunEnd(cancelled=True, reason="cancelled"))
        self.leases.extend(run.run_id)
        return self.clock.after(timedelta(minutes=2), lambda: self._judge(run, sealed))

    def _record(self, run: SimulatedRun, keys: Sequence[PartitionKey]) -> list[ExtractionAttempt]:
        """One call for each window of a customer's days."""
        now = self.clock.now
        recorded_at = now + run.wrong_by
        refusals: dict[PartitionKey, Refusal | None] = {}
        calls = [
            (query, customer, window)
            for (query, customer), group in groupby(sorted(keys, key=_call), key=_call)
            for window in plan_windows(key.logical_date for key in group)
        ]
        self.api.begin_run(len(calls), now=now)
        for query, customer, window in calls:
            refusal = self.api.ask(query, customer, window, now=now)
            for day in window:
                key = PartitionKey(source=SOURCE, customer_id=customer, query_name=query, logical_date=day)
                refusals[key] = refusal
        attempts = [
            ExtractionAttempt(
                key=key,
                run_id=RunId(str(ULID())),
                run_seq=run_seq,
                outcome=ExtractionOutcome.FAILED if refusal else ExtractionOutcome.SEALED,
                error_class=refusal.error_class if refusal else None,
                error_message=refusal.message if refusal else None,
                started_at=recorded_at,
                finished_at=recorded_at,
                dagster_run_id=run.run_id,
                retry_at=refusal.retry_at + run.wrong_by if refusal and refusal.retry_at else None,
            )
            for (key, refusal), run_seq in zip(
                refusals.items(), self.extractor.allocate_run_seqs(len(refusals)), strict=True
            )
        ]
        self.extractor.record_extractions(attempts)
        for attempt in attempts:
            self.witness.extracted(run, attempt.key, attempt.run_seq)
            self.witness.not_extracted(run, attempt.key, attempt.error_class, now)
        return [attempt for attempt in attempts if attempt.outcome is ExtractionOutcome.SEALED]

    def _judge(self, run: SimulatedRun, sealed: Sequence[ExtractionAttempt]) -> None:
        if run.trouble is Trouble.KILLED_AFTER_SEAL:
            self._die(run)
            return self._judge_later(sealed)
        self._give_verdicts(sealed, run.run_id, wrong_by=run.wrong_by)
        if run.trouble is Trouble.KILLED_AFTER_VERDICT:
            return self._die(run)
        self._release(run)
        return self._end(run, RunEnd(cancelled=False, reason="some of its partitions failed"))

    def _judge_later(self, sealed: Sequence[ExtractionAttempt]) -> None:
        """The reconciler finds what has no verdict, now and then before the next try and now and then after it."""
        if self.random.random() < 0.7:
            self.happened["judged by the reconciler"] += 1
            self.clock.after(timedelta(minutes=self.random.uniform(2, 240)), lambda: self._reconcile(sealed))

    def _reconcile(self, sealed: Sequence[ExtractionAttempt]) -> None:
        """Only what is newer than the authority, and in no run."""
        current = [each for each in sealed if self.witness.authorities.get(each.key, 0) < each.run_seq]
        self._give_verdicts([each for each in current if each.key not in self.witness.holders], "reconciler")

    def _give_verdicts(
        self, sealed: Sequence[ExtractionAttempt], root: str, *, wrong_by: timedelta = timedelta()
    ) -> None:
        """Now and then the step is executed again, which changes nothing."""
        judged = [(each.key, self._verdict(each, root)) for each in sealed]
        if not judged:
            return
        for _ in range(1 + (self.random.random() < 0.02)):
            judged_at = self.clock.now + wrong_by
            answers = self.validator.record_judgements(judged, now=judged_at, dagster_run_id=root)
            self.happened["verdict repeated"] += sum(answer.repeated for answer in answers)
            for (key, verdict), answer in zip(judged, answers, strict=True):
                if not answer.repeated:
                    self.witness.judged(key, verdict.run_seq, accepted=verdict.accepted, now=self.clock.now)

    def _verdict(self, attempt: ExtractionAttempt, root: str) -> Judgement:
        accepted = self.api.is_good(attempt.key)
        return Judgement(
            run_id=attempt.run_id,
            run_seq=attempt.run_seq,
            schema_version="1",
            record_count=3,
            content_digest="digest" if accepted else None,
            seal_sha256=SEAL if accepted else None,
            accepted=accepted,
            error_message=None if accepted else "two rows share a key",
            validation_id=validation_id(attempt.run_id, root),
        )

    def _release(self, run: SimulatedRun) -> None:
        self.witness.let_go(run)
        self.leases.release(run.run_id)


def _call(key: PartitionKey) -> tuple[str, CustomerId]:
    return key.query_name, key.customer_id
