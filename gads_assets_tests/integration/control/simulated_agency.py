"""An agency of two hundred accounts, and an API that answers most of what it is asked."""

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

from gads_assets.domain.accounts import Account
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.quota import QUOTA_ZONE
from gads_assets.domain.retrying import RetryPolicy
from gads_assets.extract.client import EMULATOR
from gads_assets.state.opening import OpeningRule
from gads_assets.state.operations import OperationsBudget

SOURCE: Final = "google_ads"
BEGIN: Final = datetime(2024, 10, 20, tzinfo=UTC)
"""In the past: the guard of leases goes by the database's own clock. Clocks change on 27 October and on 3 November."""

DAYS: Final = 30
ZONES: Final = ("Europe/Berlin", "America/New_York", "America/Los_Angeles", "Asia/Kathmandu")
CUSTOMERS: Final = 200
DAILY_OPERATIONS: Final = 1_650
POLICY: Final = RetryPolicy()

RULES: Final = (
    OpeningRule(
        query_name="ad_group",
        start_date=date(2024, 9, 1),
        settling=timedelta(hours=3),
        ages=(2, 7, 14),
        reach_days=None,
    ),
    OpeningRule(
        query_name="campaign",
        start_date=date(2024, 9, 1),
        settling=timedelta(hours=3),
        ages=(3,),
        reach_days=None,
    ),
    OpeningRule(
        query_name="keyword", start_date=date(2024, 9, 1), settling=timedelta(hours=6), ages=(7,), reach_days=None
    ),
    OpeningRule(
        query_name="change_event", start_date=date(2024, 10, 1), settling=timedelta(hours=6), ages=(), reach_days=30
    ),
)


def account(number: int) -> Account:
    return Account(
        customer_id=CustomerId(f"{2_000_000_000 + number}"),
        name=f"account {number}",
        time_zone=ZONES[number % len(ZONES)],
        currency="EUR",
        login_customer_id=CustomerId("1000000000"),
        origin=EMULATOR,
    )


ACCOUNTS: Final = tuple(account(number) for number in range(CUSTOMERS))
AWAY: Final = ACCOUNTS[40:44]
"""Closed for some days, and open again."""
AWAY_FROM, AWAY_UNTIL = BEGIN + timedelta(days=9), BEGIN + timedelta(days=12)

_SUSPENDED: Final = {
    ACCOUNTS[number].customer_id: BEGIN + timedelta(days=day) for number, day in ((7, 3), (77, 15), (150, 24))
}
_HOUR: Final = timedelta(hours=1)
_HALF_A_DAY: Final = timedelta(hours=12)
_BAD_CREDENTIALS: Final = BEGIN + timedelta(days=5, hours=1)
_REFUSED_QUERY: Final = ("keyword", BEGIN + timedelta(days=12, hours=5))
"""Each from the first such call after that, for an hour."""

_EXHAUSTED: Final = tuple(BEGIN + timedelta(days=day, hours=2) for day in (8, 19))
"""From the first call after that, nothing is answered for half a day."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    error_class: str
    message: str
    retry_at: datetime | None = None


@dataclass
class SimulatedApi:
    """`calm` is how it is once the month is over: only what is broken for good stays broken. The `budget` is the
    product's, and `calls` are counted beside it, when they are made."""

    random: Random
    budget: OperationsBudget
    calm: bool = False
    calls: Counter[date] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    _left: int = 0
    _to_exhaust: list[datetime] = field(default_factory=lambda: list(_EXHAUSTED))
    _began: dict[str, datetime] = field(default_factory=dict)
    _unwell: dict[tuple[str, CustomerId], int] = field(default_factory=dict)

    def begin_run(self, calls: int, *, now: datetime) -> None:
        """The run takes what its calls need at once, and one by one if there is less; a real one takes each before it
        is made, which would make the month as long in the database as it is in the world."""
        self._left = calls if 0 < calls <= DAILY_OPERATIONS and self.budget.take(calls, now=now) is None else 0

    def ask(self, query: str, customer: CustomerId, days: Sequence[date], *, now: datetime) -> Refusal | None:
        """One call. What is refused before it is made costs no operation."""
        refusal = self._held_back(now) or self._answer(query, customer, days, now)
        if refusal:
            self.refusals[refusal.error_class] += 1
        return refusal

    def _held_back(self, now: datetime) -> Refusal | None:
        if self._left:
            self._left -= 1
            return None
        retry_at = self.budget.take(1, now=now)
        if retry_at is None:
            return None
        self.refusals["budget"] += 1
        return Refusal(error_class="quota", message="paused or used up", retry_at=retry_at)

    def _answer(self, query: str, customer: CustomerId, days: Sequence[date], now: datetime) -> Refusal | None:
        self.calls[_quota_day(now)] += 1
        if customer in _SUSPENDED and now >= _SUSPENDED[customer]:
            return Refusal(error_class="customer", message="the account is suspended")
        if any(_is_one_of(700, query, customer, day, "stuck") for day in days):
            return Refusal(error_class="transient", message="unavailable, as always")
        return None if self.calm else self._trouble(query, customer, now)

    def _trouble(self, query: str, customer: CustomerId, now: datetime) -> Refusal | None:
        if self._to_exhaust and now >= self._to_exhaust[0]:
            self._to_exhaust.pop(0)
            self._left = 0
            self.budget.pause(seconds=_HALF_A_DAY.total_seconds(), reason="exhausted")
            return Refusal(error_class="quota", message="exhausted for half a day", retry_at=now + _HALF_A_DAY)
        if self._lasts("credentials", _BAD_CREDENTIALS, now):
            return Refusal(error_class="authentication", message="the token was revoked")
        if query == _REFUSED_QUERY[0] and self._lasts("query", _REFUSED_QUERY[1], now):
            return Refusal(error_class="query", message="a field is not known")
        left = self._unwell.get((query, customer), 0)
        drawn = self.random.random()
        if left or drawn < 0.01:
            self._unwell[query, customer] = left - 1 if left else self.random.randrange(4)
            return Refusal(error_class="transient", message="unavailable", retry_at=now + timedelta(seconds=30))
        if drawn < 0.014:
            return Refusal(error_class="quota", message="too fast", retry_at=now + timedelta(minutes=2))
        return None

    def _lasts(self, what: str, not_before: datetime, now: datetime) -> bool:
        return now >= not_before and now - self._began.setdefault(what, now) < _HOUR

    def is_good(self, key: PartitionKey) -> bool:
        """Whether the rows that it gave for the day are as they should be."""
        if _is_one_of(500, key.query_name, key.customer_id, key.logical_date, "bad"):
            return False
        return self.calm or self.random.random() > 0.01


def last_open(rule: OpeningRule, time_zone: str, now: datetime) -> date:
    """The newest day that has ended and settled, worked out without the database."""
    day = now.astimezone(ZoneInfo(time_zone)).date()
    while datetime.combine(day + timedelta(days=1), time(), ZoneInfo(time_zone)).astimezone(UTC) + rule.settling > now:
        day -= timedelta(days=1)
    return day


def opened_partitions(since: datetime, until: datetime) -> Iterator[PartitionKey]:
    """Every account's days from the one that was the newest at first sight."""
    for rule in RULES:
        for each in ACCOUNTS:
            first, last = (last_open(rule, each.time_zone, moment) for moment in (since, until))
            for number in range((last - first).days + 1):
                yield PartitionKey(
                    source=SOURCE,
                    customer_id=each.customer_id,
                    query_name=rule.query_name,
                    logical_date=first + timedelta(days=number),
                )


def _quota_day(now: datetime) -> date:
    return now.astimezone(ZoneInfo(QUOTA_ZONE)).date()


def _is_one_of(many: int, *what: object) -> bool:
    return zlib.crc32(" ".join(map(str, what)).encode()) % many == 0
