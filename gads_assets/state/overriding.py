"""What happens inside the transaction in which the control plane overrides a verdict."""

from collections.abc import Callable, Iterable
from datetime import datetime

from sqlalchemy import Connection, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.state import PartitionState, state_returned_to_pending
from gads_assets.errors import TransitionError
from gads_assets.state.judging import lock_states
from gads_assets.state.rows import key_row, rows_json, value_row

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


def return_to_pending(
    connection: Connection,
    keys: Iterable[PartitionKey],
    *,
    actor: str,
    reason: str,
    now: datetime,
    new_override_id: Callable[[], str],
) -> list[PartitionState]:
    wanted = sorted(set(keys))
    states = lock_states(connection, wanted)
    after = [state_returned_to_pending(states.get(key), key=key, now=now) for key in wanted]
    overrides = [
        {
            "override_id": new_override_id(),
            "action": "retry",
            **key_row(state.key),
            "actor": actor,
            "reason": reason,
            "state_version": state.version,
            "logged_at": now,
        }
        for state in after
    ]
    connection.execute(_LOG_OVERRIDES, {"rows": rows_json(overrides)})
    changed = connection.execute(_RETURN_TO_PENDING, {"rows": rows_json(map(value_row, after))})
    if changed.rowcount != len(after):
        raise TransitionError("a partition state changed although it was locked; somebody disabled the locks")
    return after
