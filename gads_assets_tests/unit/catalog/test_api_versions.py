from datetime import date, timedelta

import pytest

from gads_assets.catalog.api_versions import SUNSETS, describe_sunset, is_near_sunset, sunset_passed
from gads_assets.catalog.fields import installed_api_versions

END = SUNSETS["v26"]


def test_the_end_of_every_installed_version_is_known() -> None:
    assert set(installed_api_versions()) <= set(SUNSETS)


@pytest.mark.parametrize(
    ("today", "said", "passed"),
    [
        (END - timedelta(days=61), "v26, until November 2027", False),
        (END - timedelta(days=60), "v26 ends in November 2027, in 60 days or a little later; raise api_version", False),
        (END - timedelta(days=1), "in 1 days", False),
        (END, "v26 was to end in November 2027; raise api_version in the catalog", True),
        (date(2030, 1, 1), "was to end", True),
    ],
)
def test_a_version_near_or_past_its_end_says_so_and_what_to_do(today: date, said: str, passed: bool) -> None:
    assert said in describe_sunset("v26", today)
    assert sunset_passed("v26", today) is passed


@pytest.mark.parametrize(
    ("days_before", "is_near"), [(365, False), (61, False), (60, True), (59, True), (1, True), (0, True), (-400, True)]
)
def test_the_end_is_near_from_sixty_days_before_it_and_stays_so(days_before: int, is_near: bool) -> None:
    for version, end in SUNSETS.items():
        assert is_near_sunset(version, end - timedelta(days=days_before)) is is_near


def test_a_version_that_the_table_does_not_know_is_no_problem() -> None:
    assert "not known here" in describe_sunset("v99", END)
    assert not sunset_passed("v99", END)
    assert not is_near_sunset("v99", END)
