"""Partitions of which the ledger has news that no decision knew, and the decisions that follow."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, RowMapping, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.ledger_news import Disposition, Extraction, LedgerNews, Scheduled, Verdict
from gads_assets.domain.retrying import UNCOUNTED
from gads_assets.domain.scheduling import Purpose
from gads_assets.domain.state import AttemptOutcome, ExtractionOutcome, PartitionStatus
from gads_assets.state.control_tables import retry_schedule
from gads_assets.state.leases import LIVING_LEASE
from gads_assets.state.rows import key_from_row, key_row, keys_json, rows_json, select_by_keys

LOCK_SCHEDULED = select_by_keys(retry_schedule, "batch_id").with_for_update(of=retry_schedule)
"""In the order of keys: two who change the same rows wait for each other, and nothing is dispatched meanwhile."""

# Of those without a row only what failed is news, and few have failed: of the others nothing is looked up. Rows are
# found by what was tried since, or all of them by what they know. What a living run has is left to it, and so is what
# waits for a run.
_CANDIDATES = f"""
    failed AS (
        SELECT source, customer_id, query_name, logical_date FROM partition_attempt
        WHERE source = :source AND outcome IN ('rejected', 'demoted')
            AND judged_at >= coalesce(CAST(:since AS timestamptz), '-infinity')
        UNION
        SELECT source, customer_id, query_name, logical_date FROM extraction_attempt
        WHERE source = :source AND outcome = 'failed'
            AND finished_at >= coalesce(CAST(:since AS timestamptz), '-infinity')
    ), tried AS (
        SELECT source, customer_id, query_name, logical_date FROM partition_attempt
        WHERE source = :source AND judged_at >= :since
        UNION
        SELECT source, customer_id, query_name, logical_date FROM extraction_attempt
        WHERE source = :source AND finished_at >= :since
    ), candidate AS MATERIALIZED (
        SELECT source, customer_id, query_name, logical_date FROM retry_schedule
        WHERE source = :source AND batch_id = ANY (:over)
        UNION
        SELECT source, customer_id, query_name, logical_date FROM failed
        WHERE NOT EXISTS (
            SELECT FROM retry_schedule AS r
            WHERE (r.source, r.customer_id, r.query_name, r.logical_date)
                = (failed.source, failed.customer_id, failed.query_name, failed.logical_date))
        UNION
        SELECT source, customer_id, query_name, logical_date FROM tried
            JOIN retry_schedule AS r USING (source, customer_id, query_name, logical_date)
        WHERE r.batch_id IS NULL
        UNION
        SELECT source, customer_id, query_name, logical_date FROM retry_schedule
        WHERE source = :source AND batch_id IS NULL AND CAST(:since AS timestamptz) IS NULL
    ), free AS MATERIALIZED (
        SELECT * FROM candidate AS c
        WHERE c.query_name = ANY (:queries) AND NOT EXISTS ({LIVING_LEASE.format("c")})
    )
"""

_OF_THE_KEY = """
    ({0}.source, {0}.customer_id, {0}.query_name, {0}.logical_date)
        = (k.source, k.customer_id, k.query_name, k.logical_date)
"""

_OF_CANCELLED_BACKFILL = """
    EXISTS (SELECT FROM backfill AS b WHERE (b.backfill_id, b.status) = (r.backfill_id, 'cancelled'))
"""

# The verdict is that on the newest run: one that was sealed earlier may be judged later, and if it is bad, says nothing
# about it. If it is good, and the partition a success, it ends what failed before.
_NEWS = text(f"""
    WITH {_CANDIDATES}
    SELECT k.*, s.status, coalesce(s.attempt_count, 0) AS attempts, coalesce(ok.attempt_number, 0) AS accepted,
        coalesce(ok.known_run_seq, 0) AS accepted_knew,
        a.outcome AS verdict, a.run_seq AS verdict_run_seq, a.judged_at, a.error_message AS verdict_error,
        e.outcome AS extraction, e.run_seq AS extraction_run_seq, e.finished_at, e.error_class,
        e.error_message AS extraction_error, e.retry_at,
        f.failures, f.uncounted,
        r.purpose, r.disposition, r.backoff_strategy, r.reason, r.baseline_attempts, r.baseline_run_seq,
        r.seen_attempts, r.seen_run_seq, r.fruitless_runs, r.failing_since, r.batch_id,
        greatest(r.scheduled_at, r.dispatched_at) AS decided_at, r.override_id IS NOT NULL AS overridden,
        {_OF_CANCELLED_BACKFILL} AS of_cancelled_backfill
    FROM free AS k
        LEFT JOIN retry_schedule AS r USING (source, customer_id, query_name, logical_date)
        LEFT JOIN partition_state AS s USING (source, customer_id, query_name, logical_date)
        LEFT JOIN LATERAL (
            SELECT * FROM partition_attempt AS a WHERE {_OF_THE_KEY.format("a")}
            ORDER BY run_seq DESC, attempt_number DESC LIMIT 1
        ) AS a ON true
        LEFT JOIN LATERAL (
            SELECT * FROM extraction_attempt AS e WHERE {_OF_THE_KEY.format("e")} ORDER BY run_seq DESC LIMIT 1
        ) AS e ON true
        LEFT JOIN LATERAL (
            SELECT attempt_number, known_run_seq FROM partition_attempt AS a
            WHERE {_OF_THE_KEY.format("a")} AND outcome IN ('accepted', 'superseded')
            ORDER BY attempt_number DESC LIMIT 1
        ) AS ok ON true
        CROSS JOIN LATERAL (
            SELECT count(DISTINCT dagster_run_id) FILTER (WHERE error_class <> ALL (:uncounted)) AS failures,
                count(DISTINCT dagster_run_id) FILTER (WHERE error_class = ANY (:uncounted)) AS uncounted
            FROM extraction_attempt AS x
            WHERE {_OF_THE_KEY.format("x")} AND outcome = 'failed' AND run_seq > greatest(
                coalesce(r.baseline_run_seq, 0), (
                    SELECT max(sealed.run_seq) FROM extraction_attempt AS sealed
                    WHERE {_OF_THE_KEY.format("sealed")} AND sealed.outcome = 'sealed'))
        ) AS f
    WHERE r.batch_id IS NOT NULL
        OR r.source IS NOT NULL
            AND (coalesce(s.attempt_count, 0), coalesce(e.run_seq, 0)) <> (r.seen_attempts, r.seen_run_seq)
        OR r.source IS NULL AND (
            a.outcome IN ('rejected', 'demoted')
                AND (s.status <> 'success' OR a.attempt_number > coalesce(ok.attempt_number, 0))
            OR e.outcome = 'failed'
                AND (s.status IS DISTINCT FROM 'success' OR e.run_seq > coalesce(ok.known_run_seq, 0)))
    ORDER BY k.source, k.customer_id, k.query_name, k.logical_date LIMIT :most
""")

# Only what is still as it was when it was read: an operator may have been faster, or the other daemon.
_AS_READ = f"""
    (r.source, r.customer_id, r.query_name, r.logical_date) = (n.source, n.customer_id, n.query_name, n.logical_date)
        AND r.batch_id IS NOT DISTINCT FROM n.read_batch_id
        AND (r.purpose, r.disposition, r.seen_attempts, r.seen_run_seq)
            = (n.read_purpose, n.read_disposition, n.read_attempts, n.read_run_seq)
        AND {_OF_CANCELLED_BACKFILL} = n.read_of_cancelled_backfill
"""

_ROWS = """
    jsonb_to_recordset(CAST(:rows AS jsonb)) AS n (source text, customer_id text, query_name text, logical_date date,
        purpose text, disposition text, next_run_at timestamptz, backoff_strategy text, reason text,
        baseline_attempts integer, seen_attempts integer, seen_run_seq bigint, fruitless_runs integer,
        failing_since timestamptz, read_batch_id text, read_purpose text, read_disposition text,
        read_attempts integer, read_run_seq bigint, read_of_cancelled_backfill boolean)
"""

_CHANGE = text(f"""
    UPDATE retry_schedule AS r
    SET purpose = n.purpose, disposition = n.disposition, next_run_at = n.next_run_at,
        backoff_strategy = n.backoff_strategy, reason = n.reason, baseline_attempts = n.baseline_attempts,
        seen_attempts = n.seen_attempts, seen_run_seq = n.seen_run_seq, fruitless_runs = n.fruitless_runs,
        failing_since = n.failing_since, scheduled_at = :now,
        batch_id = NULL, dispatched_at = NULL, dagster_run_id = NULL
    FROM {_ROWS} WHERE {_AS_READ}
""")

_ADD = text(f"""
    INSERT INTO retry_schedule (source, customer_id, query_name, logical_date, purpose, disposition, next_run_at,
        backoff_strategy, reason, baseline_attempts, seen_attempts, seen_run_seq, failing_since, scheduled_at)
    SELECT source, customer_id, query_name, logical_date, purpose, disposition, next_run_at, backoff_strategy, reason,
        baseline_attempts, seen_attempts, seen_run_seq, failing_since, :now
    FROM {_ROWS} ON CONFLICT DO NOTHING
""")

_REMOVE = text(f"DELETE FROM retry_schedule AS r USING {_ROWS} WHERE {_AS_READ}")


@dataclass(frozen=True, kw_only=True)
class Decided:
    """What the schedule is to say of a partition, and of what news that is; without a disposition, nothing."""

    news: LedgerNews
    purpose: Purpose = Purpose.RETRY
    disposition: Disposition | None = None
    next_run_at: datetime | None = None
    backoff_strategy: str = ""
    reason: str | None = None
    fruitless_runs: int = 0
    failing_since: datetime | None = None


def read_news(
    connection: Connection,
    *,
    source: str,
    queries: Collection[str],
    over: Collection[str],
    since: datetime | None,
    clock: datetime | None,
    most: int,
) -> list[LedgerNews]:
    asked = {
        "source": source,
        "queries": list(queries),
        "over": list(over),
        "since": since,
        "uncounted": sorted(UNCOUNTED),
        "clock": clock,
        "most": most,
    }
    return [_news(row) for row in connection.execute(_NEWS, asked).mappings()]


def write_decisions(connection: Connection, decided: Sequence[Decided], *, now: datetime) -> None:
    def written(some: Iterable[Decided]) -> dict[str, object]:
        return {"rows": rows_json(map(_row, some)), "now": now}

    connection.execute(LOCK_SCHEDULED, {"keys": keys_json(each.news.key for each in decided)})
    gone = [each for each in decided if each.disposition is None and each.news.scheduled]
    changed = [each for each in decided if each.disposition and each.news.scheduled]
    added = [each for each in decided if each.disposition and not each.news.scheduled]
    for statement, some in ((_REMOVE, gone), (_CHANGE, changed), (_ADD, added)):
        if some:
            connection.execute(statement, written(some))


def _row(decided: Decided) -> dict[str, object]:
    news, was = decided.news, decided.news.scheduled
    row = key_row(news.key) | {
        "purpose": decided.purpose,
        "disposition": decided.disposition,
        "next_run_at": decided.next_run_at,
        "backoff_strategy": decided.backoff_strategy,
        "reason": decided.reason,
        "baseline_attempts": news.baseline,
        "seen_attempts": news.attempts,
        "seen_run_seq": news.run_seq,
        "fruitless_runs": decided.fruitless_runs,
        "failing_since": decided.failing_since,
    }
    if was is None:
        return row
    return row | {
        "read_batch_id": was.batch_id,
        "read_purpose": was.purpose,
        "read_disposition": was.disposition,
        "read_attempts": was.seen_attempts,
        "read_run_seq": was.seen_run_seq,
        "read_of_cancelled_backfill": was.of_cancelled_backfill,
    }


def _news(row: RowMapping) -> LedgerNews:
    key: PartitionKey = key_from_row(row)
    return LedgerNews(
        key=key,
        status=PartitionStatus(row["status"]) if row["status"] else PartitionStatus.PENDING,
        attempts=row["attempts"],
        accepted=row["accepted"],
        accepted_knew=row["accepted_knew"],
        verdict=Verdict(
            outcome=AttemptOutcome(row["verdict"]),
            run_seq=row["verdict_run_seq"],
            at=row["judged_at"].astimezone(UTC),
            error_message=row["verdict_error"],
        )
        if row["verdict"]
        else None,
        extraction=Extraction(
            outcome=ExtractionOutcome(row["extraction"]),
            run_seq=row["extraction_run_seq"],
            at=row["finished_at"].astimezone(UTC),
            error_class=row["error_class"],
            error_message=row["extraction_error"],
            retry_at=row["retry_at"] and row["retry_at"].astimezone(UTC),
        )
        if row["extraction"]
        else None,
        failures=row["failures"],
        uncounted=row["uncounted"],
        scheduled=_scheduled(row) if row["purpose"] else None,
    )


def _scheduled(row: RowMapping) -> Scheduled:
    return Scheduled(
        purpose=Purpose(row["purpose"]),
        disposition=Disposition(row["disposition"]),
        backoff_strategy=row["backoff_strategy"],
        reason=row["reason"],
        baseline_attempts=row["baseline_attempts"],
        baseline_run_seq=row["baseline_run_seq"],
        seen_attempts=row["seen_attempts"],
        seen_run_seq=row["seen_run_seq"],
        fruitless_runs=row["fruitless_runs"],
        failing_since=row["failing_since"] and row["failing_since"].astimezone(UTC),
        decided_at=row["decided_at"].astimezone(UTC),
        overridden=row["overridden"],
        of_cancelled_backfill=row["of_cancelled_backfill"],
        batch_id=row["batch_id"],
    )
