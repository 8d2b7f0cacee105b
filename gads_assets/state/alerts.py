"""Alerts: which conditions there are, and which of them the webhook has been told of."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from sqlalchemy import Engine, RowMapping, text

from gads_assets.domain.alerting import Alert, AlertKind, Condition
from gads_assets.domain.keys import PartitionKey
from gads_assets.state.connection import transaction
from gads_assets.state.rows import key_from_row, key_row, rows_json

# Whoever comes second looks when the first is done. What it had seen before that might be old: it would end what the
# first has raised, and the next look would raise and post it again.
_ALONE = text("SELECT pg_advisory_xact_lock(hashtextextended('alerts of ' || :source, 0))")

_CONDITIONS = """
    SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS n (alert_id text, kind text, source text,
        customer_id text, query_name text, logical_date date, reason text)
"""

_WAITING = text("""
    SELECT disposition AS kind, source, customer_id, query_name, logical_date, reason FROM retry_schedule
    WHERE source = :source AND disposition IN ('terminal', 'blocked') AND backoff_strategy <> 'manual'
""")

_MARKED = text("""
    SELECT source, customer_id, query_name, logical_date FROM retry_schedule
    WHERE source = :source AND disposition IN ('terminal', 'blocked') AND backoff_strategy = 'manual'
""")

_RAISE = text(f"""
    INSERT INTO alert (alert_id, kind, source, customer_id, query_name, logical_date, reason, raised_at)
    SELECT n.alert_id, n.kind, n.source, n.customer_id, n.query_name, n.logical_date, n.reason, :now
    FROM ({_CONDITIONS}) AS n ON CONFLICT DO NOTHING
""")

_END = text(f"""
    UPDATE alert AS a SET over_at = :now
    WHERE a.source = :source AND a.over_at IS NULL AND NOT EXISTS (
        SELECT FROM ({_CONDITIONS}) AS n
        WHERE (n.kind, n.source, n.customer_id, n.query_name, n.logical_date)
            = (a.kind, a.source, a.customer_id, a.query_name, a.logical_date))
""")

# Whoever comes meanwhile leaves these to us.
_UNTOLD = text("""
    SELECT * FROM alert WHERE source = :source AND told_at IS NULL AND over_at IS NULL
    ORDER BY raised_at, alert_id LIMIT :most FOR UPDATE SKIP LOCKED
""")

_TELL = text("UPDATE alert SET told_at = :now WHERE alert_id = ANY (:alert_ids)")

_OPEN = text("SELECT count(*) FROM alert WHERE source = :source AND over_at IS NULL")


class Alerts:
    """Every method is one transaction."""

    def __init__(self, engine: Engine, *, source: str) -> None:
        self._engine = engine
        self._source = source

    def waiting(self) -> list[Condition]:
        """Partitions that wait for an operator; not those that one has marked."""
        with transaction(self._engine) as connection:
            rows = connection.execute(_WAITING, {"source": self._source}).mappings()
            return [_condition(row) for row in rows]

    def marked(self) -> set[PartitionKey]:
        """Partitions that an operator wants left alone."""
        with transaction(self._engine) as connection:
            return {key_from_row(row) for row in connection.execute(_MARKED, {"source": self._source}).mappings()}

    def note(self, look: Callable[[], Iterable[Condition]], *, now: datetime, new_alert_id: Callable[[], str]) -> None:
        """What `look` finds is all there is: what is new is raised, and what is not among it is over."""
        with transaction(self._engine) as connection:
            connection.execute(_ALONE, {"source": self._source})
            rows = [
                {**key_row(each.key), "alert_id": new_alert_id(), "kind": each.kind, "reason": each.reason}
                for each in look()
            ]
            asked = {"rows": rows_json(rows), "source": self._source, "now": now}
            connection.execute(_RAISE, asked)
            connection.execute(_END, asked)

    def tell(self, post: Callable[[Sequence[Alert]], None], *, now: datetime, most: int) -> int:
        """Hands over what nobody was told of yet; returns how many. If `post` raises they stay untold.

        A process that dies after it has posted and before that is on record posts again, under the same ids.
        """
        with transaction(self._engine) as connection:
            rows = connection.execute(_UNTOLD, {"source": self._source, "most": most}).mappings().all()
            untold = [_alert(row) for row in rows]
            if untold:
                post(untold)
                connection.execute(_TELL, {"alert_ids": [alert.alert_id for alert in untold], "now": now})
            return len(untold)

    def open(self) -> int:
        """How many there are, told or not."""
        with transaction(self._engine) as connection:
            number: int = connection.execute(_OPEN, {"source": self._source}).scalar_one()
            return number


def _condition(row: RowMapping) -> Condition:
    return Condition(kind=AlertKind(row["kind"]), key=key_from_row(row), reason=row["reason"])


def _alert(row: RowMapping) -> Alert:
    return Alert(alert_id=row["alert_id"], condition=_condition(row), raised_at=row["raised_at"].astimezone(UTC))
