"""Google Ads accounts, and when one of their days may be read."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gads_assets.domain.keys import CustomerId
from gads_assets.errors import DayNotOpenError, PartitionKeyError


@dataclass(frozen=True, kw_only=True)
class Account:
    """A client account. `login_customer_id` is the manager through which it must be asked; `origin` says which API
    knows it (`google` or `emulator`), so that emulated days never pass for real ones."""

    customer_id: CustomerId
    name: str
    time_zone: str
    currency: str
    login_customer_id: CustomerId
    origin: str


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


def require_open(
    *, customer_id: CustomerId, time_zone: str, logical_date: date, settling_delay: timedelta, now: datetime
) -> None:
    opens_at = day_opens_at(time_zone, logical_date, settling_delay)
    if now < opens_at:
        raise DayNotOpenError(
            f"day {logical_date} of account {customer_id} ({time_zone}) opens at {opens_at:%Y-%m-%d %H:%M} UTC; "
            "run it after that"
        )
