"""Failed extractions that are worth another try."""

from dataclasses import dataclass
from datetime import date, datetime

from gads_assets.domain.keys import PartitionKey


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """A query's: after how many runs that failed since a partition was last sealed somebody has to look, and the first
    day that is a partition."""

    max_attempts: int
    start_date: date


@dataclass(frozen=True, kw_only=True)
class DuePartition:
    """Its newest extraction failed, in `dagster_run_id`, and since `retry_at` another is worth it."""

    key: PartitionKey
    retry_at: datetime
    dagster_run_id: str
