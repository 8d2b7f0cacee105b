"""The Dagster instance of a home: its dagster.yaml, and what a plain `dagster` command needs in its environment."""

import os
import tempfile
from pathlib import Path
from typing import Final

from gads_assets.errors import SetupError
from gads_assets.settings import Settings
from gads_assets.state.connection import parse_database_url
from gads_assets.state.migration import DAGSTER_SCHEMA

STORAGE_VARIABLE: Final = "GADS_DAGSTER_POSTGRES_URL"
"""Where dagster.yaml looks for the database."""

_DAGSTER_YAML = f"""\
# Written by `gads env`; changes made here are overwritten.

# Runs, events and schedules, in the same database as partition state and in a schema of their own.
run_storage:
  module: dagster_postgres
  class: PostgresRunStorage
  config: &database
    postgres_url:
      env: {STORAGE_VARIABLE}
schedule_storage:
  module: dagster_postgres
  class: PostgresScheduleStorage
  config: *database
# Dagster's own would open a connection for every event.
event_log_storage:
  module: gads_assets.orchestration.dagster_internals
  class: KeptEventLog
  config: *database

# Each run brings its own Spark: more at once than this, and they only wait for each other.
run_coordinator:
  module: gads_assets.orchestration.queueing
  class: QueueWithOneHistory
  config:
    max_user_code_failure_retries: 2
    # A run that must wait for its pool is launched, and waits there: it is the runs that see which others were killed.
    block_op_concurrency_limited_runs:
      enabled: false
concurrency:
  runs:
    max_concurrent_runs: 2
    # History takes one place at most, whoever asked for it: the other is for what is more urgent. The queue tags what
    # Dagster's partition launcher asks for.
    tag_concurrency_limits:
      - key: gads/purpose
        value: backfill
        limit: 1
  # One step at a time extracts, of all runs together; it makes GADS_API_CALLS_AT_ONCE calls at once. And one at a time
  # judges or publishes with Spark, which has all cores then. For more:
  # dagster instance concurrency set google_ads_api 2
  # dagster instance concurrency set google_ads_spark 4
  pools:
    granularity: op
    default_limit: 1

# Without it a killed run process would stay "started" for ever, and keep its place in the queue.
run_monitoring:
  enabled: true
  start_timeout_seconds: 300
  cancel_timeout_seconds: 120
  poll_interval_seconds: 60
  free_slots_after_run_end_seconds: 300

telemetry:
  enabled: false
nux:
  enabled: false
"""


def write_dagster_home(dagster_home: Path) -> None:
    """Logs and artifacts of runs go below the folder too, by Dagster's own default. Never leaves half a file."""
    target = dagster_home / "dagster.yaml"
    try:
        dagster_home.mkdir(parents=True, exist_ok=True)
        if target.exists() and target.read_text(encoding="utf-8") == _DAGSTER_YAML:
            return
        descriptor, draft = tempfile.mkstemp(prefix=".dagster.yaml-", dir=dagster_home)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(_DAGSTER_YAML)
            Path(draft).replace(target)
        finally:
            Path(draft).unlink(missing_ok=True)
    except OSError as error:
        raise SetupError(
            f"{target} cannot be written ({error.strerror or error}); "
            "set GADS_HOME to a folder of yours on a disk with free space"
        ) from error


def dagster_environment(settings: Settings, database_url: str) -> dict[str, str]:
    """Beside the caller's GADS_* variables. `database_url` is that of a running database."""
    return {
        "GADS_HOME": str(settings.home),
        "DAGSTER_HOME": str(settings.dagster_home),
        **storage_environment(database_url),
        "SPARK_CONF_DIR": str(settings.spark_conf_dir),
        "GRPC_VERBOSITY": "ERROR",  # it remarks on every process that is started while a channel is open
        # Its handling of forks aborted one in forty children before they became Spark's JVM; none of ours stays a fork.
        "GRPC_ENABLE_FORK_SUPPORT": "0",
    }


def storage_environment(database_url: str) -> dict[str, str]:
    """What the instance itself looks for, when it first needs a storage and at every event."""
    return {
        STORAGE_VARIABLE: dagster_storage_url(database_url),
        "DAGSTER_EVENT_BATCH_SIZE": "500",  # materializations of a batch are then stored in a few statements
    }


def dagster_storage_url(database_url: str) -> str:
    """The same database as dagster-postgres takes it: psycopg 2 (it fails at NOTIFY on psycopg 3), and Dagster's
    tables in a schema of their own."""
    url = parse_database_url(database_url).set(drivername="postgresql+psycopg2")
    given = url.query.get("options", "")
    options = given if isinstance(given, str) else " ".join(given)
    return url.update_query_dict({"options": f"{options} -csearch_path={DAGSTER_SCHEMA}".strip()}).render_as_string(
        hide_password=False
    )
