"""What is worth a warning, decided from a day's neighbours alone."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gads_assets.domain.expectations import (
    NOTHING_KNOWN,
    Neighbours,
    SpendPolicy,
    Surroundings,
    VolumePolicy,
    spend_finding,
    volume_finding,
)
from gads_assets.domain.verdict import Spend
from gads_assets_tests.sealed_runs import key

VOLUME = VolumePolicy(days=14, lowest=0.5, highest=2)
POLICIES = {
    "ad_group": SpendPolicy(against="campaign", lowest=0.98, highest=1.02),
    "search_term_view": SpendPolicy(against="campaign", lowest=None, highest=1.02),
}


def spend(units: float, comparable: float | None = None) -> Spend:
    return Spend(
        micros=int(units * 1_000_000),
        comparable_micros=None if comparable is None else int(comparable * 1_000_000),
    )


@pytest.mark.parametrize(
    ("rows", "neighbours", "passed"),
    [
        (100, Neighbours(recent=(100,) * 14), True),
        (50, Neighbours(recent=(100,) * 14), True),
        (49, Neighbours(recent=(100,) * 14), False),
        (200, Neighbours(recent=(100,) * 14), True),
        (201, Neighbours(recent=(100,) * 14), False),
        (0, Neighbours(recent=(100,) * 14), False),
        # One odd day among the others moves no median.
        (100, Neighbours(recent=(100, 100, 100, 9000)), True),
        (0, Neighbours(recent=(100, 100)), True),  # two days are no history
        (1, Neighbours(recent=(9, 9, 9)), True),  # a few rows more or less say nothing
        (40, Neighbours(own=100), False),
        (60, Neighbours(own=100), True),
        (100, Neighbours(recent=(100,) * 14, own=1000), False),
        (5, Neighbours(), True),
    ],
)
def test_a_day_is_held_against_the_days_before_and_its_own_accepted_run(
    rows: int, neighbours: Neighbours, passed: bool
) -> None:
    assert volume_finding(rows, neighbours, VOLUME).passed is passed


def test_a_volume_warning_says_what_was_compared() -> None:
    found = volume_finding(12, Neighbours(recent=(240, 250, 260), own=11), VOLUME)
    assert found.detail == "12 rows, against a median of 250 in the 3 accepted days before"
    assert "no history" in volume_finding(12, Neighbours(), VOLUME).detail
    assert "sets no limit" in volume_finding(12, Neighbours(), None).detail


@pytest.mark.parametrize(
    ("query", "own", "spends", "passed"),
    [
        ("ad_group", spend(80), {"campaign": spend(100, 80)}, True),
        ("ad_group", spend(70), {"campaign": spend(100, 80)}, False),  # a fifth is Performance Max, the rest is missing
        ("ad_group", spend(103), {"campaign": spend(100, 80)}, False),
        ("ad_group", spend(102), {"campaign": spend(100, 100)}, True),
        ("ad_group", spend(1), {"campaign": spend(100)}, True),  # nobody knows how much is Performance Max
        ("ad_group", spend(0), {"campaign": spend(0, 0)}, True),
        ("search_term_view", spend(1), {"campaign": spend(100, 100)}, True),
        ("search_term_view", spend(103), {"campaign": spend(100, 100)}, False),
        ("search_term_view", spend(103), {}, True),  # campaign was not judged yet
        ("campaign", spend(100, 80), {}, True),
        ("campaign", spend(100, 80), {"ad_group": spend(80), "search_term_view": spend(3)}, True),
        ("campaign", spend(100, 80), {"ad_group": spend(80), "search_term_view": spend(300)}, False),
        ("campaign", spend(100, 80), {"ad_group": spend(50)}, False),
        ("geographic_view", spend(1), {"campaign": spend(100)}, True),
        ("ad_group", None, {"campaign": spend(100)}, True),
    ],
)
def test_whichever_of_two_queries_is_judged_later_finds_that_their_spends_disagree(
    query: str, own: Spend | None, spends: dict[str, Spend], passed: bool
) -> None:
    found = spend_finding(query, own, Neighbours(spends=spends), POLICIES)
    assert found.passed is passed
    assert found.detail


def test_a_spend_warning_names_both_queries_and_both_sums() -> None:
    found = spend_finding("ad_group", spend(1234.5), Neighbours(spends={"campaign": spend(1000, 900)}), POLICIES)
    assert found.detail == "ad_group spent 1,234.50, campaign only 1,000.00"
    found = spend_finding("campaign", spend(1000, 900), Neighbours(spends={"ad_group": spend(100)}), POLICIES)
    assert found.detail == "ad_group spent only 100.00, campaign 900.00 outside Performance Max"


def test_neighbours_are_the_days_before_of_the_same_customer_and_query_in_the_ledger_and_in_the_batch() -> None:
    today = key(day="2024-06-15")
    before = {replace(today, logical_date=today.logical_date - timedelta(days=days)): days for days in range(1, 31)}
    others = {key("9999999999", "2024-06-14"): 7000, replace(today, query_name="ad_group"): 8000}
    known = Surroundings(
        rows={**before, **others, today: 500}, spends={replace(today, query_name="ad_group"): spend(1)}
    )
    yesterday = key(day="2024-06-14")
    batch = Surroundings(rows={yesterday: 600, today: 900}, spends={today: spend(2)})

    found = known.neighbours(batch, days={"campaign": 3})

    assert found[today] == Neighbours(recent=(3, 2, 600), own=500, spends={"ad_group": spend(1), "campaign": spend(2)})
    assert found[yesterday] == Neighbours(recent=(4, 3, 2), own=1)
    assert found.keys() == batch.rows.keys()
    assert NOTHING_KNOWN.neighbours(batch, days={})[yesterday] == Neighbours()
