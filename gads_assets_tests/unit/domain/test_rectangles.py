"""Partitions in rectangles that Dagster can launch."""

from collections import Counter
from collections.abc import Iterable
from datetime import date, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.rectangles import MOST_PARTITIONS, Rectangle, partitions_between, plan_rectangles

FIRST = date(2024, 6, 1)
ORDER = [CustomerId(f"{(number * 7) % 10}{number:09}") for number in range(900)]


def partition(customer: int, day: int, query: str = "campaign") -> PartitionKey:
    return PartitionKey(
        source="google_ads",
        customer_id=ORDER[customer],
        query_name=query,
        logical_date=FIRST + timedelta(days=day),
    )


def block(customers: range, days: range) -> list[PartitionKey]:
    return [partition(customer, day) for customer in customers for day in days]


def planned(keys: Iterable[PartitionKey], order: list[CustomerId] = ORDER) -> list[Rectangle]:
    return plan_rectangles(dict.fromkeys(keys, 1), order)


def covered(rectangle: Rectangle) -> set[PartitionKey]:
    return partitions_between(rectangle.first, rectangle.last, ORDER)


def labels(rectangles: list[Rectangle]) -> list[tuple[str, str]]:
    return [(rectangle.first.label, rectangle.last.label) for rectangle in rectangles]


cells = st.builds(partition, st.integers(0, 5), st.integers(0, 5), st.sampled_from(["campaign", "ad_group"]))


@settings(deadline=None)
@given(st.sets(cells))
def test_rectangles_cover_exactly_what_is_asked_each_once_and_newest_days_first(asked: set[PartitionKey]) -> None:
    rectangles = planned(asked)
    assert Counter(key for rectangle in rectangles for key in covered(rectangle)) == Counter(asked)
    newest = [rectangle.last.logical_date for rectangle in rectangles]
    assert newest == sorted(newest, reverse=True)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 60), st.integers(1, 60))
@example(900, 1)
@example(1, 900)
def test_a_whole_block_takes_hardly_more_runs_than_its_size_asks_for(customers: int, days: int) -> None:
    sizes = [len(covered(rectangle)) for rectangle in planned(block(range(customers), range(days)))]
    assert sum(sizes) == customers * days
    assert max(sizes) <= MOST_PARTITIONS
    assert len(sizes) <= 2 * (customers * days / MOST_PARTITIONS) + 2


def test_customers_follow_each_other_as_dagster_knows_them_and_not_by_number() -> None:
    assert sorted(ORDER) != ORDER
    rectangles = planned(block(range(3, 8), range(2)))
    assert labels(rectangles) == [(f"{ORDER[3]}|2024-06-01", f"{ORDER[7]}|2024-06-02")]


def test_a_customers_days_stay_in_one_run() -> None:
    rectangles = planned([*block(range(3), range(1)), partition(1, 1), partition(1, 2)])
    assert labels(rectangles) == [
        (f"{ORDER[1]}|2024-06-01", f"{ORDER[1]}|2024-06-03"),
        (f"{ORDER[0]}|2024-06-01", f"{ORDER[0]}|2024-06-01"),
        (f"{ORDER[2]}|2024-06-01", f"{ORDER[2]}|2024-06-01"),
    ]


def test_a_customer_that_dagster_does_not_know_is_left_out() -> None:
    assert planned(block(range(2), range(1)), ORDER[:1]) == planned([partition(0, 0)])


def test_a_run_is_called_the_same_until_the_mark_of_one_of_its_partitions_changes() -> None:
    asked = block(range(2), range(2))
    [before] = plan_rectangles(dict.fromkeys(asked, 1), ORDER)
    [again] = plan_rectangles(dict.fromkeys(reversed(asked), 1), ORDER)
    for key in asked:
        [after] = plan_rectangles({**dict.fromkeys(asked, 1), key: 2}, ORDER)
        assert len({before.name("load", 0), before.name("load", 1), after.name("load", 0)}) == 3
    assert before.name("load", 0) == again.name("load", 0) != before.name("judge", 0)
