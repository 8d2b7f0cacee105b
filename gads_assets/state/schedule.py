"""The control plane's schedule: what is to run and why, what waits for an operator, and what a run has come for."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from sqlalchemy import Engine, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.ledger_news import LedgerNews
from gads_assets.domain.scheduling import Purpose
from gads_assets.state.connection import transaction
from gads_assets.state.deciding import Decided, read_news, write_decisions
from gads_assets.state.dispatching import Dispatcher, OpenBatch, claim_batch, let_go_of_others, read_batches
from gads_assets.state.leases import LIVES
from gads_assets.state.opening import Opened, OpeningRule, schedule_opened, schedule_wanted

_CLOCK = text("SELECT statement_timestamp()")

_REACHED = text("SELECT reached_at FROM control_cursor WHERE (source, name) = (:source, :name)")

# What a living run has recorded is left to it, however long it takes: it is looked at when the run is over.
_HORIZON = text(f"SELECT least(CAST(:clock AS timestamptz), min(taken_at)) FROM run_lease AS held WHERE {LIVES}")

_REACH = text("""
    INSERT INTO control_cursor AS c (source, name, reached_at) VALUES (:source, :name, :reached_at)
    ON CONFLICT (source, name) DO UPDATE SET reached_at = excluded.reached_at
    WHERE c.reached_at < excluded.reached_at OR c.reached_at > :now
""")


class Schedule:
    """Every method is one transaction, and safe beside another process that does the same."""

    def __init__(self, engine: Engine, *, source: str) -> None:
        self._engine = engine
        self._source = source

    def clock(self) -> datetime:
        """The database's: of the machines of a deployment, one that is wrong must not decide what is due."""
        with transaction(self._engine) as connection:
            moment: datetime = connection.execute(_CLOCK).scalar_one()
            return moment.astimezone(UTC)

    def schedule_opened(self, rules: Sequence[OpeningRule], *, now: datetime) -> Opened:
        """Days that have opened since this was last asked, and published ones that came to an age at which they are
        asked for again."""
        with transaction(self._engine) as connection:
            return schedule_opened(connection, source=self._source, rules=rules, now=now)

    def schedule_wanted(
        self, keys: Iterable[PartitionKey], *, purpose: Purpose, strategy: str, reason: str, now: datetime
    ) -> int:
        """Those of active accounts, since they were registered, of which nothing is scheduled or under way and the last
        verdict is no failure; returns how many."""
        with transaction(self._engine) as connection:
            return schedule_wanted(connection, keys, purpose=purpose, strategy=strategy, reason=reason, now=now)

    def news(
        self,
        queries: Collection[str],
        *,
        over: Collection[str],
        since: datetime | None,
        now: datetime,
        most: int,
    ) -> list[LedgerNews]:
        """Of which no decision knew: tried since then or in one of the batches that are over, and in no run now."""
        with transaction(self._engine) as connection:
            return read_news(
                connection, source=self._source, queries=queries, over=over, since=since, clock=now, most=most
            )

    def decide(self, decided: Sequence[Decided], *, now: datetime) -> None:
        """Where the schedule is still as it was when the news were read."""
        with transaction(self._engine) as connection:
            write_decisions(connection, decided, now=now)

    def dispatch(
        self, dispatcher: Dispatcher, most_open: Mapping[Purpose, int], *, over: Collection[str] = (), now: datetime
    ) -> list[str]:
        with transaction(self._engine) as connection:
            return dispatcher.dispatch(connection, most_open, over=over, now=now)

    def let_go_of_others(self, queries: Collection[str], *, over: Collection[str]) -> None:
        """Partitions of other queries, which have left the catalog, are in these batches no more: no run can come for
        them, and a batch that never ends keeps a place."""
        with transaction(self._engine) as connection:
            let_go_of_others(connection, source=self._source, queries=queries, over=over)

    def open_batches(self) -> list[OpenBatch]:
        with transaction(self._engine) as connection:
            return read_batches(connection, source=self._source)

    def claim_batch(self, batch_id: str, run_id: str) -> tuple[list[PartitionKey], str | None]:
        """For a run that has come for its batch: its partitions, or none and the run that came first, if any did."""
        with transaction(self._engine) as connection:
            return claim_batch(connection, batch_id, run_id)

    def reached(self, name: str) -> datetime | None:
        """How far somebody has come who looks again and again."""
        with transaction(self._engine) as connection:
            moment = connection.execute(_REACHED, {"source": self._source, "name": name}).scalar_one_or_none()
            return moment and moment.astimezone(UTC)

    def horizon(self, *, now: datetime) -> datetime:
        """Up to when all that is on record may be looked at: now, or when the first run that lives began."""
        with transaction(self._engine) as connection:
            moment: datetime = connection.execute(_HORIZON, {"clock": now}).scalar_one()
            return moment.astimezone(UTC)

    def reach(self, name: str, reached_at: datetime, *, now: datetime) -> None:
        """All up to then was looked at."""
        asked = {"source": self._source, "name": name, "reached_at": reached_at, "now": now}
        with transaction(self._engine) as connection:
            connection.execute(_REACH, asked)
