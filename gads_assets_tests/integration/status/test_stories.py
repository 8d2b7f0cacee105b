"""What the status page tells of a partition's next try."""

import pytest
from sqlalchemy import Engine, text

from gads_assets.status.stories import read_story
from gads_assets_tests.ledgers import KEY, NOW

SCHEDULED = text("""
    INSERT INTO retry_schedule (source, customer_id, query_name, logical_date, purpose, disposition, next_run_at,
        backoff_strategy, reason, scheduled_at)
    VALUES ('google_ads', '1234567890', 'campaign', '2024-06-01', 'retry', :disposition, :next_run_at, 'exponential',
        'two rows share a key', now())
""")


@pytest.mark.parametrize(
    ("disposition", "at", "why"),
    [
        ("due", NOW, "retry, exponential"),
        ("terminal", None, "terminal: two rows share a key"),
        ("blocked", None, "blocked: two rows share a key"),
    ],
)
def test_the_next_try_has_a_time_or_the_reason_why_there_is_none(
    engine: Engine, disposition: str, at: object, why: str
) -> None:
    assert read_story(engine, KEY).next_retry is None
    with engine.begin() as connection:
        connection.execute(SCHEDULED, {"disposition": disposition, "next_run_at": at})
    found = read_story(engine, KEY).next_retry
    assert found is not None
    assert (found["at"], found["why"]) == (at, why)
