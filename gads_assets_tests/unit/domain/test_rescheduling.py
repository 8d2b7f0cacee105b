"""Due partitions in rectangles that Dagster can launch."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.rescheduling import MOST_PARTITIONS, DuePartition, Rerun, partitions_between, plan_reruns

FIRST = date(2024, 6, 1)
NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
ORDER = [CustomerId(f"{(number * 7) % 10}{number:09}") for number in range(900)]


def due(customer: int, day: int, query: str = "campaign") -> DuePartition:
    return DuePartition(
        key=PartitionKey(
            source="google_ads",
            customer_id=ORDER[customer],
            query_name=query,
            logical_date=FIRST + timedelta(days=day),
        ),
        retry_at=NOON + timedelta(minutes=customer, seconds=day),
        dagster_run_id="the run that failed",
    )


def rectangle(customers: range, days: range) -> list[DuePartition]:
    return [due(customer, day) for customer in customers for day in days]


def labels(reruns: list[Rerun]) -> list[tuple[str, str]]:
    return [(rerun.first.label, rerun.last.label) for rerun in reruns]


cells = st.builds(due, st.integers(0, 5), st.integers(0, 5), st.sampled_from(["campaign", "ad_group"]))


@settings(deadline=None)
@given(st.sets(cells))
def test_reruns_cover_exactly_what_is_due_each_once_and_newest_days_first(asked: set[DuePartition]) -> None:
    reruns = plan_reruns(asked, ORDER)
    covered = Counter(key for rerun in reruns for key in partitions_between(rerun.first, rerun.last, ORDER))
    assert covered == Counter(each.key for each in asked)
    newest = [rerun.last.logical_date for rerun in reruns]
    assert newest == sorted(newest, reverse=True)
    moments = {each.key: each.retry_at for each in asked}
    for rerun in reruns:
        assert rerun.retry_at == max(moments[key] for key in partitions_between(rerun.first, rerun.last, ORDER))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 60), st.integers(1, 60))
@example(900, 1)
@example(1, 900)
def test_a_whole_rectangle_takes_hardly_more_runs_than_its_size_asks_for(customers: int, days: int) -> None:
    reruns = plan_reruns(rectangle(range(customers), range(days)), ORDER)
    sizes = [len(partitions_between(rerun.first, rerun.last, ORDER)) for rerun in reruns]
    assert sum(sizes) == customers * days
    assert max(sizes) <= MOST_PARTITIONS
    assert len(sizes) <= 2 * (customers * days / MOST_PARTITIONS) + 2


def test_customers_follow_each_other_as_dagster_knows_them_and_not_by_number() -> None:
    assert sorted(ORDER) != ORDER
    reruns = plan_reruns(rectangle(range(3, 8), range(2)), ORDER)
    assert labels(reruns) == [(f"{ORDER[3]}|2024-06-01", f"{ORDER[7]}|2024-06-02")]


def test_a_customers_days_stay_in_one_run() -> None:
    reruns = plan_reruns([*rectangle(range(3), range(1)), due(1, 1), due(1, 2)], ORDER)
    assert labels(reruns) == [
        (f"{ORDER[1]}|2024-06-01", f"{ORDER[1]}|2024-06-03"),
        (f"{ORDER[0]}|2024-06-01", f"{ORDER[0]}|2024-06-01"),
        (f"{ORDER[2]}|2024-06-01", f"{ORDER[2]}|2024-06-01"),
    ]


def test_a_customer_that_dagster_does_not_know_is_left_out() -> None:
    assert plan_reruns(rectangle(range(2), range(1)), ORDER[:1]) == plan_reruns([due(0, 0)], ORDER)


def test_a_rerun_is_called_the_same_until_one_of_its_partitions_is_tried_again() -> None:
    asked = rectangle(range(2), range(2))
    [before] = plan_reruns(asked, ORDER)
    [again] = plan_reruns(reversed(asked), ORDER)
    later = replace(asked[0], retry_at=NOON + timedelta(days=1))
    [after] = plan_reruns([later, *asked[1:]], ORDER)
    assert before.name(0) == again.name(0)
    assert len({before.name(0), before.name(1), after.name(0)}) == 3
