"""What a partition and a run are called."""

import re
from dataclasses import dataclass
from datetime import date
from typing import NewType

from gads_assets.errors import PartitionKeyError

CustomerId = NewType("CustomerId", str)
RunId = NewType("RunId", str)
StageId = NewType("StageId", str)

_CUSTOMER_ID = re.compile(r"([0-9]{10}|[0-9]{3}-[0-9]{3}-[0-9]{4})\Z")
_LOGICAL_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}\Z")


@dataclass(frozen=True, kw_only=True, order=True)
class PartitionKey:
    """The smallest slice of work: one query's rows of one account's day."""

    source: str
    customer_id: CustomerId
    query_name: str
    logical_date: date

    @property
    def label(self) -> str:
        """The partition as Dagster spells it within a query's assets: `1234567890|2024-06-01`."""
        return f"{self.customer_id}|{self.logical_date.isoformat()}"

    def __str__(self) -> str:
        return f"{self.source}/{self.query_name} {self.label}"


def parse_customer_id(text: str) -> CustomerId:
    """Accepts an account id as people write it (`123-456-7890`) and returns its ten digits."""
    stripped = text.strip()
    if not _CUSTOMER_ID.match(stripped):
        raise PartitionKeyError(f"customer id {text[:40]!r} is not ten digits; write it as 123-456-7890 or 1234567890")
    return CustomerId(stripped.replace("-", ""))


def parse_logical_date(text: str) -> date:
    if not _LOGICAL_DATE.match(text):
        raise PartitionKeyError(f"day {text[:40]!r} is not a date; write it as YYYY-MM-DD")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise PartitionKeyError(f"day {text!r} is not in the calendar; write it as YYYY-MM-DD") from None


def parse_run_id(text: str) -> RunId:
    if not _ULID.match(text):
        raise PartitionKeyError(f"run id {text[:40]!r} is not a ULID (26 characters of Crockford's base 32)")
    return RunId(text)


def partition_key_from_label(label: str, *, source: str, query_name: str) -> PartitionKey:
    """Reads `1234567890|2024-06-01`; the inverse of `PartitionKey.label`."""
    customer, separator, day = label.partition("|")
    if not separator:
        raise PartitionKeyError(f"partition {label[:40]!r} has no '|'; write it as <customer id>|<YYYY-MM-DD>")
    return PartitionKey(
        source=source,
        customer_id=parse_customer_id(customer),
        query_name=query_name,
        logical_date=parse_logical_date(day),
    )
