"""What a backfill takes: how many partitions, runs and operations of the API, before anything is scheduled."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from itertools import groupby

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.quota import BudgetStatus
from gads_assets.domain.scheduling import Due, Purpose, count_operations, plan_batches
from gads_assets.domain.windows import MOST_DAYS


@dataclass(frozen=True, kw_only=True)
class Cost:
    """If no call has to be made again."""

    partitions: int
    runs: int
    operations: int


def days_of_quota(operations: int, budget: BudgetStatus) -> int:
    """On how many days of the API's quota they fall, if nothing else used any from now on."""
    if budget.allowed is None:
        return min(operations, 1)
    left = max(budget.allowed - budget.used, 0)
    return (1 if left and operations else 0) + max(0, math.ceil((operations - left) / budget.allowed))


def cost_of(keys: Iterable[PartitionKey], last: date, *, days_per_call: Mapping[str, int | None], largest: int) -> Cost:
    """As it is dispatched: stretch by stretch of days, back from the last."""

    def stretch(key: PartitionKey) -> int:
        return (last - key.logical_date).days // MOST_DAYS

    batches = [
        [due.key for due in batch.due]
        for _, group in groupby(sorted(keys, key=lambda key: (stretch(key), key)), key=stretch)
        for batch in plan_batches((Due(key=key, purpose=Purpose.BACKFILL) for key in group), largest=largest)
    ]
    return Cost(
        partitions=sum(map(len, batches)),
        runs=len(batches),
        operations=sum(count_operations(batch, days_per_call) for batch in batches),
    )
