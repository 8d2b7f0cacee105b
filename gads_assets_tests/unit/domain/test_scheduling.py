"""What is due, in few runs: everything once, the most urgent first."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.scheduling import DEFAULT_BATCH, Batch, Due, Purpose, company_of, count_operations, plan_batches
from gads_assets.domain.windows import MOST_DAYS

FIRST = date(2024, 6, 1)


def key(customer: int, day: int, query: str = "campaign") -> PartitionKey:
    return PartitionKey(
        source="google_ads",
        customer_id=CustomerId(f"{customer:010d}"),
        query_name=query,
        logical_date=FIRST + timedelta(days=day),
    )


def due(customer: int, day: int, query: str = "campaign", purpose: Purpose = Purpose.RETRY) -> Due:
    return Due(key=key(customer, day, query), purpose=purpose)


def sizes(batches: Sequence[Batch]) -> list[int]:
    return [len(batch.due) for batch in batches]


def test_nothing_due_is_no_batch() -> None:
    assert plan_batches([]) == []


def test_scattered_retries_of_many_queries_are_a_handful_of_runs() -> None:
    random = Random(1)
    scattered = {
        key(random.randrange(200), random.randrange(90), f"query_{number % 12}"): number for number in range(500)
    }
    batches = plan_batches([Due(key=each, purpose=Purpose.RETRY) for each in scattered])
    assert len(batches) <= 10
    assert sum(sizes(batches)) == len(scattered)
    assert len(batches) == -(-len(scattered) // DEFAULT_BATCH)


def test_what_its_runs_came_to_nothing_with_is_found_by_smaller_runs_and_the_last_is_alone() -> None:
    sizes_of_tries = [company_of(fruitless, tries_left=8 - fruitless, largest=400) for fruitless in range(8)]
    assert sizes_of_tries == [400, 100, 100, 100, 100, 25, 5, 1]
    assert [company_of(tries, tries_left=3 - tries, largest=4) for tries in range(3)] == [4, 1, 1]


def test_those_that_may_have_ended_their_runs_go_after_the_others_and_in_smaller_runs() -> None:
    suspects = [replace(due(1, day), at_most=2) for day in range(60, 64)]
    batches = plan_batches([*suspects, *(due(2, day) for day in range(5))], largest=4)
    assert [{each.at_most for each in batch.due} for batch in batches] == [{sys.maxsize}] * 2 + [{2}] * 2
    assert sizes(batches) == [4, 1, 2, 2]


def test_the_days_of_a_customer_stay_together_where_they_fit() -> None:
    wanted = [due(customer, day) for customer in range(10) for day in range(15)]
    batches = plan_batches(wanted, largest=40)
    runs_of_customer = Counter(
        customer for batch in batches for customer in {each.key.customer_id for each in batch.due}
    )
    assert set(runs_of_customer.values()) == {1}
    assert sizes(batches) == [30] * 5


def test_a_customer_with_more_days_than_fit_is_cut_newest_days_first() -> None:
    batches = plan_batches([due(1, day) for day in range(100)], largest=40)
    assert sizes(batches) == [40, 40, 20]
    days = [each.key.logical_date for batch in batches for each in batch.due]
    assert days == sorted(days, reverse=True)


def test_the_most_urgent_come_first_and_of_equal_ones_the_newest_days() -> None:
    wanted = [
        due(customer, day, purpose=purpose)
        for number, purpose in enumerate(Purpose)
        for customer in range(number * 10, number * 10 + 4)
        for day in (0, 40)
    ]
    batches = plan_batches(wanted, largest=4)
    in_order = [batch.purpose for batch in batches]
    assert list(dict.fromkeys(in_order)) == sorted(Purpose, key=lambda each: (-each.priority, in_order.index(each)))
    that_ask = [each for each in dict.fromkeys(in_order) if each is not Purpose.REVALIDATE]
    assert that_ask == [Purpose.FRESH, Purpose.RETRY, Purpose.RESTATEMENT, Purpose.BACKFILL]
    newest = plan_batches([due(customer, customer) for customer in range(20)], largest=5)
    assert all(
        max(each.key.logical_date for each in earlier.due) >= max(each.key.logical_date for each in later.due)
        for earlier, later in pairwise(newest)
    )


def test_purposes_never_share_a_run() -> None:
    batches = plan_batches([due(number, 0, purpose=purpose) for number, purpose in enumerate(Purpose)])
    assert sorted(batch.purpose for batch in batches) == sorted(Purpose)
    assert all({each.purpose for each in batch.due} == {batch.purpose} for batch in batches)


partitions = st.builds(
    due,
    st.integers(0, 8),
    st.integers(0, 30),
    st.sampled_from(["campaign", "ad_group", "keyword"]),
    st.sampled_from(list(Purpose)),
)


@given(st.lists(partitions, unique_by=lambda each: each.key), st.integers(1, 50))
def test_every_partition_is_in_one_batch_and_no_batch_too_large(wanted: list[Due], largest: int) -> None:
    batches = plan_batches(wanted, largest=largest)
    planned = [each for batch in batches for each in batch.due]
    assert sorted(planned, key=lambda each: each.key) == sorted(wanted, key=lambda each: each.key)
    assert all(1 <= size <= largest for size in sizes(batches))
    assert all(earlier.purpose.priority >= later.purpose.priority for earlier, later in pairwise(batches))
    # A batch is only begun where the next call's days would not have gone into the one before.
    for purpose in Purpose:
        of_purpose = sorted(sizes([batch for batch in batches if batch.purpose is purpose]))
        longest = max(Counter((d.key.query_name, d.key.customer_id) for d in wanted).values(), default=0)
        assert all(size > largest - min(longest, largest) for size in of_purpose[1:])


@given(st.lists(partitions, unique_by=lambda each: each.key), st.randoms(use_true_random=False))
def test_the_order_in_which_they_are_found_changes_nothing(wanted: list[Due], random: Random) -> None:
    shuffled = random.sample(wanted, len(wanted))
    assert plan_batches(shuffled, largest=7) == plan_batches(wanted, largest=7)


def test_an_operation_is_a_window_of_a_customers_days() -> None:
    asked = [key(customer, day, query) for customer in (1, 2) for day in range(30) for query in ("a", "b")]
    assert count_operations(asked, {"a": None, "b": None}) == 4
    assert count_operations(asked, {"a": None, "b": 1}) == 2 + 60
    assert count_operations(asked, {"a": 7, "b": 7}) == 2 * 2 * 5
    assert count_operations([], {}) == 0
    assert count_operations([key(1, day) for day in range(MOST_DAYS + 1)], {"campaign": None}) == 2


@pytest.mark.parametrize("purpose", list(Purpose))
def test_only_a_second_judgement_asks_nothing_of_the_api(purpose: Purpose) -> None:
    assert purpose.asks_api is (purpose is not Purpose.REVALIDATE)
    assert purpose.open_batches >= 1
