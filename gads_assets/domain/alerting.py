"""Conditions that somebody has to hear of, once each."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gads_assets.domain.keys import PartitionKey


class AlertKind(StrEnum):
    TERMINAL = "terminal"
    """Its runs were rejected until no more are tried."""

    BLOCKED = "blocked"
    """It cannot be extracted, and nothing more is tried."""

    STALE = "stale"
    """What is published of it, or that nothing is, has been out of date for longer than its query allows."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    kind: AlertKind
    key: PartitionKey
    reason: str


@dataclass(frozen=True, kw_only=True)
class Alert:
    """A condition, from when it was first seen until it is over. The same condition later on is another alert."""

    alert_id: str
    condition: Condition
    raised_at: datetime
