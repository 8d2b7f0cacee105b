"""Daemons that look at the schedule again and again, each with a will of its own to die in the middle of it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from threading import Barrier

from sqlalchemy import Engine, text
from ulid import ULID

from gads_assets.control.ticking import ControlPlane, Tick
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.ledger_news import LedgerNews
from gads_assets.domain.quota import is_reserved_for_fresh, why_not_asked
from gads_assets.domain.scheduling import Purpose
from gads_assets.state.customers import CustomerRegister
from gads_assets.state.deciding import Decided
from gads_assets.state.dispatching import Dispatcher, OpenBatch
from gads_assets.state.leases import Leases
from gads_assets.state.opening import Opened, OpeningRule
from gads_assets.state.operations import OperationsBudget
from gads_assets.state.rows import key_from_row
from gads_assets.state.schedule import Schedule
from gads_assets_tests.integration.control.simulated_agency import POLICY, RULES, SOURCE
from gads_assets_tests.integration.control.simulated_runs import SimulatedRuns


class KilledError(Exception):
    """The daemon's process is gone between two of its steps."""


class InterruptedSchedule(Schedule):
    """Something may happen before and after every transaction."""

    def __init__(self, engine: Engine, *, between: Callable[[], None], runs: SimulatedRuns) -> None:
        super().__init__(engine, source=SOURCE)
        self._between = between
        self._runs = runs

    def open_batches(self) -> list[OpenBatch]:
        self._between()
        return super().open_batches()

    def news(
        self, queries: Collection[str], *, over: Collection[str], since: datetime | None, now: datetime, most: int
    ) -> list[LedgerNews]:
        self._between()
        return super().news(queries, over=over, since=since, now=now, most=most)

    def decide(self, decided: Sequence[Decided], *, now: datetime) -> None:
        self._between()
        super().decide(decided, now=now)

    def reach(self, name: str, reached_at: datetime, *, now: datetime) -> None:
        self._between()
        super().reach(name, reached_at, now=now)

    def schedule_opened(self, rules: Sequence[OpeningRule], *, now: datetime) -> Opened:
        self._between()
        return super().schedule_opened(rules, now=now)

    def dispatch(
        self, dispatcher: Dispatcher, most_open: Mapping[Purpose, int], *, over: Collection[str] = (), now: datetime
    ) -> list[str]:
        self._between()
        dispatched = super().dispatch(dispatcher, most_open, over=over, now=now)
        if dispatched:
            self._runs.witness.dispatched(self._partitions_of(dispatched), self._runs.clock.now)
        self._between()
        return dispatched

    def _partitions_of(self, batch_ids: Sequence[str]) -> dict[str, list[PartitionKey]]:
        found: dict[str, list[PartitionKey]] = {batch_id: [] for batch_id in batch_ids}
        with self._engine.begin() as connection:
            asked = text("SELECT * FROM retry_schedule WHERE batch_id = ANY (:batch_ids)")
            for row in connection.execute(asked, {"batch_ids": batch_ids}).mappings():
                found[row["batch_id"]].append(key_from_row(row))
        return found


@dataclass(eq=False)
class Daemon:
    """`restless` ones are killed, and others get a word in between their steps."""

    engine: Engine
    leases: Leases
    runs: SimulatedRuns
    budget: OperationsBudget
    random: Random
    restless: bool = True
    opens: bool = True
    largest: int = 200
    is_ticking: bool = False
    back_at: datetime | None = None
    _left: int = field(default=0)

    def live(self) -> None:
        """A look, and another one later."""
        self.look()
        minutes = self.random.uniform(50, 140)
        self.runs.clock.after(timedelta(minutes=minutes), self.live)

    def look(self) -> None:
        now = self.runs.clock.now
        if self.is_ticking or (self.back_at and now < self.back_at):
            return
        self.is_ticking = True
        self._left = self.random.randrange(1, 16) if self.restless and self.random.random() < 0.06 else -1
        try:
            self.bury()
            self.request(self.plane(self._between).tick(now=now).requests)
        except KilledError:
            self.runs.happened["daemon killed"] += 1
            self.back_at = self.runs.clock.now + timedelta(minutes=self.random.uniform(1, 120))
        finally:
            self.is_ticking = False
            self.runs.happened["look"] += 1

    def bury(self) -> None:
        """Runs without a sign of life: Dagster hears of it first, for a lease that is gone tells nobody any more."""
        for run_id in self.leases.expired():
            self._between()
            self.runs.happened["lease ran out"] += 1
            self.runs.report_failed(run_id)
            self._between()
            self.leases.remove_expired(run_id)

    def request(self, batches: Sequence[OpenBatch]) -> None:
        for batch in batches:
            self._between()
            self.runs.request(batch)

    def plane(self, between: Callable[[], None]) -> ControlPlane:
        policies = {rule.query_name: POLICY for rule in RULES}
        customers = [each.customer_id for each in CustomerRegister(self.engine).customers()]
        status = self.budget.status()
        return ControlPlane(
            schedule=InterruptedSchedule(self.engine, between=between, runs=self.runs),
            policies=policies,
            rules=RULES if self.opens else (),
            dispatcher=Dispatcher(
                source=SOURCE,
                customers=customers,
                start_dates={rule.query_name: rule.start_date for rule in RULES},
                policies=policies,
                largest=self.largest,
                new_batch_id=lambda: str(ULID()),
                new_override_id=lambda: str(ULID()),
            ),
            runs_of=self.runs.runs_of,
            not_asked=why_not_asked(status),
            reserved_for_fresh=is_reserved_for_fresh(status, next_days=len(customers) * len(RULES)),
            random=self.random.random,
            sweep_every=timedelta(hours=8),
        )

    def _between(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise KilledError
        if self.restless and self.random.random() < 0.02:
            # Whatever comes next in the world comes now: runs, and the other daemon.
            self.runs.happened["interrupted look"] += 1
            clock = self.runs.clock
            clock.pass_until(clock.now + timedelta(minutes=self.random.uniform(1, 12)))


def look_at_once(daemons: Sequence[Daemon]) -> None:
    """In threads, as processes on two machines would."""
    if any(daemon.is_ticking for daemon in daemons):
        return
    together = Barrier(len(daemons))
    now = daemons[0].runs.clock.now

    def tick(daemon: Daemon) -> Tick:
        plane = daemon.plane(lambda: None)
        together.wait(timeout=60)
        return plane.tick(now=now)

    with ThreadPoolExecutor(len(daemons)) as pool:
        ticks = list(pool.map(tick, daemons))
    daemons[0].runs.happened["looks at once"] += 1
    for daemon, each in zip(daemons, ticks, strict=True):
        daemon._left = -1
        daemon.request(each.requests)
