"""Each shape of query is asked for its days in the way that its resource answers."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from gads_assets.catalog.checking import store_missing_versions
from gads_assets.catalog.gaql import parse_gaql, print_gaql
from gads_assets.catalog.loading import load_catalog
from gads_assets.catalog.shapes import Shape, day_field, days_back, for_days, shape_of
from gads_assets.errors import CatalogError
from gads_assets_tests.unit.catalog.test_catalog_loading import CATALOG, refusal, replaced, write_catalog

CHANGES = "SELECT customer.id, change_event.change_date_time FROM change_event"
STATUSES = "SELECT customer.id, change_status.last_change_date_time FROM change_status"


@pytest.mark.parametrize(
    ("gaql", "shape", "days_a_call", "back", "day"),
    [
        ("SELECT segments.date, campaign.id FROM campaign", Shape.DATED, None, None, "segments.date"),
        ("SELECT metrics.clicks FROM campaign", Shape.DATED, None, None, "segments.date"),
        ("SELECT campaign.id FROM campaign WHERE metrics.clicks > 0", Shape.DATED, None, None, "segments.date"),
        ("SELECT campaign.id FROM campaign ORDER BY metrics.clicks", Shape.DATED, None, None, "segments.date"),
        ("SELECT click_view.gclid FROM click_view", Shape.SINGLE_DAY, 1, 90, "segments.date"),
        (CHANGES, Shape.CHANGES, None, 30, "change_event.change_date_time"),
        (STATUSES, Shape.CHANGES, None, 90, "change_status.last_change_date_time"),
        ("SELECT conversion_action.id FROM conversion_action", Shape.SNAPSHOT, 1, 0, None),
        ("SELECT campaign.id, campaign.name FROM campaign", Shape.SNAPSHOT, 1, 0, None),
    ],
)
def test_the_shape_follows_from_the_query(
    gaql: str, shape: Shape, days_a_call: int | None, back: int | None, day: str | None
) -> None:
    query = parse_gaql(gaql)
    assert shape_of(query) is shape
    assert shape.days_per_call == days_a_call
    assert days_back(query) == back
    assert day_field(query) == day


def asked(gaql: str, first: date, last: date) -> str:
    query = parse_gaql(gaql)
    return print_gaql(for_days(query, shape_of(query), first, last))


def test_the_days_are_added_after_the_query_s_own_conditions() -> None:
    assert asked(
        "SELECT segments.date FROM campaign WHERE campaign.id = 5 ORDER BY campaign.id",
        date(2024, 2, 1),
        date(2024, 2, 29),
    ) == (
        "SELECT segments.date FROM campaign WHERE campaign.id = 5 "
        "AND segments.date BETWEEN '2024-02-01' AND '2024-02-29' ORDER BY campaign.id"
    )


def test_clicks_are_asked_for_one_day_at_a_time() -> None:
    gaql = "SELECT click_view.gclid, segments.date FROM click_view"
    assert asked(gaql, date(2024, 2, 1), date(2024, 2, 1)) == f"{gaql} WHERE segments.date = '2024-02-01'"
    with pytest.raises(CatalogError, match="click_view cannot be asked for 2024-02-01 to 2024-02-02 in one call"):
        asked(gaql, date(2024, 2, 1), date(2024, 2, 2))


@pytest.mark.parametrize(
    ("gaql", "field"),
    [(CHANGES, "change_event.change_date_time"), (STATUSES, "change_status.last_change_date_time")],
)
def test_changes_are_asked_for_up_to_the_last_moment_of_the_last_day(gaql: str, field: str) -> None:
    assert asked(f"{gaql} LIMIT 10000", date(2024, 2, 28), date(2024, 2, 29)) == (
        f"{gaql} WHERE {field} >= '2024-02-28 00:00:00' AND {field} < '2024-03-01 00:00:00' LIMIT 10000"
    )


@pytest.mark.parametrize(("limit", "written"), [("", "no LIMIT"), (" LIMIT 10001", "LIMIT 10001")])
def test_changes_without_a_limit_that_google_allows_are_not_asked_for(limit: str, written: str) -> None:
    with pytest.raises(CatalogError, match=f"has {written}, and change_event requires one; write LIMIT 10000 or less"):
        asked(CHANGES + limit, date(2024, 2, 1), date(2024, 2, 1))


def test_a_snapshot_gets_no_condition_and_has_one_day() -> None:
    gaql = "SELECT conversion_action.id FROM conversion_action WHERE conversion_action.status = 'ENABLED'"
    assert asked(gaql, date(2024, 2, 1), date(2024, 2, 1)) == gaql
    with pytest.raises(CatalogError, match="ask day by day"):
        asked(gaql, date(2024, 2, 1), date(2024, 2, 2))


@pytest.mark.parametrize(
    ("resource", "condition"),
    [
        ("campaign", "segments.date = '2024-01-01'"),
        ("campaign", "segments.date DURING TODAY"),
        ("campaign", "segments.month = '2024-01-01'"),
        ("click_view", "segments.date = '2024-01-01'"),
        ("change_event", "change_event.change_date_time >= '2024-01-01'"),
        ("change_status", "change_status.last_change_date_time DURING LAST_7_DAYS"),
    ],
)
def test_a_query_that_chooses_its_own_days_is_not_given_others(resource: str, condition: str) -> None:
    with pytest.raises(CatalogError, match="chooses its own days"):
        asked(f"SELECT segments.date FROM {resource} WHERE {condition}", date(2024, 1, 1), date(2024, 1, 1))


def test_days_that_run_backwards_are_refused() -> None:
    with pytest.raises(CatalogError, match="2024-01-02 to 2024-01-01 run backwards"):
        asked("SELECT segments.date FROM campaign", date(2024, 1, 2), date(2024, 1, 1))


OTHER_SHAPES = """\
source: google_ads
api_version: v26
queries:
  clicks:
    description: Clicks.
    gaql: SELECT customer.id, segments.date, click_view.gclid FROM click_view
    schema_version: "1"
    natural_key: [click_view.gclid]
    start_date: 2024-01-01
    settling_delay_hours: 3
    restatement: {window_days: 90, repull_days_ago: [1, 90]}
  changes:
    description: Changes.
    gaql: SELECT customer.id, change_event.change_date_time, change_event.resource_name FROM change_event LIMIT 10000
    schema_version: "1"
    natural_key: [change_event.resource_name]
    start_date: 2024-01-01
    settling_delay_hours: 3
  statuses:
    description: What changed last.
    gaql: SELECT customer.id, change_status.last_change_date_time, change_status.campaign FROM change_status LIMIT 5
    schema_version: "1"
    natural_key: [change_status.campaign]
    start_date: 2024-01-01
    settling_delay_hours: 3
  conversion_actions:
    description: Conversion actions as they are.
    gaql: SELECT customer.id, conversion_action.id, conversion_action.name FROM conversion_action
    schema_version: "1"
    natural_key: [customer.id, conversion_action.id]
    start_date: 2024-01-01
    settling_delay_hours: 3
"""


def test_a_catalog_may_hold_every_shape(tmp_path: Path) -> None:
    path = tmp_path / "google_apis.yaml"
    path.write_text(OTHER_SHAPES)
    store_missing_versions(path)
    assert {query.name: query.shape for query in load_catalog(path).queries.values()} == {
        "clicks": Shape.SINGLE_DAY,
        "changes": Shape.CHANGES,
        "statuses": Shape.CHANGES,
        "conversion_actions": Shape.SNAPSHOT,
    }
    shapes = {query.name: query.shape for query in load_catalog().queries.values()}
    assert {name for name, shape in shapes.items() if shape is not Shape.DATED} == {"conversion_action"}
    assert shapes["conversion_action"] is Shape.SNAPSHOT


def test_a_version_says_which_day_its_rows_are_of(tmp_path: Path) -> None:
    path = tmp_path / "google_apis.yaml"
    path.write_text(OTHER_SHAPES)
    store_missing_versions(path)
    assert {query.name: query.schema.day_expression for query in load_catalog(path).queries.values()} == {
        "clicks": "`segments_date`",
        "changes": "CAST(left(`change_event_change_date_time`, 10) AS DATE)",
        "statuses": "CAST(left(`change_status_last_change_date_time`, 10) AS DATE)",
        "conversion_actions": None,
    }


WRONG = {
    "clicks without a day": (replaced("segments.date, click", "click"), 6, "clicks.gaql", "does not select segments.d"),
    "clicks of a day": (
        replaced("FROM click_view", "FROM click_view WHERE segments.date = '2024-01-01'"),
        6,
        "clicks.gaql",
        "partitions choose the days",
    ),
    "clicks of long ago": (
        replaced("window_days: 90", "window_days: 91"),
        11,
        "clicks.restatement.window_days",
        "click_view answers for 90 days back only, not for 91; write 90 or less",
    ),
    "clicks that are too old once their day opens": (
        lambda text: text.replace("settling_delay_hours: 3", "settling_delay_hours: 24", 1),
        11,
        "clicks.restatement.repull_days_ago[1]",
        "age 90 is 91 days back with this settling_delay_hours, and window_days is 90; remove it",
    ),
    "changes without a time": (
        replaced("change_event.change_date_time, ", ""),
        14,
        "changes.gaql",
        "does not select change_event.change_date_time",
    ),
    "changes without a limit": (replaced(" LIMIT 10000", ""), 14, "changes.gaql", "write LIMIT 10000 or less"),
    "changes without an end": (replaced("10000", "10001"), 14, "changes.gaql", "write LIMIT 10000 or less"),
    "changes of a time": (
        replaced("FROM change_event", "FROM change_event WHERE change_event.change_date_time > '2024-01-01'"),
        14,
        "changes.gaql",
        "has the condition \"change_event.change_date_time > '2024-01-01'\", but partitions choose the days",
    ),
    "statuses of a time": (
        replaced("FROM change_status", "FROM change_status WHERE change_status.last_change_date_time DURING TODAY"),
        21,
        "statuses.gaql",
        "partitions choose the days",
    ),
    "a snapshot cut short": (
        replaced("FROM conversion_action\n", "FROM conversion_action LIMIT 5\n"),
        28,
        "conversion_actions.gaql",
        "has LIMIT 5",
    ),
    "a snapshot of a day": (
        replaced("FROM conversion_action\n", "FROM conversion_action WHERE segments.date = '2024-01-01'\n"),
        28,
        "conversion_actions.gaql",
        "does not select segments.date",
    ),
    "a snapshot taken later": (
        lambda text: text + "    restatement: {window_days: 3, repull_days_ago: [1]}\n",
        33,
        "conversion_actions.restatement",
        "asks for earlier days of a snapshot",
    ),
    "a snapshot of no customer": (
        replaced("customer.id, conversion_action.id, conversion_action.name", "conversion_action.id"),
        28,
        "conversion_actions.gaql",
        "does not select customer.id",
    ),
}


@pytest.mark.parametrize(("change", "line", "key", "fix"), WRONG.values(), ids=WRONG.keys())
def test_a_query_that_its_shape_does_not_allow_is_refused_at_its_line(
    tmp_path: Path, change: Callable[[str], str], line: int, key: str, fix: str
) -> None:
    error = refusal(write_catalog(tmp_path, change(OTHER_SHAPES)))
    assert (error.line, error.key) == (line, f"queries.{key}"), str(error)
    assert fix in str(error)


@pytest.mark.parametrize(
    "where", ["        segments.keyword.info.text,\n        campaign.id\n", "        campaign.id\n"]
)
def test_a_segment_that_drops_rows_without_a_keyword_is_refused_at_its_place(tmp_path: Path, where: str) -> None:
    text = CATALOG.replace("        campaign.id\n", where)
    if "keyword" not in where:
        text = text.replace("FROM campaign", "FROM campaign ORDER BY\n        segments.keyword.info.text")
    error = refusal(write_catalog(tmp_path, text))
    assert error.line == 1 + text[: text.index("segments.keyword")].count("\n")
    assert error.excerpt is not None
    assert error.excerpt.split("\n")[1] == "        ^"
    assert "leave out every row that no keyword brought" in str(error)
    assert "ad_group_criterion.keyword.text FROM keyword_view" in str(error)


def test_a_resource_whose_rows_are_keywords_may_be_segmented_by_them(tmp_path: Path) -> None:
    text = CATALOG.replace("        campaign.id\n", "        segments.keyword.info.text,\n        campaign.id\n")
    path = write_catalog(tmp_path, text.replace("FROM campaign", "FROM keyword_view").replace('"1"', '"2"'))
    store_missing_versions(path)
    assert load_catalog(path).query("campaign").shape is Shape.DATED


@pytest.mark.parametrize("metric", ["clicks", "impressions", "cost_micros", "interactions", "average_cpc"])
def test_a_metric_that_google_does_not_count_by_conversion_is_refused_at_its_place(tmp_path: Path, metric: str) -> None:
    fields = ("segments.conversion_action,", "metrics.conversions,", f"metrics.{metric},", "campaign.id\n")
    text = CATALOG.replace("        campaign.id\n", "\n".join(f"        {field}" for field in fields))
    error = refusal(write_catalog(tmp_path, text))
    assert error.line == 1 + text[: text.index(f"metrics.{metric}")].count("\n")
    assert f"'metrics.{metric}' is not counted by conversion, and Google refuses it beside" in str(error)
