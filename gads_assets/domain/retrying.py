"""What follows the last try of a partition: another one and when, waiting, or none and why.

Decided from what is on record alone. A verdict that rejects and an extraction that fails have limits of their own: the
first ends as terminal, the second as blocked. Both count from the partition's baseline, which moves at each success and
whenever an operator retries or clears it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, assert_never

MANUAL: Final = "manual"
"""The backoff strategy of what an operator decided."""

BY_HAND_ONLY: Final = frozenset({"customer", "query", "missed_snapshot", "lost_history", "partition"})
"""Classes of extraction errors after which the same call fails again until somebody has changed something."""

UNCOUNTED: Final = frozenset({"quota", "day_not_open"})
"""Classes that say nothing about the partition: the next try is later, and the limit no nearer."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """A query's. `max_attempts` verdicts and `max_extraction_attempts` runs that could not extract are tried before
    somebody has to look, and nothing is tried that has failed for `max_age`. `backoff` are the longest waits after the
    first, second and every further failure."""

    max_attempts: int = 5
    max_extraction_attempts: int = 8
    max_age: timedelta = timedelta(days=14)
    backoff: tuple[timedelta, ...] = (timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2))


class Last(Enum):
    """How the newest try of a partition ended."""

    NOTHING = "nothing"
    """There is none."""

    ACCEPTED = "accepted"
    """A run was judged and is good."""

    REJECTED = "rejected"
    """A run was judged and is bad."""

    NOT_EXTRACTED = "not extracted"
    """The API did not give us the day."""

    UNJUDGED = "unjudged"
    """A run is sealed and has no verdict yet: the reconciler sees to that, unless judging it ends every process."""

    CAME_TO_NOTHING = "came to nothing"
    """A run was to try it, and ended before it did."""

    CANCELLED = "cancelled"
    """A run was to try it, and somebody cancelled that run before it did."""

    UNDER_WAY = "under way"
    """A run has it."""

    MARKED = "marked"
    """However it ended, somebody wants it left alone."""

    WANTED = "wanted"
    """It is good, and is to be extracted all the same; what was judged meanwhile was extracted before."""


@dataclass(frozen=True, kw_only=True)
class History:
    """Of a partition since its baseline: `attempts` verdicts, `failures` runs that could not extract it since it was
    last sealed, `fruitless` runs that ended before they tried it, or judged what they had sealed. `began_at` is when
    the control plane first saw it fail; `at` is when the last try was over, as far as it can be known, and `delay` what
    its error said about when to come again."""

    last: Last
    at: datetime | None = None
    attempts: int = 0
    failures: int = 0
    uncounted: int = 0
    fruitless: int = 0
    began_at: datetime | None = None
    error_class: str | None = None
    strategy: str = ""
    reason: str | None = None
    delay: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class RetryAt:
    at: datetime
    strategy: str
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class Wait:
    """For what is under way; there is nothing to decide before it is over."""


@dataclass(frozen=True, kw_only=True)
class Terminal:
    """No further try without an operator. Not a status: the state stays as the last verdict left it."""

    reason: str
    strategy: str = "terminal"


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """It cannot be extracted, and no further call is made for it without an operator."""

    reason: str
    strategy: str = "blocked"


@dataclass(frozen=True, kw_only=True)
class Nothing:
    """It is as it should be."""


NextStep = RetryAt | Wait | Terminal | Blocked | Nothing


def next_step(history: History, policy: RetryPolicy, *, now: datetime, random: Callable[[], float]) -> NextStep:
    """`random` gives numbers from 0 up to 1; whoever draws once for all that failed together tries them together."""
    step: NextStep
    match history.last:
        case Last.NOTHING | Last.ACCEPTED:
            step = Nothing()
        case Last.UNDER_WAY:
            step = Wait()
        case Last.MARKED:
            step = Terminal(reason=history.reason or "marked by hand", strategy=MANUAL)
        case Last.WANTED:
            step = RetryAt(at=now, strategy=history.strategy, reason=history.reason)
        case Last.UNJUDGED:
            step = _after_seal_alone(history, policy, now=now)
        case Last.CANCELLED:
            step = RetryAt(
                at=now + _rest(policy, 1),
                strategy="cancelled",
                reason="somebody cancelled the run that was to try it",
            )
        case Last.REJECTED:
            step = _after_rejection(history, policy, now=now, random=random)
        case Last.NOT_EXTRACTED:
            step = _after_failed_extraction(history, policy, now=now, random=random)
        case Last.CAME_TO_NOTHING:
            step = _after_fruitless_run(history, policy, now=now, random=random)
        case _:
            assert_never(history.last)
    return step


def _after_rejection(
    history: History, policy: RetryPolicy, *, now: datetime, random: Callable[[], float]
) -> RetryAt | Terminal:
    said = history.reason or "rejected"
    if history.attempts >= policy.max_attempts:
        return Terminal(reason=f"rejected {history.attempts} times, and {policy.max_attempts} are allowed: {said}")
    if _is_too_old(history, policy, now=now):
        return Terminal(reason=f"failing since {history.began_at:%Y-%m-%d}, and {_days(policy)}: {said}")
    return _later(history, policy, history.attempts, now=now, random=random, reason=said)


def _after_failed_extraction(
    history: History, policy: RetryPolicy, *, now: datetime, random: Callable[[], float]
) -> RetryAt | Blocked:
    said = history.reason or "not extracted"
    if history.error_class in BY_HAND_ONLY:
        return Blocked(reason=said)
    if history.error_class in UNCOUNTED:
        return _later(history, policy, history.uncounted, now=now, random=random, reason=said)
    if history.failures >= policy.max_extraction_attempts:
        return Blocked(
            reason=f"not extracted {history.failures} times, and {policy.max_extraction_attempts} are allowed: {said}"
        )
    if _is_too_old(history, policy, now=now):
        return Blocked(reason=f"failing since {history.began_at:%Y-%m-%d}, and {_days(policy)}: {said}")
    return _later(history, policy, history.failures + history.uncounted, now=now, random=random, reason=said)


def _after_seal_alone(history: History, policy: RetryPolicy, *, now: datetime) -> RetryAt | Blocked:
    """Later than after other failures: what the reconciler asks for may have to wait in the queue."""
    if history.fruitless >= policy.max_extraction_attempts:
        return Blocked(reason=f"{history.fruitless} runs sealed it and ended before they judged it")
    return RetryAt(
        at=now + _rest(policy, history.fruitless), strategy="verdict", reason="its sealed run waits for a verdict"
    )


def _after_fruitless_run(
    history: History, policy: RetryPolicy, *, now: datetime, random: Callable[[], float]
) -> RetryAt | Blocked:
    said = history.reason or "its run ended before it was tried"
    if history.fruitless >= policy.max_extraction_attempts:
        return Blocked(reason=f"{history.fruitless} runs ended before they tried it: {said}")
    return _later(history, policy, history.fruitless, now=now, random=random, reason=said)


def _rest(policy: RetryPolicy, runs: int) -> timedelta:
    """The second wait, or a later one."""
    return policy.backoff[min(max(runs, 1), len(policy.backoff) - 1)]


def _is_too_old(history: History, policy: RetryPolicy, *, now: datetime) -> bool:
    return history.began_at is not None and now - history.began_at >= policy.max_age


def _days(policy: RetryPolicy) -> str:
    return f"after {policy.max_age / timedelta(days=1):g} days nothing is tried again"


def _later(
    history: History, policy: RetryPolicy, failures: int, *, now: datetime, random: Callable[[], float], reason: str
) -> RetryAt:
    """Between half of the wait and the whole of it, and never before the error's own delay has passed."""
    failed_at = history.at or now
    longest = policy.backoff[min(max(failures, 1), len(policy.backoff)) - 1]
    wait = longest * (0.5 + 0.5 * random())
    if history.delay is not None and history.delay > wait:
        return RetryAt(at=failed_at + history.delay, strategy="the error's own delay", reason=reason)
    strategy = f"exponential, try {failures + 1}, within {longest / timedelta(minutes=1):g} min"
    return RetryAt(at=failed_at + wait, strategy=strategy, reason=reason)
