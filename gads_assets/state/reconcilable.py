"""What the ledger has to say about partitions, held against the pointers of their tables."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, exists, select, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.pointer import Pointer
from gads_assets.domain.state import Reconcilable
from gads_assets.state.rows import key_from_row, key_row, rows_json, state_from_row
from gads_assets.state.tables import KEY_COLUMNS, demotion, partition_state

# One statement, so one moment. What is asked of each partition is found by its key's index.
_RECONCILABLE = text("""
    SELECT p.source, p.customer_id, p.query_name, p.logical_date,
        s.status, s.current_run_id, s.current_run_seq, s.schema_version, s.record_count, s.updated_at, s.error_message,
        s.attempt_count, s.version,
        EXISTS (
            SELECT FROM demotion AS d
            WHERE (d.source, d.customer_id, d.query_name, d.logical_date)
                = (p.source, p.customer_id, p.query_name, p.logical_date)
        ) AS is_being_withdrawn,
        EXISTS (
            SELECT FROM partition_attempt AS a
            WHERE (a.source, a.customer_id, a.query_name, a.logical_date, a.run_id)
                    = (p.source, p.customer_id, p.query_name, p.logical_date, p.run_id)
                AND (a.outcome = 'accepted' OR a.state_version > p.state_version)
        ) AS knows_pointer,
        EXISTS (
            SELECT FROM partition_attempt AS a
            WHERE (a.source, a.customer_id, a.query_name, a.logical_date)
                    = (p.source, p.customer_id, p.query_name, p.logical_date)
                AND a.state_version > p.state_version
                AND (a.run_id = p.run_id OR (a.run_id, a.outcome) = (s.current_run_id, 'accepted'))
        ) AS spoke_since_pointer,
        EXISTS (
            SELECT FROM override_log AS o
            WHERE (o.source, o.customer_id, o.query_name, o.logical_date, o.run_id)
                    = (p.source, p.customer_id, p.query_name, p.logical_date, p.run_id)
                AND o.action = 'adopt' AND o.version_floor >= p.state_version
                AND EXISTS (
                    SELECT FROM partition_attempt AS a
                    WHERE (a.source, a.customer_id, a.query_name, a.logical_date)
                            = (p.source, p.customer_id, p.query_name, p.logical_date)
                        AND a.state_version > o.version_floor
                        AND (a.run_id = p.run_id OR (a.run_id, a.outcome) = (s.current_run_id, 'accepted')))
        ) AS adopted_pointer,
        (
            SELECT max(o.version_floor) FROM override_log AS o
            WHERE (o.source, o.customer_id, o.query_name, o.logical_date)
                    = (p.source, p.customer_id, p.query_name, p.logical_date)
                AND o.action = 'adopt' AND o.version_floor >= coalesce(s.version, 0)
        ) AS version_floor
    FROM jsonb_to_recordset(CAST(:pointers AS jsonb)) AS p (
            source text, customer_id text, query_name text, logical_date date, run_id text, state_version bigint)
        LEFT JOIN partition_state AS s USING (source, customer_id, query_name, logical_date)
    ORDER BY p.source, p.customer_id, p.query_name, p.logical_date
""")

BEING_WITHDRAWN = exists().where(*(demotion.c[name] == partition_state.c[name] for name in KEY_COLUMNS))

_STANDINGS = select(
    *(partition_state.c[name] for name in ("customer_id", "logical_date", "status")),
    partition_state.c.current_run_id.label("authority"),
    partition_state.c.schema_version.label("authority_schema_version"),
    partition_state.c.version,
    BEING_WITHDRAWN.label("is_being_withdrawn"),
).where(partition_state.c.source == bindparam("source"), partition_state.c.query_name == bindparam("query_name"))

# Every change of a state raises its version by one, and no state is ever deleted.
_MARKS = text("""
    SELECT query_name, count(*) || ' states at ' || sum(version) AS mark FROM partition_state
    WHERE source = :source GROUP BY query_name
""")


def read_marks(connection: Connection, *, source: str) -> dict[str, str]:
    return {row.query_name: row.mark for row in connection.execute(_MARKS, {"source": source})}


def read_reconcilable(
    connection: Connection, pointers: Mapping[PartitionKey, Pointer | None]
) -> dict[PartitionKey, Reconcilable]:
    asked = [
        {
            **key_row(key),
            "run_id": pointer.run_id if pointer else None,
            "state_version": pointer.state_version if pointer else None,
        }
        for key, pointer in pointers.items()
    ]
    return {
        key_from_row(row): Reconcilable(
            state=state_from_row(row) if row["version"] is not None else None,
            is_being_withdrawn=row["is_being_withdrawn"],
            knows_pointer=row["knows_pointer"],
            spoke_since_pointer=row["spoke_since_pointer"],
            adopted_pointer=row["adopted_pointer"],
            version_floor=row["version_floor"],
        )
        for row in connection.execute(_RECONCILABLE, {"pointers": rows_json(asked)}).mappings()
    }


def read_standings(connection: Connection, *, source: str, query_name: str) -> dict[str, Sequence[object]]:
    found = connection.execute(_STANDINGS, {"source": source, "query_name": query_name})
    names, rows = list(found.keys()), found.all()
    return dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(names, ())
