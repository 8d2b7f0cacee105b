"""The control plane: a schedule of decisions, leases of partitions, backfills, alerts.

What `retry_schedule` held before was a plan that nothing carried out yet, so it is made anew.
"""

from alembic import op

revision = "0008"
down_revision = "0007"

_SCHEMA = """
ALTER TABLE override_log
    ADD COLUMN change text,
    ADD CONSTRAINT override_log_change_check CHECK (change <> '');

-- One that the database cannot count in would stop all that is asked about any account.
ALTER TABLE customer
    ADD CONSTRAINT customer_time_zone_check CHECK (timezone(time_zone, TIMESTAMPTZ 'epoch') IS NOT NULL);

DROP INDEX extraction_attempt_retry_at;

CREATE INDEX extraction_attempt_finished_at ON extraction_attempt (finished_at);

CREATE INDEX extraction_attempt_failed ON extraction_attempt (finished_at) WHERE outcome = 'failed';

CREATE INDEX partition_attempt_judged_at ON partition_attempt (judged_at);

CREATE INDEX partition_attempt_rejected ON partition_attempt (judged_at) WHERE outcome IN ('rejected', 'demoted');

DROP TABLE retry_schedule;

CREATE TABLE backfill (
    backfill_id text NOT NULL,
    source text NOT NULL,
    queries text[] NOT NULL,
    customer_ids text[] NOT NULL,
    first_day date NOT NULL,
    last_day date NOT NULL,
    partitions integer NOT NULL,
    operations integer NOT NULL,
    taken_off integer DEFAULT 0 NOT NULL,
    status text NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    changed_by text NOT NULL,
    changed_at timestamptz NOT NULL,
    CONSTRAINT backfill_pkey PRIMARY KEY (backfill_id),
    CONSTRAINT backfill_backfill_id_check CHECK (backfill_id ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$'),
    CONSTRAINT backfill_source_check CHECK (source <> ''),
    CONSTRAINT backfill_days_check CHECK (first_day <= last_day),
    CONSTRAINT backfill_counts_check CHECK (partitions >= 1 AND operations >= 0 AND taken_off >= 0),
    CONSTRAINT backfill_status_check CHECK (status IN ('active', 'paused', 'cancelled')),
    CONSTRAINT backfill_names_check CHECK (btrim(created_by) <> '' AND btrim(changed_by) <> '')
);

CREATE TABLE retry_schedule (
    source text NOT NULL,
    customer_id text NOT NULL,
    query_name text NOT NULL,
    logical_date date NOT NULL,
    purpose text NOT NULL,
    disposition text NOT NULL,
    next_run_at timestamptz,
    backoff_strategy text NOT NULL,
    reason text,
    baseline_attempts integer DEFAULT 0 NOT NULL,
    baseline_run_seq bigint DEFAULT 0 NOT NULL,
    seen_attempts integer DEFAULT 0 NOT NULL,
    seen_run_seq bigint DEFAULT 0 NOT NULL,
    fruitless_runs integer DEFAULT 0 NOT NULL,
    failing_since timestamptz,
    dispatches integer DEFAULT 0 NOT NULL,
    override_id text,
    backfill_id text,
    batch_id text,
    dispatched_at timestamptz,
    dagster_run_id text,
    scheduled_at timestamptz NOT NULL,
    CONSTRAINT retry_schedule_pkey PRIMARY KEY (source, customer_id, query_name, logical_date),
    CONSTRAINT retry_schedule_override_log_fkey FOREIGN KEY (override_id) REFERENCES override_log (override_id),
    CONSTRAINT retry_schedule_backfill_fkey FOREIGN KEY (backfill_id) REFERENCES backfill (backfill_id),
    CONSTRAINT retry_schedule_source_check CHECK (source <> ''),
    CONSTRAINT retry_schedule_customer_id_check CHECK (customer_id ~ '^[0-9]{10}$'),
    CONSTRAINT retry_schedule_query_name_check CHECK (query_name <> ''),
    CONSTRAINT retry_schedule_purpose_check CHECK (
        purpose IN ('fresh', 'retry', 'revalidate', 'restatement', 'backfill')),
    CONSTRAINT retry_schedule_disposition_check CHECK (disposition IN ('due', 'terminal', 'blocked')),
    CONSTRAINT retry_schedule_next_run_at_check CHECK ((next_run_at IS NOT NULL) = (disposition = 'due')),
    CONSTRAINT retry_schedule_reason_check CHECK ((reason IS NOT NULL OR disposition = 'due') AND reason <> ''),
    CONSTRAINT retry_schedule_backoff_strategy_check CHECK (backoff_strategy <> ''),
    CONSTRAINT retry_schedule_baseline_check CHECK (baseline_attempts >= 0 AND baseline_run_seq >= 0),
    CONSTRAINT retry_schedule_seen_check CHECK (
        seen_attempts >= 0 AND seen_run_seq >= 0 AND fruitless_runs >= 0 AND dispatches >= 0),
    CONSTRAINT retry_schedule_backfill_check CHECK (purpose <> 'backfill' OR backfill_id IS NOT NULL),
    CONSTRAINT retry_schedule_batch_check CHECK (
        (batch_id IS NULL) = (dispatched_at IS NULL) AND (batch_id IS NULL OR disposition = 'due')
        AND (dagster_run_id IS NULL OR batch_id IS NOT NULL)),
    CONSTRAINT retry_schedule_batch_id_check CHECK (batch_id ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$')
);

CREATE INDEX retry_schedule_backfill ON retry_schedule (backfill_id) WHERE backfill_id IS NOT NULL;

CREATE INDEX retry_schedule_batch ON retry_schedule (batch_id) WHERE batch_id IS NOT NULL;

CREATE INDEX retry_schedule_due ON retry_schedule (next_run_at) WHERE disposition = 'due' AND batch_id IS NULL;

CREATE TABLE opened_day (
    source text NOT NULL,
    query_name text NOT NULL,
    customer_id text NOT NULL,
    newest_day date NOT NULL,
    CONSTRAINT opened_day_pkey PRIMARY KEY (source, query_name, customer_id)
);

CREATE TABLE control_cursor (
    source text NOT NULL,
    name text NOT NULL,
    reached_at timestamptz NOT NULL,
    CONSTRAINT control_cursor_pkey PRIMARY KEY (source, name),
    CONSTRAINT control_cursor_name_check CHECK (name <> '')
);

CREATE TABLE run_lease (
    dagster_run_id text NOT NULL,
    lease_until timestamptz NOT NULL,
    taken_at timestamptz NOT NULL,
    CONSTRAINT run_lease_pkey PRIMARY KEY (dagster_run_id),
    CONSTRAINT run_lease_dagster_run_id_check CHECK (dagster_run_id <> '')
);

CREATE TABLE partition_lease (
    source text NOT NULL,
    customer_id text NOT NULL,
    query_name text NOT NULL,
    logical_date date NOT NULL,
    dagster_run_id text NOT NULL,
    CONSTRAINT partition_lease_pkey PRIMARY KEY (source, customer_id, query_name, logical_date),
    CONSTRAINT partition_lease_run_lease_fkey FOREIGN KEY (dagster_run_id)
        REFERENCES run_lease (dagster_run_id) ON DELETE CASCADE,
    CONSTRAINT partition_lease_source_check CHECK (source <> ''),
    CONSTRAINT partition_lease_customer_id_check CHECK (customer_id ~ '^[0-9]{10}$'),
    CONSTRAINT partition_lease_query_name_check CHECK (query_name <> '')
);

CREATE INDEX partition_lease_of_run ON partition_lease (dagster_run_id);

CREATE TABLE alert (
    alert_id text NOT NULL,
    kind text NOT NULL,
    source text NOT NULL,
    customer_id text NOT NULL,
    query_name text NOT NULL,
    logical_date date NOT NULL,
    reason text NOT NULL,
    raised_at timestamptz NOT NULL,
    told_at timestamptz,
    over_at timestamptz,
    CONSTRAINT alert_pkey PRIMARY KEY (alert_id),
    CONSTRAINT alert_source_check CHECK (source <> ''),
    CONSTRAINT alert_customer_id_check CHECK (customer_id ~ '^[0-9]{10}$'),
    CONSTRAINT alert_query_name_check CHECK (query_name <> ''),
    CONSTRAINT alert_alert_id_check CHECK (alert_id ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$'),
    CONSTRAINT alert_kind_check CHECK (kind IN ('terminal', 'blocked', 'stale')),
    CONSTRAINT alert_reason_check CHECK (reason <> '')
);

CREATE UNIQUE INDEX alert_open ON alert (kind, source, customer_id, query_name, logical_date) WHERE over_at IS NULL;

CREATE INDEX alert_untold ON alert (raised_at) WHERE told_at IS NULL AND over_at IS NULL;
"""

_GUARDS = """
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE FUNCTION guard_lease() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
            IS DISTINCT FROM (OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date) THEN
        PERFORM refuse(OLD.source, OLD.query_name, OLD.customer_id, OLD.logical_date, 'a lease keeps its key');
    ELSIF NEW.dagster_run_id <> OLD.dagster_run_id AND EXISTS (
            SELECT FROM run_lease AS held
            WHERE held.dagster_run_id = OLD.dagster_run_id AND held.lease_until > statement_timestamp()) THEN
        PERFORM refuse(OLD.source, OLD.query_name, OLD.customer_id, OLD.logical_date,
            format('run %s has it, and lives', OLD.dagster_run_id));
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_lease BEFORE UPDATE ON partition_lease
    FOR EACH ROW EXECUTE FUNCTION guard_lease();
"""


def upgrade() -> None:
    for statements in (_SCHEMA, _GUARDS):
        # Not op.execute, which would take the colons and per cent signs of PL/pgSQL for its own.
        op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})
