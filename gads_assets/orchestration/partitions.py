"""Customers × days, as Dagster partitions."""

from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Final

import click
import dagster as dg
from dagster._core.definitions.partitions.context import PartitionLoadingContext

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.accounts import last_complete_day
from gads_assets.domain.keys import PartitionKey, partition_key_from_label
from gads_assets.errors import PartitionKeyError
from gads_assets.orchestration.dagster_internals import ListedPartitions

CUSTOMER_DIMENSION: Final = "customer_id"
DAY_DIMENSION: Final = "logical_date"
CUSTOMERS: Final = "google_ads_customers"
"""The name of the dynamic partitions that `gads customers` registers."""


class RefusedPartitionError(PartitionKeyError, click.ClickException):
    """A partition that cannot be launched. Dagster's command line shows a click error as one line, without a trace."""

    def __init__(self, message: str) -> None:
        click.ClickException.__init__(self, message)


class CustomerDays(ListedPartitions):
    """Dagster would answer any wrong key with "no such partition"; this says which half is wrong, and the fix."""

    def __init__(self, start_date: date) -> None:
        self._start_date = start_date
        super().__init__(
            {
                CUSTOMER_DIMENSION: dg.DynamicPartitionsDefinition(name=CUSTOMERS),
                # Today's too: in the east it is over before UTC's midnight.
                DAY_DIMENSION: dg.DailyPartitionsDefinition(start_date=start_date.isoformat(), end_offset=1),
            }
        )

    def validate_partition_key(self, partition_key: str, context: PartitionLoadingContext) -> None:
        try:
            key = partition_key_from_label(partition_key, source="", query_name="")
        except PartitionKeyError as error:
            raise RefusedPartitionError(str(error)) from None
        if partition_key != key.label:
            raise RefusedPartitionError(f"partition {partition_key!r} is not in its plain form; write {key.label!r}")
        last = last_complete_day(context.effective_dt or datetime.now(UTC))
        if not self._start_date <= key.logical_date <= last:
            raise RefusedPartitionError(
                f"day {key.logical_date} is outside the catalog's days: it must be between {self._start_date} and "
                f"{last}, the last that is over anywhere"
            )
        store = context.dynamic_partitions_store
        if store is not None and not store.has_dynamic_partition(CUSTOMERS, key.customer_id):
            raise RefusedPartitionError(
                f"customer {key.customer_id} is not registered; run `gads customers sync`, or "
                f"`gads customers add {key.customer_id}`"
            )


def customer_days(catalog: Catalog) -> CustomerDays:
    """One definition for every query, so that any of them can be launched together."""
    return CustomerDays(first_day(catalog))


def first_day(catalog: Catalog) -> date:
    return min(query.start_date for query in catalog.queries.values())


def partition_keys(labels: Iterable[str], *, source: str, query_name: str) -> list[PartitionKey]:
    """Dagster's keys as ours, in an order that does not depend on Dagster's."""
    return sorted(partition_key_from_label(label, source=source, query_name=query_name) for label in labels)


def dagster_key(key: PartitionKey) -> dg.MultiPartitionKey:
    return dg.MultiPartitionKey({CUSTOMER_DIMENSION: key.customer_id, DAY_DIMENSION: key.logical_date.isoformat()})
