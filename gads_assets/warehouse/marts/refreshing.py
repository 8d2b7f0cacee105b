"""Refreshing the marts: a look at the inputs and one commit, with nobody else's in between."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark.sql import SparkSession

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.state.partition_states import StateStore
from gads_assets.state.run_records import RunRecords
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.marts import account_day, freshness
from gads_assets.warehouse.marts.freshness import FreshnessInputs
from gads_assets.warehouse.marts.tables import (
    ACCOUNT_DAY,
    FRESHNESS,
    account_days_condition,
    customers_condition,
    refreshing_scope,
    replace_rows,
)


@dataclass(frozen=True, kw_only=True)
class MartRefresher:
    """Of two at once the second waits, and looks at the inputs after the first has written."""

    session: Callable[[], SparkSession]
    layout: WarehouseLayout
    catalog: Catalog
    store: StateStore
    records: RunRecords
    now: Callable[[], datetime]

    def refresh_account_days(self, keys: Sequence[PartitionKey]) -> pa.Table:
        """Replaces these account-days, and no others, by what is published of them now.

        Returns what they were made of, see `AccountDayInputs.lineage`. An account-day that is not in there has no rows
        any more.
        """
        with self.records.exclusive(refreshing_scope(self.layout.source, ACCOUNT_DAY)) as require_held:
            inputs = account_day.take_inputs(self.layout, self.catalog, keys)
            rows = account_day.account_day_rows(self.session(), inputs)
            require_held()
            replace_rows(self.session(), self.layout, ACCOUNT_DAY, rows, account_days_condition(keys))
        return inputs.lineage

    def refresh_freshness(self, customers: Sequence[CustomerId]) -> FreshnessInputs:
        """Replaces the rows of these customers; returns what they were made of."""
        with self.records.exclusive(refreshing_scope(self.layout.source, FRESHNESS)) as require_held:
            inputs = freshness.take_inputs(self.layout, self.catalog, self.store, customers)
            rows = freshness.freshness_rows(self.session(), inputs, now=self.now())
            require_held()
            replace_rows(self.session(), self.layout, FRESHNESS, rows, customers_condition(customers))
        return inputs
