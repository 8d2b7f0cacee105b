"""Failures on demand, written as text: `kind@customer/resource/day`, with `:n` where the kind takes a number.

    transient@2145550101/campaign/*:2; duplicated_rows@*/keyword_view/2024-06-01

`*` stands for every customer, every FROM resource or every day. A fault of a call (the first four kinds) hits each
call whose days include the fault's day; a fault of rows hits that day's rows only.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from threading import Lock

from gads_assets.domain.keys import CustomerId, parse_logical_date
from gads_assets.errors import PartitionKeyError, SettingsError

_FORM = re.compile(
    r"(?P<kind>[a-z_]+)@(?P<customer>\*|[0-9]{10})/(?P<resource>\*|[a-z_]+)/(?P<day>\*|[0-9-]{10})(:(?P<amount>[0-9]{1,7}))?"
)


class FaultKind(Enum):
    TRANSIENT = "transient"
    """The first n calls (1) of each customer and resource end with UNAVAILABLE."""
    MIDSTREAM_BREAK = "midstream_break"
    """The first n calls (1) of each customer and resource give some rows, then break off."""
    QUOTA = "quota"
    """RESOURCE_EXHAUSTED, with the delay left, until n seconds (30) after the first such refusal."""
    BAD_AUTH = "bad_auth"
    """The first n calls (all) end with UNAUTHENTICATED."""
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
_DEFAULT_AMOUNTS = {FaultKind.QUOTA: 30, FaultKind.BAD_AUTH: _MOST}


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


@dataclass(frozen=True, kw_only=True)
class RowFaults:
    """How many of a day's first rows each fault touches. `size` is how many there are, None for as many as usual."""

    size: int | None = None
    sent_twice: int = 0
    wrong_customer: int = 0
    wrong_day: int = 0


def rows_per_day(count: int) -> Fault:
    """`count` rows on every day of every account and resource that no other fault of that kind names."""
    return Fault(kind=FaultKind.ROWS, customer_id=None, resource=None, day=None, amount=count)


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Reads any number of faults separated by `;`; raises SettingsError quoting the one that cannot be read."""
    return tuple(_parse_fault(part.strip()) for part in text.split(";") if part.strip())


def _parse_fault(text: str) -> Fault:
    match = _FORM.fullmatch(text)
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
    if amount > (highest := MOST_ROWS if kind is FaultKind.ROWS else _MOST):
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

    def strike(self, customer_id: str, resource: str, days: range) -> tuple[FaultKind, float] | None:
        """What goes wrong with this call, if anything; the number is the delay that a quota error asks for.

        `days` are the ordinals asked for.
        """
        with self._lock:
            for fault in self._faults:
                if not fault.concerns(customer_id, resource):
                    continue
                if fault.day is not None and fault.day.toordinal() not in days:
                    continue
                match fault.kind:
                    case FaultKind.QUOTA:
                        left = self._quota_ends.setdefault(fault, self._clock() + fault.amount) - self._clock()
                        if left > 0:
                            return fault.kind, left
                    case FaultKind.TRANSIENT | FaultKind.MIDSTREAM_BREAK | FaultKind.BAD_AUTH:
                        key = (fault, customer_id, resource)
                        if self._struck[key] < fault.amount:
                            self._struck[key] += 1
                            return fault.kind, 0.0
                    case _:
                        continue
        return None

    def rows_of(self, customer_id: str, resource: str, day: date | None) -> RowFaults:
        amounts: dict[FaultKind, list[int]] = {}
        for fault in self._faults:
            if fault.concerns(customer_id, resource) and fault.day in (None, day):
                amounts.setdefault(fault.kind, []).append(fault.amount)
        return RowFaults(
            # The first that is said, so that a rule for all may follow exceptions.
            size=amounts.get(FaultKind.ROWS, [None])[0],
            sent_twice=max(amounts.get(FaultKind.DUPLICATED_ROWS, [0])),
            wrong_customer=max(amounts.get(FaultKind.WRONG_CUSTOMER_ROWS, [0])),
            wrong_day=max(amounts.get(FaultKind.WRONG_DAY_ROWS, [0])),
        )
