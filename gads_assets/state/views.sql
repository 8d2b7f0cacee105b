-- What readers may rely on, whatever the tables behind it keep beside.

-- ADR-026's row of each partition that was ever attempted: these columns, in this order.
CREATE VIEW partition_status AS
SELECT tenant_id, workspace_id, asset_key, partition_key,
    last_materialization_run_id, last_materialization_at, last_materialization_code_version,
    last_attempt_run_id, last_attempt_at, last_attempt_outcome, stale_since, stale_reason_code,
    jsonb_strip_nulls(jsonb_build_object('customer_id', customer_id, 'logical_date', logical_date)) AS partition_values,
    row_version
FROM folded_status;
