"""Days that have opened, and published days whose figures are due again: put on the schedule once each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from sqlalchemy import Connection, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.scheduling import Purpose
from gads_assets.state.customers import FIRST_DAY
from gads_assets.state.rows import keys_json, rows_json

# Whoever comes later finds the days of the first already counted as opened: without this it would schedule them again
# as soon as the first one's had run. Nobody waits for it: who has it may be a daemon whose machine is gone.
_ALONE = text("SELECT pg_try_advisory_xact_lock(hashtextextended('open days of ' || :source, 0))")

# An account that is seen for the first time begins with its newest day: what came before is a backfill's. A day that
# the API does not tell any more is left out.
_NEWEST = """
    WITH query AS (
        SELECT * FROM jsonb_to_recordset(CAST(:queries AS jsonb)) AS q (
            query_name text, start_date date, settling interval, ages integer[], reach_days integer)
    ), opened AS MATERIALIZED (
        SELECT q.*, c.customer_id, c.time_zone, o.newest_day,
            CAST((:now - q.settling) AT TIME ZONE c.time_zone AS date) - 1 AS last_open,
            CAST(CAST(:now AS timestamptz) AT TIME ZONE c.time_zone AS date) AS today
        FROM query AS q CROSS JOIN customer AS c
            LEFT JOIN opened_day AS o ON (o.source, o.query_name, o.customer_id)
                = (:source, q.query_name, c.customer_id)
        WHERE c.status = 'active'
    )
"""

_OPENED = f"""
    {_NEWEST}, moved AS MATERIALIZED (
        SELECT o.*, CAST(day AS date) AS day FROM opened AS o CROSS JOIN generate_series(
                CASE WHEN o.newest_day IS NULL THEN o.last_open
                    ELSE greatest(o.newest_day + 1, o.last_open - :longest) END,
                o.last_open, interval '1 day') AS day
        WHERE o.last_open >= o.start_date AND day >= o.start_date
    )
"""

_HAS_OPENED = text(f"""
    {_NEWEST} SELECT EXISTS (
        SELECT FROM opened WHERE last_open >= start_date AND (newest_day IS NULL OR newest_day < last_open))
""")

SEEN: Final = """
    coalesce(s.attempt_count, 0) AS seen_attempts,
    coalesce((SELECT max(e.run_seq) FROM extraction_attempt AS e
        WHERE (e.source, e.customer_id, e.query_name, e.logical_date)
            = ({0}.source, {0}.customer_id, {0}.query_name, {0}.logical_date)), 0) AS seen_run_seq
"""
"""How much of the ledger a decision about a row of that name knows; its partition_state, if it has one, is s."""

# A backfill that somebody asked for before the day was scheduled must not make it wait with history, or while it is
# paused; it goes on counting the day as its own.
_MORE_URGENT_THAN_HISTORY = """
    ON CONFLICT (source, customer_id, query_name, logical_date) DO UPDATE
    SET purpose = excluded.purpose, next_run_at = excluded.next_run_at, backoff_strategy = excluded.backoff_strategy,
        reason = excluded.reason
    WHERE r.purpose = 'backfill' AND r.disposition = 'due' AND r.batch_id IS NULL
"""

# One statement: an account that is registered meanwhile is seen by all of it or by nothing. What failed is with the
# policy of retries, not due again; the newest open day has age 1. OFFSET 0 makes the server look each day up: it
# expects a thousand days to open for every one that does, and would read the whole ledger instead.
_SCHEDULE = text(f"""
    {_OPENED}, fresh AS (
        INSERT INTO retry_schedule AS r (source, customer_id, query_name, logical_date, purpose, disposition,
            next_run_at, backoff_strategy, scheduled_at)
        SELECT :source, m.customer_id, m.query_name, m.day, 'fresh', 'due', :now, 'its day has opened', :now
        FROM moved AS m
        WHERE (m.reach_days IS NULL OR m.reach_days > 0 AND m.today - m.day <= m.reach_days OR m.day = m.last_open)
            AND NOT EXISTS (
                SELECT FROM partition_state AS s
                WHERE (s.source, s.customer_id, s.query_name, s.logical_date)
                    = (:source, m.customer_id, m.query_name, m.day) OFFSET 0)
            AND NOT EXISTS (
                SELECT FROM extraction_attempt AS e
                WHERE (e.source, e.customer_id, e.query_name, e.logical_date)
                    = (:source, m.customer_id, m.query_name, m.day) OFFSET 0)
        ORDER BY m.customer_id, m.query_name, m.day
        {_MORE_URGENT_THAN_HISTORY} RETURNING 1
    ), restated AS (
        INSERT INTO retry_schedule (source, customer_id, query_name, logical_date, purpose, disposition,
            next_run_at, backoff_strategy, baseline_attempts, seen_attempts, seen_run_seq, scheduled_at)
        SELECT s.source, s.customer_id, s.query_name, s.logical_date, 'restatement', 'due', :now,
            min(age) || ' days old', s.attempt_count, {SEEN.format("s")}, :now
        FROM moved AS m CROSS JOIN unnest(m.ages) AS age
            CROSS JOIN LATERAL (
                SELECT * FROM partition_state AS p
                WHERE (p.source, p.customer_id, p.query_name, p.logical_date)
                    = (:source, m.customer_id, m.query_name, m.day + 1 - age) OFFSET 0
            ) AS s
        WHERE s.status = 'success' AND s.logical_date >= m.start_date
            AND (m.reach_days IS NULL OR m.today - s.logical_date <= m.reach_days)
        GROUP BY s.source, s.customer_id, s.query_name, s.logical_date, s.attempt_count
        ORDER BY s.customer_id, s.query_name, s.logical_date
        ON CONFLICT DO NOTHING RETURNING 1
    ), reached AS (
        INSERT INTO opened_day AS o (source, query_name, customer_id, newest_day)
        SELECT DISTINCT :source, m.query_name, m.customer_id, m.last_open FROM moved AS m
        ON CONFLICT (source, query_name, customer_id) DO UPDATE SET newest_day = excluded.newest_day
        WHERE o.newest_day < excluded.newest_day
    )
    SELECT (SELECT count(*) FROM fresh) AS fresh, (SELECT count(*) FROM restated) AS restated
""")

_WANTED = text(f"""
    INSERT INTO retry_schedule AS r (source, customer_id, query_name, logical_date, purpose, disposition, next_run_at,
        backoff_strategy, reason, seen_attempts, seen_run_seq, scheduled_at)
    SELECT k.source, k.customer_id, k.query_name, k.logical_date, :purpose, 'due', :now, :strategy, :reason,
        {SEEN.format("k")}, :now
    FROM jsonb_to_recordset(CAST(:keys AS jsonb))
            AS k (source text, customer_id text, query_name text, logical_date date)
        JOIN customer AS c ON c.customer_id = k.customer_id AND c.status = 'active'
            AND k.logical_date >= {FIRST_DAY}
        LEFT JOIN partition_state AS s ON (s.source, s.customer_id, s.query_name, s.logical_date)
            = (k.source, k.customer_id, k.query_name, k.logical_date)
    WHERE coalesce(s.status, 'success') = 'success' AND NOT EXISTS (
        SELECT FROM partition_lease AS l
        WHERE (l.source, l.customer_id, l.query_name, l.logical_date)
            = (k.source, k.customer_id, k.query_name, k.logical_date))
    ORDER BY k.customer_id, k.query_name, k.logical_date
    {_MORE_URGENT_THAN_HISTORY}
""")

_LONGEST_GAP = 93
"""Days that are made up for after nobody looked; what is older is a backfill's."""


@dataclass(frozen=True, kw_only=True)
class OpeningRule:
    """When a query's days open, and at which ages after that they are due again: the newest open day has age 1."""

    query_name: str
    start_date: date
    settling: timedelta
    ages: tuple[int, ...]
    reach_days: int | None


@dataclass(frozen=True, kw_only=True)
class Opened:
    fresh: int
    restated: int


def schedule_opened(connection: Connection, *, source: str, rules: Sequence[OpeningRule], now: datetime) -> Opened:
    asked = {
        "source": source,
        "queries": rows_json(rule_rows(rules)),
        "now": now,
        "longest": _LONGEST_GAP,
    }
    is_alone = connection.execute(_ALONE, {"source": source}).scalar_one()
    if not is_alone or not connection.execute(_HAS_OPENED, asked).scalar_one():
        return Opened(fresh=0, restated=0)
    return Opened(**connection.execute(_SCHEDULE, asked).mappings().one())


def schedule_wanted(
    connection: Connection,
    keys: Iterable[PartitionKey],
    *,
    purpose: Purpose,
    strategy: str,
    reason: str,
    now: datetime,
) -> int:
    asked = {"keys": keys_json(keys), "purpose": purpose, "strategy": strategy, "reason": reason, "now": now}
    return connection.execute(_WANTED, asked).rowcount


def rule_rows(rules: Iterable[OpeningRule]) -> list[dict[str, object]]:
    return [
        {
            "query_name": rule.query_name,
            "start_date": rule.start_date,
            "settling": f"{rule.settling.total_seconds()} s",
            "ages": list(rule.ages),
            "reach_days": rule.reach_days,
        }
        for rule in rules
    ]
