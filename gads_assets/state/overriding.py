"""What happens inside the transaction in which the control plane overrides a verdict, or adopts a pointer."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, exists, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.pointer import Pointer
from gads_assets.domain.state import PartitionState, PartitionStatus, state_returned_to_pending
from gads_assets.errors import TransitionError
from gads_assets.state.judging import lock_states
from gads_assets.state.rows import key_from_row, key_row, keys_json, rows_json, select_by_keys, value_row
from gads_assets.state.tables import KEY_COLUMNS, override_log, partition_state

_LOG_OVERRIDES = text("""
    INSERT INTO override_log
    SELECT * FROM jsonb_populate_recordset(NULL::override_log, CAST(:rows AS jsonb))
""")

# No other column: the operator's role may not touch authority or the count of attempts.
_RETURN_TO_PENDING = text("""
    UPDATE partition_state AS s
    SET status = n.status, error_message = n.error_message, updated_at = n.updated_at, version = n.version
    FROM jsonb_populate_recordset(NULL::partition_state, CAST(:rows AS jsonb)) AS n
    WHERE (s.source, s.customer_id, s.query_name, s.logical_date)
            = (n.source, n.customer_id, n.query_name, n.logical_date)
        AND s.version = n.version - 1 AND s.status = 'failed'
""")

# The state may have come past the pointer's version since it was restored, and still wait for a verdict on its run.
_LOG_ADOPTIONS = text("""
    INSERT INTO override_log
    SELECT (jsonb_populate_record(n, jsonb_build_object('version_floor', f.version_floor))).*
    FROM jsonb_populate_recordset(NULL::override_log, CAST(:rows AS jsonb)) AS n
        LEFT JOIN partition_state AS s USING (source, customer_id, query_name, logical_date)
        CROSS JOIN LATERAL (SELECT greatest(n.version_floor, s.version) AS version_floor) AS f
    WHERE NOT EXISTS (
        SELECT FROM override_log AS o
        WHERE (o.source, o.customer_id, o.query_name, o.logical_date)
                = (n.source, n.customer_id, n.query_name, n.logical_date)
            AND o.action = 'adopt' AND o.version_floor >= f.version_floor)
    ON CONFLICT ON CONSTRAINT override_log_version_floor DO NOTHING
""")

_OPEN_ADOPTIONS = (
    select_by_keys(override_log, "version_floor")
    .where(
        override_log.c.action == "adopt",
        ~exists().where(
            *(partition_state.c[name] == override_log.c[name] for name in KEY_COLUMNS),
            partition_state.c.version > override_log.c.version_floor,
        ),
    )
    .order_by(override_log.c.version_floor)
)


@dataclass(frozen=True, kw_only=True)
class Override:
    """What an operator, or the control plane in an operator's place, did to a partition. `state_version` is that of the
    state which it made, if it made one."""

    override_id: str
    action: str
    key: PartitionKey
    actor: str
    reason: str
    logged_at: datetime
    change: str
    state_version: int | None = None


def return_to_pending(
    connection: Connection,
    keys: Iterable[PartitionKey],
    *,
    actor: str,
    reason: str,
    now: datetime,
    new_override_id: Callable[[], str],
    changes: Mapping[PartitionKey, str] | None = None,
) -> list[PartitionState]:
    """`changes` is what else is logged of some as changed."""
    wanted = sorted(set(keys))
    states = lock_states(connection, wanted)
    after = [state_returned_to_pending(states.get(key), key=key, now=now) for key in wanted]
    log_overrides(
        connection,
        [
            Override(
                override_id=new_override_id(),
                action="retry",
                key=state.key,
                actor=actor,
                reason=reason,
                logged_at=now,
                state_version=state.version,
                change="; ".join(filter(None, ["failed → pending", (changes or {}).get(state.key)])),
            )
            for state in after
        ],
    )
    changed = connection.execute(_RETURN_TO_PENDING, {"rows": rows_json(map(value_row, after))})
    if changed.rowcount != len(after):
        raise TransitionError("a partition state changed although it was locked; somebody disabled the locks")
    return after


def return_failed_to_pending(
    connection: Connection,
    keys: Iterable[PartitionKey],
    *,
    actor: str,
    reason: str,
    now: datetime,
    new_override_id: Callable[[], str],
) -> list[PartitionState]:
    """Of these, those that are failed at this moment."""
    states = lock_states(connection, keys)
    failed = [key for key, state in states.items() if state.status is PartitionStatus.FAILED]
    if not failed:
        return []
    return return_to_pending(connection, failed, actor=actor, reason=reason, now=now, new_override_id=new_override_id)


def log_overrides(connection: Connection, overrides: Iterable[Override]) -> None:
    connection.execute(_LOG_OVERRIDES, {"rows": rows_json(map(value_row, overrides))})


def adopt(
    connection: Connection,
    pointers: Iterable[Pointer],
    *,
    actor: str,
    reason: str,
    now: datetime,
    new_override_id: Callable[[], str],
) -> dict[PartitionKey, int]:
    by_key = {pointer.key: pointer for pointer in sorted(pointers, key=lambda pointer: (pointer.key, pointer.order))}
    adoptions = [
        {
            "override_id": new_override_id(),
            "action": "adopt",
            **key_row(pointer.key),
            "actor": actor,
            "reason": reason,
            "logged_at": now,
            "version_floor": pointer.state_version,
            "run_id": pointer.run_id,
        }
        for pointer in by_key.values()
    ]
    connection.execute(_LOG_ADOPTIONS, {"rows": rows_json(adoptions)})
    return open_adoptions(connection, by_key)


def open_adoptions(connection: Connection, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    rows = connection.execute(_OPEN_ADOPTIONS, {"keys": keys_json(keys)}).mappings()
    return {key_from_row(row): row["version_floor"] for row in rows}
