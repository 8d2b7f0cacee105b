"""The digest of a run's seal with every judgement, so that a later change of metadata.json is found."""

from alembic import op

revision = "0003"
down_revision = "0002"

_SCHEMA = """
ALTER TABLE partition_attempt
    ADD COLUMN seal_sha256 text,
    ADD CONSTRAINT partition_attempt_seal_sha256_check CHECK (seal_sha256 ~ '^[0-9a-f]{64}$');
"""

_GUARDS = """
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION guard_attempt() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM refuse(a.source, a.query_name, a.customer_id, a.logical_date,
        format('attempt %s at version %s is not the one that its state counts', a.attempt_number, a.state_version))
    FROM recorded AS a LEFT JOIN partition_state AS s USING (source, customer_id, query_name, logical_date)
    WHERE (s.attempt_count, s.version) IS DISTINCT FROM (a.attempt_number, a.state_version);
    PERFORM refuse(a.source, a.query_name, a.customer_id, a.logical_date,
        format('run %s was extracted with run_seq %s, not %s', a.run_id, e.run_seq, a.run_seq))
    FROM recorded AS a JOIN extraction_attempt AS e USING (source, customer_id, query_name, logical_date, run_id)
    WHERE e.run_seq <> a.run_seq;
    PERFORM refuse(a.source, a.query_name, a.customer_id, a.logical_date,
        CASE WHEN earlier.run_seq <> a.run_seq
            THEN format('run %s was judged with run_seq %s, not %s', a.run_id, earlier.run_seq, a.run_seq)
            ELSE format('run %s was accepted with other content, and a sealed run does not change', a.run_id)
        END)
    FROM recorded AS a JOIN partition_attempt AS earlier USING (source, customer_id, query_name, logical_date, run_id)
    WHERE earlier.attempt_number < a.attempt_number
        AND (earlier.run_seq <> a.run_seq
            OR (earlier.outcome, a.outcome) = ('accepted', 'accepted')
                AND ((earlier.schema_version, earlier.record_count, earlier.content_digest)
                        <> (a.schema_version, a.record_count, a.content_digest)
                    OR earlier.seal_sha256 <> a.seal_sha256));
    RETURN NULL;
END
$$;
"""


def upgrade() -> None:
    for statements in (_SCHEMA, _GUARDS):
        # Not op.execute, which would take the colons and per cent signs of PL/pgSQL for its own.
        op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})
