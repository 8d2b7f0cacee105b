"""What the warehouse may forget, decided from what is known of its tables."""

from datetime import UTC, datetime, timedelta

import pytest

from gads_assets.domain.retention import Upkeep, files_to_compact, version_at

NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
MEGABYTE = 1024 * 1024


def commits(*hours: float, first: int = 0) -> dict[int, datetime]:
    """Versions in a row, each so many hours before noon."""
    return {first + number: NOON - timedelta(hours=each) for number, each in enumerate(hours)}


@pytest.mark.parametrize(
    ("known", "version"),
    [
        ({}, None),
        (commits(-1), None),
        (commits(0), 0),
        (commits(3, 2, 1), 2),
        (commits(3, 2, -1), 1),
        (commits(3, 2, -1, first=40), 41),
    ],
)
def test_the_version_of_a_moment_is_the_last_one_before_it(known: dict[int, datetime], version: int | None) -> None:
    assert version_at(known, NOON) == version


def test_where_times_go_back_and_forth_only_what_is_surely_older_counts() -> None:
    assert version_at(commits(3, -1, 2, 1), NOON) == 0
    assert version_at(commits(-1, 3, 2, 1), NOON) is None


def test_few_small_files_are_left_alone_and_large_ones_do_not_count() -> None:
    assert files_to_compact([MEGABYTE] * 19 + [64 * MEGABYTE] * 100) == 0
    assert files_to_compact([MEGABYTE] * 20 + [64 * MEGABYTE] * 100) == 20
    assert files_to_compact([]) == 0


def test_nothing_to_do_is_told_from_anything_to_do() -> None:
    assert Upkeep(query_name="campaign").is_nothing
    assert not Upkeep(query_name="campaign", files=1).is_nothing
