"""Days in as few calls as can be."""

from datetime import date, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gads_assets.domain.windows import LONGEST_WINDOW, MOST_DAYS, plan_windows

FIRST = date(2024, 1, 1)
days = st.lists(st.integers(0, 400).map(lambda offset: FIRST + timedelta(days=offset)))


def test_a_month_is_one_call_and_so_are_the_days_of_a_restatement_window() -> None:
    month = [FIRST + timedelta(days=offset) for offset in range(31)]
    repulled = [FIRST + timedelta(days=90 - age) for age in (90, 60, 30, 14, 7, 3, 2, 1)]
    assert plan_windows(month) == [tuple(month)]
    assert plan_windows(repulled) == [tuple(repulled)]


def test_where_a_call_covers_one_day_there_are_as_many_calls_as_days() -> None:
    assert plan_windows([FIRST, FIRST, date(2024, 1, 2)], longest=1) == [(FIRST,), (date(2024, 1, 2),)]


@given(days, st.integers(1, LONGEST_WINDOW))
def test_every_day_is_in_one_window_in_order_and_none_is_too_long(asked: list[date], longest: int) -> None:
    windows = plan_windows(asked, longest=longest)
    assert [day for window in windows for day in window] == sorted(set(asked))
    assert all((window[-1] - window[0]).days < longest and len(window) <= MOST_DAYS for window in windows)
    # No two neighbours could have been one.
    assert all(
        (later[0] - earlier[0]).days >= longest or len(earlier) == MOST_DAYS for earlier, later in pairwise(windows)
    )
