"""Failures on demand, written as text: `kind@customer/resource/day`, with `:n` where the kind takes a number.

    transient@2145550101/campaign/*:2; duplicated_rows@*/keyword_view/2024-06-01; latency:50

`*` stands for every customer, every FROM resource or every day. A fault of a call hits each call whose days include the
fault's day, and every call of a query that does not speak of days; a fault of rows hits that day's rows only, or all
rows of no single day. `latency:n` is short for `latency@*/*/*:n`.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from threading import Lock

from gads_assets.domain.keys import CustomerId, parse_logical_date
from gads_assets.errors import PartitionKeyError, SettingsError

_FORM = re.compile(
    r"(?P<kind>[a-z_]+)@(?P<customer>\*|[0-9]{10})/(?P<resource>\*|[a-z_]+)/(?P<day>\*|[0-9-]{10})(:(?P<amount>[0-9]{1,7}))?"
)

_LATENCY_EVERYWHERE = re.compile(r"\Alatency(?=:)")


class FaultKind(Enum):
    TRANSIENT = "transient"
    """The first n calls (1) of each customer and resource end with UNAVAILABLE."""
    MIDSTREAM_BREAK = "midstream_break"
    """The first n calls (1) of each customer and resource give some rows, then break off."""
    QUOTA = "quota"
    """RESOURCE_EXHAUSTED, with the delay left, until n seconds (30) after the first such refusal."""
    BAD_AUTH = "bad_auth"
    """The first n calls (all) end with UNAUTHENTICATED."""
    INTERNAL = "internal"
    """The first n calls (1) of each customer and resource end with INTERNAL."""
    CUSTOMER_NOT_ENABLED = "customer_not_enabled"
    """The first n calls (all) of each customer and resource are refused as for an account that was never opened."""
    CUSTOMER_SUSPENDED = "customer_suspended"
    """The first n calls (all) of each customer and resource are refused as for a suspended account."""
    PERMISSION_DENIED = "permission_denied"
    """The first n calls (all) of each customer and resource are refused as by an account that did not let us in."""
    SLOW_STREAM = "slow_stream"
    """n seconds (1) pass before each message of the stream but the first."""
    LATENCY = "latency"
    """Each answer begins n milliseconds (50) later."""
    TRUNCATED_DAY = "truncated_day"
    """The last n percent (50) of the day's rows are missing, one at least, and nothing else is wrong."""
    DUPLICATED_ROWS = "duplicated_rows"
    """The first n rows (1) of the day are sent twice."""
    WRONG_CUSTOMER_ROWS = "wrong_customer_rows"
    """The first n rows (1) of the day carry another account's id."""
    WRONG_DAY_ROWS = "wrong_day_rows"
    """The first n rows (1) of the day carry a day after the last that was asked for."""
    ROWS = "rows"
    """No failure: the day has n rows (1), dark or not. Beyond the world's own they are copies that nobody clicked."""


MOST_ROWS = 2_000_000
_MOST = 999_999
_DEFAULT_AMOUNTS = {
    FaultKind.QUOTA: 30,
    FaultKind.BAD_AUTH: _MOST,
    FaultKind.CUSTOMER_NOT_ENABLED: _MOST,
    FaultKind.CUSTOMER_SUSPENDED: _MOST,
    FaultKind.PERMISSION_DENIED: _MOST,
    FaultKind.LATENCY: 50,
    FaultKind.TRUNCATED_DAY: 50,
}
_HIGHEST_AMOUNTS = {FaultKind.ROWS: MOST_ROWS, FaultKind.TRUNCATED_DAY: 100}
# Of the kinds that fail a whole call, those that do so a number of times.
_COUNTED = frozenset(
    {
        FaultKind.TRANSIENT,
        FaultKind.MIDSTREAM_BREAK,
        FaultKind.BAD_AUTH,
        FaultKind.INTERNAL,
        FaultKind.CUSTOMER_NOT_ENABLED,
        FaultKind.CUSTOMER_SUSPENDED,
        FaultKind.PERMISSION_DENIED,
    }
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """None in a place means every one."""

    kind: FaultKind
    customer_id: CustomerId | None
    resource: str | None
    day: date | None
    amount: int

    def concerns(self, customer_id: str, resource: str) -> bool:
        return self.customer_id in (None, customer_id) and self.resource in (None, resource)

    def meets(self, days: range | None) -> bool:
        return self.day is None or days is None or self.day.toordinal() in days


@dataclass(frozen=True, kw_only=True)
class RowFaults:
    """How many of a day's first rows each fault touches. `size` is how many there are, None for as many as usual."""

    size: int | None = None
    sent_twice: int = 0
    wrong_customer: int = 0
    wrong_day: int = 0
    missing_percent: int = 0


def rows_per_day(count: int) -> Fault:
    """`count` rows on every day of every account and resource that no other fault of that kind names."""
    return Fault(kind=FaultKind.ROWS, customer_id=None, resource=None, day=None, amount=count)


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Reads any number of faults separated by `;`; raises SettingsError quoting the one that cannot be read."""
    return tuple(_parse_fault(part.strip()) for part in text.split(";") if part.strip())


def _parse_fault(text: str) -> Fault:
    match = _FORM.fullmatch(_LATENCY_EVERYWHERE.sub("latency@*/*/*", text))
    if match is None:
        raise SettingsError(
            f"fault {text!r} is not kind@customer/resource/day with an optional :n; "
            "write it as transient@2145550101/campaign/2024-06-01:2, or * in any place"
        )
    try:
        kind = FaultKind(match["kind"])
    except ValueError:
        known = ", ".join(kind.value for kind in FaultKind)
        raise SettingsError(f"fault {text!r} has an unknown kind; use one of {known}") from None
    try:
        day = None if match["day"] == "*" else parse_logical_date(match["day"])
    except PartitionKeyError as error:
        raise SettingsError(f"fault {text!r}: {error}") from None
    amount = int(match["amount"]) if match["amount"] else _DEFAULT_AMOUNTS.get(kind, 1)
    if amount > (highest := _HIGHEST_AMOUNTS.get(kind, _MOST)):
        raise SettingsError(f"fault {text!r} has too large a number; {kind.value} takes up to {highest}")
    return Fault(
        kind=kind,
        customer_id=None if match["customer"] == "*" else CustomerId(match["customer"]),
        resource=None if match["resource"] == "*" else match["resource"],
        day=day,
        amount=amount,
    )


class CallFaults:
    """Decides which calls fail, and remembers how often each fault has struck; one per running emulator."""

    def __init__(self, faults: Sequence[Fault], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._faults = tuple(faults)
        self._clock = clock
        self._struck: Counter[tuple[Fault, str, str]] = Counter()
        self._quota_ends: dict[Fault, float] = {}
        self._lock = Lock()

    def strike(self, customer_id: str, resource: str, days: range | None) -> tuple[FaultKind, float] | None:
        """What goes wrong with this call, if anything; the number is the delay that a quota error asks for.

        `days` are the ordinals asked for, None for a query that does not speak of days.
        """
        with self._lock:
            for fault in self._concerning(customer_id, resource, days):
                if fault.kind is FaultKind.QUOTA:
                    left = self._quota_ends.setdefault(fault, self._clock() + fault.amount) - self._clock()
                    if left > 0:
                        return fault.kind, left
                elif fault.kind in _COUNTED:
                    key = (fault, customer_id, resource)
                    if self._struck[key] < fault.amount:
                        self._struck[key] += 1
                        return fault.kind, 0.0
        return None

    def delays(self, customer_id: str, resource: str, days: range | None) -> tuple[float, float]:
        """Seconds before the answer begins, and between the messages of its stream."""
        amounts = self._amounts(customer_id, resource, days)
        return max(amounts[FaultKind.LATENCY], default=0) / 1000, float(max(amounts[FaultKind.SLOW_STREAM], default=0))

    def _concerning(self, customer_id: str, resource: str, days: range | None) -> Iterator[Fault]:
        return (fault for fault in self._faults if fault.concerns(customer_id, resource) and fault.meets(days))

    def _amounts(self, customer_id: str, resource: str, days: range | None) -> dict[FaultKind, list[int]]:
        amounts: dict[FaultKind, list[int]] = {kind: [] for kind in FaultKind}
        for fault in self._concerning(customer_id, resource, days):
            amounts[fault.kind].append(fault.amount)
        return amounts

    def rows_of(self, customer_id: str, resource: str, day: date | None) -> RowFaults:
        """`day` is None for rows of no single day."""
        days = None if day is None else range(day.toordinal(), day.toordinal() + 1)
        amounts = self._amounts(customer_id, resource, days)
        return RowFaults(
            # The first that is said, so that a rule for all may follow exceptions.
            size=next(iter(amounts[FaultKind.ROWS]), None),
            sent_twice=max(amounts[FaultKind.DUPLICATED_ROWS], default=0),
            wrong_customer=max(amounts[FaultKind.WRONG_CUSTOMER_ROWS], default=0),
            wrong_day=max(amounts[FaultKind.WRONG_DAY_ROWS], default=0),
            missing_percent=max(amounts[FaultKind.TRUNCATED_DAY], default=0),
        )
