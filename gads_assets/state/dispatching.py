"""Taking what is due off the schedule, and giving it to the run that was made for it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from sqlalchemy import Connection, RowMapping, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.retrying import RetryPolicy
from gads_assets.domain.scheduling import Batch, Due, Purpose, company_of, plan_batches
from gads_assets.domain.windows import MOST_DAYS
from gads_assets.state.leases import LIVING_LEASE
from gads_assets.state.overriding import return_failed_to_pending
from gads_assets.state.rows import key_from_row, key_row, rows_json

_OF_THE_ROW = """
    ({0}.source, {0}.customer_id, {0}.query_name, {0}.logical_date)
        = (r.source, r.customer_id, r.query_name, r.logical_date)
"""

# Newest days first, but for those that may be why their runs came to nothing. History comes in stretches of days, and
# what is due again by customers: their days are one call.
# What an operator wants tried again runs although its backfill is paused. What was tried since it was decided, by a
# person for instance, is decided anew first.
_DUE = text(f"""
    SELECT r.source, r.customer_id, r.query_name, r.logical_date, r.fruitless_runs
    FROM retry_schedule AS r LEFT JOIN backfill AS b USING (backfill_id)
        JOIN jsonb_to_recordset(CAST(:queries AS jsonb)) AS q (query_name text, start_date date)
            ON q.query_name = r.query_name AND r.logical_date >= q.start_date
    WHERE r.source = :source AND r.disposition = 'due' AND r.batch_id IS NULL AND r.purpose = :purpose
        AND r.next_run_at <= :now AND r.customer_id = ANY (:customers)
        AND (r.purpose <> 'backfill' OR b.status = 'active')
        AND NOT EXISTS ({LIVING_LEASE.format("r")})
        AND NOT EXISTS (
            SELECT FROM partition_state AS s WHERE {_OF_THE_ROW.format("s")} AND s.attempt_count <> r.seen_attempts)
        AND NOT EXISTS (
            SELECT FROM extraction_attempt AS e WHERE {_OF_THE_ROW.format("e")} AND e.run_seq > r.seen_run_seq)
    ORDER BY r.fruitless_runs > 0, CASE r.purpose WHEN 'restatement' THEN 0
            WHEN 'backfill' THEN (b.last_day - r.logical_date) / {MOST_DAYS}
            ELSE DATE '9999-12-31' - r.logical_date END,
        r.customer_id, r.query_name, r.logical_date DESC
    LIMIT :most FOR UPDATE OF r SKIP LOCKED
""")

_DISPATCH = text("""
    UPDATE retry_schedule AS r SET batch_id = n.batch_id, dispatched_at = :now, dispatches = r.dispatches + 1
    FROM jsonb_to_recordset(CAST(:rows AS jsonb))
        AS n (source text, customer_id text, query_name text, logical_date date, batch_id text)
    WHERE (r.source, r.customer_id, r.query_name, r.logical_date)
        = (n.source, n.customer_id, n.query_name, n.logical_date)
""")

# Nobody waits for it: who has it may be a daemon whose machine is gone.
_ALONE = text("SELECT pg_try_advisory_xact_lock(hashtextextended('dispatch of ' || :source, 0))")

_OPEN = text("""
    SELECT purpose, count(DISTINCT batch_id) AS batches FROM retry_schedule
    WHERE source = :source AND batch_id IS NOT NULL AND batch_id <> ALL (:over) GROUP BY purpose
""")

_BATCHES = text("""
    SELECT batch_id, min(purpose) AS purpose, array_agg(DISTINCT query_name) AS queries, count(*) AS partitions,
        max(dispatches) AS attempt, min(dispatched_at) AS dispatched_at, max(dagster_run_id) AS dagster_run_id
    FROM retry_schedule WHERE source = :source AND batch_id IS NOT NULL GROUP BY batch_id ORDER BY batch_id
""")

# Whoever comes second, or comes again when the first is long over, gets nothing.
_CLAIM = text("""
    UPDATE retry_schedule SET dagster_run_id = :run_id
    WHERE batch_id = :batch_id AND coalesce(dagster_run_id, :run_id) = :run_id
    RETURNING source, customer_id, query_name, logical_date
""")

_LET_GO_OF_OTHERS = text("""
    UPDATE retry_schedule SET batch_id = NULL, dispatched_at = NULL, dagster_run_id = NULL
    WHERE source = :source AND batch_id = ANY (:over) AND query_name <> ALL (:queries)
""")

_CLAIMED_BY = text("SELECT min(dagster_run_id) FROM retry_schedule WHERE batch_id = :batch_id")


@dataclass(frozen=True, kw_only=True)
class OpenBatch:
    """Partitions that were taken off the schedule for one run; `dagster_run_id` is the run that has come for them."""

    batch_id: str
    purpose: Purpose
    queries: tuple[str, ...]
    partitions: int
    attempt: int
    dispatched_at: datetime
    dagster_run_id: str | None

    @property
    def run_key(self) -> str:
        """Dagster makes one run of it, however often it is asked for."""
        return f"{self.purpose} {self.batch_id} attempt {self.attempt}"


@dataclass(frozen=True, kw_only=True)
class Dispatcher:
    """What may be dispatched: partitions of these customers, and of these queries from their first day on."""

    source: str
    customers: Collection[str]
    start_dates: Mapping[str, date]
    policies: Mapping[str, RetryPolicy]
    largest: int
    new_batch_id: Callable[[], str]
    new_override_id: Callable[[], str]

    def dispatch(
        self, connection: Connection, most_open: Mapping[Purpose, int], *, over: Collection[str] = (), now: datetime
    ) -> list[str]:
        """Takes batches off the schedule until as many of each purpose are open, but for those that are `over`, of
        which another run may have a partition still; returns their ids. None while another daemon does so.

        A failure among them is pending again, which is logged, before any run can come for it.
        """
        dispatched: list[str] = []
        if not connection.execute(_ALONE, {"source": self.source}).scalar_one():
            return dispatched
        unfinished = connection.execute(_OPEN, {"source": self.source, "over": list(over)})
        opened = {row.purpose: row.batches for row in unfinished}
        for purpose, most in most_open.items():
            batches_at_most = most - opened.get(purpose, 0)
            if batches_at_most < 1:
                continue
            due = self._due(connection, purpose, most=batches_at_most * self.largest, now=now)
            batches = plan_batches(due, largest=self.largest)[:batches_at_most]
            if not batches:
                continue
            if purpose is not Purpose.REVALIDATE:
                self._return_to_pending(connection, batches, now=now)
            named = {self.new_batch_id(): batch for batch in batches}
            rows = [
                {**key_row(each.key), "batch_id": batch_id} for batch_id, batch in named.items() for each in batch.due
            ]
            connection.execute(_DISPATCH, {"rows": rows_json(rows), "now": now})
            dispatched += named
        return dispatched

    def _due(self, connection: Connection, purpose: Purpose, *, most: int, now: datetime) -> list[Due]:
        asked = {
            "source": self.source,
            "purpose": purpose,
            "customers": list(self.customers),
            "queries": rows_json([{"query_name": name, "start_date": day} for name, day in self.start_dates.items()]),
            "now": now,
            "clock": now,
            "most": most,
        }
        return [self._found(row, purpose) for row in connection.execute(_DUE, asked).mappings()]

    def _found(self, row: RowMapping, purpose: Purpose) -> Due:
        key = key_from_row(row)
        tries_left = self.policies[key.query_name].max_extraction_attempts - row["fruitless_runs"]
        company = company_of(row["fruitless_runs"], tries_left=tries_left, largest=self.largest)
        return Due(key=key, purpose=purpose, at_most=company)

    def _return_to_pending(self, connection: Connection, batches: Sequence[Batch], *, now: datetime) -> None:
        return_failed_to_pending(
            connection,
            [each.key for batch in batches for each in batch.due],
            actor="control plane",
            reason=f"{batches[0].purpose}: it is due to be tried again",
            now=now,
            new_override_id=self.new_override_id,
        )


def read_batches(connection: Connection, *, source: str) -> list[OpenBatch]:
    return [
        OpenBatch(
            batch_id=row["batch_id"],
            purpose=Purpose(row["purpose"]),
            queries=tuple(sorted(row["queries"])),
            partitions=row["partitions"],
            attempt=row["attempt"],
            dispatched_at=row["dispatched_at"].astimezone(UTC),
            dagster_run_id=row["dagster_run_id"],
        )
        for row in connection.execute(_BATCHES, {"source": source}).mappings()
    ]


def claim_batch(connection: Connection, batch_id: str, run_id: str) -> tuple[list[PartitionKey], str | None]:
    """What the run may work on; where that is nothing, the run that came before it, if there is one."""
    asked = {"batch_id": batch_id, "run_id": run_id}
    keys = [key_from_row(row) for row in connection.execute(_CLAIM, asked).mappings()]
    claimed_by = None if keys else connection.execute(_CLAIMED_BY, asked).scalar_one()
    return sorted(keys), claimed_by


def let_go_of_others(connection: Connection, *, source: str, queries: Collection[str], over: Collection[str]) -> None:
    connection.execute(_LET_GO_OF_OTHERS, {"source": source, "queries": list(queries), "over": list(over)})
