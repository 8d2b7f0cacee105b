"""Google Ads accounts: which there are, which are closed, and when one of their days may be read."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gads_assets.domain.keys import CustomerId
from gads_assets.errors import CustomerUnavailableError, DayNotOpenError, PartitionKeyError


class AccountStatus(StrEnum):
    ACTIVE = "active"
    """Its days may be asked for."""

    INACTIVE = "inactive"
    """Closed, or out of our sight: nothing is asked for, and what was published stays."""


CLOSED_STATUSES: Final = frozenset({"CANCELED", "SUSPENDED", "CLOSED"})
"""As the API names them; a status that is not known says nothing."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """A client account. `login_customer_id` is the manager through which it must be asked, and `login_path` the
    managers from that one down to the account's own, empty where they are not known; `origin` says which API knows it
    (`google` or `emulator`), so that emulated days never pass for real ones. An inactive one was found so at
    `closed_at`."""

    customer_id: CustomerId
    name: str
    time_zone: str
    currency: str
    login_customer_id: CustomerId
    origin: str
    login_path: tuple[CustomerId, ...] = ()
    status: AccountStatus = AccountStatus.ACTIVE
    closed_at: datetime | None = None
    closed_reason: str | None = None

    @property
    def is_active(self) -> bool:
        return self.status is AccountStatus.ACTIVE


@dataclass(frozen=True, kw_only=True)
class FoundAccount:
    """An account in the API's hierarchy. `api_status` is the API's own word. One that we do not know makes the account
    neither enabled nor closed."""

    account: Account
    api_status: str

    @property
    def is_enabled(self) -> bool:
        return self.api_status == "ENABLED"

    @property
    def without_days(self) -> str | None:
        """Why none of its days can be told from another, if so."""
        zone = self.account.time_zone
        return None if _is_time_zone(zone) else f"its time zone {zone!r} is not in the tz database"

    @property
    def is_closed(self) -> bool:
        return self.api_status in CLOSED_STATUSES

    @property
    def reason(self) -> str:
        return f"{self.api_status.lower()} in Google Ads"


@dataclass(frozen=True, kw_only=True)
class SyncPlan:
    """Every account as it is to be, each in one place, by customer id. `closed` and `reopened` were the opposite
    before; `changed` were known and differ otherwise."""

    new: tuple[Account, ...] = ()
    changed: tuple[Account, ...] = ()
    closed: tuple[Account, ...] = ()
    reopened: tuple[Account, ...] = ()
    unchanged: tuple[Account, ...] = ()

    @property
    def to_write(self) -> tuple[Account, ...]:
        return self.new + self.changed + self.closed + self.reopened

    @property
    def accounts(self) -> tuple[Account, ...]:
        return tuple(sorted(self.to_write + self.unchanged, key=lambda account: account.customer_id))

    @property
    def closes_most(self) -> bool:
        """More than half of what was active: sooner a wrong login than so many closed accounts."""
        kept = [account for account in self.changed + self.unchanged if account.is_active]
        return len(self.closed) > len(kept)


def plan_sync(
    found: Iterable[FoundAccount],
    known: Iterable[Account],
    *,
    origin: str,
    login_customer_id: CustomerId,
    now: datetime,
) -> SyncPlan:
    """What the accounts become when `found` is all that is below that login.

    Known accounts that are not below it any more are closed; those that were found under another login, or through the
    other API, are left out: this walk could not have met them. A closed account keeps what is known of it, and the
    moment it was first found closed. Accounts that were closed before they were ever known are left out.
    """
    below = {each.account.customer_id: each for each in found}
    before = {account.customer_id: account for account in known if account.origin == origin}
    plan: dict[str, list[Account]] = {"new": [], "changed": [], "closed": [], "reopened": [], "unchanged": []}
    for customer_id in sorted(below.keys() | before.keys()):
        was, met = before.get(customer_id), below.get(customer_id)
        if met is None and was is not None and was.login_customer_id != login_customer_id:
            continue
        will_be = _after_sync(was, met, now=now)
        if will_be is not None:
            plan[_kind_of_change(was, will_be)].append(will_be)
    return SyncPlan(**{kind: tuple(accounts) for kind, accounts in plan.items()})


def _after_sync(was: Account | None, met: FoundAccount | None, *, now: datetime) -> Account | None:
    if met is not None and met.is_enabled:
        return met.account if met.without_days is None else _without_days(was or met.account, met, now=now)
    if was is None or (met is not None and not met.is_closed):
        return was
    if met is not None:
        reason = met.reason
    elif was.closed_reason is not None:
        reason = was.closed_reason
    else:
        reason = f"no longer below manager {was.login_customer_id}"
    return replace(was, status=AccountStatus.INACTIVE, closed_at=was.closed_at or now, closed_reason=reason)


def _without_days(account: Account, met: FoundAccount, *, now: datetime) -> Account:
    """Closed, with a time zone that the database can count in: what one account lacks must not stop all others."""
    return replace(
        account,
        time_zone=account.time_zone if _is_time_zone(account.time_zone) else "UTC",
        status=AccountStatus.INACTIVE,
        closed_at=account.closed_at or now,
        closed_reason=met.without_days,
    )


def _is_time_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _kind_of_change(was: Account | None, will_be: Account) -> str:
    if was is None:
        return "new"
    if was.status is not will_be.status:
        return "reopened" if will_be.is_active else "closed"
    return "unchanged" if was == will_be else "changed"


def require_active(account: Account) -> None:
    if not account.is_active:
        raise CustomerUnavailableError(
            f"account {account.customer_id} is closed since {account.closed_at:%Y-%m-%d} ({account.closed_reason}); "
            "its history stays, and `gads customers sync` reopens it once it is enabled again",
            customer_id=account.customer_id,
        )


def last_complete_day(now: datetime) -> date:
    """The newest day that is over anywhere: the zones furthest east are fourteen hours ahead of UTC."""
    return (now.astimezone(UTC) + timedelta(hours=14)).date() - timedelta(days=1)


def day_opens_at(account_time_zone: str, logical_date: date, settling_delay: timedelta) -> datetime:
    """The moment, in UTC, from which the account's day is over and its numbers have settled.

    The day ends at the account's own next midnight, so it lasts 23 or 25 hours where clocks change; the delay is
    counted in real time after that.
    """
    try:
        zone = ZoneInfo(account_time_zone)
        midnight = datetime.combine(logical_date + timedelta(days=1), time(), tzinfo=zone)
        # Added in UTC: adding to a local time would count wall-clock hours, wrong when clocks change in between.
        return midnight.astimezone(UTC) + settling_delay
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise PartitionKeyError(
            f"time zone {account_time_zone!r} is not in the tz database; correct the account's time zone"
        ) from None
    except OverflowError:
        raise PartitionKeyError(f"day {logical_date} is at the calendar's end; choose an earlier day") from None


def last_open_day(account_time_zone: str, settling_delay: timedelta, *, now: datetime) -> date:
    """The newest day of the account that `day_opens_at` has come for."""
    day = (now - settling_delay).astimezone(UTC).date() + timedelta(days=1)
    while day_opens_at(account_time_zone, day, settling_delay) > now:
        day -= timedelta(days=1)
    return day


def require_open(
    *, customer_id: CustomerId, time_zone: str, logical_date: date, settling_delay: timedelta, now: datetime
) -> None:
    opens_at = day_opens_at(time_zone, logical_date, settling_delay)
    if now < opens_at:
        raise DayNotOpenError(
            f"day {logical_date} of account {customer_id} ({time_zone}) opens at {opens_at:%Y-%m-%d %H:%M} UTC; "
            "run it after that"
        )
