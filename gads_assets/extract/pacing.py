"""When to call the API and when to wait, for the threads of a step, and through the database for all processes."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from gads_assets.domain.keys import CustomerId
from gads_assets.domain.quota import shown
from gads_assets.errors import ExtractionError, QuotaExhaustedError, TransientApiError

_Answer = TypeVar("_Answer")

_CALLS_AT_MOST = 3
_SHORTEST_WAIT = 0.05


class Budget(Protocol):
    """What all processes may ask of the API together. `take` gives the moment from which asking again is worth it, or
    None when the operations were taken."""

    def take(self, count: int, *, now: datetime) -> datetime | None: ...

    def pause(self, *, seconds: float, reason: str) -> None: ...


class Uncounted:
    """A budget for calls where nothing can count them: no limit, and no pause."""

    def take(self, count: int, *, now: datetime) -> datetime | None:  # noqa: ARG002  as every budget has them
        return None

    def pause(self, *, seconds: float, reason: str) -> None:
        pass


@dataclass(frozen=True, kw_only=True)
class Pacer:
    """Waits as long as `longest_wait` at a time; a longer one is the caller's to plan, so that no process sleeps for
    half a day."""

    budget: Budget
    now: Callable[[], datetime]
    sleep: Callable[[float], None]
    longest_wait: timedelta = timedelta(seconds=60)

    def call(self, customer_id: CustomerId, ask: Callable[[], _Answer]) -> _Answer:
        """The answer of `ask`, which makes one call to the API, for as many calls as it is worth.

        `ask` must take the whole answer, so that nothing is kept of a call that broke off. A QuotaExhaustedError says
        until when it was not worth waiting.
        """
        calls = 0
        while (refusal := self.permit(customer_id)) is None:
            calls += 1
            try:
                return ask()
            except ExtractionError as error:
                if self.wait_after(error, calls=calls):
                    continue
                if isinstance(error, QuotaExhaustedError):
                    raise self._dated(error) from error
                raise
        raise refusal

    def permit(self, customer_id: CustomerId) -> QuotaExhaustedError | None:
        """None when one call may be made, which is then counted; or, if that is far off, what says from when."""
        while (until := self.budget.take(1, now=self.now())) is not None:
            wait = until - self.now()
            if wait > self.longest_wait:
                return QuotaExhaustedError(
                    f"account {customer_id} was not asked: the API's operations are used up or paused until "
                    f"{shown(until)}; `gads quota` says why, try again after that",
                    customer_id=customer_id,
                    retry_after=wait.total_seconds(),
                )
            self.sleep(max(wait.total_seconds(), _SHORTEST_WAIT))
        return None

    def wait_after(self, error: ExtractionError, *, calls: int) -> bool:
        """After a call that failed, the `calls`-th for its window: True, after the wait, if it is to be made again."""
        if not isinstance(error, QuotaExhaustedError | TransientApiError):
            return False
        if isinstance(error, QuotaExhaustedError) and error.scope == "developer":
            # It concerns everybody, here and in other processes.
            self.budget.pause(seconds=error.retry_after, reason=str(error))
        if calls >= _CALLS_AT_MOST or error.retry_after > self.longest_wait.total_seconds():
            return False
        # Apart from each other, or all customers would come back at once.
        self.sleep(error.retry_after * random.uniform(1.0, 1.2))  # noqa: S311  # not a secret
        return True

    def _dated(self, error: QuotaExhaustedError) -> QuotaExhaustedError:
        until = self.now() + timedelta(seconds=error.retry_after)
        return QuotaExhaustedError(
            f"{error}, after {shown(until)}",
            customer_id=error.customer_id,
            retry_after=error.retry_after,
            scope=error.scope,
        )
