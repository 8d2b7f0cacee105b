"""What is on record of partitions, beside what is scheduled of them: for an operator to look at, and to act on."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, TextClause, text

from gads_assets.domain.desk import DeskRow, PartitionChoice
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.ledger_news import Disposition
from gads_assets.domain.retrying import UNCOUNTED
from gads_assets.domain.scheduling import Purpose
from gads_assets.domain.state import PartitionStatus
from gads_assets.state.leases import LIVES
from gads_assets.state.rows import key_from_row, key_row, keys_json

_UNCOUNTED = sorted(UNCOUNTED)

_CHOSEN = """
    SELECT source, customer_id, query_name, logical_date FROM {0}
    WHERE source = :source AND query_name = ANY (:queries)
        AND (CAST(:customer_ids AS text[]) IS NULL OR customer_id = ANY (:customer_ids))
        AND (CAST(:first AS date) IS NULL OR logical_date >= :first)
        AND (CAST(:last AS date) IS NULL OR logical_date <= :last)
"""

_BY_CHOICE = " UNION ".join(map(_CHOSEN.format, ("partition_state", "extraction_attempt", "retry_schedule")))

# Fewer to look at, where all that is wanted is in one table.
_BY_DISPOSITION = _CHOSEN.format("retry_schedule") + "AND disposition = ANY (:dispositions)"
_BY_STATUS = _CHOSEN.format("partition_state") + "AND status = ANY (:statuses)"

_FIRST_OF = "SELECT * FROM ({0}) AS c ORDER BY query_name, customer_id, logical_date DESC LIMIT :most"

_BY_KEYS = """
    SELECT * FROM jsonb_to_recordset(CAST(:keys AS jsonb))
        AS k (source text, customer_id text, query_name text, logical_date date)
"""

_OF_THE_KEY = """
    ({0}.source, {0}.customer_id, {0}.query_name, {0}.logical_date)
        = (k.source, k.customer_id, k.query_name, k.logical_date)
"""

_ROWS = f"""
    WITH k AS MATERIALIZED ({{0}}), told AS (
        SELECT k.*, coalesce(s.status, 'pending') AS status, coalesce(s.attempt_count, 0) AS attempts,
            coalesce(s.attempt_count, 0) - greatest(r.baseline_attempts, ok.number, 0) AS counted,
            coalesce(s.version, 0) AS version, s.current_run_id AS authority, s.record_count, s.updated_at,
            CASE WHEN e.outcome = 'failed' AND e.run_seq > coalesce(a.run_seq, 0) THEN e.error_class
                WHEN a.outcome IN ('rejected', 'demoted') THEN 'rejected' END AS error_class,
            CASE WHEN e.outcome = 'failed' AND e.run_seq > coalesce(a.run_seq, 0) THEN e.error_message
                WHEN a.outcome IN ('rejected', 'demoted') THEN a.error_message END AS error_message,
            EXISTS (SELECT FROM extraction_attempt AS x WHERE {_OF_THE_KEY.format("x")} AND x.outcome = 'sealed')
                AS has_sealed_run,
            r.purpose, r.disposition, r.next_run_at, r.backoff_strategy, r.reason, r.scheduled_at,
            f.failed_extractions, coalesce(l.dagster_run_id, r.dagster_run_id) AS held_by,
            CASE WHEN r.dagster_run_id IS NULL THEN r.batch_id END AS waits_in_batch,
            w.run_id AS loaded_run, w.loaded_at
        FROM k
            LEFT JOIN partition_state AS s USING (source, customer_id, query_name, logical_date)
            LEFT JOIN retry_schedule AS r USING (source, customer_id, query_name, logical_date)
            LEFT JOIN LATERAL (
                SELECT outcome, run_seq, error_message FROM partition_attempt AS a WHERE {_OF_THE_KEY.format("a")}
                ORDER BY attempt_number DESC LIMIT 1
            ) AS a ON true
            LEFT JOIN LATERAL (
                SELECT outcome, run_seq, error_class, error_message FROM extraction_attempt AS e
                WHERE {_OF_THE_KEY.format("e")} ORDER BY run_seq DESC LIMIT 1
            ) AS e ON true
            LEFT JOIN LATERAL (
                SELECT max(attempt_number) AS number FROM partition_attempt AS a
                WHERE {_OF_THE_KEY.format("a")} AND outcome IN ('accepted', 'superseded')
            ) AS ok ON true
            CROSS JOIN LATERAL (
                SELECT count(DISTINCT x.dagster_run_id) AS failed_extractions FROM extraction_attempt AS x
                WHERE {_OF_THE_KEY.format("x")} AND x.outcome = 'failed' AND x.error_class <> ALL (:uncounted)
                    AND x.run_seq > greatest(coalesce(r.baseline_run_seq, 0), (
                        SELECT max(sealed.run_seq) FROM extraction_attempt AS sealed
                        WHERE {_OF_THE_KEY.format("sealed")} AND sealed.outcome = 'sealed'))
            ) AS f
            LEFT JOIN LATERAL (
                SELECT run_id, loaded_at FROM load_record AS w WHERE {_OF_THE_KEY.format("w")}
                ORDER BY loaded_at DESC LIMIT 1
            ) AS w ON true
            LEFT JOIN LATERAL (
                SELECT held.dagster_run_id FROM partition_lease AS p JOIN run_lease AS held USING (dagster_run_id)
                WHERE {_OF_THE_KEY.format("p")} AND {LIVES}
            ) AS l ON true
    )
    SELECT * FROM told
    WHERE (CAST(:error_class AS text) IS NULL OR error_class = :error_class)
        AND (CAST(:statuses AS text[]) IS NULL OR status = ANY (:statuses))
        AND (CAST(:dispositions AS text[]) IS NULL OR disposition = ANY (:dispositions))
    ORDER BY query_name, customer_id, logical_date DESC LIMIT :most
"""

_FIRST_ROWS, _CHOICE_ROWS, _DISPOSITION_ROWS, _STATUS_ROWS, _KEY_ROWS = (
    text(_ROWS.format(keys))
    for keys in (_FIRST_OF.format(_BY_CHOICE), _BY_CHOICE, _BY_DISPOSITION, _BY_STATUS, _BY_KEYS)
)

_EVENTS = text("""
    SELECT 'extraction' AS kind, finished_at AS at, outcome, CAST(NULL AS integer) AS attempt_number, run_id, run_seq,
        dagster_run_id AS by, error_class, error_message, retry_at, CAST(NULL AS text) AS reason,
        CAST(NULL AS text) AS change, CAST(NULL AS bigint) AS record_count
    FROM extraction_attempt WHERE (source, customer_id, query_name, logical_date)
        = (:source, :customer_id, :query_name, :logical_date)
    UNION ALL
    SELECT 'verdict', judged_at, outcome, attempt_number, run_id, run_seq, dagster_run_id, NULL, error_message, NULL,
        NULL, NULL, NULL
    FROM partition_attempt WHERE (source, customer_id, query_name, logical_date)
        = (:source, :customer_id, :query_name, :logical_date)
    UNION ALL
    SELECT 'override', logged_at, action, NULL, run_id, NULL, actor, NULL, NULL, NULL, reason, change, NULL
    FROM override_log WHERE (source, customer_id, query_name, logical_date)
        = (:source, :customer_id, :query_name, :logical_date)
    UNION ALL
    SELECT 'load', loaded_at, 'published', NULL, run_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, record_count
    FROM load_record WHERE (source, customer_id, query_name, logical_date)
        = (:source, :customer_id, :query_name, :logical_date)
    ORDER BY at DESC, run_seq DESC NULLS FIRST, kind DESC, attempt_number DESC LIMIT :most
""")

_OVERRIDES = text("""
    SELECT override_id, logged_at, action, actor, reason, change, customer_id, query_name, logical_date, state_version
    FROM override_log
    WHERE source = :source AND query_name = ANY (:queries)
        AND (CAST(:customer_ids AS text[]) IS NULL OR customer_id = ANY (:customer_ids))
        AND (CAST(:first AS date) IS NULL OR logical_date >= :first)
        AND (CAST(:last AS date) IS NULL OR logical_date <= :last)
        AND (CAST(:actor AS text) IS NULL OR actor = :actor)
    ORDER BY logged_at DESC, override_id DESC LIMIT :most
""")

_CUSTOMERS = text("""
    SELECT c FROM unnest(CAST(:customer_ids AS text[])) AS c
    WHERE EXISTS (SELECT FROM partition_state WHERE (source, customer_id) = (:source, c))
        OR EXISTS (SELECT FROM extraction_attempt WHERE (source, customer_id) = (:source, c))
        OR EXISTS (SELECT FROM retry_schedule WHERE (source, customer_id) = (:source, c))
""")


def read_choice(connection: Connection, choice: PartitionChoice, *, source: str, most: int | None) -> list[DeskRow]:
    asked = {
        **_asked(choice, source),
        "error_class": choice.error_class,
        "statuses": None if choice.statuses is None else list(choice.statuses),
        "dispositions": None if choice.dispositions is None else list(choice.dispositions),
        "most": most,
        "uncounted": _UNCOUNTED,
        "clock": None,
    }
    return [_desk_row(row) for row in connection.execute(_statement(choice), asked).mappings()]


def _statement(choice: PartitionChoice) -> TextClause:
    if choice.dispositions is not None:
        return _DISPOSITION_ROWS
    if choice.statuses is not None and PartitionStatus.PENDING not in choice.statuses:
        return _STATUS_ROWS
    return _FIRST_ROWS if choice.statuses is None and choice.error_class is None else _CHOICE_ROWS


def read_rows(connection: Connection, keys: Collection[PartitionKey]) -> list[DeskRow]:
    asked = {
        "keys": keys_json(keys),
        "error_class": None,
        "statuses": None,
        "dispositions": None,
        "most": None,
        "uncounted": _UNCOUNTED,
        "clock": None,
    }
    return [_desk_row(row) for row in connection.execute(_KEY_ROWS, asked).mappings()]


def read_events(connection: Connection, key: PartitionKey, *, most: int) -> Sequence[RowMapping]:
    """All that happened to a partition, newest first."""
    return connection.execute(_EVENTS, {**key_row(key), "most": most}).mappings().all()


def read_overrides(
    connection: Connection, choice: PartitionChoice, *, source: str, actor: str | None, most: int
) -> Sequence[RowMapping]:
    """Newest first."""
    return connection.execute(_OVERRIDES, {**_asked(choice, source), "actor": actor, "most": most}).mappings().all()


def read_customers(connection: Connection, customer_ids: Collection[CustomerId], *, source: str) -> set[CustomerId]:
    found = connection.execute(_CUSTOMERS, {"source": source, "customer_ids": list(customer_ids)}).scalars()
    return {CustomerId(each) for each in found}


def _asked(choice: PartitionChoice, source: str) -> dict[str, Any]:
    return {
        "source": source,
        "queries": list(choice.queries),
        "customer_ids": None if choice.customer_ids is None else list(choice.customer_ids),
        "first": choice.first,
        "last": choice.last,
    }


def _desk_row(row: RowMapping) -> DeskRow:
    def moment(name: str) -> datetime | None:
        found: datetime | None = row[name]
        return found and found.astimezone(UTC)

    return DeskRow(
        key=key_from_row(row),
        status=PartitionStatus(row["status"]),
        attempts=row["attempts"],
        counted=row["counted"],
        failed_extractions=row["failed_extractions"],
        version=row["version"],
        authority=row["authority"] and RunId(row["authority"]),
        record_count=row["record_count"],
        updated_at=moment("updated_at"),
        error_class=row["error_class"],
        error_message=row["error_message"],
        has_sealed_run=row["has_sealed_run"],
        purpose=row["purpose"] and Purpose(row["purpose"]),
        disposition=row["disposition"] and Disposition(row["disposition"]),
        next_run_at=moment("next_run_at"),
        backoff_strategy=row["backoff_strategy"],
        reason=row["reason"],
        scheduled_at=moment("scheduled_at"),
        held_by=row["held_by"],
        waits_in_batch=row["waits_in_batch"],
        loaded_run=row["loaded_run"] and RunId(row["loaded_run"]),
        loaded_at=moment("loaded_at"),
    )
