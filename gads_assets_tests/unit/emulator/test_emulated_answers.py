import subprocess
import sys
from collections import Counter
from datetime import date, timedelta

import pytest

from gads_assets.catalog.gaql_query import CHANGE_TIME_FIELDS
from gads_assets.catalog.loading import load_catalog
from gads_assets.emulator.accounts import ACCOUNTS, EmulatedAccount
from gads_assets.emulator.answers import answer
from gads_assets.emulator.entities import is_dark
from gads_assets.emulator.failures import RefusedCallError
from gads_assets.emulator.plan import plan_answer
from gads_assets.emulator.rows import Value

MANAGER, BAKERY, BIKES, STATIONERY, _ = ACCOUNTS
CLIENTS = (BAKERY, BIKES, STATIONERY)
TODAY = date(2024, 6, 30)
UNSELECTED = "EXPECTED_REFERENCED_FIELD_IN_SELECT_CLAUSE"
WEEK = "segments.date BETWEEN '2024-06-03' AND '2024-06-09'"


def rows(gaql: str, account: EmulatedAccount = BAKERY, api_version: str = "v26") -> list[dict[str, Value]]:
    plan = plan_answer(gaql, account, api_version)
    paths = [field.path for field in plan.fields]
    return [dict(zip(paths, values, strict=True)) for values in answer(plan, account, ACCOUNTS)]


def refusal(gaql: str, account: EmulatedAccount = BAKERY) -> str | None:
    with pytest.raises(RefusedCallError) as refused:
        rows(gaql, account)
    return refused.value.code


def refused_on(today: date, gaql: str) -> str | None:
    try:
        plan_answer(gaql, BAKERY, "v26", today=today)
    except RefusedCallError as error:
        return error.code
    return None


@pytest.mark.parametrize("account", CLIENTS, ids=lambda account: str(account.customer_id))
def test_a_campaign_day_has_5_to_40_rows_or_none_at_all(account: EmulatedAccount) -> None:
    days = Counter(
        row["segments.date"]
        for row in rows(
            "SELECT campaign.id, segments.date FROM campaign WHERE segments.date BETWEEN '2024-01-01' AND '2024-06-30'",
            account,
        )
    )
    assert all(5 <= count <= 40 for count in days.values())
    asked = [date(2024, 1, 1) + timedelta(days=offset) for offset in range(182)]
    dark = {day.isoformat() for day in asked if is_dark(account, day.isoformat())}
    assert dark == {day.isoformat() for day in asked} - {str(day) for day in days}
    assert 0 < len(dark) < 20


@pytest.mark.parametrize("account", CLIENTS, ids=lambda account: str(account.customer_id))
def test_finer_rows_add_up_to_the_campaigns_numbers(account: EmulatedAccount) -> None:
    def sums(resource: str) -> dict[tuple[Value, Value], tuple[int, ...]]:
        found: dict[tuple[Value, Value], tuple[int, ...]] = {}
        for row in rows(
            "SELECT campaign.id, segments.date, metrics.impressions, metrics.clicks, metrics.cost_micros, "
            f"metrics.conversions, metrics.conversions_value FROM {resource} WHERE {WEEK}",
            account,
        ):
            key = row["campaign.id"], row["segments.date"]
            numbers = [round(float(str(row[path])) * 100) for path in list(row)[2:7]]
            found[key] = tuple(map(sum, zip(found.get(key, (0,) * 5), numbers, strict=True)))
        return found

    campaigns = sums("campaign")
    assert campaigns
    for finer in ("ad_group", "keyword_view", "search_term_view", "ad_group_ad"):
        assert sums(finer) == campaigns


@pytest.mark.parametrize("name", ["campaign", "ad_group", "keyword_view", "search_term_view"])
@pytest.mark.parametrize("account", CLIENTS, ids=lambda account: str(account.customer_id))
def test_rows_of_the_catalogs_queries_are_unique_by_natural_key_and_plausible(
    account: EmulatedAccount, name: str
) -> None:
    query = load_catalog(None).query(name)
    found = rows(f"SELECT {', '.join(query.gaql.select)} FROM {query.resource} WHERE {WEEK}", account)
    names = {column.name: column.field for column in query.schema.columns}
    keys = Counter(tuple(row[names[part]] for part in query.schema.natural_key) for row in found)
    assert found
    assert set(keys.values()) == {1}
    assert not any(None in key for key in keys)
    for row in found:
        impressions, clicks, cost = (row[f"metrics.{metric}"] for metric in ("impressions", "clicks", "cost_micros"))
        assert isinstance(impressions, int)
        assert isinstance(clicks, int)
        assert isinstance(cost, int)
        assert 0 <= clicks <= impressions
        assert (cost > 0) == (clicks > 0)


def test_another_process_with_another_hash_seed_gives_the_same_rows() -> None:
    gaql = (
        "SELECT campaign.id, campaign.name, campaign.bidding_strategy_type, ad_group.name, segments.date, "
        "search_term_view.search_term, metrics.clicks, metrics.top_impression_percentage "
        f"FROM search_term_view WHERE {WEEK}"
    )
    program = (
        "import sys, hashlib; from gads_assets.emulator.accounts import ACCOUNTS;"
        "from gads_assets.emulator.answers import answer; from gads_assets.emulator.plan import plan_answer;"
        "a = ACCOUNTS[1]; rows = list(answer(plan_answer(sys.argv[1], a, 'v26'), a, ACCOUNTS));"
        "print(len(rows), hashlib.sha256(repr(rows).encode()).hexdigest())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program, gaql],
            env={"PYTHONHASHSEED": seed, "LC_ALL": "C.UTF-8"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1
    assert int(seen.pop().split()[0]) > 1000


def test_a_window_gives_the_same_rows_as_its_days_asked_one_by_one() -> None:
    select = "SELECT campaign.id, segments.date, metrics.clicks, metrics.impressions FROM ad_group WHERE segments.date"
    one_by_one = [row for day in range(3, 10) for row in rows(f"{select} = '2024-06-0{day}'")]
    assert rows(f"{select} BETWEEN '2024-06-03' AND '2024-06-09'") == one_by_one
    assert rows(f"{select} >= '2024-06-03' AND segments.date < '2024-06-10'") == one_by_one


def test_conditions_order_and_limit_are_those_of_gaql() -> None:
    select = f"SELECT campaign.id, campaign.name, campaign.status, metrics.clicks FROM campaign WHERE {WEEK}"
    everything = rows(select)
    paused = rows(f"{select} AND campaign.status = 'PAUSED'")
    assert paused == [row for row in everything if row["campaign.status"] == "PAUSED"]
    others = rows(f"{select} AND campaign.status != PAUSED")
    assert len(paused) + len(others) == len(everything)
    ids = [row["campaign.id"] for row in everything]
    assert [row["campaign.id"] for row in rows(f"{select} AND campaign.id IN ({ids[0]!r}, {ids[2]!r})")] == [
        ids[0],
        ids[2],
    ]
    assert {row["campaign.id"] for row in rows(f"{select} AND campaign.name LIKE '%REPEAT%'")} == set()
    named = {row["campaign.id"] for row in everything if str(row["campaign.name"]).endswith("#1")}
    assert {row["campaign.id"] for row in rows(f"{select} AND campaign.name LIKE '%[#]1'")} == named
    assert rows(f"{select} AND campaign.name LIKE '[%]#1'") == []
    generic = rows(f"{select} AND campaign.name REGEXP_MATCH '.*#1'")
    assert [row["campaign.id"] for row in generic] == ids[:1]
    top = rows(f"{select} ORDER BY metrics.clicks DESC, campaign.id LIMIT 3")
    by_clicks = sorted(everything, key=lambda row: (-int(str(row["metrics.clicks"])), int(str(row["campaign.id"]))))
    assert top == by_clicks[:3]


def test_further_segments_divide_each_row_without_changing_its_sum() -> None:
    def clicks(select: str) -> Counter[Value]:
        found: Counter[Value] = Counter()
        for row in rows(f"SELECT campaign.id, {select} metrics.clicks, segments.date FROM campaign WHERE {WEEK}"):
            found[row["campaign.id"]] += int(str(row["metrics.clicks"]))
        return found

    assert clicks("segments.device, segments.ad_network_type,") == clicks("")


def test_coarser_date_segments_gather_days() -> None:
    months = rows(
        "SELECT campaign.id, segments.month, metrics.clicks FROM campaign "
        "WHERE segments.date BETWEEN '2024-05-01' AND '2024-06-30'"
    )
    assert {row["segments.month"] for row in months} == {"2024-05-01", "2024-06-01"}
    assert set(Counter((row["campaign.id"], row["segments.month"]) for row in months).values()) == {1}


def test_a_manager_lists_its_clients_and_each_client_only_itself() -> None:
    listed = rows("SELECT customer_client.id, customer_client.level FROM customer_client", MANAGER)
    assert [(str(row["customer_client.id"]), row["customer_client.level"]) for row in listed] == [
        (account.customer_id, 0 if account is MANAGER else 1) for account in ACCOUNTS
    ]
    assert [
        str(row["customer_client.id"]) for row in rows("SELECT customer_client.id FROM customer_client", BIKES)
    ] == [BIKES.customer_id]


def test_a_manager_has_an_account_but_no_campaigns_of_its_own() -> None:
    assert [row["customer.currency_code"] for row in rows("SELECT customer.currency_code FROM customer", MANAGER)] == [
        "GBP"
    ]
    assert rows("SELECT campaign.id FROM campaign", MANAGER) == []


@pytest.mark.parametrize(
    ("gaql", "code"),
    [
        ("SELEKT campaign.id FROM campaign", "UNEXPECTED_INPUT"),
        ("SELECT campaign.nickname FROM campaign", "UNRECOGNIZED_FIELD"),
        ("SELECT campaign.id FROM campaigns", "BAD_RESOURCE_TYPE_IN_FROM_CLAUSE"),
        ("SELECT campaign.id FROM metrics", "BAD_RESOURCE_TYPE_IN_FROM_CLAUSE"),
        ("SELECT ad_group.id FROM campaign", "PROHIBITED_RESOURCE_TYPE_IN_SELECT_CLAUSE"),
        ("SELECT campaign.id FROM campaign WHERE ad_group.id = 1", "PROHIBITED_RESOURCE_TYPE_IN_SELECT_CLAUSE"),
        ("SELECT segments.date FROM campaign", "EXPECTED_FILTERS_ON_DATE_RANGE"),
        ("SELECT campaign.id FROM campaign WHERE segments.date >= '2024-06-01'", "EXPECTED_FILTERS_ON_DATE_RANGE"),
        ("SELECT campaign.id FROM campaign WHERE segments.date = '2024-06-31'", "INVALID_DATE_FORMAT"),
        ("SELECT campaign.id FROM campaign WHERE campaign.status = 'RUNNING'", "BAD_ENUM_CONSTANT"),
        ("SELECT campaign.id FROM campaign WHERE campaign.id = 'first'", "BAD_NUMBER"),
        ("SELECT campaign.id FROM campaign WHERE customer.manager = 'maybe'", "BAD_VALUE"),
        ("SELECT campaign.id FROM campaign WHERE campaign.name REGEXP_MATCH '('", "BAD_VALUE"),
        ("SELECT campaign.id FROM campaign WHERE segments.device = MOBILE", UNSELECTED),
        ("SELECT segments.keyword.info.text FROM campaign", "PROHIBITED_SEGMENT_IN_SELECT_OR_WHERE_CLAUSE"),
        ("SELECT metrics.clicks FROM customer_client", "PROHIBITED_METRIC_IN_SELECT_OR_WHERE_CLAUSE"),
        ("SELECT segments.device FROM customer_client", "PROHIBITED_SEGMENT_IN_SELECT_OR_WHERE_CLAUSE"),
        ("SELECT metrics.clicks FROM conversion_action", "PROHIBITED_METRIC_IN_SELECT_OR_WHERE_CLAUSE"),
        ("SELECT segments.device FROM conversion_action", "PROHIBITED_SEGMENT_IN_SELECT_OR_WHERE_CLAUSE"),
        ("SELECT segments.month FROM campaign", "EXPECTED_FILTERS_ON_DATE_RANGE"),
        ("SELECT campaign.id FROM campaign WHERE segments.date = '2024-W23-1'", "INVALID_DATE_FORMAT"),
        ("SELECT campaign.id FROM campaign WHERE segments.month = '2024-06-02'", "MISALIGNED_DATE_FOR_FILTER"),
        ("SELECT campaign.id FROM campaign WHERE segments.week = '2024-06-04'", "MISALIGNED_DATE_FOR_FILTER"),
        (f"SELECT campaign.id FROM campaign WHERE {WEEK} ORDER BY segments.date", UNSELECTED),
        ("SELECT campaign.id FROM campaign ORDER BY campaign.labels", "PROHIBITED_FIELD_IN_ORDER_BY_CLAUSE"),
        ("SELECT campaign.id FROM campaign ORDER BY campaign.manual_cpc", "PROHIBITED_FIELD_IN_ORDER_BY_CLAUSE"),
        ("SELECT campaign.id FROM campaign WHERE campaign.manual_cpc IS NULL", "PROHIBITED_FIELD_IN_WHERE_CLAUSE"),
        ("SELECT campaign.id FROM campaign WHERE campaign.id LIKE '1%'", "OPERATOR_FIELD_MISMATCH"),
        ("SELECT campaign.id FROM campaign WHERE campaign.status REGEXP_MATCH 'E.*'", "OPERATOR_FIELD_MISMATCH"),
        ("SELECT campaign.id FROM campaign WHERE campaign.name CONTAINS ANY ('a')", "OPERATOR_FIELD_MISMATCH"),
        ("SELECT campaign.id FROM campaign PARAMETERS include_removed = true", "BAD_PARAMETER_NAME"),
        ("SELECT campaign.id FROM campaign PARAMETERS include_drafts = 1", "BAD_PARAMETER_VALUE"),
    ],
)
def test_what_the_api_would_refuse_is_refused_with_its_own_code(gaql: str, code: str) -> None:
    assert refusal(gaql) == code


CONVERSIONS = "metrics.conversions, metrics.all_conversions_value, metrics.cost_per_conversion"


@pytest.mark.parametrize("segment", ["conversion_action", "conversion_action_category", "external_conversion_source"])
@pytest.mark.parametrize(
    "metric", ["clicks", "impressions", "cost_micros", "interactions", "ctr", "search_click_share"]
)
def test_what_is_not_counted_by_conversion_is_refused_beside_a_segment_that_is(segment: str, metric: str) -> None:
    prohibited = "PROHIBITED_SEGMENT_WITH_METRIC_IN_SELECT_OR_WHERE_CLAUSE"
    select = f"SELECT campaign.id, segments.{segment}, {CONVERSIONS}"
    assert refusal(f"{select}, metrics.{metric} FROM campaign WHERE {WEEK}") == prohibited
    assert refusal(f"{select} FROM campaign WHERE {WEEK} AND metrics.{metric} > 0") == prohibited
    assert rows(f"{select} FROM campaign WHERE {WEEK}")


@pytest.mark.parametrize(
    ("when", "code"),
    [
        ("segments.date = '2024-06-30'", None),
        ("segments.date = '20240630'", None),
        ("segments.date BETWEEN '2024-06-29' AND '2024-06-29'", None),
        ("segments.date >= '2024-06-29' AND segments.date < '2024-06-30'", None),
        ("segments.date DURING YESTERDAY", None),
        ("segments.date = '2024-04-01'", None),
        ("segments.date = '2024-03-31'", "DATE_TOO_OLD"),
        ("segments.date BETWEEN '2024-06-28' AND '2024-06-29'", "EXPECTED_FILTER_ON_A_SINGLE_DAY"),
        ("segments.date >= '2024-06-29'", "EXPECTED_FILTER_ON_A_SINGLE_DAY"),
        ("segments.date = '2024-06-28' AND segments.date = '2024-06-29'", "EXPECTED_FILTER_ON_A_SINGLE_DAY"),
        ("segments.date DURING LAST_7_DAYS", "EXPECTED_FILTER_ON_A_SINGLE_DAY"),
        ("click_view.page_number = 1", "EXPECTED_FILTER_ON_A_SINGLE_DAY"),
        ("segments.date = '2024-06-29' AND metrics.impressions > 0", "PROHIBITED_METRIC_IN_SELECT_OR_WHERE_CLAUSE"),
    ],
)
def test_clicks_are_given_for_one_day_of_the_last_90(when: str, code: str | None) -> None:
    assert refused_on(TODAY, f"SELECT click_view.gclid, segments.date FROM click_view WHERE {when}") == code


@pytest.mark.parametrize(("resource", "oldest"), [("change_event", "2024-05-31"), ("change_status", "2024-04-01")])
@pytest.mark.parametrize(
    ("when", "code"),
    [
        ("CHANGED >= '2024-06-29 00:00:00' AND CHANGED < '2024-06-30 00:00:00' LIMIT 10000", None),
        ("CHANGED BETWEEN 'OLDEST' AND '2024-06-30 12:30:00.123456' LIMIT 1", None),
        ("CHANGED DURING LAST_14_DAYS LIMIT 5", None),
        ("CHANGED = '2024-06-29' LIMIT 5", None),
        ("CHANGED DURING LAST_14_DAYS", "LIMIT_NOT_SPECIFIED"),
        ("CHANGED DURING LAST_14_DAYS LIMIT 10001", "INVALID_LIMIT_CLAUSE"),
        ("CHANGED >= '2024-06-29' LIMIT 5", "CHANGE_DATE_RANGE_INFINITE"),
        ("CHANGED < '2024-06-29' LIMIT 5", "CHANGE_DATE_RANGE_INFINITE"),
        ("campaign.id = 1 LIMIT 5", "CHANGE_DATE_RANGE_INFINITE"),
        ("CHANGED BETWEEN '2024-06-30' AND '2024-06-29' LIMIT 5", "CHANGE_DATE_RANGE_NEGATIVE"),
        ("CHANGED >= '2024-06-29' AND CHANGED < '2024-06-29' LIMIT 5", "CHANGE_DATE_RANGE_NEGATIVE"),
        ("CHANGED > '2024-01-01' AND CHANGED <= 'OLDEST' LIMIT 5", "START_DATE_TOO_OLD"),
        ("CHANGED BETWEEN 'yesterday' AND 'today' LIMIT 5", "INVALID_DATE_FORMAT"),
        ("CHANGED != '2024-06-29' LIMIT 5", "BAD_OPERATOR"),
        ("segments.date = '2024-06-29' LIMIT 5", "PROHIBITED_SEGMENT_IN_SELECT_OR_WHERE_CLAUSE"),
    ],
)
def test_changes_are_given_up_to_a_limit_and_for_a_recent_range_only(
    resource: str, oldest: str, when: str, code: str | None
) -> None:
    where = when.replace("CHANGED", CHANGE_TIME_FIELDS[resource]).replace("OLDEST", oldest)
    assert refused_on(TODAY, f"SELECT {resource}.resource_name FROM {resource} WHERE {where}") == code


@pytest.mark.parametrize(
    ("period", "days"),
    [
        ("segments.week = '2024-06-03'", "BETWEEN '2024-06-03' AND '2024-06-09'"),
        ("segments.month = '2024-06-01'", "BETWEEN '2024-06-01' AND '2024-06-30'"),
        ("segments.quarter = '2024-04-01'", "BETWEEN '2024-04-01' AND '2024-06-30'"),
        ("segments.year = 2024", "BETWEEN '2024-01-01' AND '2024-12-31'"),
        ("segments.month > '2024-04-01' AND segments.month <= '2024-05-01'", "BETWEEN '2024-05-01' AND '2024-05-31'"),
    ],
)
def test_weeks_months_quarters_and_years_choose_days_without_being_selected(period: str, days: str) -> None:
    select = "SELECT campaign.id, metrics.clicks FROM campaign WHERE"
    assert rows(f"{select} {period}") == rows(f"{select} segments.date {days}") != []


def test_resource_names_that_were_not_selected_are_left_out_on_request() -> None:
    select = "SELECT campaign.id FROM campaign PARAMETERS include_drafts = true, omit_unselected_resource_names ="
    assert {"campaign.resource_name" in row for row in rows(f"{select} false")} == {True}
    assert {"campaign.resource_name" in row for row in rows(f"{select} TRUE")} == {False}


def test_metrics_are_never_given_for_a_manager() -> None:
    assert refusal("SELECT metrics.clicks FROM customer", MANAGER) == "REQUESTED_METRICS_FOR_MANAGER"
    assert (
        refusal("SELECT campaign.id FROM campaign WHERE metrics.clicks > 0", MANAGER) == "REQUESTED_METRICS_FOR_MANAGER"
    )


def test_without_a_clock_the_last_seven_days_are_refused_rather_than_guessed() -> None:
    with pytest.raises(RefusedCallError, match="DURING cannot be answered without a clock"):
        rows("SELECT campaign.id FROM campaign WHERE segments.date DURING LAST_7_DAYS")
