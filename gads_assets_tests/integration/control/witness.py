"""What really happened to each partition, kept beside the database, so that it is not its own witness."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from itertools import count

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.ledger_news import RunEnd
from gads_assets.domain.retrying import RetryPolicy
from gads_assets.domain.scheduling import Purpose
from gads_assets.domain.state import PartitionStatus


class Trouble(Enum):
    NONE = "none"
    LOST = "lost before it claimed its batch"
    KILLED_AFTER_CLAIM = "killed after it claimed its batch"
    KILLED_EXTRACTING = "killed while it extracted"
    KILLED_AFTER_SEAL = "killed between seal and verdict"
    KILLED_AFTER_VERDICT = "killed after the verdict"
    CANCELLED_IN_QUEUE = "cancelled while it waited"
    CANCELLED = "cancelled while it extracted"


@dataclass(eq=False, kw_only=True)
class SimulatedRun:
    """`dispatched` is the moment at which its partitions were taken off the schedule; a person's run has no batch."""

    run_id: str
    run_key: str
    batch_id: str | None
    purpose: Purpose | None
    dispatched: int
    created_at: datetime
    trouble: Trouble = Trouble.NONE
    wrong_by: timedelta = timedelta()
    is_running: bool = False
    end: RunEnd | None = None
    keys: Sequence[PartitionKey] = ()

    @property
    def priority(self) -> int:
        return self.purpose.priority if self.purpose else 0


@dataclass(frozen=True, kw_only=True)
class Newest:
    """A partition's extraction with the highest number; `since` is the moment of its verdict."""

    run_seq: int
    is_good: bool
    since: int


@dataclass(kw_only=True)
class Failures:
    """Of a partition since it was last sealed: runs that could not extract it, without those for want of quota."""

    counted: set[str] = field(default_factory=set)
    last_class: str = ""


@dataclass
class Witness:
    """Moments are numbers: several things happen at the same simulated time, one after the other."""

    moments: "count[int]" = field(default_factory=lambda: count(1))
    dispatches: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    holders: dict[PartitionKey, tuple[str, int]] = field(default_factory=dict)
    dead: dict[PartitionKey, tuple[str, int]] = field(default_factory=dict)
    """Who had it last and was killed: its lease still has to run out."""
    verdicts: Counter[PartitionKey] = field(default_factory=Counter)
    newest: dict[PartitionKey, Newest] = field(default_factory=dict)
    authorities: dict[PartitionKey, int] = field(default_factory=dict)
    statuses: dict[PartitionKey, PartitionStatus] = field(default_factory=dict)
    asked: Counter[PartitionKey] = field(default_factory=Counter)
    batches: dict[PartitionKey, str | None] = field(default_factory=dict)
    """In which each was asked for last."""
    failures: dict[PartitionKey, Failures] = field(default_factory=dict)
    rejections: dict[PartitionKey, list[datetime]] = field(default_factory=dict)
    failing_since: dict[PartitionKey, datetime] = field(default_factory=dict)
    """Rejected, or not extracted for another reason than quota; both since it was last accepted."""
    returns: int = 0
    backfills_started: list[datetime] = field(default_factory=list)
    backfills_before_fresh: Counter[int] = field(default_factory=Counter)
    wrongs: list[str] = field(default_factory=list)

    def dispatched(self, batches: Mapping[str, Iterable[PartitionKey]], now: datetime) -> None:
        """A failure among them is pending from now on."""
        for batch_id, keys in batches.items():
            self.dispatches[batch_id] = (next(self.moments), now)
            for key in keys:
                if self.statuses.get(key) is PartitionStatus.FAILED:
                    self.statuses[key] = PartitionStatus.PENDING
                    self.returns += 1

    def started(self, run: SimulatedRun, now: datetime) -> None:
        """Of days that open: how much history was begun while they waited. A daemon that was killed before it had asked
        for the run makes them wait longer, which is not the queue's doing."""
        if run.purpose is Purpose.BACKFILL:
            self.backfills_started.append(now)
        if run.purpose is Purpose.FRESH and run.batch_id:
            since = self.dispatches[run.batch_id][1]
            if run.created_at - since < timedelta(hours=1):
                self.backfills_before_fresh[sum(since < began < now for began in self.backfills_started)] += 1

    def take(self, run: SimulatedRun) -> None:
        for key in run.keys:
            if key in self.holders:
                self.wrongs.append(f"{key} is in {run.run_id} and in {self.holders[key][0]}")
            self.holders[key] = (run.run_id, next(self.moments))
            self.dead.pop(key, None)

    def let_go(self, run: SimulatedRun) -> None:
        for key in run.keys:
            if key in self.holders and self.holders[key][0] == run.run_id:
                del self.holders[key]

    def killed(self, run: SimulatedRun) -> None:
        self.dead |= {key: self.holders[key] for key in run.keys}
        self.let_go(run)

    def refused(self, run: SimulatedRun, key: PartitionKey) -> None:
        holder = self.holders.get(key) or self.dead.get(key)
        if holder is None:
            self.wrongs.append(f"{key} was refused to {run.run_id}, and nobody works on it")
        elif run.batch_id and holder[1] < run.dispatched:
            self.wrongs.append(f"{key} was dispatched to {run.run_id} while {holder[0]} had it")

    def extracted(self, run: SimulatedRun, key: PartitionKey, run_seq: int) -> None:
        """A partition that is as it should be is asked for again because of its age only, or by a person."""
        self.asked[key] += 1
        if run.batch_id and self.batches.get(key) == run.batch_id:
            self.wrongs.append(f"{key} was asked for twice in batch {run.batch_id}")
        self.batches[key] = run.batch_id
        newest = self.newest.get(key)
        if (
            newest
            and newest.is_good
            and newest.since < run.dispatched
            and run.purpose not in {Purpose.RESTATEMENT, None}
        ):
            self.wrongs.append(f"{key} was good, and {run.run_id} asked for it again as {run.purpose}")
        self.newest[key] = Newest(run_seq=run_seq, is_good=False, since=0)

    def not_extracted(self, run: SimulatedRun, key: PartitionKey, error_class: str | None, now: datetime) -> None:
        """Without an error class it was sealed."""
        if error_class is None:
            self.failures.pop(key, None)
            return
        failures = self.failures.setdefault(key, Failures())
        failures.last_class = error_class
        if error_class != "quota":
            failures.counted.add(run.run_id)
            self.failing_since.setdefault(key, now)

    def judged(self, key: PartitionKey, run_seq: int, *, accepted: bool, now: datetime) -> None:
        self.verdicts[key] += 1
        moment = next(self.moments)
        if accepted:
            self.rejections.pop(key, None)
            self.failing_since.pop(key, None)
            self.statuses[key] = PartitionStatus.SUCCESS
            self.authorities[key] = max(run_seq, self.authorities.get(key, 0))
        else:
            self.rejections.setdefault(key, []).append(now)
            self.failing_since.setdefault(key, now)
            if self.statuses.get(key) is not PartitionStatus.SUCCESS:
                self.statuses[key] = PartitionStatus.FAILED
        if self.newest[key].run_seq == run_seq:
            self.newest[key] = Newest(run_seq=run_seq, is_good=accepted, since=moment)

    def is_blocked_rightly(self, key: PartitionKey, policy: RetryPolicy, now: datetime) -> bool:
        failures = self.failures.get(key)
        return failures is not None and (
            failures.last_class in {"customer", "query"}
            or len(failures.counted) >= policy.max_extraction_attempts
            or self._is_too_old(key, policy, now)
        )

    def is_terminal_rightly(self, key: PartitionKey, policy: RetryPolicy, now: datetime) -> bool:
        rejections = self.rejections.get(key, [])
        is_at_its_end = len(rejections) >= policy.max_attempts or self._is_too_old(key, policy, now)
        return bool(rejections) and is_at_its_end

    def _is_too_old(self, key: PartitionKey, policy: RetryPolicy, now: datetime) -> bool:
        return key in self.failing_since and now - self.failing_since[key] >= policy.max_age
