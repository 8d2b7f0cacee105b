"""Which days are asked for again, and how often a partition is tried: both optional, both checked."""

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gads_assets.catalog.loading import load_catalog
from gads_assets.catalog.specification import Restatement
from gads_assets_tests.unit.catalog.test_catalog_loading import CATALOG, refusal, replaced, write_catalog

RESTATED = (
    CATALOG
    + """\
    restatement:
      window_days: 30
      repull_days_ago:
        - 1
        - 7
        - 30
    max_attempts: 7
"""
)
KEY = "queries.campaign.restatement"
AGES = f"{KEY}.repull_days_ago"


def test_every_packaged_query_says_how_long_its_days_are_restated() -> None:
    queries = load_catalog().queries.values()
    assert [query.name for query in queries if query.restatement is None] == ["conversion_action"]
    for query in queries:
        assert query.restatement is None or query.restatement == Restatement(
            window_days=90, repull_days_ago=(1, 2, 3, 7, 14, 30, 60, 90)
        )
        assert query.retry.max_attempts == 5


def test_restatement_and_attempts_are_read_as_written(tmp_path: Path) -> None:
    query = load_catalog(write_catalog(tmp_path, RESTATED)).query("campaign")
    assert query.restatement == Restatement(window_days=30, repull_days_ago=(1, 7, 30))
    assert query.retry.max_attempts == 7


def test_a_delay_of_less_than_a_day_takes_nothing_from_the_window(tmp_path: Path) -> None:
    path = write_catalog(tmp_path, RESTATED.replace("hours: 3", "hours: 23"))
    assert load_catalog(path).query("campaign").restatement == Restatement(window_days=30, repull_days_ago=(1, 7, 30))


def test_a_catalog_that_leaves_them_out_repulls_nothing_and_tries_five_times(tmp_path: Path) -> None:
    query = load_catalog(write_catalog(tmp_path)).query("campaign")
    assert query.restatement is None
    assert query.retry.max_attempts == 5


# What is changed, then the line, the key and the fix that the refusal names.
WRONG = {
    "restatement as a number": (
        lambda _: CATALOG + "    restatement: 90\n",
        19,
        KEY,
        "must be a mapping",
    ),
    "no window": (replaced("      window_days: 30\n", ""), 19, KEY, "lacks window_days; add it"),
    "no ages": (
        lambda _: CATALOG + "    restatement: {window_days: 3}\n",
        19,
        KEY,
        "lacks repull_days_ago; add it",
    ),
    "an empty list of ages": (
        lambda _: CATALOG + "    restatement: {window_days: 3, repull_days_ago: []}\n",
        19,
        AGES,
        "must be a list of at least one item",
    ),
    "another key": (replaced("window_days", "windows_days"), 20, f"{KEY}.windows_days", "did you mean window_days?"),
    "a window of nothing": (replaced("days: 30", "days: 0"), 20, f"{KEY}.window_days", "from 1 to 365, not 0"),
    "a window of years": (replaced("days: 30", "days: 366"), 20, f"{KEY}.window_days", "from 1 to 365, not 366"),
    "an age beyond the window": (replaced("- 30", "- 31"), 24, f"{AGES}[2]", "from 1 to 30, not 31"),
    "an age beyond the window once its day opens": (
        replaced("hours: 3", "hours: 167"),
        24,
        f"{AGES}[2]",
        "age 30 is 36 days back with this settling_delay_hours, and window_days is 30; remove it",
    ),
    "a window that is over before any day opens": (
        lambda text: replaced("hours: 3", "hours: 72")(replaced("window_days: 30", "window_days: 3")(text)),
        22,
        f"{AGES}[0]",
        "age 1 is 4 days back",
    ),
    "the day that has not ended": (replaced("- 1\n", "- 0\n"), 22, f"{AGES}[0]", "from 1 to 30, not 0"),
    "an age of the future": (replaced("- 1\n", "- -1\n"), 22, f"{AGES}[0]", "from 1 to 30, not -1"),
    "an age twice": (replaced("- 7", "- 1"), 23, f"{AGES}[1]", "1 comes after 1; write each age once"),
    "ages that fall": (replaced("- 30", "- 3"), 24, f"{AGES}[2]", "3 comes after 7; write each age once"),
    "an age in words": (replaced("- 7", "- week"), 23, f"{AGES}[1]", "must be a whole number"),
    "no attempt": (replaced("attempts: 7", "attempts: 0"), 25, "queries.campaign.max_attempts", "from 1 to 20, not 0"),
    "attempts without an end": (
        replaced("attempts: 7", "attempts: 21"),
        25,
        "queries.campaign.max_attempts",
        "from 1 to 20, not 21",
    ),
    "attempts in quotes": (
        replaced("attempts: 7", 'attempts: "7"'),
        25,
        "queries.campaign.max_attempts",
        "must be a whole number",
    ),
}


@pytest.mark.parametrize(("change", "line", "key", "fix"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_restatement_is_refused_with_file_line_key_and_fix(
    tmp_path: Path, change: Callable[[str], str], line: int, key: str, fix: str
) -> None:
    error = refusal(write_catalog(tmp_path, change(RESTATED)))
    assert (error.line, error.key) == (line, key), str(error)
    assert fix in str(error)


def test_the_newest_open_day_is_one_day_old() -> None:
    restatement = Restatement(window_days=30, repull_days_ago=(1, 2, 30))
    assert restatement.days_to_repull(date(2024, 3, 31), start_date=date(2024, 1, 1)) == (
        date(2024, 3, 2),
        date(2024, 3, 30),
        date(2024, 3, 31),
    )


def test_days_before_the_query_s_start_are_not_asked_for_again() -> None:
    restatement = Restatement(window_days=30, repull_days_ago=(1, 2, 3))
    newest = date(2024, 1, 2)
    assert restatement.days_to_repull(newest, start_date=date(2024, 1, 1)) == (date(2024, 1, 1), newest)
    assert restatement.days_to_repull(newest, start_date=date(2024, 1, 3)) == ()


@given(
    st.sets(st.integers(1, 365), min_size=1).map(sorted).map(tuple),
    st.dates(date(2001, 1, 1), date(2100, 1, 1)),
    st.dates(date(2000, 1, 1), date(2100, 1, 1)),
)
def test_no_day_to_repull_is_outside_the_window_or_before_the_start(
    ages: tuple[int, ...], newest: date, start_date: date
) -> None:
    days = Restatement(window_days=ages[-1], repull_days_ago=ages).days_to_repull(newest, start_date=start_date)
    assert list(days) == sorted(set(days))
    assert all(max(start_date, newest - timedelta(days=ages[-1] - 1)) <= day <= newest for day in days)
