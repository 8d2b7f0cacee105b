"""The declared schema. Migrations must end in exactly this; a test compares the two catalogs.

What a constraint can make impossible is impossible here; what needs more than the row is in guards.sql. What readers
see of the folded status is in views.sql.
"""

from pathlib import Path

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Date,
    DateTime,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Sequence,
    Table,
    Text,
    UniqueConstraint,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from gads_assets.state import control_tables as _control_tables  # noqa: F401  # registers its tables beside these
from gads_assets.state.declaring import KEY_COLUMNS, ULID, check, key_checks, key_columns, metadata

__all__ = ["KEY_COLUMNS", "metadata"]

VERSION_TABLE = "gads_alembic_version"  # Alembic's own, beside these
run_seq = Sequence("run_seq", metadata=metadata)


def _belongs_to_a_state() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(KEY_COLUMNS, [f"partition_state.{name}" for name in KEY_COLUMNS])


partition_state = Table(
    "partition_state",
    metadata,
    *key_columns(),
    Column("status", Text, nullable=False),
    Column("current_run_id", Text),
    Column("schema_version", Text),
    Column("record_count", BigInteger),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Column("error_message", Text),
    Column("attempt_count", Integer, nullable=False, server_default="0"),
    Column("version", BigInteger, nullable=False),
    Column("current_run_seq", BigInteger),
    PrimaryKeyConstraint(*KEY_COLUMNS),
    *key_checks(),
    check("status", "status IN ('pending', 'success', 'failed')"),
    check("current_run_id", f"current_run_id ~ {ULID}"),
    check("authority", "(current_run_id IS NULL) = (current_run_seq IS NULL)"),
    check(
        "success",
        "status <> 'success' OR (current_run_id IS NOT NULL AND schema_version IS NOT NULL "
        "AND record_count IS NOT NULL AND error_message IS NULL)",
    ),
    check("failed", "status <> 'failed' OR error_message IS NOT NULL"),
    check("pending", "status <> 'pending' OR error_message IS NULL"),
    check("texts", "error_message <> '' AND schema_version <> ''"),
    check("judged", "status = 'pending' OR attempt_count >= 1"),
    check("counts", "record_count >= 0 AND attempt_count >= 0 AND current_run_seq >= 1 AND version >= 1"),
    # With the customer, so that a lookup by key is as good on this index as on the primary key: without statistics
    # PostgreSQL may choose either.
    Index("partition_state_by_day", "source", "query_name", "logical_date", "customer_id"),
)

partition_attempt = Table(
    "partition_attempt",
    metadata,
    Column("validation_id", Text, nullable=False),
    *key_columns(),
    Column("run_id", Text, nullable=False),
    Column("run_seq", BigInteger, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("attempt_number", Integer, nullable=False),
    Column("error_message", Text),
    Column("content_digest", Text),
    Column("record_count", BigInteger, nullable=False),
    Column("schema_version", Text, nullable=False),
    Column("rule_results", JSONB, nullable=False),
    Column("state_version", BigInteger, nullable=False),
    Column("dagster_run_id", Text),
    Column("judged_at", DateTime(timezone=True), nullable=False),
    Column("spend_micros", BigInteger),
    Column("comparable_spend_micros", BigInteger),
    Column("seal_sha256", Text),
    Column("known_run_seq", BigInteger),
    PrimaryKeyConstraint("validation_id"),
    UniqueConstraint(*KEY_COLUMNS, "attempt_number", name="partition_attempt_number"),
    _belongs_to_a_state(),
    check("run_id", f"run_id ~ {ULID}"),
    check("outcome", "outcome IN ('accepted', 'rejected', 'superseded', 'demoted')"),
    check("error_message", "(error_message IS NOT NULL) = (outcome IN ('rejected', 'demoted'))"),
    check("content_digest", "content_digest IS NOT NULL OR outcome IN ('rejected', 'demoted')"),
    check("counts", "run_seq >= 1 AND attempt_number >= 1 AND record_count >= 0 AND state_version >= 1"),
    # Not asked of every acceptance: before version 0003 none had it.
    check("seal_sha256", "seal_sha256 ~ '^[0-9a-f]{64}$'"),
    check("spend", "spend_micros >= 0 AND comparable_spend_micros >= 0"),
    check("texts", "validation_id <> '' AND error_message <> '' AND content_digest <> '' AND schema_version <> ''"),
    check("rule_results", "jsonb_typeof(rule_results) = 'array'"),
    Index("partition_attempt_judged_at", "judged_at"),
    Index("partition_attempt_rejected", "judged_at", postgresql_where=text("outcome IN ('rejected', 'demoted')")),
)

extraction_attempt = Table(
    "extraction_attempt",
    metadata,
    *key_columns(),
    Column("run_id", Text, nullable=False),
    Column("run_seq", BigInteger, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("error_class", Text),
    Column("error_message", Text),
    Column("started_at", DateTime(timezone=True), nullable=False),
    Column("finished_at", DateTime(timezone=True), nullable=False),
    Column("dagster_run_id", Text),
    Column("retry_at", DateTime(timezone=True)),
    PrimaryKeyConstraint(*KEY_COLUMNS, "run_id"),
    *key_checks(),
    check("run_id", f"run_id ~ {ULID}"),
    check("run_seq", "run_seq >= 1"),
    check("outcome", "outcome IN ('sealed', 'failed')"),
    check(
        "error",
        "(error_class IS NOT NULL) = (outcome = 'failed') AND (error_message IS NOT NULL) = (outcome = 'failed')",
    ),
    check("times", "finished_at >= started_at"),
    check("retry_at", "retry_at IS NULL OR outcome = 'failed'"),
    Index("extraction_attempt_finished_at", "finished_at"),
    Index("extraction_attempt_failed", "finished_at", postgresql_where=text("outcome = 'failed'")),
)

load_record = Table(
    "load_record",
    metadata,
    *key_columns(),
    Column("run_id", Text, nullable=False),
    Column("schema_version", Text, nullable=False),
    Column("record_count", BigInteger, nullable=False),
    Column("content_digest", Text, nullable=False),
    Column("stage_id", Text, nullable=False),
    Column("pointer_version", BigInteger, nullable=False),
    Column("loaded_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint(*KEY_COLUMNS, "run_id", "schema_version"),
    *key_checks(),
    check("run_id", f"run_id ~ {ULID}"),
    check("counts", "record_count >= 0 AND pointer_version >= 0"),
)

demotion = Table(
    "demotion",
    metadata,
    *key_columns(),
    Column("run_id", Text, nullable=False),
    Column("state_version", BigInteger, nullable=False),
    Column("validation_id", Text, nullable=False),
    Column("error_message", Text, nullable=False),
    Column("started_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint(*KEY_COLUMNS),
    _belongs_to_a_state(),
    ForeignKeyConstraint(["validation_id"], ["partition_attempt.validation_id"]),
)

override_log = Table(
    "override_log",
    metadata,
    Column("override_id", Text, nullable=False),
    Column("action", Text, nullable=False),
    *key_columns(),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("state_version", BigInteger),
    Column("logged_at", DateTime(timezone=True), nullable=False),
    Column("version_floor", BigInteger),
    Column("run_id", Text),
    Column("change", Text),
    PrimaryKeyConstraint("override_id"),
    UniqueConstraint(*KEY_COLUMNS, "state_version", name="override_log_state_version"),
    UniqueConstraint(*KEY_COLUMNS, "version_floor", name="override_log_version_floor"),
    *key_checks(),
    check("override_id", f"override_id ~ {ULID}"),
    check("action", "action IN ('retry', 'revalidate', 'terminal', 'clear', 'backfill', 'adopt')"),
    check("actor", "btrim(actor) <> ''"),
    check("reason", "btrim(reason) <> ''"),
    check("state_version", "state_version >= 1"),
    # Far above any count of changes, and far below where the versions that follow would run out of numbers.
    check("version_floor", "version_floor BETWEEN 1 AND 1000000000000000"),
    check("run_id", f"run_id ~ {ULID}"),
    check("change", "change <> ''"),
    check(
        "adoption",
        "num_nonnulls(version_floor, run_id) = CASE action WHEN 'adopt' THEN 2 ELSE 0 END "
        "AND (action <> 'adopt' OR state_version IS NULL)",
    ),
)

customer = Table(
    "customer",
    metadata,
    Column("customer_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("time_zone", Text, nullable=False),
    Column("currency", Text, nullable=False),
    Column("login_customer_id", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("status", Text, nullable=False, server_default="active"),
    Column("added_at", DateTime(timezone=True), nullable=False),
    Column("login_path", ARRAY(Text), nullable=False, server_default="{}"),
    Column("closed_at", DateTime(timezone=True)),
    Column("closed_reason", Text),
    PrimaryKeyConstraint("customer_id"),
    check("customer_id", "customer_id ~ '^[0-9]{10}$'"),
    check("login_customer_id", "login_customer_id ~ '^[0-9]{10}$'"),
    check("origin", "origin IN ('emulator', 'google')"),
    check("time_zone", "timezone(time_zone, TIMESTAMPTZ 'epoch') IS NOT NULL"),
    check("status", "status IN ('active', 'inactive')"),
    check("login_path", "array_to_string(login_path, ',') ~ '^([0-9]{10}(,[0-9]{10})*)?$'"),
    check("login", "login_path[1] = login_customer_id"),
    check(
        "closed",
        "(closed_at IS NOT NULL) = (status = 'inactive') AND (closed_reason IS NOT NULL) = (status = 'inactive')",
    ),
    check("closed_reason", "closed_reason <> ''"),
)


def _budget_columns() -> list[Column[str]]:
    return [Column("origin", Text, nullable=False), Column("token_scope", Text, nullable=False)]


def _budget_checks() -> list[CheckConstraint]:
    return [check("origin", "origin IN ('emulator', 'google')"), check("token_scope", "token_scope <> ''")]


api_operations = Table(
    "api_operations",
    metadata,
    *_budget_columns(),
    Column("day", Date, nullable=False),
    Column("used", BigInteger, nullable=False),
    PrimaryKeyConstraint("origin", "token_scope", "day"),
    *_budget_checks(),
    check("used", "used >= 1"),
)

api_pause = Table(
    "api_pause",
    metadata,
    *_budget_columns(),
    Column("paused_until", DateTime(timezone=True), nullable=False),
    Column("reason", Text, nullable=False),
    PrimaryKeyConstraint("origin", "token_scope"),
    *_budget_checks(),
    check("reason", "reason <> ''"),
)


def _whose_columns() -> list[Column[str]]:
    return [Column("tenant_id", Text, nullable=False), Column("workspace_id", Text, nullable=False)]


# Beside the columns of ADR-026: where in Dagster's log what the row says comes from, and when its content was produced.
folded_status = Table(
    "folded_status",
    metadata,
    *_whose_columns(),
    Column("asset_key", Text, nullable=False),
    Column("partition_key", Text, nullable=False),
    Column("customer_id", Text, nullable=False),
    Column("logical_date", Date),
    Column("last_materialization_run_id", Text),
    Column("last_materialization_at", DateTime(timezone=True)),
    Column("last_materialization_code_version", Text),
    Column("content_at", DateTime(timezone=True)),
    Column("last_attempt_run_id", Text, nullable=False),
    Column("last_attempt_at", DateTime(timezone=True), nullable=False),
    Column("last_attempt_outcome", Text, nullable=False),
    Column("stale_since", DateTime(timezone=True)),
    Column("stale_reason_code", Text),
    Column("row_version", Text, nullable=False),
    Column("materialization_event", BigInteger),
    Column("attempt_event", BigInteger, nullable=False),
    Column("upstream_event", BigInteger),
    Column("upstream_changed_at", DateTime(timezone=True)),
    PrimaryKeyConstraint("tenant_id", "workspace_id", "asset_key", "partition_key"),
    check("tenant_id", "tenant_id <> ''"),
    check("workspace_id", "workspace_id <> ''"),
    check("asset_key", "asset_key <> ''"),
    check("customer_id", "customer_id ~ '^[0-9]{10}$'"),
    check("partition_key", "starts_with(partition_key, customer_id)"),
    check(
        "materialization",
        "num_nonnulls(last_materialization_run_id, last_materialization_at, content_at, materialization_event) "
        "IN (0, 4) AND (materialization_event IS NOT NULL OR last_materialization_code_version IS NULL)",
    ),
    check("outcome", "last_attempt_outcome IN ('SUCCEEDED', 'FAILED', 'CANCELLED')"),
    check("order", "attempt_event >= materialization_event AND upstream_event > materialization_event"),
    check(
        "upstream",
        "num_nonnulls(upstream_event, upstream_changed_at) IN (0, 2) "
        "AND (upstream_event IS NULL OR materialization_event IS NOT NULL)",
    ),
    check("stale", "(stale_since IS NULL) = (stale_reason_code IS NULL)"),
    check("stale_reason_code", "stale_reason_code IN ('FRESHNESS_POLICY', 'UPSTREAM_CHANGED', 'CODE_CHANGED')"),
    check("row_version", "length(row_version) = 26"),
)

# All up to `folded_until` is folded for good. After it there may be numbers of events that are still being written;
# once `horizon_at` is long past, none is left up to `horizon`. `last_change` tells readers that there is news: a row
# changed, or the run ended whose end is `last_end`.
status_cursor = Table(
    "status_cursor",
    metadata,
    *_whose_columns(),
    Column("folded_until", BigInteger, nullable=False),
    Column("horizon", BigInteger),
    Column("horizon_at", DateTime(timezone=True)),
    Column("last_change", Text),
    Column("last_end", BigInteger, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("tenant_id", "workspace_id"),
    check("folded_until", "folded_until >= 0"),
    check("horizon", "num_nonnulls(horizon, horizon_at) IN (0, 2) AND (horizon IS NULL OR horizon > folded_until)"),
)

asset_code = Table(
    "asset_code",
    metadata,
    *_whose_columns(),
    Column("asset_key", Text, nullable=False),
    Column("code_version", Text, nullable=False),
    Column("since", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "workspace_id", "asset_key"),
    check("code_version", "code_version <> ''"),
)


@event.listens_for(metadata, "after_create")
def _create_guards_and_views(_metadata: MetaData, connection: Connection, **_: object) -> None:
    for name in ("guards.sql", "views.sql"):
        statements = Path(__file__).with_name(name).read_text(encoding="utf-8")
        # Not text(), which would take the colons and per cent signs of PL/pgSQL for its own.
        connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
