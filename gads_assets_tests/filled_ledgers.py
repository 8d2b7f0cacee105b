"""Ledgers with as many partitions as wanted, written in a few statements: what they hold could have happened."""

from datetime import date, datetime

from sqlalchemy import Engine, text

# A run's id from its number: 26 characters, the first of them low.
_RUN_ID = "'0' || upper(lpad(to_hex({0}), 25, '0'))"

_FILL = f"""
    SET LOCAL session_replication_role = replica;
    CREATE TEMPORARY TABLE filled ON COMMIT DROP AS
        SELECT 'google_ads' AS source, c.customer_id, CAST(:query_name AS text) AS query_name,
            CAST(:first_day AS date) + day AS logical_date,
            row_number() OVER (ORDER BY day, c.customer_id) AS number,
            row_number() OVER (ORDER BY day DESC, c.customer_id) <= :failed AS is_failed
        FROM customer AS c CROSS JOIN generate_series(0, :days - 1) AS day;
    INSERT INTO extraction_attempt (source, customer_id, query_name, logical_date, run_id, run_seq, outcome,
        started_at, finished_at, dagster_run_id)
    SELECT source, customer_id, query_name, logical_date, {_RUN_ID.format("number")}, number, 'sealed',
        CAST(:now AS timestamptz), CAST(:now AS timestamptz), 'filled' FROM filled;
    INSERT INTO partition_state (source, customer_id, query_name, logical_date, status, current_run_id,
        current_run_seq, schema_version, record_count, updated_at, error_message, attempt_count, version)
    SELECT source, customer_id, query_name, logical_date, CASE WHEN is_failed THEN 'failed' ELSE 'success' END,
        CASE WHEN NOT is_failed THEN {_RUN_ID.format("number")} END, CASE WHEN NOT is_failed THEN number END,
        CASE WHEN NOT is_failed THEN '1' END, CASE WHEN NOT is_failed THEN 3 END, CAST(:now AS timestamptz),
        CASE WHEN is_failed THEN 'two rows share a key' END, 1, 1 FROM filled;
    INSERT INTO partition_attempt (validation_id, source, customer_id, query_name, logical_date, run_id, run_seq,
        outcome, attempt_number, error_message, content_digest, record_count, schema_version, rule_results,
        state_version, dagster_run_id, judged_at)
    SELECT 'filled ' || query_name || number, source, customer_id, query_name, logical_date, {_RUN_ID.format("number")},
        number, CASE WHEN is_failed THEN 'rejected' ELSE 'accepted' END, 1,
        CASE WHEN is_failed THEN 'two rows share a key' END, 'digest', 3, '1', '[]', 1, 'filled',
        CAST(:now AS timestamptz) FROM filled;
"""


def fill_ledger(engine: Engine, *, query_name: str, first_day: date, days: int, failed: int, now: datetime) -> None:
    """Each of these days of every registered customer was extracted and judged once, long before now or then; the
    newest `failed` partitions were rejected, all others accepted."""
    asked = {"query_name": query_name, "first_day": first_day, "days": days, "failed": failed, "now": now}
    with engine.begin() as connection:
        for statement in filter(str.strip, _FILL.split(";\n")):
            connection.execute(text(statement), asked if ":" in statement.replace("::", "") else {})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
