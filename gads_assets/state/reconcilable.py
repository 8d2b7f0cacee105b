"""All that the ledger has to say about a query, held against the pointers of its table."""

from collections.abc import Iterable

from sqlalchemy import Connection, RowMapping, TextClause, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.pointer import Pointer
from gads_assets.domain.state import Reconcilable
from gads_assets.state.rows import key_from_row, key_row, rows_json, state_from_row


def _statement(*, states: str, join: str) -> TextClause:
    """One statement, so one moment. What is asked of each partition is found by its key's index."""
    return text(f"""
        SELECT k.*,
            s.status, s.current_run_id, s.current_run_seq, s.schema_version, s.record_count, s.updated_at,
            s.error_message, s.attempt_count, s.version,
            EXISTS (
                SELECT FROM demotion AS d
                WHERE (d.source, d.customer_id, d.query_name, d.logical_date)
                    = (k.source, k.customer_id, k.query_name, k.logical_date)
            ) AS is_being_withdrawn,
            EXISTS (
                SELECT FROM partition_attempt AS a
                WHERE (a.source, a.customer_id, a.query_name, a.logical_date, a.run_id)
                        = (k.source, k.customer_id, k.query_name, k.logical_date, p.run_id)
                    AND (a.outcome = 'accepted' OR a.state_version > p.state_version)
            ) AS knows_pointer,
            EXISTS (
                SELECT FROM partition_attempt AS a
                WHERE (a.source, a.customer_id, a.query_name, a.logical_date)
                        = (k.source, k.customer_id, k.query_name, k.logical_date)
                    AND a.state_version > p.state_version
                    AND (a.run_id = p.run_id OR (a.run_id, a.outcome) = (s.current_run_id, 'accepted'))
            ) AS spoke_since_pointer,
            EXISTS (
                SELECT FROM override_log AS o
                WHERE (o.source, o.customer_id, o.query_name, o.logical_date, o.run_id)
                        = (k.source, k.customer_id, k.query_name, k.logical_date, p.run_id)
                    AND o.action = 'adopt' AND o.version_floor >= p.state_version AND o.version_floor < s.version
            ) AS adopted_pointer,
            (
                SELECT max(o.version_floor) FROM override_log AS o
                WHERE (o.source, o.customer_id, o.query_name, o.logical_date)
                        = (k.source, k.customer_id, k.query_name, k.logical_date)
                    AND o.action = 'adopt' AND o.version_floor >= coalesce(s.version, 0)
            ) AS version_floor
        FROM ({states}) AS s
            {join} JOIN jsonb_to_recordset(CAST(:pointers AS jsonb)) AS p (
                source text, customer_id text, query_name text, logical_date date, run_id text, state_version bigint)
                USING (source, customer_id, query_name, logical_date)
            CROSS JOIN LATERAL (SELECT source, customer_id, query_name, logical_date) AS k
        ORDER BY k.source, k.customer_id, k.query_name, k.logical_date
    """)  # noqa: S608 - both pieces stand below


_OF_QUERY = _statement(
    states="SELECT * FROM partition_state WHERE source = :source AND query_name = :query_name", join="FULL"
)

_OF_POINTERS = _statement(states="SELECT * FROM partition_state", join="RIGHT")


def read_reconcilable(
    connection: Connection, *, source: str, query_name: str, pointers: Iterable[Pointer]
) -> dict[PartitionKey, Reconcilable]:
    asked = {"source": source, "query_name": query_name, "pointers": _pointers_json(pointers)}
    return _entries(connection.execute(_OF_QUERY, asked).mappings())


def read_reconcilable_with(connection: Connection, pointers: Iterable[Pointer]) -> dict[PartitionKey, Reconcilable]:
    return _entries(connection.execute(_OF_POINTERS, {"pointers": _pointers_json(pointers)}).mappings())


def _pointers_json(pointers: Iterable[Pointer]) -> str:
    return rows_json(
        {**key_row(pointer.key), "run_id": pointer.run_id, "state_version": pointer.state_version}
        for pointer in pointers
    )


def _entries(rows: Iterable[RowMapping]) -> dict[PartitionKey, Reconcilable]:
    return {
        key_from_row(row): Reconcilable(
            state=state_from_row(row) if row["version"] is not None else None,
            is_being_withdrawn=row["is_being_withdrawn"],
            knows_pointer=row["knows_pointer"],
            spoke_since_pointer=row["spoke_since_pointer"],
            adopted_pointer=row["adopted_pointer"],
            version_floor=row["version_floor"],
        )
        for row in rows
    }
