"""When to try an extraction again, the operations that a day has used, and which accounts are closed since when."""

from alembic import op

revision = "0004"
down_revision = "0003"

_SCHEMA = """
ALTER TABLE extraction_attempt
    ADD COLUMN retry_at timestamptz,
    ADD CONSTRAINT extraction_attempt_retry_at_check CHECK (retry_at IS NULL OR outcome = 'failed');

CREATE TABLE api_operations (
    origin text NOT NULL,
    token_scope text NOT NULL,
    day date NOT NULL,
    used bigint NOT NULL,
    PRIMARY KEY (origin, token_scope, day),
    CONSTRAINT api_operations_origin_check CHECK (origin IN ('emulator', 'google')),
    CONSTRAINT api_operations_token_scope_check CHECK (token_scope <> ''),
    CONSTRAINT api_operations_used_check CHECK (used >= 1)
);

CREATE TABLE api_pause (
    origin text NOT NULL,
    token_scope text NOT NULL,
    paused_until timestamptz NOT NULL,
    reason text NOT NULL,
    PRIMARY KEY (origin, token_scope),
    CONSTRAINT api_pause_origin_check CHECK (origin IN ('emulator', 'google')),
    CONSTRAINT api_pause_token_scope_check CHECK (token_scope <> ''),
    CONSTRAINT api_pause_reason_check CHECK (reason <> '')
);

ALTER TABLE customer
    ADD COLUMN login_path text[] NOT NULL DEFAULT '{}',
    ADD COLUMN closed_at timestamptz,
    ADD COLUMN closed_reason text,
    ADD CONSTRAINT customer_login_path_check
        CHECK (array_to_string(login_path, ',') ~ '^([0-9]{10}(,[0-9]{10})*)?$'),
    ADD CONSTRAINT customer_login_check CHECK (login_path[1] = login_customer_id);
UPDATE customer SET closed_at = added_at, closed_reason = 'inactive before schema version 0004'
    WHERE status = 'inactive';
ALTER TABLE customer
    ADD CONSTRAINT customer_closed_check CHECK (
        (closed_at IS NOT NULL) = (status = 'inactive') AND (closed_reason IS NOT NULL) = (status = 'inactive')),
    ADD CONSTRAINT customer_closed_reason_check CHECK (closed_reason <> '');
"""

_GUARDS = """
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE FUNCTION guard_operations() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.used >= OLD.used
            AND (NEW.origin, NEW.token_scope, NEW.day) = (OLD.origin, OLD.token_scope, OLD.day) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'api_operations: what was used of % on % never falls', OLD.origin, OLD.day USING ERRCODE = 'GADS1';
END
$$;

CREATE TRIGGER guard_operations BEFORE UPDATE OR DELETE ON api_operations
    FOR EACH ROW EXECUTE FUNCTION guard_operations();

CREATE TRIGGER guard_ledger BEFORE TRUNCATE ON api_operations
    FOR EACH STATEMENT EXECUTE FUNCTION guard_ledger();
"""


def upgrade() -> None:
    for statements in (_SCHEMA, _GUARDS):
        # Not op.execute, which would take the colons and per cent signs of PL/pgSQL for its own.
        op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})
