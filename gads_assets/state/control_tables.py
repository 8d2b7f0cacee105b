"""The declared tables of the control plane: what is to run, what runs, and what somebody has to hear of.

None of them is history. What they lose is decided anew, or found again by the sweep; but a lease that is lost lets two
runs at one partition, so the database keeps those itself.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Date,
    DateTime,
    ForeignKeyConstraint,
    Index,
    Integer,
    Interval,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from gads_assets.state.declaring import KEY_COLUMNS, ULID, check, key_checks, key_columns, metadata

# History that somebody asked for. How far it has come is told by the rows of the schedule that are left of it.
backfill = Table(
    "backfill",
    metadata,
    Column("backfill_id", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("queries", ARRAY(Text), nullable=False),
    Column("customer_ids", ARRAY(Text), nullable=False),
    Column("first_day", Date, nullable=False),
    Column("last_day", Date, nullable=False),
    Column("partitions", Integer, nullable=False),
    Column("operations", Integer, nullable=False),
    Column("taken_off", Integer, nullable=False, server_default=text("0")),
    Column("status", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("changed_by", Text, nullable=False),
    Column("changed_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("backfill_id"),
    check("backfill_id", f"backfill_id ~ {ULID}"),
    check("source", "source <> ''"),
    check("days", "first_day <= last_day"),
    check("counts", "partitions >= 1 AND operations >= 0 AND taken_off >= 0"),
    check("status", "status IN ('active', 'paused', 'cancelled')"),
    check("names", "btrim(created_by) <> '' AND btrim(changed_by) <> ''"),
)

# What the control plane means to do with a partition, and of those that it will not touch, why. A row goes when its
# partition is as it should be. `seen_*` is how much of the ledger the decision knew.
retry_schedule = Table(
    "retry_schedule",
    metadata,
    *key_columns(),
    Column("purpose", Text, nullable=False),
    Column("disposition", Text, nullable=False),
    Column("next_run_at", DateTime(timezone=True)),
    Column("backoff_strategy", Text, nullable=False),
    Column("reason", Text),
    Column("baseline_attempts", Integer, nullable=False, server_default=text("0")),
    Column("baseline_run_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("seen_attempts", Integer, nullable=False, server_default=text("0")),
    Column("seen_run_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("fruitless_runs", Integer, nullable=False, server_default=text("0")),
    Column("failing_since", DateTime(timezone=True)),
    Column("dispatches", Integer, nullable=False, server_default=text("0")),
    Column("override_id", Text),
    Column("backfill_id", Text),
    Column("batch_id", Text),
    Column("dispatched_at", DateTime(timezone=True)),
    Column("dagster_run_id", Text),
    Column("scheduled_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint(*KEY_COLUMNS),
    ForeignKeyConstraint(["override_id"], ["override_log.override_id"]),
    ForeignKeyConstraint(["backfill_id"], ["backfill.backfill_id"]),
    *key_checks(),
    check("purpose", "purpose IN ('fresh', 'retry', 'revalidate', 'restatement', 'backfill')"),
    check("disposition", "disposition IN ('due', 'terminal', 'blocked')"),
    check("next_run_at", "(next_run_at IS NOT NULL) = (disposition = 'due')"),
    check("reason", "(reason IS NOT NULL OR disposition = 'due') AND reason <> ''"),
    check("backoff_strategy", "backoff_strategy <> ''"),
    check("baseline", "baseline_attempts >= 0 AND baseline_run_seq >= 0"),
    check("seen", "seen_attempts >= 0 AND seen_run_seq >= 0 AND fruitless_runs >= 0 AND dispatches >= 0"),
    check("backfill", "purpose <> 'backfill' OR backfill_id IS NOT NULL"),
    check(
        "batch",
        "(batch_id IS NULL) = (dispatched_at IS NULL) AND (batch_id IS NULL OR disposition = 'due') "
        "AND (dagster_run_id IS NULL OR batch_id IS NOT NULL)",
    ),
    check("batch_id", f"batch_id ~ {ULID}"),
    Index(
        "retry_schedule_due",
        "next_run_at",
        postgresql_where=text("disposition = 'due' AND batch_id IS NULL"),
    ),
    Index("retry_schedule_batch", "batch_id", postgresql_where=text("batch_id IS NOT NULL")),
    Index("retry_schedule_backfill", "backfill_id", postgresql_where=text("backfill_id IS NOT NULL")),
)

# The newest day of an account that was scheduled for a query: what has opened since is due.
opened_day = Table(
    "opened_day",
    metadata,
    Column("source", Text, nullable=False),
    Column("query_name", Text, nullable=False),
    Column("customer_id", Text, nullable=False),
    Column("newest_day", Date, nullable=False),
    PrimaryKeyConstraint("source", "query_name", "customer_id"),
)

control_cursor = Table(
    "control_cursor",
    metadata,
    Column("source", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("reached_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("source", "name"),
    check("name", "name <> ''"),
)

# A run that lives says so again and again; once it has not for long enough, it is gone. What it has of partitions goes
# with it, and no partition can be had by two.
run_lease = Table(
    "run_lease",
    metadata,
    Column("dagster_run_id", Text, nullable=False),
    Column("lease_until", DateTime(timezone=True), nullable=False),
    Column("taken_at", DateTime(timezone=True), nullable=False),
    Column("lasts", Interval, nullable=False, server_default="00:00:30"),
    PrimaryKeyConstraint("dagster_run_id"),
    check("dagster_run_id", "dagster_run_id <> ''"),
)

partition_lease = Table(
    "partition_lease",
    metadata,
    *key_columns(),
    Column("dagster_run_id", Text, nullable=False),
    PrimaryKeyConstraint(*KEY_COLUMNS),
    ForeignKeyConstraint(["dagster_run_id"], ["run_lease.dagster_run_id"], ondelete="CASCADE"),
    *key_checks(),
    Index("partition_lease_of_run", "dagster_run_id"),
)

# One row a condition, from when it was first seen until it is over; `told_at` is when the webhook had it.
alert = Table(
    "alert",
    metadata,
    Column("alert_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    *key_columns(),
    Column("reason", Text, nullable=False),
    Column("raised_at", DateTime(timezone=True), nullable=False),
    Column("told_at", DateTime(timezone=True)),
    Column("over_at", DateTime(timezone=True)),
    PrimaryKeyConstraint("alert_id"),
    *key_checks(),
    check("alert_id", f"alert_id ~ {ULID}"),
    check("kind", "kind IN ('terminal', 'blocked', 'stale')"),
    check("reason", "reason <> ''"),
    Index("alert_open", "kind", *KEY_COLUMNS, unique=True, postgresql_where=text("over_at IS NULL")),
    Index("alert_untold", "raised_at", postgresql_where=text("told_at IS NULL AND over_at IS NULL")),
)
