"""When the API's daily operations start anew, and what is not asked before.

Google allows a developer token so many operations a day and does not say when that day begins. Its other advertising
APIs document midnight Pacific time, so that is taken here. Where Google counts otherwise, its own refusal says how long
to wait, and a pause keeps every process from asking before.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

QUOTA_ZONE: Final = "America/Los_Angeles"


@dataclass(frozen=True, kw_only=True)
class BudgetStatus:
    """`allowed` is None without a limit; `paused_until` and `reason` are None unless the API is paused now."""

    used: int
    allowed: int | None
    resets_at: datetime
    paused_until: datetime | None
    reason: str | None


def next_reset(moment: datetime) -> datetime:
    """The end, in UTC, of the day of operations that `moment` falls in; it lasts 23 or 25 hours where clocks change."""
    zone = ZoneInfo(QUOTA_ZONE)
    tomorrow = moment.astimezone(zone).date() + timedelta(days=1)
    return datetime.combine(tomorrow, time(), tzinfo=zone).astimezone(UTC)


def moment_of_reset(*, now: datetime, counting_clock: datetime) -> datetime:
    """The next reset as the caller's own clock will show it, to the full second after: `now` and `counting_clock` are
    the same moment by the caller's clock and by the one that the operations are counted by."""
    moment = now + (next_reset(counting_clock) - counting_clock)
    return moment if moment.microsecond == 0 else moment.replace(microsecond=0) + timedelta(seconds=1)


def shown(moment: datetime) -> str:
    """As people are told until when the API is not asked."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def why_not_asked(status: BudgetStatus) -> str | None:
    """In one line, with until when; None where the API may be asked."""
    if status.paused_until:
        return (
            f"the API is paused until {shown(status.paused_until)}: {status.reason}; `gads quota --resume` lifts the "
            "pause"
        )
    if status.allowed is not None and status.used >= status.allowed:
        return f"the day's {status.allowed} API operations are used up until {shown(status.resets_at)}"
    return None


def is_reserved_for_fresh(status: BudgetStatus, *, next_days: int) -> bool:
    """Whether what is left may be needed by the days that open before the operations start anew; but never more than
    half of a day's, so that everything else comes to its turn."""
    if status.allowed is None:
        return False
    return status.allowed - status.used <= min(next_days, status.allowed // 2)
