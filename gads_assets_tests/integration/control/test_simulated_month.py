"""A month of the control plane in simulated time: accounts, an API, runs and daemons that fail in every way they can.

The database is real, and so is all of the product's code that touches it; see simulated_agency.py for what is not.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy import Engine, text
from ulid import ULID

from gads_assets.domain.accounts import AccountStatus
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.ledger_news import Disposition
from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionStatus
from gads_assets.extract.client import EMULATOR
from gads_assets.state.customers import CustomerRegister
from gads_assets.state.leases import Leases
from gads_assets.state.operations import OperationsBudget
from gads_assets.state.partition_states import StateStore
from gads_assets.state.rows import key_from_row, key_row, rows_json
from gads_assets.state.schedule import Schedule
from gads_assets_tests.integration.control.simulated_agency import (
    ACCOUNTS,
    AWAY,
    AWAY_FROM,
    AWAY_UNTIL,
    BEGIN,
    DAILY_OPERATIONS,
    DAYS,
    POLICY,
    SOURCE,
    SimulatedApi,
    opened_partitions,
)
from gads_assets_tests.integration.control.simulated_daemons import Daemon, look_at_once
from gads_assets_tests.integration.control.simulated_runs import LEASE, Clock, SimulatedRuns
from gads_assets_tests.integration.control.witness import Trouble

_log = logging.getLogger(__name__)

SEED = 20241020
HISTORY_DAYS = 30
BOTH_DOWN = (BEGIN + timedelta(days=21), timedelta(hours=40))
AT_ONCE = (BEGIN + timedelta(days=14), BEGIN + timedelta(days=18))

_ADD_BACKFILL = text("""
    INSERT INTO backfill (backfill_id, source, queries, customer_ids, first_day, last_day, partitions, operations,
        status, created_by, created_at, changed_by, changed_at)
    VALUES (:backfill_id, :source, ARRAY['ad_group'], ARRAY['2000000000'], :first, :last, :partitions, 200, 'active',
        'somebody', :now, 'somebody', :now)
""")

_ADD_HISTORY = text("""
    INSERT INTO retry_schedule (source, customer_id, query_name, logical_date, purpose, disposition, next_run_at,
        backoff_strategy, backfill_id, scheduled_at)
    SELECT source, customer_id, query_name, logical_date, 'backfill', 'due', due_at, 'asked for', :backfill_id, :now
    FROM jsonb_to_recordset(CAST(:rows AS jsonb))
        AS n (source text, customer_id text, query_name text, logical_date date, due_at timestamptz)
""")


@dataclass
class Month:
    clock: Clock
    api: SimulatedApi
    runs: SimulatedRuns
    daemons: Sequence[Daemon]
    engine: Engine
    history: set[PartitionKey]
    first_look: datetime

    def rows(self, statement: str) -> list[Any]:
        with self.engine.begin() as connection:
            return list(connection.execute(text(statement)).mappings())


@pytest.fixture
def month(engine: Engine, acting: Callable[[Role], Engine]) -> Month:
    CustomerRegister(engine).register_customers(ACCOUNTS, now=BEGIN)
    clock, random = Clock(now=BEGIN), Random(SEED)
    extractor, operator = acting(Role.EXTRACTOR), acting(Role.OPERATOR)
    budgets = [
        OperationsBudget(role, origin=EMULATOR, allowed=DAILY_OPERATIONS, clock=clock) for role in (extractor, operator)
    ]
    runs = SimulatedRuns(
        clock=clock,
        api=SimulatedApi(random=Random(SEED + 1), budget=budgets[0]),
        random=random,
        schedule=Schedule(extractor, source=SOURCE),
        leases=Leases(extractor, lasts=LEASE, clock=clock),
        extractor=StateStore(extractor),
        validator=StateStore(acting(Role.VALIDATOR)),
    )
    daemons = [
        Daemon(
            engine=operator,
            leases=Leases(operator, lasts=LEASE, clock=clock),
            runs=runs,
            budget=budgets[1],
            random=Random(SEED + 2 + number),
        )
        for number in range(2)
    ]
    return Month(
        clock=clock,
        api=runs.api,
        runs=runs,
        daemons=daemons,
        engine=engine,
        history=ask_for_history(engine),
        first_look=clock.now,
    )


def ask_for_history(engine: Engine) -> set[PartitionKey]:
    """Six thousand days before the month; some of it can run at once, the rest a slice a day."""
    backfill_id, last = str(ULID()), BEGIN.date() - timedelta(days=5)
    due = {}
    for number, each in enumerate(ACCOUNTS):
        later = timedelta(days=max(0, number - 75) // 5)
        for back in range(HISTORY_DAYS):
            key = PartitionKey(
                source=SOURCE,
                customer_id=each.customer_id,
                query_name="ad_group",
                logical_date=last - timedelta(days=back),
            )
            due[key] = BEGIN + later
    asked = {"backfill_id": backfill_id, "now": BEGIN}
    rows = rows_json([{**key_row(key), "due_at": at} for key, at in due.items()])
    with engine.begin() as connection:
        first = last - timedelta(days=HISTORY_DAYS - 1)
        span = {"source": SOURCE, "first": first, "last": last, "partitions": len(due)}
        connection.execute(_ADD_BACKFILL, asked | span)
        connection.execute(_ADD_HISTORY, asked | {"rows": rows})
    return set(due)


def live_through(month: Month) -> None:
    """The month with all that goes wrong in it."""
    clock, register = month.clock, CustomerRegister(month.engine)
    closed = [
        replace(each, status=AccountStatus.INACTIVE, closed_at=AWAY_FROM, closed_reason="cancelled") for each in AWAY
    ]
    clock.after(AWAY_FROM - clock.now, lambda: register.register_customers(closed, now=AWAY_FROM))
    clock.after(AWAY_UNTIL - clock.now, lambda: register.register_customers(AWAY, now=AWAY_UNTIL))

    def both_down() -> None:
        for daemon in month.daemons:
            daemon.back_at = clock.now + BOTH_DOWN[1]

    clock.after(BOTH_DOWN[0] - clock.now, both_down)
    for day in range(1, DAYS):
        clock.after(timedelta(days=day, hours=3), lambda: launch_by_hand(month))
    for day in (1, 3, 8, 18):
        clock.after(timedelta(days=day), lambda: analyze(month.engine))
    for daemon in month.daemons:
        daemon.live()

    def at_once() -> None:
        look_at_once(month.daemons)
        if clock.now < AT_ONCE[1]:
            clock.after(timedelta(minutes=75), at_once)

    clock.after(AT_ONCE[0] - clock.now, at_once)
    for day in range(1, DAYS + 1):
        clock.pass_until(BEGIN + timedelta(days=day))
        assert month.runs.witness.wrongs == []


def analyze(engine: Engine) -> None:
    """In real time the server finds the time for that by itself."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


def launch_by_hand(month: Month, patience: int = 40) -> None:
    """A person does some recent days of a dozen accounts again, and some that wait in the queue just then, whatever the
    schedule means to do with them."""
    waiting = month.rows("SELECT * FROM retry_schedule WHERE batch_id IS NOT NULL AND dagster_run_id IS NULL LIMIT 3")
    if not waiting and patience:
        return month.clock.after(timedelta(minutes=7), lambda: launch_by_hand(month, patience - 1))
    customers = {each.customer_id for each in month.runs.random.sample(ACCOUNTS, 12)}
    recent = month.clock.now.date() - timedelta(days=10)
    known = [key for key in month.runs.witness.asked if key.customer_id in customers and key.logical_date >= recent]
    return month.runs.launch_by_hand(sorted({*map(key_from_row, waiting), *sorted(known)[:80]}), timedelta(hours=6))


def let_settle(month: Month) -> None:
    """Nothing new goes wrong and no further day opens, until nothing is left to do."""
    month.api.calm, month.runs.restless = True, False
    for daemon in month.daemons:
        daemon.restless, daemon.opens, daemon.back_at = False, False, None
    for _ in range(40):
        month.clock.pass_until(month.clock.now + timedelta(hours=12))
        if not month.rows("SELECT FROM retry_schedule WHERE disposition = 'due' LIMIT 1"):
            return


def test_a_month_of_trouble_loses_nothing_and_does_nothing_twice(month: Month) -> None:
    live_through(month)
    opened = set(opened_partitions(month.first_look, month.clock.now))
    let_settle(month)
    witness, happened = month.runs.witness, month.runs.happened
    _log.info("what happened: %s", dict(sorted(happened.items())))
    _log.info("refusals: %s; backfills before fresh: %s", month.api.refusals, witness.backfills_before_fresh)

    assert witness.wrongs == []
    schedule = {key_from_row(row): row for row in month.rows("SELECT * FROM retry_schedule")}
    states = {key_from_row(row): row for row in month.rows("SELECT * FROM partition_state")}

    # Everything that was to be asked for was, and came to an end that somebody can read.
    requested = opened | month.history
    assert [key for key in requested if not witness.asked[key] and key not in schedule] == []
    assert set(witness.asked) - requested == set()
    assert {row["disposition"] for row in schedule.values()} == {Disposition.TERMINAL, Disposition.BLOCKED}
    assert [row for row in schedule.values() if row["batch_id"] or not row["reason"]] == []
    unsettled = [
        key
        for key in requested
        if key not in schedule and (key not in states or states[key]["status"] != PartitionStatus.SUCCESS)
    ]
    assert unsettled == []
    rightly = {
        Disposition.TERMINAL: witness.is_terminal_rightly,
        Disposition.BLOCKED: witness.is_blocked_rightly,
    }
    given_up_wrongly = [
        key for key, row in schedule.items() if not rightly[row["disposition"]](key, POLICY, row["scheduled_at"])
    ]
    assert given_up_wrongly == []
    assert {key: row["status"] for key, row in states.items()} == witness.statuses

    # Once each: verdicts, returns to pending, days that open.
    assert {key: row["attempt_count"] for key, row in states.items()} == dict(witness.verdicts)
    [logged] = month.rows("SELECT count(*) AS returns FROM override_log WHERE action = 'retry'")
    assert logged["returns"] == witness.returns == sum(row["version"] - row["attempt_count"] for row in states.values())

    # Neither the API nor the queue had to bear more than it should.
    assert max(month.api.calls.values()) <= DAILY_OPERATIONS
    assert set(witness.backfills_before_fresh) <= {0, 1}
    created = Counter(run_key for run_key, runs in month.runs.by_key.items() for _ in runs)
    assert sum(number - 1 for number in created.values()) == happened["run created twice"]
    assert month.rows("SELECT FROM partition_lease") == month.rows("SELECT FROM run_lease") == []

    # And it was a month of trouble.
    seldom = {trouble.value: 5 for trouble in Trouble} | {
        **{f"{purpose} run": 20 for purpose in ("fresh", "retry", "restatement", "backfill")},
        "daemon killed": 20,
        "interrupted look": 50,
        "looks at once": 50,
        "run created twice": 5,
        "batch was another run's": 3,
        "lease ran out": 20,
        "run by hand": DAYS - 1,
        "partition was another run's": 3,
        "judged by the reconciler": 5,
        "verdict repeated": 100,
        "wrong clock": 30,
    }
    assert {what: happened[what] for what, least in seldom.items() if happened[what] < least} == {}
    assert set(month.api.refusals) == {"transient", "quota", "customer", "query", "authentication", "budget"}
