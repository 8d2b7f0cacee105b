"""What a verdict knew of later extractions, how long each lease lasts, and a guard that spares stopped runs."""

from alembic import op

revision = "0009"
down_revision = "0008"

# Runs that are under way go on by the code before, which knows neither column.
_SCHEMA = """
ALTER TABLE partition_attempt ADD COLUMN known_run_seq bigint;

ALTER TABLE run_lease ADD COLUMN lasts interval NOT NULL DEFAULT '00:00:30';
"""

_GUARDS = """
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION guard_lease() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
            IS DISTINCT FROM (OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date) THEN
        PERFORM refuse(OLD.source, OLD.query_name, OLD.customer_id, OLD.logical_date, 'a lease keeps its key');
    ELSIF NEW.dagster_run_id <> OLD.dagster_run_id AND EXISTS (
            SELECT FROM run_lease AS held
            WHERE held.dagster_run_id = OLD.dagster_run_id AND (
                held.lease_until > statement_timestamp()
                OR hashtextextended('process of run ' || held.dagster_run_id, 0) IN (
                    SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
                    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
                        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())))) THEN
        PERFORM refuse(OLD.source, OLD.query_name, OLD.customer_id, OLD.logical_date,
            format('run %s has it, and lives', OLD.dagster_run_id));
    END IF;
    RETURN NEW;
END
$$;
"""


def upgrade() -> None:
    for statements in (_SCHEMA, _GUARDS):
        # Not op.execute, which would take the colons and per cent signs of PL/pgSQL for its own.
        op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})
