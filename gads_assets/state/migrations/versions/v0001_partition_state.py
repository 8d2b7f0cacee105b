"""Partition state, its attempts, extractions, loads, demotions and customers."""

from alembic import op

revision = "0001"
down_revision = None

_SCHEMA = """
CREATE SEQUENCE run_seq;

CREATE TABLE partition_state (
    source text NOT NULL,
    customer_id text NOT NULL,
    query_name text NOT NULL,
    logical_date date NOT NULL,
    status text NOT NULL,
    current_run_id text,
    schema_version text,
    record_count bigint,
    updated_at timestamptz NOT NULL,
    error_message text,
    attempt_count integer NOT NULL DEFAULT 0,
    version bigint NOT NULL,
    current_run_seq bigint,
    CONSTRAINT partition_state_pkey PRIMARY KEY (source, customer_id, query_name, logical_date),
    CONSTRAINT partition_state_source_check CHECK (source <> ''),
    CONSTRAINT partition_state_customer_id_check CHECK (customer_id ~ '^[0-9]{10}$'),
    CONSTRAINT partition_state_query_name_check CHECK (query_name <> ''),
    CONSTRAINT partition_state_status_check CHECK (status IN ('pending', 'success', 'failed')),
    CONSTRAINT partition_state_current_run_id_check CHECK (current_run_id ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$'),
    CONSTRAINT partition_state_authority_check CHECK ((current_run_id IS NULL) = (current_run_seq IS NULL)),
    CONSTRAINT partition_state_success_check CHECK (
        status <> 'success' OR (current_run_id IS NOT NULL AND schema_version IS NOT NULL
        AND record_count IS NOT NULL AND error_message IS NULL)),
    CONSTRAINT partition_state_failed_check CHECK (status <> 'failed' OR error_message IS NOT NULL),
    CONSTRAINT partition_state_judged_check CHECK (status = 'pending' OR attempt_count >= 1),
    CONSTRAINT partition_state_counts_check CHECK (
        record_count >= 0 AND attempt_count >= 0 AND current_run_seq >= 1 AND version >= 1)
);
CREATE INDEX partition_state_by_day ON partition_state (source, query_name, logical_date);

CREATE TABLE partition_attempt (
    validation_id text NOT NULL,
    source text NOT NULL,
    customer_id text NOT NULL,
    query_name text NOT NULL,
    logical_date date NOT NULL,
    run_id text NOT NULL,
    run_seq bigint NOT NULL,
    outcome text NOT NULL,
    attempt_number integer NOT NULL,
    error_message text,
    content_digest text,
    record_count bigint NOT NULL,
    schema_version text NOT NULL,
    rule_results jsonb NOT NULL,
    state_version bigint NOT NULL,
    dagster_run_id text,
    judged_at timestamptz NOT NULL,
    CONSTRAINT partition_attempt_pkey PRIMARY KEY (validation_id),
    CONSTRAINT partition_attempt_number UNIQUE (source, customer_id, query_name, logical_date, attempt_number),
    CONSTRAINT partition_attempt_partition_state_fkey FOREIGN KEY (source, customer_id, query_name, logical_date)
        REFERENCES partition_state (source, customer_id, query_name, logical_date),
    CONSTRAINT partition_attempt_run_id_check CHECK (run_id ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$'),
    CONSTRAINT partition_attempt_outcome_check CHECK (
        outcome IN ('accepted', 'rejected', 'superseded', 'demoted')),
    CONSTRAINT partition_attempt_error_message_check CHECK (
        (error_message IS NOT NULL) = (outcome IN ('rejected', 'demoted'))),
    CONSTRAINT partition_attempt_content_digest_check CHECK (
        content_digest IS NOT NULL OR outcome IN ('rejected', 'demoted')),
    CONSTRAINT partition_attempt_counts_check CHECK (
        run_seq >= 1 AND attempt_number >= 1 AND record_count >= 0 AND state_version >= 1)
);

CREATE TABLE extraction_attempt (
    source text NOT NULL,
    customer_id text NOT NULL,
    query_name text NOT NULL,
    logical_date date NOT NULL,
    run_id text NOT NULL,
    run_seq bigint NOT NULL,
    outcome text NOT NULL,
    error_class text,
    error_message text,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    dagster_run_id text,
    CONSTRAINT extraction_attempt_pkey PRIMARY KEY (source, customer_id, query_name, logical_date, run_id),
    CONSTRAINT extraction_attempt_source_check CHECK (source <> ''),
    CONSTRAINT extraction_attempt_customer_id_check CHECK (customer_id ~ '^[0-9]{10}$'),
    CONSTRAINT extraction_attempt_query_name_check CHECK (query_name <> ''),
    CONSTRAINT extraction_attempt_run_id_check CHECK (run_id ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$'),
    CONSTRAINT extraction_attempt_run_seq_check CHECK (run_seq >= 1),
    CONSTRAINT extraction_attempt_outcome_check CHECK (outcome IN ('sealed', 'failed')),
    CONSTRAINT extraction_attempt_error_check CHECK (
        (error_class IS NOT NULL) = (outcome = 'failed') AND (error_message IS NOT NULL) = (outcome = 'failed')),
    CONSTRAINT extraction_attempt_times_check CHECK (finished_at >= started_at)
);

CREATE TABLE load_record (
    source text NOT NULL,
    customer_id text NOT NULL,
    query_name text NOT NULL,
    logical_date date NOT NULL,
    run_id text NOT NULL,
    schema_version text NOT NULL,
    record_count bigint NOT NULL,
    content_digest text NOT NULL,
    stage_id text NOT NULL,
    pointer_version bigint NOT NULL,
    loaded_at timestamptz NOT NULL,
    CONSTRAINT load_record_pkey PRIMARY KEY (source, customer_id, query_name, logical_date, run_id, schema_version),
    CONSTRAINT load_record_source_check CHECK (source <> ''),
    CONSTRAINT load_record_customer_id_check CHECK (customer_id ~ '^[0-9]{10}$'),
    CONSTRAINT load_record_query_name_check CHECK (query_name <> ''),
    CONSTRAINT load_record_run_id_check CHECK (run_id ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$'),
    CONSTRAINT load_record_counts_check CHECK (record_count >= 0 AND pointer_version >= 0)
);

CREATE TABLE demotion (
    source text NOT NULL,
    customer_id text NOT NULL,
    query_name text NOT NULL,
    logical_date date NOT NULL,
    run_id text NOT NULL,
    state_version bigint NOT NULL,
    validation_id text NOT NULL,
    error_message text NOT NULL,
    started_at timestamptz NOT NULL,
    CONSTRAINT demotion_pkey PRIMARY KEY (source, customer_id, query_name, logical_date),
    CONSTRAINT demotion_partition_state_fkey FOREIGN KEY (source, customer_id, query_name, logical_date)
        REFERENCES partition_state (source, customer_id, query_name, logical_date),
    CONSTRAINT demotion_partition_attempt_fkey FOREIGN KEY (validation_id)
        REFERENCES partition_attempt (validation_id)
);

CREATE TABLE customer (
    customer_id text NOT NULL,
    name text NOT NULL,
    time_zone text NOT NULL,
    currency text NOT NULL,
    login_customer_id text NOT NULL,
    origin text NOT NULL,
    status text NOT NULL DEFAULT 'active',
    added_at timestamptz NOT NULL,
    CONSTRAINT customer_pkey PRIMARY KEY (customer_id),
    CONSTRAINT customer_customer_id_check CHECK (customer_id ~ '^[0-9]{10}$'),
    CONSTRAINT customer_login_customer_id_check CHECK (login_customer_id ~ '^[0-9]{10}$'),
    CONSTRAINT customer_origin_check CHECK (origin IN ('emulator', 'google')),
    CONSTRAINT customer_status_check CHECK (status IN ('active', 'inactive'))
);
"""

_GUARDS = """
CREATE FUNCTION guard_partition_state() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    partition text := format('%s/%s %s|%s', OLD.source, OLD.query_name, OLD.customer_id, OLD.logical_date);
    rule text;
BEGIN
    IF TG_OP = 'DELETE' THEN
        rule := 'a state row is never deleted';
    ELSIF (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
            IS DISTINCT FROM (OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date) THEN
        rule := 'a state row keeps its key';
    ELSIF NEW.version <> OLD.version + 1 THEN
        rule := format('version rises by exactly one, not from %s to %s', OLD.version, NEW.version);
    ELSIF NEW.attempt_count < OLD.attempt_count THEN
        rule := 'attempt_count never falls';
    ELSIF NEW.current_run_id IS DISTINCT FROM OLD.current_run_id AND NEW.status <> 'success' THEN
        rule := 'only a success moves current_run_id';
    ELSIF NEW.current_run_id IS DISTINCT FROM OLD.current_run_id AND NEW.current_run_seq <= OLD.current_run_seq THEN
        rule := 'authority moves only to a newer run';
    ELSIF NEW.current_run_id IS NOT DISTINCT FROM OLD.current_run_id
            AND NEW.current_run_seq IS DISTINCT FROM OLD.current_run_seq THEN
        rule := 'a run keeps its run_seq';
    ELSIF OLD.status <> 'pending' AND NEW.status = 'pending' THEN
        rule := 'only the control plane returns a partition to pending';
    ELSIF OLD.status = 'success' AND NEW.status = 'failed' AND NOT EXISTS (
            SELECT FROM demotion AS open
            WHERE (open.source, open.customer_id, open.query_name, open.logical_date)
                    = (OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date)
                AND open.run_id = OLD.current_run_id) THEN
        rule := 'a success fails only through a demotion of its run';
    ELSE
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '%: %', partition, rule USING ERRCODE = 'GADS1';
END
$$;

CREATE TRIGGER guard_partition_state BEFORE UPDATE OR DELETE ON partition_state
    FOR EACH ROW EXECUTE FUNCTION guard_partition_state();

CREATE FUNCTION guard_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: what is recorded stays as it was written', TG_TABLE_NAME USING ERRCODE = 'GADS1';
END
$$;

CREATE TRIGGER guard_history BEFORE UPDATE OR DELETE ON partition_attempt
    FOR EACH ROW EXECUTE FUNCTION guard_history();

CREATE TRIGGER guard_history BEFORE UPDATE ON extraction_attempt
    FOR EACH ROW EXECUTE FUNCTION guard_history();

CREATE TRIGGER guard_history BEFORE UPDATE ON load_record
    FOR EACH ROW EXECUTE FUNCTION guard_history();
"""


def upgrade() -> None:
    for statements in (_SCHEMA, _GUARDS):
        # Not op.execute, which would take the colons and per cent signs of PL/pgSQL for its own.
        op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})
