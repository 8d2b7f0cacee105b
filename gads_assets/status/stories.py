"""What the ledger has on one partition: its state, what was tried, what was loaded, and what comes next."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Engine, RowMapping, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.state.connection import transaction
from gads_assets.state.rows import key_row

_MOST_ATTEMPTS: Final = 50

_OF_THE_KEY: Final = (
    "(source, customer_id, query_name, logical_date) = (:source, :customer_id, :query_name, :logical_date)"
)

_STATE = text(f"""
    SELECT status, current_run_id, version, attempt_count, record_count, schema_version, error_message, updated_at
    FROM partition_state WHERE {_OF_THE_KEY}
""")

_ATTEMPTS = text(f"""
    SELECT 'extraction' AS kind, finished_at AS at, run_id, dagster_run_id, outcome, error_class, error_message
    FROM extraction_attempt WHERE {_OF_THE_KEY}
    UNION ALL
    SELECT 'verdict', judged_at, run_id, dagster_run_id, outcome, NULL, error_message
    FROM partition_attempt WHERE {_OF_THE_KEY}
    ORDER BY at DESC LIMIT :most
""")

_LOAD_RECORD = text(f"""
    SELECT run_id, record_count, loaded_at, pointer_version FROM load_record WHERE {_OF_THE_KEY}
    ORDER BY loaded_at DESC LIMIT 1
""")

# What is scheduled, or why nothing more is; else when the last extraction, if it failed, may be worth another.
_NEXT = text(f"""
    SELECT at, why FROM (
        SELECT 1 AS rank, next_run_at AS at, CASE disposition WHEN 'due' THEN purpose || ', ' || backoff_strategy
            ELSE disposition || ': ' || reason END AS why
        FROM retry_schedule WHERE {_OF_THE_KEY}
        UNION ALL
        SELECT 2, retry_at, error_class FROM (
            SELECT retry_at, error_class FROM extraction_attempt WHERE {_OF_THE_KEY} ORDER BY run_seq DESC LIMIT 1
        ) AS newest WHERE retry_at IS NOT NULL
    ) AS next ORDER BY rank LIMIT 1
""")


@dataclass(frozen=True, kw_only=True)
class Story:
    """Rows of the ledger by column; attempts newest first. The next retry of what waits for an operator has no time."""

    state: RowMapping | None
    attempts: tuple[RowMapping, ...]
    load_record: RowMapping | None
    next_retry: RowMapping | None


def read_story(engine: Engine, key: PartitionKey) -> Story:
    asked: Mapping[str, Any] = {**key_row(key), "most": _MOST_ATTEMPTS}
    with transaction(engine) as connection:
        return Story(
            state=connection.execute(_STATE, asked).mappings().first(),
            attempts=tuple(connection.execute(_ATTEMPTS, asked).mappings()),
            load_record=connection.execute(_LOAD_RECORD, asked).mappings().first(),
            next_retry=connection.execute(_NEXT, asked).mappings().first(),
        )
