"""Which failed extractions are worth another try by now."""

from collections.abc import Mapping
from datetime import UTC

from sqlalchemy import Connection, text

from gads_assets.domain.rescheduling import DuePartition, RetryPolicy
from gads_assets.errors import QuotaExhaustedError
from gads_assets.state.rows import key_from_row, rows_json, value_row

# Each further run that failed waits twice as long, from a minute to six hours.
_DUE = text("""
    SELECT a.source, a.customer_id, a.query_name, a.logical_date, a.retry_at, a.dagster_run_id
    FROM extraction_attempt AS a
        JOIN jsonb_to_recordset(CAST(:policies AS jsonb))
            AS q (query_name text, max_attempts integer, start_date date) USING (query_name)
        JOIN customer AS c ON c.customer_id = a.customer_id AND c.status = 'active'
        CROSS JOIN LATERAL (
            SELECT count(DISTINCT failure.dagster_run_id) AS runs,
                count(DISTINCT failure.dagster_run_id) FILTER (WHERE failure.error_class <> :quota) AS attempts
            FROM extraction_attempt AS failure
            WHERE (failure.source, failure.customer_id, failure.query_name, failure.logical_date)
                = (a.source, a.customer_id, a.query_name, a.logical_date)
                AND failure.outcome = 'failed'
                AND NOT EXISTS (
                    SELECT FROM extraction_attempt AS seal
                    WHERE (seal.source, seal.customer_id, seal.query_name, seal.logical_date)
                        = (a.source, a.customer_id, a.query_name, a.logical_date)
                        AND seal.outcome = 'sealed' AND seal.run_seq > failure.run_seq)
        ) AS failed
    WHERE a.source = :source AND a.retry_at <= statement_timestamp() AND a.logical_date >= q.start_date
        AND NOT EXISTS (
            SELECT FROM extraction_attempt AS newer
            WHERE (newer.source, newer.customer_id, newer.query_name, newer.logical_date)
                = (a.source, a.customer_id, a.query_name, a.logical_date) AND newer.run_seq > a.run_seq)
        AND failed.attempts < q.max_attempts
        AND a.finished_at + least(2 ^ (failed.runs - 1), 360) * interval '1 minute' <= statement_timestamp()
""")


def read_due(connection: Connection, *, source: str, policies: Mapping[str, RetryPolicy]) -> list[DuePartition]:
    rows = [{"query_name": name, **value_row(policy)} for name, policy in policies.items()]
    asked = {"source": source, "policies": rows_json(rows), "quota": QuotaExhaustedError.error_class}
    return [
        DuePartition(
            key=key_from_row(row), retry_at=row["retry_at"].astimezone(UTC), dagster_run_id=row["dagster_run_id"]
        )
        for row in connection.execute(_DUE, asked).mappings()
    ]
