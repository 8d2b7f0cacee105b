"""Calls to the API are made again where that helps, are not made where it cannot, and are counted across processes."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from ulid import ULID

from gads_assets.catalog.loading import load_catalog
from gads_assets.domain.accounts import day_opens_at
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.roles import Role
from gads_assets.emulator.accounts import made_up_accounts
from gads_assets.emulator.faults import parse_faults
from gads_assets.emulator.server import RunningEmulator, serve_emulator
from gads_assets.errors import AuthenticationError, CustomerUnavailableError, MissedSnapshotError, QuotaExhaustedError
from gads_assets.extract.client import EMULATOR
from gads_assets.extract.extraction import Extraction
from gads_assets.extract.pacing import Pacer
from gads_assets.extract.partitions import Extractor
from gads_assets.raw.sink import RawSink
from gads_assets.state.connection import open_engine, transaction
from gads_assets.state.operations import OperationsBudget
from gads_assets.state.partition_states import StateStore
from gads_assets_tests.agencies import connected, registered

CATALOG = load_catalog(None)
NOW = datetime(2024, 7, 1, 12, tzinfo=UTC)
DAY = date(2024, 6, 4)
AGENCY = registered(made_up_accounts(50))
SUSPENDED = [account.customer_id for account in made_up_accounts(50) if account.status == "SUSPENDED"]


class Clock:
    """Moves only when somebody sleeps, and lets them sleep only where the emulator's clock has to move too."""

    def __init__(self, *, is_real: bool = False) -> None:
        self.now = NOW
        self.slept: list[float] = []
        self._is_real = is_real

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += timedelta(seconds=seconds)
        if self._is_real:
            time.sleep(seconds)


Serve = Callable[..., RunningEmulator]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with ExitStack() as open_servers:

        def start(faults: str = "") -> RunningEmulator:
            return open_servers.enter_context(
                serve_emulator(home=tmp_path, faults=parse_faults(faults), accounts=made_up_accounts(50))
            )

        yield start


@pytest.fixture
def budget(engine: Engine) -> OperationsBudget:
    return OperationsBudget(engine, origin=EMULATOR, allowed=None)


def keys_of(customers: list[CustomerId], *days: date, query: str = "campaign") -> list[PartitionKey]:
    return [
        PartitionKey(source="google_ads", customer_id=customer, query_name=query, logical_date=day)
        for customer in customers
        for day in days
    ]


@pytest.fixture
def extract(tmp_path: Path, engine: Engine, budget: OperationsBudget) -> Callable[..., Extraction]:
    def extract(
        running: RunningEmulator,
        keys: list[PartitionKey],
        clock: Clock | None = None,
        *,
        budget: OperationsBudget = budget,
        calls_at_once: int = 8,
    ) -> Extraction:
        clock = clock or Clock()
        extractor = Extractor(
            source=connected(running, api_version=CATALOG.api_version),
            sink=RawSink(str(tmp_path / "raw")),
            store=StateStore(engine),
            pacer=Pacer(budget=budget, now=lambda: clock.now, sleep=clock.sleep),
            new_run_id=lambda: RunId(str(ULID())),
            now=lambda: clock.now,
            calls_at_once=calls_at_once,
            estranged=lambda _: (),
        )
        return extractor.extract(
            CATALOG.query(keys[0].query_name), keys, AGENCY, code_version="test", dagster_run_id="run"
        )

    return extract


def attempts(engine: Engine) -> list[tuple[str, str | None, datetime | None]]:
    with transaction(engine) as connection:
        rows = connection.execute(
            text("SELECT outcome, error_class, retry_at FROM extraction_attempt ORDER BY run_seq")
        ).all()
    return [(outcome, error, moment) for outcome, error, moment in rows]


def test_one_suspended_account_among_fifty_fails_alone(
    serve: Serve, extract: Callable[..., Extraction], engine: Engine
) -> None:
    running = serve()

    extraction = extract(running, keys_of([*AGENCY], DAY))

    assert running.operations == 50
    assert [key.customer_id for key in extraction.failed] == SUSPENDED
    assert isinstance(next(iter(extraction.failed.values())), CustomerUnavailableError)
    assert len(extraction.sealed) == 49
    assert Counter(error for _, error, _ in attempts(engine)) == {None: 49, "customer": 1}


def test_a_broken_call_is_made_again_as_a_new_extraction(
    serve: Serve, extract: Callable[..., Extraction], engine: Engine
) -> None:
    [customer, *_] = AGENCY
    running = serve(f"midstream_break@{customer}/campaign/*:1")
    clock = Clock()

    extraction = extract(running, keys_of([customer], DAY, DAY + timedelta(days=1)), clock)

    assert (len(extraction.sealed), extraction.failed) == (2, {})
    assert running.operations == 2
    assert [(outcome, error) for outcome, error, _ in attempts(engine)] == [("failed", "transient")] * 2 + [
        ("sealed", None)
    ] * 2
    assert len(clock.slept) == 1
    with transaction(engine) as connection:
        numbers = connection.execute(text("SELECT count(DISTINCT (run_id, run_seq)) FROM extraction_attempt"))
        assert numbers.scalar_one() == 4


def test_a_call_that_goes_on_breaking_is_given_up_and_says_when_to_try_again(
    serve: Serve, extract: Callable[..., Extraction], engine: Engine
) -> None:
    [customer, *_] = AGENCY
    running = serve(f"transient@{customer}/campaign/*:99")

    extraction = extract(running, keys_of([customer], DAY))

    assert extraction.sealed == {}
    assert running.operations == 3
    assert [error for _, error, _ in attempts(engine)] == ["transient"] * 3
    assert all(moment is not None and moment > NOW for _, _, moment in attempts(engine))


def test_a_short_quota_delay_is_waited_out(serve: Serve, extract: Callable[..., Extraction], engine: Engine) -> None:
    customers = [*AGENCY][:4]
    running = serve("quota@*/campaign/*:2")
    clock = Clock(is_real=True)

    extraction = extract(running, keys_of(customers, DAY), clock, calls_at_once=1)

    assert (len(extraction.sealed), extraction.failed) == (4, {})
    assert sum(clock.slept) >= 2
    assert running.operations == 5


def test_a_snapshot_whose_day_passed_while_it_waited_is_not_taken_for_that_day(
    serve: Serve, extract: Callable[..., Extraction], engine: Engine
) -> None:
    [customer, *_] = AGENCY
    query = CATALOG.query("conversion_action")
    running = serve("midstream_break@*/conversion_action/*:1")
    clock = Clock()
    clock.now = day_opens_at(AGENCY[customer].time_zone, DAY + timedelta(days=1), query.settling_delay) - timedelta(
        milliseconds=1
    )

    extraction = extract(running, keys_of([customer], DAY, query=query.name), clock)

    assert [type(error) for error in extraction.failed.values()] == [MissedSnapshotError]
    assert [error for _, error, _ in attempts(engine)] == ["transient", "missed_snapshot"]
    assert running.operations == 1


def test_a_delay_of_half_a_day_stops_further_calls_here_and_in_other_processes_and_says_until_when(
    serve: Serve, extract: Callable[..., Extraction], engine: Engine
) -> None:
    customers = [*AGENCY][:40]
    running = serve("quota@*/campaign/*:43200")
    clock = Clock()

    extraction = extract(running, keys_of(customers, DAY), clock, calls_at_once=1)

    assert running.operations == 1
    assert extraction.sealed == {}
    assert {type(error) for error in extraction.failed.values()} == {QuotaExhaustedError}
    moments = {moment for _, _, moment in attempts(engine)}
    assert len(attempts(engine)) == 40
    assert all(moment and abs(moment - NOW - timedelta(hours=12)) < timedelta(minutes=1) for moment in moments)
    # Another process shares nothing but the database.
    elsewhere = OperationsBudget(engine, origin=EMULATOR, allowed=None)
    extract(running, keys_of(customers, DAY + timedelta(days=1)), Clock(), budget=elsewhere)
    assert running.operations == 1
    assert clock.slept == []
    status = elsewhere.status()
    assert status.paused_until is not None
    assert status.reason is not None
    assert "quota" in status.reason


def test_a_spent_daily_budget_makes_no_call_and_records_until_when(
    serve: Serve, extract: Callable[..., Extraction], engine: Engine
) -> None:
    customers = [*AGENCY][:10]
    running = serve()
    spent = OperationsBudget(engine, origin=EMULATOR, allowed=4)

    extraction = extract(running, keys_of(customers, DAY), budget=spent)

    assert (running.operations, len(extraction.sealed), len(extraction.failed)) == (4, 4, 6)
    assert all("were" in str(error) or "used up or paused until" in str(error) for error in extraction.failed.values())
    assert sum(moment is not None for _, _, moment in attempts(engine)) == 6


def test_refused_credentials_stop_everything_and_every_partition_says_so(
    serve: Serve, extract: Callable[..., Extraction], engine: Engine
) -> None:
    customers = [*AGENCY][:30]
    running = serve("bad_auth@*/campaign/*")

    with pytest.raises(AuthenticationError):
        extract(running, keys_of(customers, DAY), calls_at_once=2)

    assert running.operations <= 2
    assert Counter(error for _, error, _ in attempts(engine)) == {"authentication": 30}


def test_an_account_that_cannot_be_asked_is_asked_once_however_many_calls_its_days_would_take(
    serve: Serve, extract: Callable[..., Extraction], engine: Engine
) -> None:
    [customer, *_] = AGENCY
    days = [date(2023, 1, 1) + timedelta(days=offset) for offset in range(300)]
    running = serve(f"customer_suspended@{customer}/*/*")

    extraction = extract(running, keys_of([customer], *days), calls_at_once=1)

    assert running.operations == 1
    assert {type(error) for error in extraction.failed.values()} == {CustomerUnavailableError}
    assert len(attempts(engine)) == 300


def test_a_fault_of_ours_is_raised_when_every_other_account_has_had_its_turn(
    serve: Serve, extract: Callable[..., Extraction], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    customers = [customer for customer in AGENCY if customer not in SUSPENDED][:12]
    running = serve()
    begin = RawSink.begin

    def broken(sink: RawSink, key: PartitionKey, run_id: RunId) -> object:
        if key.customer_id == customers[3]:
            raise TypeError("a driver's own error")
        return begin(sink, key, run_id)

    monkeypatch.setattr(RawSink, "begin", broken)
    with pytest.raises(TypeError, match="a driver's own error"):
        extract(running, keys_of(customers, DAY), calls_at_once=2)

    assert Counter(outcome for outcome, _, _ in attempts(engine)) == {"sealed": 11, "failed": 1}


def test_accounts_of_another_api_cost_no_operation(
    serve: Serve, extract: Callable[..., Extraction], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    customers = [*AGENCY][:5]
    for customer in customers:
        monkeypatch.setitem(AGENCY, customer, replace(AGENCY[customer], origin="google"))
    running = serve()

    extraction = extract(running, keys_of(customers, DAY))

    assert (running.operations, len(extraction.failed)) == (0, 5)
    assert OperationsBudget(engine, origin=EMULATOR, allowed=None).status().used == 0


def test_a_month_of_an_account_is_one_operation(
    serve: Serve, extract: Callable[..., Extraction], engine: Engine
) -> None:
    customers = [customer for customer in AGENCY if customer not in SUSPENDED][:10]
    month = [date(2024, 5, 1) + timedelta(days=offset) for offset in range(31)]
    running = serve()

    extraction = extract(running, keys_of(customers, *month))

    assert len(extraction.sealed) == 310
    assert running.operations == 10


def test_the_extractors_role_is_enough_for_all_of_it_and_reaches_no_state(
    serve: Serve, tmp_path: Path, database_url: str
) -> None:
    role = open_engine(database_url, Role.EXTRACTOR)
    [customer, *_] = AGENCY
    running = serve(f"transient@{customer}/campaign/*:1")
    clock = Clock()
    extractor = Extractor(
        source=connected(running, api_version=CATALOG.api_version),
        sink=RawSink(str(tmp_path / "raw")),
        store=StateStore(role),
        pacer=Pacer(
            budget=OperationsBudget(role, origin=EMULATOR, allowed=100), now=lambda: clock.now, sleep=clock.sleep
        ),
        new_run_id=lambda: RunId(str(ULID())),
        now=lambda: clock.now,
        calls_at_once=8,
        estranged=lambda _: (),
    )

    extraction = extractor.extract(
        CATALOG.query("campaign"), keys_of([customer], DAY), AGENCY, code_version="test", dagster_run_id="run"
    )

    assert len(extraction.sealed) == 1
    for statement in (
        "SELECT * FROM partition_state",
        "INSERT INTO partition_state SELECT * FROM partition_state",
        "UPDATE partition_state SET status = 'success'",
        "DELETE FROM partition_state",
    ):
        with pytest.raises(Exception, match="permission denied"), role.begin() as connection:
            connection.execute(text(statement))
    role.dispose()


def test_a_month_of_a_hundred_accounts_and_twelve_queries_costs_one_operation_a_query_and_account(
    tmp_path: Path, engine: Engine, budget: OperationsBudget
) -> None:
    agency = made_up_accounts(110)
    enabled = [account for account in agency if account.status == "ENABLED" and not account.manager][:100]
    accounts = registered(enabled)
    newest = {
        account.customer_id: max(
            day
            for day in (date(2024, 6, 29), date(2024, 6, 30), date(2024, 7, 1))
            if day_opens_at(account.time_zone, day, timedelta(hours=3)) <= NOW
        )
        for account in enabled
    }
    attempts: Counter[tuple[str, str | None]] = Counter()
    with serve_emulator(home=tmp_path, accounts=agency, rows=1, today=NOW.date()) as running:
        extractor = Extractor(
            source=connected(running, api_version=CATALOG.api_version),
            sink=RawSink(str(tmp_path / "raw")),
            store=StateStore(engine),
            pacer=Pacer(budget=budget, now=lambda: NOW, sleep=time.sleep),
            new_run_id=lambda: RunId(str(ULID())),
            now=lambda: NOW,
            calls_at_once=8,
            estranged=lambda _: (),
        )
        for query in CATALOG.queries.values():
            keys = [
                PartitionKey(source="google_ads", customer_id=customer, query_name=query.name, logical_date=day)
                for customer in accounts
                for day in (newest[customer] - timedelta(days=age) for age in range(31))
            ]
            extraction = extractor.extract(query, keys, accounts, code_version="test", dagster_run_id="run")
            attempts.update((query.shape.value, None) for _ in extraction.sealed)
            attempts.update((query.shape.value, error.error_class) for error in extraction.failed.values())
        assert running.operations == 1_200
    assert attempts == {
        ("dated", None): 11 * 100 * 31,
        ("snapshot", None): 100,
        ("snapshot", "missed_snapshot"): 100 * 30,
    }
    assert budget.status().used == 1_200
