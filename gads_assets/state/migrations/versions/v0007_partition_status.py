"""What Dagster's events were folded into: a row a partition of an asset, and how far the fold has come.

Readers see `partition_status`, which has exactly the columns of ADR-026.
"""

from alembic import op

revision = "0007"
down_revision = "0006"

_SCHEMA = """
CREATE TABLE folded_status (
    tenant_id text NOT NULL,
    workspace_id text NOT NULL,
    asset_key text NOT NULL,
    partition_key text NOT NULL,
    customer_id text NOT NULL,
    logical_date date,
    last_materialization_run_id text,
    last_materialization_at timestamptz,
    last_materialization_code_version text,
    content_at timestamptz,
    last_attempt_run_id text NOT NULL,
    last_attempt_at timestamptz NOT NULL,
    last_attempt_outcome text NOT NULL,
    stale_since timestamptz,
    stale_reason_code text,
    row_version text NOT NULL,
    materialization_event bigint,
    attempt_event bigint NOT NULL,
    upstream_event bigint,
    upstream_changed_at timestamptz,
    CONSTRAINT folded_status_pkey PRIMARY KEY (tenant_id, workspace_id, asset_key, partition_key),
    CONSTRAINT folded_status_tenant_id_check CHECK (tenant_id <> ''),
    CONSTRAINT folded_status_workspace_id_check CHECK (workspace_id <> ''),
    CONSTRAINT folded_status_asset_key_check CHECK (asset_key <> ''),
    CONSTRAINT folded_status_customer_id_check CHECK (customer_id ~ '^[0-9]{10}$'),
    CONSTRAINT folded_status_partition_key_check CHECK (starts_with(partition_key, customer_id)),
    CONSTRAINT folded_status_materialization_check CHECK (
        num_nonnulls(last_materialization_run_id, last_materialization_at, content_at, materialization_event) IN (0, 4)
        AND (materialization_event IS NOT NULL OR last_materialization_code_version IS NULL)),
    CONSTRAINT folded_status_outcome_check CHECK (last_attempt_outcome IN ('SUCCEEDED', 'FAILED', 'CANCELLED')),
    CONSTRAINT folded_status_order_check CHECK (
        attempt_event >= materialization_event AND upstream_event > materialization_event),
    CONSTRAINT folded_status_upstream_check CHECK (
        num_nonnulls(upstream_event, upstream_changed_at) IN (0, 2)
        AND (upstream_event IS NULL OR materialization_event IS NOT NULL)),
    CONSTRAINT folded_status_stale_check CHECK ((stale_since IS NULL) = (stale_reason_code IS NULL)),
    CONSTRAINT folded_status_stale_reason_code_check CHECK (
        stale_reason_code IN ('FRESHNESS_POLICY', 'UPSTREAM_CHANGED', 'CODE_CHANGED')),
    CONSTRAINT folded_status_row_version_check CHECK (length(row_version) = 26)
);

CREATE TABLE status_cursor (
    tenant_id text NOT NULL,
    workspace_id text NOT NULL,
    folded_until bigint NOT NULL,
    horizon bigint,
    horizon_at timestamptz,
    last_change text,
    last_end bigint NOT NULL DEFAULT 0,
    CONSTRAINT status_cursor_pkey PRIMARY KEY (tenant_id, workspace_id),
    CONSTRAINT status_cursor_folded_until_check CHECK (folded_until >= 0),
    CONSTRAINT status_cursor_horizon_check CHECK (
        num_nonnulls(horizon, horizon_at) IN (0, 2) AND (horizon IS NULL OR horizon > folded_until))
);

CREATE TABLE asset_code (
    tenant_id text NOT NULL,
    workspace_id text NOT NULL,
    asset_key text NOT NULL,
    code_version text NOT NULL,
    since timestamptz NOT NULL,
    CONSTRAINT asset_code_pkey PRIMARY KEY (tenant_id, workspace_id, asset_key),
    CONSTRAINT asset_code_code_version_check CHECK (code_version <> '')
);
"""

_VIEW = """
CREATE VIEW partition_status AS
SELECT tenant_id, workspace_id, asset_key, partition_key,
    last_materialization_run_id, last_materialization_at, last_materialization_code_version,
    last_attempt_run_id, last_attempt_at, last_attempt_outcome, stale_since, stale_reason_code,
    jsonb_strip_nulls(jsonb_build_object('customer_id', customer_id, 'logical_date', logical_date)) AS partition_values,
    row_version
FROM folded_status;
"""


def upgrade() -> None:
    for statements in (_SCHEMA, _VIEW):
        op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})
