"""Which days go into one call: the API counts calls, not rows."""

from collections.abc import Iterable
from datetime import date
from itertools import groupby
from typing import Final

LONGEST_WINDOW: Final = 93
"""Days from the first to the last of a call: more than the usual restatement window."""

MOST_DAYS: Final = 45
"""Each day asked for is a file that is open during the call, and sixteen calls at once must stay below 1,024."""


def plan_windows(days: Iterable[date], *, longest: int = LONGEST_WINDOW) -> list[tuple[date, ...]]:
    """Few windows that hold all days, each in order; days between them that nobody asked for cost nothing but rows."""
    windows: list[list[date]] = []
    for day, _ in groupby(sorted(days)):
        if windows and (day - windows[-1][0]).days < longest and len(windows[-1]) < MOST_DAYS:
            windows[-1].append(day)
        else:
            windows.append([day])
    return [tuple(window) for window in windows]
