"""Adoptions: the versions above which partitions go on whose pointers the database has lost track of."""

from alembic import op

revision = "0006"
down_revision = "0005"

_SCHEMA = """
ALTER TABLE override_log
    ADD COLUMN version_floor bigint,
    ADD COLUMN run_id text,
    DROP CONSTRAINT override_log_action_check,
    ADD CONSTRAINT override_log_action_check CHECK (
        action IN ('retry', 'revalidate', 'terminal', 'clear', 'backfill', 'adopt')),
    ADD CONSTRAINT override_log_version_floor UNIQUE (
        source, customer_id, query_name, logical_date, version_floor),
    ADD CONSTRAINT override_log_version_floor_check CHECK (version_floor BETWEEN 1 AND 1000000000000000),
    ADD CONSTRAINT override_log_run_id_check CHECK (run_id ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$'),
    ADD CONSTRAINT override_log_adoption_check CHECK (
        num_nonnulls(version_floor, run_id) = CASE action WHEN 'adopt' THEN 2 ELSE 0 END
        AND (action <> 'adopt' OR state_version IS NULL));
"""

_GUARDS = """
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION guard_partition_state() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    is_counted boolean := NEW.attempt_count IS DISTINCT FROM OLD.attempt_count;
    is_moved boolean := NEW.current_run_id IS DISTINCT FROM OLD.current_run_id;
    next_version bigint := coalesce(OLD.version, 0) + 1;
    rule text;
BEGIN
    -- A verdict on a partition that was adopted goes above the floor: a pointer of the warehouse carries that version.
    IF is_counted AND NEW.version > next_version THEN
        SELECT greatest(next_version, max(adopted.version_floor) + 1) INTO next_version FROM override_log AS adopted
        WHERE (adopted.source, adopted.customer_id, adopted.query_name, adopted.logical_date)
                = (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
            AND adopted.action = 'adopt';
    END IF;
    IF TG_OP = 'DELETE' THEN
        rule := 'a state row is never deleted';
    ELSIF TG_OP = 'INSERT' THEN
        IF NEW.status = 'pending' THEN
            rule := 'a partition is pending without a row; its first row is a verdict';
        ELSIF NEW.version <> next_version OR NEW.attempt_count <> 1 THEN
            rule := format('a first verdict is attempt 1 at version %s, not %s at %s',
                next_version, NEW.attempt_count, NEW.version);
        ELSIF NEW.status = 'failed'
                AND num_nonnulls(NEW.current_run_id, NEW.schema_version, NEW.record_count) > 0 THEN
            rule := 'only a success moves current_run_id';
        END IF;
    ELSIF (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
            IS DISTINCT FROM (OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date) THEN
        rule := 'a state row keeps its key';
    ELSIF NEW.version <> next_version THEN
        rule := format('version rises from %s to exactly %s, not to %s', OLD.version, next_version, NEW.version);
    ELSIF NEW.attempt_count < OLD.attempt_count THEN
        rule := 'attempt_count never falls';
    ELSIF NEW.attempt_count > OLD.attempt_count + 1 THEN
        rule := 'a verdict is one attempt';
    ELSIF is_moved AND NEW.status <> 'success' THEN
        rule := 'only a success moves current_run_id';
    ELSIF is_moved AND NEW.current_run_seq <= OLD.current_run_seq THEN
        rule := 'authority moves only to a newer run';
    ELSIF NOT is_moved AND (NEW.current_run_seq, NEW.schema_version, NEW.record_count)
            IS DISTINCT FROM (OLD.current_run_seq, OLD.schema_version, OLD.record_count) THEN
        rule := 'a run keeps its run_seq, schema_version and record_count';
    ELSIF OLD.status = 'success' AND NEW.status = 'pending' THEN
        rule := 'a success never returns to pending';
    ELSIF OLD.status = 'failed' AND NEW.status = 'pending' THEN
        IF is_counted OR NOT acts_as('operator') THEN
            rule := 'only the control plane returns a partition to pending';
        ELSIF NOT EXISTS (
                SELECT FROM override_log AS logged
                WHERE (logged.source, logged.customer_id, logged.query_name, logged.logical_date)
                        = (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
                    AND logged.state_version = NEW.version AND logged.action = 'retry') THEN
            rule := 'a return to pending is logged as an override first';
        END IF;
    ELSIF OLD.status = 'success' AND NEW.status = 'failed' THEN
        IF is_counted OR NOT EXISTS (
                SELECT FROM demotion AS open
                WHERE (open.source, open.customer_id, open.query_name, open.logical_date)
                        = (OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date)
                    AND (open.run_id, open.error_message) = (OLD.current_run_id, NEW.error_message)) THEN
            rule := 'a success fails only through a demotion of its run, and for its reason';
        ELSIF NOT acts_as('validator') THEN
            rule := 'only the validator finishes a demotion';
        END IF;
    ELSIF NOT is_counted THEN
        rule := 'a state changes by a verdict, which is counted';
    END IF;
    IF rule IS NULL THEN
        RETURN NEW;
    ELSIF TG_OP = 'INSERT' THEN
        PERFORM refuse(NEW.source, NEW.query_name, NEW.customer_id, NEW.logical_date, rule);
    ELSE
        PERFORM refuse(OLD.source, OLD.query_name, OLD.customer_id, OLD.logical_date, rule);
    END IF;
    RETURN NULL;
END
$$;
"""


def upgrade() -> None:
    for statements in (_SCHEMA, _GUARDS):
        # Not op.execute, which would take the colons and per cent signs of PL/pgSQL for its own.
        op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})
