from datetime import date, timedelta
from itertools import pairwise

import pytest

from gads_assets.emulator.accounts import ACCOUNTS, EmulatedAccount
from gads_assets.emulator.answers import answer
from gads_assets.emulator.date_ranges import days_during
from gads_assets.emulator.plan import plan_answer
from gads_assets.emulator.rows import Value

BAKERY = ACCOUNTS[1]
DAY = date(2024, 6, 4)
KEYED = {
    "campaign": "campaign.id",
    "keyword_view": "ad_group_criterion.criterion_id",
    "customer": "segments.hour",
    "ad_group": "ad_group.id, segments.device",
}


def rows(
    resource: str, today: date | None, when: str = f"= '{DAY}'", account: EmulatedAccount = BAKERY
) -> dict[tuple[Value, ...], tuple[Value, ...]]:
    """By key, the metrics that may drift and then those that never do."""
    fields = "metrics.conversions, metrics.conversions_value, metrics.impressions, metrics.cost_micros"
    gaql = f"SELECT {KEYED[resource]}, {fields} FROM {resource} WHERE segments.date {when}"
    plan = plan_answer(gaql, account, "v26", today=today)
    keys = len(KEYED[resource].split(","))
    return {values[:keys]: values[keys : keys + 4] for values in answer(plan, account, ACCOUNTS)}


@pytest.mark.parametrize("resource", KEYED)
def test_conversions_grow_with_a_days_age_for_90_days_row_by_row_and_nothing_else_changes(resource: str) -> None:
    ages = [rows(resource, DAY + timedelta(days=age)) for age in range(0, 100, 3)]
    for younger, older in pairwise(ages):
        assert younger.keys() == older.keys()
        for key, (conversions, value, *rest) in younger.items():
            older_conversions, older_value, *older_rest = older[key]
            assert float(str(conversions)) <= float(str(older_conversions))
            assert float(str(value)) <= float(str(older_value))
            assert rest == older_rest
    first, settled = (sum(float(str(row[0])) for row in found.values()) for found in (ages[0], ages[-1]))
    assert 0.3 * settled < first < 0.9 * settled


def test_a_day_is_settled_after_90_days_and_every_answer_within_one_day_is_the_same() -> None:
    settled = rows("campaign", None)
    assert rows("campaign", DAY + timedelta(days=90)) == rows("campaign", DAY + timedelta(days=900)) == settled
    assert rows("campaign", DAY + timedelta(days=80)) != settled
    assert rows("campaign", DAY) == rows("campaign", DAY)


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        # Wednesday the fifth.
        ("TODAY", "2024-06-05", "2024-06-05"),
        ("YESTERDAY", "2024-06-04", "2024-06-04"),
        ("LAST_7_DAYS", "2024-05-29", "2024-06-04"),
        ("LAST_14_DAYS", "2024-05-22", "2024-06-04"),
        ("LAST_30_DAYS", "2024-05-06", "2024-06-04"),
        ("LAST_BUSINESS_WEEK", "2024-05-27", "2024-05-31"),
        ("LAST_WEEK_MON_SUN", "2024-05-27", "2024-06-02"),
        ("LAST_WEEK_SUN_SAT", "2024-05-26", "2024-06-01"),
        ("THIS_WEEK_MON_TODAY", "2024-06-03", "2024-06-05"),
        ("THIS_WEEK_SUN_TODAY", "2024-06-02", "2024-06-05"),
        ("LAST_MONTH", "2024-05-01", "2024-05-31"),
        ("THIS_MONTH", "2024-06-01", "2024-06-05"),
    ],
)
def test_a_named_range_is_the_days_that_it_stands_for(name: str, first: str, last: str) -> None:
    today = date(2024, 6, 5)
    assert days_during(name, today) == (date.fromisoformat(first), date.fromisoformat(last))
    assert rows("campaign", today, f"DURING {name}") == rows("campaign", today, f"BETWEEN '{first}' AND '{last}'")


def test_a_week_that_begins_today_has_one_day() -> None:
    sunday, monday = date(2024, 6, 2), date(2024, 6, 3)
    assert days_during("THIS_WEEK_SUN_TODAY", sunday) == (sunday, sunday)
    assert days_during("THIS_WEEK_MON_TODAY", monday) == (monday, monday)


def test_other_dates_can_be_asked_for_by_a_named_range_too() -> None:
    gaql = "SELECT change_status.last_change_date_time FROM change_status WHERE change_status.last_change_date_time"
    plan = plan_answer(f"{gaql} DURING LAST_MONTH LIMIT 10000", BAKERY, "v26", today=date(2020, 2, 10))
    found = [str(values[0]) for values in answer(plan, BAKERY, ACCOUNTS)]
    assert found
    assert all(text.startswith("2020-01-") for text in found)


@pytest.mark.parametrize("resource", KEYED)
def test_a_day_that_has_not_come_yet_has_no_rows(resource: str) -> None:
    assert rows(resource, DAY - timedelta(days=1)) == {}
    around = f"BETWEEN '{DAY}' AND '{DAY + timedelta(days=3)}'"
    assert rows(resource, DAY, around).keys() == rows(resource, DAY).keys() != set()
