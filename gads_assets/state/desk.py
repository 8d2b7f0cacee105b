"""The operator's desk: what is on record of partitions, and overrides, each logged in the transaction that makes it."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, Engine, RowMapping, text

from gads_assets.domain.desk import Action, DeskRow, PartitionChoice, Plan, plan_action
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.ledger_news import Disposition
from gads_assets.domain.retrying import MANUAL
from gads_assets.domain.scheduling import Purpose
from gads_assets.domain.state import PartitionStatus
from gads_assets.errors import TransitionError
from gads_assets.state.connection import transaction
from gads_assets.state.deciding import LOCK_SCHEDULED
from gads_assets.state.inspecting import read_choice, read_customers, read_events, read_overrides, read_rows
from gads_assets.state.overriding import Override, log_overrides, return_to_pending
from gads_assets.state.rows import key_row, keys_json, rows_json

# One operator at a time: two who retry the same partition would both find it untouched.
_ALONE = text("SELECT pg_advisory_xact_lock(hashtextextended('the operator''s desk', 0))")

_SCHEDULE = text("""
    INSERT INTO retry_schedule AS r (source, customer_id, query_name, logical_date, purpose, disposition, next_run_at,
        backoff_strategy, reason, baseline_attempts, baseline_run_seq, seen_attempts, seen_run_seq, override_id,
        scheduled_at)
    SELECT n.source, n.customer_id, n.query_name, n.logical_date, :purpose, :disposition, :next_run_at, :strategy,
        :reason, CASE WHEN :counts_anew THEN coalesce(s.attempt_count, 0) ELSE 0 END,
        CASE WHEN :counts_anew THEN e.run_seq ELSE 0 END, coalesce(s.attempt_count, 0), e.run_seq, n.override_id, :now
    FROM jsonb_to_recordset(CAST(:rows AS jsonb))
            AS n (source text, customer_id text, query_name text, logical_date date, override_id text)
        LEFT JOIN partition_state AS s USING (source, customer_id, query_name, logical_date)
        CROSS JOIN LATERAL (
            SELECT coalesce(max(run_seq), 0) AS run_seq FROM extraction_attempt AS e
            WHERE (e.source, e.customer_id, e.query_name, e.logical_date)
                = (n.source, n.customer_id, n.query_name, n.logical_date)
        ) AS e
    ON CONFLICT (source, customer_id, query_name, logical_date) DO UPDATE
    SET purpose = excluded.purpose, disposition = excluded.disposition, next_run_at = excluded.next_run_at,
        backoff_strategy = excluded.backoff_strategy, reason = excluded.reason,
        baseline_attempts = CASE WHEN :counts_anew THEN excluded.baseline_attempts ELSE r.baseline_attempts END,
        baseline_run_seq = CASE WHEN :counts_anew THEN excluded.baseline_run_seq ELSE r.baseline_run_seq END,
        failing_since = CASE WHEN :counts_anew THEN NULL ELSE r.failing_since END,
        seen_attempts = excluded.seen_attempts, seen_run_seq = excluded.seen_run_seq, fruitless_runs = 0,
        dispatches = 0, override_id = excluded.override_id, scheduled_at = excluded.scheduled_at
    WHERE r.batch_id IS NULL
""")

_PURPOSES: Final = {
    Action.RETRY: Purpose.RETRY,
    Action.REVALIDATE: Purpose.REVALIDATE,
    Action.MARK: Purpose.RETRY,
    Action.CLEAR: Purpose.RETRY,
}


_COUNTS_ANEW: Final = frozenset({Action.RETRY, Action.CLEAR})
"""What judges a run again, or leaves a partition alone, says nothing about its tries so far."""


class OperatorDesk:
    """Every method is one transaction."""

    def __init__(self, engine: Engine, *, source: str) -> None:
        self._engine = engine
        self._source = source

    def rows(self, choice: PartitionChoice, *, most: int | None = None) -> list[DeskRow]:
        """By query and customer, newest days first; of partitions that were never tried nor scheduled there is none."""
        with transaction(self._engine) as connection:
            return read_choice(connection, choice, source=self._source, most=most)

    def history(self, key: PartitionKey, *, most: int) -> Sequence[RowMapping]:
        with transaction(self._engine) as connection:
            return read_events(connection, key, most=most)

    def overrides(self, choice: PartitionChoice, *, actor: str | None = None, most: int) -> Sequence[RowMapping]:
        with transaction(self._engine) as connection:
            return read_overrides(connection, choice, source=self._source, actor=actor, most=most)

    def customers_on_record(self, customer_ids: Collection[CustomerId]) -> set[CustomerId]:
        """Those of them of which a partition was ever tried or scheduled, registered or not."""
        with transaction(self._engine) as connection:
            return read_customers(connection, customer_ids, source=self._source)

    def carry_out(
        self,
        plan: Plan,
        *,
        actor: str,
        reason: str,
        now: datetime,
        new_override_id: Callable[[], str],
    ) -> None:
        """All of the plan or nothing: raises TransitionError if one of its partitions is not any more what it was."""
        keys = sorted(row.key for row in plan.changed)
        with transaction(self._engine) as connection:
            connection.execute(_ALONE)
            connection.execute(LOCK_SCHEDULED, {"keys": keys_json(keys)})
            found = plan_action(plan.action, read_rows(connection, keys))
            if changed := _changed_since(plan, found):
                raise TransitionError(
                    f"{changed}: it is not any more as it was shown, so nothing was changed; look again, then repeat"
                )
            overrides = {key: new_override_id() for key in keys}
            _log(connection, found, overrides, actor=actor, reason=reason, now=now)
            rows = [{**key_row(key), "override_id": override_id} for key, override_id in overrides.items()]
            is_marked = plan.action is Action.MARK
            scheduled = connection.execute(
                _SCHEDULE,
                {
                    "rows": rows_json(rows),
                    "purpose": _PURPOSES[plan.action],
                    "disposition": Disposition.TERMINAL if is_marked else Disposition.DUE,
                    "next_run_at": None if is_marked else now,
                    "strategy": MANUAL,
                    "counts_anew": plan.action in _COUNTS_ANEW,
                    "reason": reason,
                    "now": now,
                },
            )
            # One without a row could not be locked, and the daemon may have scheduled and dispatched it since.
            if scheduled.rowcount != len(keys):
                raise TransitionError("a run was made for some of them meanwhile; nothing was changed: look again")


def _changed_since(plan: Plan, found: Plan) -> PartitionKey | None:
    """The first of the plan's partitions that has another state, or is refused, now."""
    now = {row.key: _as_shown(row) for row in found.changed}
    return next((row.key for row in plan.changed if now.get(row.key) != _as_shown(row)), None)


def _as_shown(row: DeskRow) -> tuple[object, ...]:
    return row.status, row.version, row.disposition, row.error_class


def _log(
    connection: Connection,
    plan: Plan,
    overrides: dict[PartitionKey, str],
    *,
    actor: str,
    reason: str,
    now: datetime,
) -> None:
    failed = {
        row.key: _change(plan.action, row)
        for row in plan.changed
        if plan.action is Action.RETRY and row.status is PartitionStatus.FAILED
    }
    if failed:
        ids = iter([overrides[key] for key in sorted(failed)])
        return_to_pending(
            connection, failed, actor=actor, reason=reason, now=now, new_override_id=lambda: next(ids), changes=failed
        )
    log_overrides(
        connection,
        [
            Override(
                override_id=overrides[row.key],
                action=plan.action,
                key=row.key,
                actor=actor,
                reason=reason,
                logged_at=now,
                change=_change(plan.action, row),
            )
            for row in plan.changed
            if row.key not in failed
        ],
    )


def _change(action: Action, row: DeskRow) -> str:
    was = row.disposition.value if row.disposition else "not scheduled"
    if action is Action.MARK:
        return f"{was} → terminal"
    counted = f"; attempts count from {row.attempts}" if action in _COUNTS_ANEW else ""
    return f"{was} → {_PURPOSES[action]} due{counted}"
