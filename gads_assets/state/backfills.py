"""History that somebody asked for: which partitions it takes, how far it has come, and holding it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum

from sqlalchemy import Connection, Engine, RowMapping, text

from gads_assets.domain.desk import Action
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.ledger_news import CANCELLED_BACKFILL
from gads_assets.domain.retrying import MANUAL
from gads_assets.errors import TransitionError
from gads_assets.state.connection import transaction
from gads_assets.state.opening import SEEN, OpeningRule, rule_rows
from gads_assets.state.overriding import Override, log_overrides
from gads_assets.state.rows import key_from_row, keys_json, rows_json


class BackfillStatus(StrEnum):
    ACTIVE = "active"
    """What is left of it is dispatched, after everything else."""

    PAUSED = "paused"
    """Nothing more of it is dispatched until it is resumed."""

    CANCELLED = "cancelled"
    """What was left of it is off the schedule, for good; what failed before is marked, and tried no more."""


# Days that are open, and that the API still tells. What is a success stays as it is; what is scheduled already, or
# waits for an operator, is not scheduled twice. What a backfill that was cancelled has given up on is wanted again.
_WANTED = text("""
    WITH query AS (
        SELECT * FROM jsonb_to_recordset(CAST(:queries AS jsonb)) AS q (
            query_name text, start_date date, settling interval, ages integer[], reach_days integer)
    )
    SELECT :source AS source, c.customer_id, q.query_name, CAST(day AS date) AS logical_date,
        CASE WHEN s.status = 'success' THEN 'published'
            WHEN r.reason = :given_up THEN NULL
            WHEN r.disposition IN ('terminal', 'blocked') THEN r.disposition
            WHEN r.source IS NOT NULL THEN 'scheduled' END AS left_out
    FROM query AS q CROSS JOIN customer AS c
        CROSS JOIN generate_series(
            greatest(q.start_date, :first,
                CAST(CAST(:now AS timestamptz) AT TIME ZONE c.time_zone AS date) - q.reach_days),
            least(CAST(:last AS date), CAST((:now - q.settling) AT TIME ZONE c.time_zone AS date) - 1),
            interval '1 day') AS day
        LEFT JOIN partition_state AS s ON (s.source, s.customer_id, s.query_name, s.logical_date)
            = (:source, c.customer_id, q.query_name, CAST(day AS date))
        LEFT JOIN retry_schedule AS r ON (r.source, r.customer_id, r.query_name, r.logical_date)
            = (:source, c.customer_id, q.query_name, CAST(day AS date))
    WHERE c.status = 'active' AND c.customer_id = ANY (:customer_ids)
    ORDER BY q.query_name, c.customer_id, day
""")

_CREATE = text("""
    INSERT INTO backfill (backfill_id, source, queries, customer_ids, first_day, last_day, partitions, operations,
        status, created_by, created_at, changed_by, changed_at)
    VALUES (:backfill_id, :source, :queries, :customer_ids, :first, :last, :partitions, :operations,
        'active', :actor, :now, :actor, :now)
""")

# What was given up counts its attempts anew, as whatever an operator clears.
_SCHEDULE = text(f"""
    INSERT INTO retry_schedule AS r (source, customer_id, query_name, logical_date, purpose, disposition, next_run_at,
        backoff_strategy, backfill_id, seen_attempts, seen_run_seq, scheduled_at)
    SELECT k.source, k.customer_id, k.query_name, k.logical_date, 'backfill', 'due', :now, 'backfill', :backfill_id,
        {SEEN.format("k")}, :now
    FROM jsonb_to_recordset(CAST(:keys AS jsonb))
            AS k (source text, customer_id text, query_name text, logical_date date)
        LEFT JOIN partition_state AS s USING (source, customer_id, query_name, logical_date)
    ORDER BY k.source, k.customer_id, k.query_name, k.logical_date
    ON CONFLICT (source, customer_id, query_name, logical_date) DO UPDATE
    SET purpose = 'backfill', disposition = 'due', next_run_at = :now, backoff_strategy = 'backfill', reason = NULL,
        backfill_id = :backfill_id, fruitless_runs = 0, failing_since = NULL, scheduled_at = :now,
        seen_attempts = excluded.seen_attempts, seen_run_seq = excluded.seen_run_seq,
        baseline_attempts = excluded.seen_attempts, baseline_run_seq = excluded.seen_run_seq
    WHERE r.reason = :given_up AND r.disposition = 'terminal'
    RETURNING r.source, r.customer_id, r.query_name, r.logical_date, r.baseline_attempts, r.xmax <> 0 AS is_wanted_again
""")

_PROGRESS = text("""
    SELECT b.*, left_over.*
    FROM backfill AS b CROSS JOIN LATERAL (
        SELECT count(*) AS remaining, count(dagster_run_id) AS running,
            count(batch_id) - count(dagster_run_id) AS queued,
            count(*) FILTER (WHERE disposition = 'terminal') AS terminal,
            count(*) FILTER (WHERE disposition = 'blocked') AS blocked,
            count(*) FILTER (WHERE disposition = 'due' AND batch_id IS NULL AND dispatches > 0) AS retrying
        FROM retry_schedule AS r WHERE r.backfill_id = b.backfill_id
    ) AS left_over
    WHERE b.source = :source AND starts_with(b.backfill_id, :prefix) ORDER BY b.created_at DESC LIMIT :most
""")

_CHANGE = text("""
    UPDATE backfill SET status = :status, changed_by = :actor, changed_at = :now
    WHERE backfill_id = :backfill_id AND status = ANY (:from_any)
""")

# In the order of keys, as whoever writes decisions locks them.
_LOCK = text("""
    SELECT FROM retry_schedule WHERE backfill_id = :backfill_id
    ORDER BY source, customer_id, query_name, logical_date FOR UPDATE
""")

# A batch that no run has come for yet is none any more: a run that comes now gets nothing.
_TAKE_BACK = text("""
    UPDATE retry_schedule SET batch_id = NULL, dispatched_at = NULL, dispatches = dispatches - 1
    WHERE backfill_id = :backfill_id AND purpose = 'backfill' AND batch_id IS NOT NULL AND dagster_run_id IS NULL
""")

# What failed before stays, marked: without a row its failures would be news, and be tried again.
_GIVE_UP = text("""
    UPDATE retry_schedule AS r
    SET disposition = 'terminal', next_run_at = NULL, backoff_strategy = :manual, reason = :given_up
    WHERE backfill_id = :backfill_id AND purpose = 'backfill' AND disposition = 'due' AND batch_id IS NULL AND (
        EXISTS (
            SELECT FROM partition_attempt AS a
            WHERE (a.source, a.customer_id, a.query_name, a.logical_date)
                = (r.source, r.customer_id, r.query_name, r.logical_date))
        OR EXISTS (
            SELECT FROM extraction_attempt AS e
            WHERE (e.source, e.customer_id, e.query_name, e.logical_date)
                = (r.source, r.customer_id, r.query_name, r.logical_date)))
    RETURNING source, customer_id, query_name, logical_date
""")

_TAKE_OFF = text("""
    DELETE FROM retry_schedule
    WHERE backfill_id = :backfill_id AND purpose = 'backfill' AND disposition = 'due' AND batch_id IS NULL
""")

_COUNT_TAKEN_OFF = text("UPDATE backfill SET taken_off = :taken_off WHERE backfill_id = :backfill_id")

_STATUS = text("SELECT status FROM backfill WHERE backfill_id = :backfill_id")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Partitions of a range, and those that are left out, by why."""

    keys: Sequence[PartitionKey]
    left_out: Sequence[tuple[PartitionKey, str]]


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """`partitions` are those that it began with, `remaining` those that are on the schedule still: `queued` wait in a
    batch for their run, and `running` have one. Done are those that are off it, but for what a cancellation took."""

    backfill_id: str
    queries: tuple[str, ...]
    customer_ids: tuple[CustomerId, ...]
    first: date
    last: date
    partitions: int
    operations: int
    taken_off: int
    status: BackfillStatus
    created_by: str
    created_at: datetime
    changed_by: str
    changed_at: datetime
    remaining: int
    queued: int
    running: int
    retrying: int
    terminal: int
    blocked: int

    @property
    def done(self) -> int:
        return self.partitions - self.remaining - self.taken_off

    @property
    def is_over(self) -> bool:
        return self.remaining == self.terminal + self.blocked


class Backfills:
    """Every method is one transaction."""

    def __init__(self, engine: Engine, *, source: str, new_override_id: Callable[[], str]) -> None:
        self._engine = engine
        self._source = source
        self._new_override_id = new_override_id

    def wanted(
        self,
        rules: Iterable[OpeningRule],
        customer_ids: Collection[CustomerId],
        first: date,
        last: date,
        *,
        now: datetime,
    ) -> Wanted:
        asked = {
            "source": self._source,
            "queries": rows_json(rule_rows(rules)),
            "customer_ids": list(customer_ids),
            "first": first,
            "last": last,
            "now": now,
            "given_up": CANCELLED_BACKFILL,
        }
        with transaction(self._engine) as connection:
            rows = connection.execute(_WANTED, asked).mappings().all()
        return Wanted(
            keys=[key_from_row(row) for row in rows if row["left_out"] is None],
            left_out=[(key_from_row(row), row["left_out"]) for row in rows if row["left_out"] is not None],
        )

    def create(
        self,
        backfill_id: str,
        keys: Sequence[PartitionKey],
        *,
        first: date,
        last: date,
        operations: int,
        actor: str,
        now: datetime,
    ) -> None:
        """Raises TransitionError where some of them were scheduled meanwhile: then nothing is. That some were given up
        with a backfill before, and are not any more, is logged."""
        asked = {
            "backfill_id": backfill_id,
            "source": self._source,
            "queries": sorted({key.query_name for key in keys}),
            "customer_ids": sorted({key.customer_id for key in keys}),
            "first": first,
            "last": last,
            "partitions": len(keys),
            "operations": operations,
            "actor": actor,
            "now": now,
            "keys": keys_json(keys),
            "given_up": CANCELLED_BACKFILL,
        }
        with transaction(self._engine) as connection:
            connection.execute(_CREATE, asked)
            scheduled = connection.execute(_SCHEDULE, asked).mappings().all()
            if len(scheduled) != len(keys):
                raise TransitionError(
                    "some of these partitions were scheduled meanwhile; nothing was changed, run again"
                )
            wanted_again = {
                key_from_row(row): f"terminal → backfill due; attempts count from {row['baseline_attempts']}"
                for row in scheduled
                if row["is_wanted_again"]
            }
            why = f"backfill {backfill_id} wants it again"
            self._log(connection, Action.CLEAR, wanted_again, actor=actor, reason=why, now=now)

    def all(self, *, prefix: str = "", most: int) -> list[Backfill]:
        """Newest first; those whose id begins so."""
        asked = {"source": self._source, "prefix": prefix, "most": most}
        with transaction(self._engine) as connection:
            rows = connection.execute(_PROGRESS, asked).mappings().all()
        return [_backfill(row) for row in rows]

    def change(self, backfill_id: str, status: BackfillStatus, *, actor: str, now: datetime) -> int:
        """Returns how many partitions it took off the schedule, which only a cancellation does; what that marks is
        logged. What a run has come for goes on; what waits for one does not, unless it is resumed."""
        before = [each for each in BackfillStatus if each not in {status, BackfillStatus.CANCELLED}]
        asked = {"backfill_id": backfill_id, "status": status, "from_any": before, "actor": actor, "now": now}
        with transaction(self._engine) as connection:
            if connection.execute(_CHANGE, asked).rowcount != 1:
                found = connection.execute(_STATUS, asked).scalar_one_or_none()
                raise TransitionError(_unchangeable(backfill_id, found, status))
            connection.execute(_LOCK, asked)
            connection.execute(_TAKE_BACK, asked)
            if status is not BackfillStatus.CANCELLED:
                return 0
            given_up = connection.execute(_GIVE_UP, {**asked, "manual": MANUAL, "given_up": CANCELLED_BACKFILL})
            marked = {key_from_row(row): "due → terminal" for row in given_up.mappings()}
            why = f"backfill {backfill_id} was cancelled"
            self._log(connection, Action.MARK, marked, actor=actor, reason=why, now=now)
            taken_off = connection.execute(_TAKE_OFF, asked).rowcount
            connection.execute(_COUNT_TAKEN_OFF, {**asked, "taken_off": taken_off})
            return taken_off

    def _log(
        self,
        connection: Connection,
        action: Action,
        changes: Mapping[PartitionKey, str],
        *,
        actor: str,
        reason: str,
        now: datetime,
    ) -> None:
        log_overrides(
            connection,
            [
                Override(
                    override_id=self._new_override_id(),
                    action=action,
                    key=key,
                    actor=actor,
                    reason=reason,
                    logged_at=now,
                    change=change,
                )
                for key, change in changes.items()
            ],
        )


def _unchangeable(backfill_id: str, found: str | None, wanted: BackfillStatus) -> str:
    if found is None:
        return f"backfill {backfill_id} does not exist; `gads backfill status` lists those that do"
    if found == wanted:
        return f"backfill {backfill_id} is {found} already"
    return f"backfill {backfill_id} is {found} for good; `gads backfill` with the same days starts another"


def _backfill(row: RowMapping) -> Backfill:
    return Backfill(
        backfill_id=row["backfill_id"],
        queries=tuple(row["queries"]),
        customer_ids=tuple(map(CustomerId, row["customer_ids"])),
        first=row["first_day"],
        last=row["last_day"],
        partitions=row["partitions"],
        operations=row["operations"],
        taken_off=row["taken_off"],
        status=BackfillStatus(row["status"]),
        created_by=row["created_by"],
        created_at=row["created_at"].astimezone(UTC),
        changed_by=row["changed_by"],
        changed_at=row["changed_at"].astimezone(UTC),
        remaining=row["remaining"],
        queued=row["queued"],
        running=row["running"],
        retrying=row["retrying"],
        terminal=row["terminal"],
        blocked=row["blocked"],
    )
