"""How often and how long a partition is tried, and when somebody hears of it: all optional, all checked."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from gads_assets.catalog.loading import load_catalog
from gads_assets.domain.retrying import RetryPolicy
from gads_assets_tests.unit.catalog.test_catalog_loading import CATALOG, refusal, replaced, write_catalog

GIVEN = (
    CATALOG
    + """\
    max_attempts: 7
    retry:
      max_extraction_attempts: 9
      max_age_days: 3
      backoff_minutes:
        - 1
        - 60
        - 1440
    alert_after_hours: 6
"""
)
KEY = "queries.campaign.retry"
WAITS = f"{KEY}.backoff_minutes"
ALERT = "queries.campaign.alert_after_hours"


def minutes(*waits: int) -> tuple[timedelta, ...]:
    return tuple(timedelta(minutes=wait) for wait in waits)


def one_key(lines: str) -> Callable[[str], str]:
    """In place of all that is given."""
    return lambda _: f"{CATALOG}    {lines}\n"


def test_what_is_given_is_read_as_written(tmp_path: Path) -> None:
    query = load_catalog(write_catalog(tmp_path, GIVEN)).query("campaign")
    assert query.retry == RetryPolicy(
        max_attempts=7, max_extraction_attempts=9, max_age=timedelta(days=3), backoff=minutes(1, 60, 1440)
    )
    assert query.alert_after == timedelta(hours=6)


def test_what_is_left_out_is_tried_for_two_weeks_and_told_after_two_days(tmp_path: Path) -> None:
    query = load_catalog(write_catalog(tmp_path)).query("campaign")
    assert query.retry == RetryPolicy(
        max_attempts=5, max_extraction_attempts=8, max_age=timedelta(days=14), backoff=minutes(5, 30, 120)
    )
    assert query.alert_after == timedelta(hours=48)


def test_every_packaged_query_is_tried_as_often_as_the_documents_say() -> None:
    for query in load_catalog().queries.values():
        assert query.retry == RetryPolicy(
            max_attempts=5, max_extraction_attempts=8, max_age=timedelta(days=14), backoff=minutes(5, 30, 120)
        )
        assert query.alert_after == timedelta(hours=48)


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ("retry: {max_extraction_attempts: 1}", RetryPolicy(max_extraction_attempts=1)),
        ("retry: {max_extraction_attempts: 50}", RetryPolicy(max_extraction_attempts=50)),
        ("retry: {max_age_days: 1}", RetryPolicy(max_age=timedelta(days=1))),
        ("retry: {max_age_days: 90}", RetryPolicy(max_age=timedelta(days=90))),
        ("retry: {backoff_minutes: [1440]}", RetryPolicy(backoff=minutes(1440))),
        ("retry: {backoff_minutes: [5, 5, 6]}", RetryPolicy(backoff=minutes(5, 5, 6))),
        ("retry: {}", RetryPolicy()),
        ("max_attempts: 2", RetryPolicy(max_attempts=2)),
    ],
)
def test_each_of_them_may_be_given_alone_and_the_others_stay(tmp_path: Path, given: str, policy: RetryPolicy) -> None:
    path = write_catalog(tmp_path, one_key(given)(CATALOG))
    assert load_catalog(path).query("campaign").retry == policy


@pytest.mark.parametrize("hours", [1, 720])
def test_somebody_may_hear_of_it_after_an_hour_or_a_month(tmp_path: Path, hours: int) -> None:
    path = write_catalog(tmp_path, one_key(f"alert_after_hours: {hours}")(CATALOG))
    assert load_catalog(path).query("campaign").alert_after == timedelta(hours=hours)


# What is changed, then the line, the key and the fix that the refusal names.
WRONG = {
    "retry as a number": (one_key("retry: 5"), 19, KEY, "must be a mapping"),
    "retry as a list": (one_key("retry: [5, 30]"), 19, KEY, "must be a mapping"),
    "retry without a value": (one_key("retry:"), 19, KEY, "must be a mapping"),
    "another key": (
        replaced("max_age_days", "max_age_day"),
        22,
        f"{KEY}.max_age_day",
        "did you mean max_age_days?",
    ),
    "the attempts of verdicts among those of extractions": (
        replaced("max_extraction_attempts", "max_attempts"),
        21,
        f"{KEY}.max_attempts",
        "did you mean max_extraction_attempts?",
    ),
    "no extraction": (replaced("s: 9", "s: 0"), 21, f"{KEY}.max_extraction_attempts", "from 1 to 50, not 0"),
    "extractions without an end": (
        replaced("s: 9", "s: 51"),
        21,
        f"{KEY}.max_extraction_attempts",
        "from 1 to 50, not 51",
    ),
    "extractions in quotes": (
        replaced("s: 9", 's: "9"'),
        21,
        f"{KEY}.max_extraction_attempts",
        "must be a whole number",
    ),
    "half an extraction": (
        replaced("s: 9", "s: 1.5"),
        21,
        f"{KEY}.max_extraction_attempts",
        "must be a whole number",
    ),
    "extractions as a truth": (
        replaced("s: 9", "s: true"),
        21,
        f"{KEY}.max_extraction_attempts",
        "must be a whole number",
    ),
    "no age": (replaced("days: 3", "days: 0"), 22, f"{KEY}.max_age_days", "from 1 to 90, not 0"),
    "a season": (replaced("days: 3", "days: 91"), 22, f"{KEY}.max_age_days", "from 1 to 90, not 91"),
    "an age of the past": (replaced("days: 3", "days: -3"), 22, f"{KEY}.max_age_days", "from 1 to 90, not -3"),
    "an age in words": (replaced("days: 3", "days: a week"), 22, f"{KEY}.max_age_days", "must be a whole number"),
    "one wait instead of a list": (
        one_key("retry: {backoff_minutes: 5}"),
        19,
        WAITS,
        "must be a list of at least one item",
    ),
    "no wait at all": (
        one_key("retry: {backoff_minutes: []}"),
        19,
        WAITS,
        "must be a list of at least one item",
    ),
    "a wait of nothing": (replaced("- 1\n", "- 0\n"), 24, f"{WAITS}[0]", "from 1 to 1440, not 0"),
    "a wait of more than a day": (replaced("- 1440", "- 1441"), 26, f"{WAITS}[2]", "from 1 to 1440, not 1441"),
    "a wait in words": (replaced("- 60", "- 1 h"), 25, f"{WAITS}[1]", "must be a whole number"),
    "waits that fall": (
        replaced("- 1440", "- 59"),
        26,
        f"{WAITS}[2]",
        "59 comes after 60; each wait is at least as long as the one before",
    ),
    "told at once": (replaced("hours: 6", "hours: 0"), 27, ALERT, "from 1 to 720, not 0"),
    "told after a month and an hour": (replaced("hours: 6", "hours: 721"), 27, ALERT, "from 1 to 720, not 721"),
    "told after two days in words": (replaced("hours: 6", "hours: 2d"), 27, ALERT, "must be a whole number"),
    "told within retry": (
        one_key("retry: {alert_after_hours: 6}"),
        19,
        f"{KEY}.alert_after_hours",
        "the keys are max_extraction_attempts, max_age_days, backoff_minutes",
    ),
}


@pytest.mark.parametrize(("change", "line", "key", "fix"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_limit_is_refused_with_file_line_key_and_fix(
    tmp_path: Path, change: Callable[[str], str], line: int, key: str, fix: str
) -> None:
    error = refusal(write_catalog(tmp_path, change(GIVEN)))
    assert (error.line, error.key) == (line, key), str(error)
    assert fix in str(error)
