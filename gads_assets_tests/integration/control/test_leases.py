"""Who has which partitions: one run each, for as long as it says that it lives."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Event

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ResourceClosedError

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.roles import Role
from gads_assets.errors import TransitionError
from gads_assets.orchestration import leasing
from gads_assets.orchestration.leasing import sign_of_life
from gads_assets.orchestration.living import process_scope
from gads_assets.state.connection import open_engine, transaction
from gads_assets.state.leases import Leases
from gads_assets.state.migration import migrate
from gads_assets.state.run_records import RunRecords
from gads_assets.state.server import start_database, stop_database
from gads_assets_tests.integration.conftest import wait_until, waiting_for_locks
from gads_assets_tests.integration.control.simulated_runs import Clock
from gads_assets_tests.ledgers import NOW, neighbour

LASTS = timedelta(minutes=1)
KEYS = [neighbour(number) for number in range(3)]
TRIES = 60


@pytest.fixture
def clock() -> Clock:
    return Clock(now=NOW)


@pytest.fixture
def leases(acting: Callable[[Role], Engine], clock: Clock) -> Leases:
    return Leases(acting(Role.EXTRACTOR), lasts=LASTS, clock=clock)


@pytest.fixture
def by_the_databases_clock(acting: Callable[[Role], Engine]) -> Leases:
    return Leases(acting(Role.EXTRACTOR))


@pytest.fixture
def operators(acting: Callable[[Role], Engine], clock: Clock) -> Leases:
    return Leases(acting(Role.OPERATOR), lasts=LASTS, clock=clock)


@pytest.fixture
def own_engines(database_url: str) -> Iterator[Callable[[], Engine]]:
    opened: list[Engine] = []

    def open_one() -> Engine:
        opened.append(open_engine(database_url, Role.EXTRACTOR))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.dispose()


def test_what_a_run_has_no_other_gets(leases: Leases) -> None:
    assert leases.take("first", KEYS[:2]) == {}
    assert leases.take("second", KEYS) == {KEYS[0]: "first", KEYS[1]: "first"}
    assert leases.held(KEYS) == {KEYS[0]: "first", KEYS[1]: "first", KEYS[2]: "second"}
    assert leases.all_held("google_ads") == set(KEYS)
    assert leases.all_held("another") == set()


def test_a_run_keeps_what_it_has_when_it_asks_again(leases: Leases) -> None:
    leases.take("first", KEYS[:2])
    assert leases.take("first", KEYS) == {}
    assert leases.held(KEYS) == dict.fromkeys(KEYS, "first")
    assert leases.extend("first") == len(KEYS)


def test_a_lease_goes_to_another_only_when_it_has_run_out(leases: Leases, clock: Clock) -> None:
    leases.take("first", KEYS)
    clock.now += LASTS - timedelta(microseconds=1)
    assert leases.take("second", KEYS) == dict.fromkeys(KEYS, "first")
    clock.now += timedelta(microseconds=1)
    assert leases.held(KEYS) == {}
    assert leases.take("second", KEYS[:2]) == {}
    # What nobody wanted is still the first one's, should it come back.
    assert leases.extend("first") == 1
    assert leases.take("third", KEYS) == {KEYS[0]: "second", KEYS[1]: "second", KEYS[2]: "first"}
    assert leases.take("first", KEYS[:1]) == {KEYS[0]: "second"}


def test_a_sign_of_life_makes_a_lease_last_longer_and_never_shorter(leases: Leases, clock: Clock) -> None:
    leases.take("first", KEYS)
    clock.now += LASTS / 2
    leases.extend("first")
    clock.now -= timedelta(hours=1)
    leases.extend("first")
    clock.now += timedelta(hours=1) + LASTS * 0.9
    assert leases.living(["first", "never seen"]) == {"first"}
    clock.now += LASTS * 0.1
    assert leases.living(["first"]) == set()


def test_what_is_released_is_free_at_once(leases: Leases) -> None:
    leases.take("first", KEYS)
    leases.take("second", [neighbour(10)])
    leases.release("first")
    leases.release("never seen")
    assert leases.held([*KEYS, neighbour(10)]) == {neighbour(10): "second"}
    assert leases.take("third", KEYS) == {}


def test_runs_without_a_sign_of_life_are_found_and_removed_by_the_operator_once(
    leases: Leases, operators: Leases, clock: Clock
) -> None:
    leases.take("first", KEYS[:1])
    clock.now += LASTS / 2
    leases.take("second", KEYS[1:])
    assert operators.expired() == []
    assert operators.remove_expired("first") is False
    clock.now += LASTS
    assert operators.expired() == ["first", "second"]
    leases.extend("second")  # between the look and the removal
    assert [operators.remove_expired(run_id) for run_id in ("first", "second", "first")] == [True, False, False]
    assert leases.held(KEYS) == {KEYS[1]: "second", KEYS[2]: "second"}


def test_a_run_that_is_stopped_for_longer_than_a_lease_keeps_what_it_has_while_its_process_is_there(
    leases: Leases, operators: Leases, clock: Clock, acting: Callable[[Role], Engine]
) -> None:
    with RunRecords(acting(Role.EXTRACTOR)).shared([process_scope("stopped")]):
        leases.take("stopped", KEYS[:2])
        clock.now += LASTS * 10

        assert leases.take("another", KEYS) == {KEYS[0]: "stopped", KEYS[1]: "stopped"}

        assert leases.held(KEYS) == {KEYS[0]: "stopped", KEYS[1]: "stopped", KEYS[2]: "another"}
        assert leases.living(["stopped"]) == {"stopped"}
        assert operators.expired() == []
        assert operators.remove_expired("stopped") is False
    wait_until(lambda: operators.expired() == ["stopped"])  # the server needs a moment to notice
    assert leases.take("another", KEYS) == {}


def test_a_database_that_was_away_for_longer_than_a_lease_gives_runs_the_time_to_say_that_they_live(
    tmp_path: Path,
) -> None:
    lasts = timedelta(seconds=8)
    url = start_database(tmp_path / "database", None)
    try:
        migrate(url)
        engine = open_engine(url, Role.EXTRACTOR)
        leases = Leases(engine, lasts=lasts)
        leases.take("before", KEYS[:2])
        stop_database(tmp_path / "database")
        time.sleep(lasts.total_seconds())
        start_database(tmp_path / "database", None)

        assert leases.expired() == []
        assert leases.take("another", KEYS) == {KEYS[0]: "before", KEYS[1]: "before"}
        assert leases.living(["before"]) == {"before"}

        wait_until(lambda: leases.expired() == ["before"])
        assert leases.take("another", KEYS) == {}
        engine.dispose()
    finally:
        stop_database(tmp_path / "database")


@pytest.mark.parametrize("change", ["dagster_run_id = 'second'", "logical_date = logical_date + 100"])
def test_no_statement_takes_a_lease_from_a_run_that_lives(
    engine: Engine, by_the_databases_clock: Leases, change: str
) -> None:
    """Not even the owner's."""
    by_the_databases_clock.take("first", KEYS)
    by_the_databases_clock.extend("second")
    with pytest.raises(TransitionError), transaction(engine) as connection:
        connection.execute(text(f"UPDATE partition_lease SET {change}"))
    assert by_the_databases_clock.held(KEYS) == dict.fromkeys(KEYS, "first")


def test_no_statement_takes_a_lease_from_a_run_that_is_only_stopped(
    engine: Engine, by_the_databases_clock: Leases, acting: Callable[[Role], Engine]
) -> None:
    """Its time is over, and its process is there."""
    by_the_databases_clock.take("stopped", KEYS)
    by_the_databases_clock.extend("second")
    expire = text("UPDATE run_lease SET lease_until = now() - interval '1 s' WHERE dagster_run_id = 'stopped'")
    take = text("UPDATE partition_lease SET dagster_run_id = 'second'")
    with RunRecords(acting(Role.EXTRACTOR)).shared([], alone=process_scope("stopped")):
        with transaction(engine) as connection:
            connection.execute(expire)
        with pytest.raises(TransitionError, match="run stopped has it, and lives"), transaction(engine) as connection:
            connection.execute(take)
    wait_until(lambda: not RunRecords(engine).held([process_scope("stopped")]))
    with transaction(engine) as connection:
        assert connection.execute(take).rowcount == len(KEYS)


def test_signs_of_life_go_on_after_whatever_kept_one_back(
    by_the_databases_clock: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    by_the_databases_clock.lasts = timedelta(seconds=1)
    extend = Leases.extend

    def fail_now_and_then(leases: Leases, run_id: str) -> int:
        said.append(run_id)
        if len(said) in {2, 3}:
            raise ResourceClosedError("no error of a driver, so none that is translated")
        return extend(leases, run_id)

    monkeypatch.setattr(Leases, "extend", fail_now_and_then)
    with sign_of_life(by_the_databases_clock, "first"):
        wait_until(lambda: len(said) > 4)
        assert by_the_databases_clock.living(["first"]) == {"first"}


def test_a_sign_of_life_whose_answer_is_late_takes_nothing_for_lost_that_was_taken_meanwhile(
    by_the_databases_clock: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_the_databases_clock.lasts = timedelta(seconds=1)
    extend, signals, late = Leases.extend, [], Event()

    def answer_late(leases: Leases, run_id: str) -> int:
        found = extend(leases, run_id)
        if "first" in leasing._living:
            leasing._living["first"].update(KEYS)
            late.set()
        return found

    monkeypatch.setattr(Leases, "extend", answer_late)
    monkeypatch.setattr("os.kill", lambda *sent: signals.append(sent))
    with sign_of_life(by_the_databases_clock, "first"):
        assert late.wait(timeout=60)
        leasing._living["first"].clear()
    assert signals == []


def test_a_thousand_partitions_are_taken_in_one_call(leases: Leases) -> None:
    keys = [neighbour(number) for number in range(1000)]
    assert leases.take("first", keys[::2]) == {}
    assert leases.take("second", keys) == dict.fromkeys(keys[::2], "first")
    assert set(leases.held(keys).values()) == {"first", "second"}
    assert leases.take("third", []) == {}


def test_whoever_asks_while_another_is_taking_is_told_who_has_it(
    own_engines: Callable[[], Engine], engine: Engine
) -> None:
    """The other's lease is committed after the statement has begun that must respect it."""
    first, second = own_engines(), own_engines()
    with ThreadPoolExecutor(1) as pool:
        with first.begin() as connection:
            connection.execute(
                text("INSERT INTO run_lease VALUES ('first', now() + interval '1 h', now(), interval '1 h')")
            )
            connection.execute(
                text("INSERT INTO partition_lease VALUES (:s, :c, :q, :d, 'first')"),
                {
                    "s": KEYS[0].source,
                    "c": KEYS[0].customer_id,
                    "q": KEYS[0].query_name,
                    "d": KEYS[0].logical_date,
                },
            )
            asking = pool.submit(Leases(second).take, "second", KEYS)
            wait_until(lambda: waiting_for_locks(engine, "transactionid") == 1)
        assert asking.result(timeout=60) == {KEYS[0]: "first"}
    assert Leases(first).held(KEYS) == {KEYS[0]: "first", KEYS[1]: "second", KEYS[2]: "second"}


def test_a_run_never_believes_to_have_what_it_has_not(own_engines: Callable[[], Engine], engine: Engine) -> None:
    """The one that had it releases it just when it is asked for."""
    first, second = Leases(own_engines()), Leases(own_engines())
    for number in range(TRIES):
        keys = [neighbour(3 * number + place) for place in range(3)]
        first.take("first", keys)
        together = Barrier(2)

        def release(together: Barrier = together) -> None:
            together.wait(timeout=60)
            first.release("first")

        def take(together: Barrier = together, keys: list[PartitionKey] = keys) -> dict[PartitionKey, str]:
            together.wait(timeout=60)
            return second.take("second", keys)

        with ThreadPoolExecutor(2) as pool:
            releasing, taking = pool.submit(release), pool.submit(take)
            releasing.result(timeout=60)
            not_taken = taking.result(timeout=60)
        mine = {key for key, run_id in second.held(keys).items() if run_id == "second"}
        assert mine == set(keys) - set(not_taken)
        second.release("second")


def test_runs_with_overlapping_partitions_neither_deadlock_nor_share_one(own_engines: Callable[[], Engine]) -> None:
    """In opposite order; over new partitions, free ones, and those of runs that were killed, which all find at once."""
    together = Barrier(3)
    clocks = [Clock(now=NOW) for _ in range(3)]
    had: dict[tuple[int, PartitionKey], list[str]] = {}

    def run(place: int) -> None:
        leases = Leases(own_engines(), lasts=LASTS, clock=clocks[place])
        for number in range(TRIES):
            name = f"run {place} of {number}"
            keys = [neighbour((place * 7 + step) % 40) for step in range(25)]
            together.wait(timeout=30)
            refused = leases.take(name, keys[::-1] if place % 2 else keys)
            for key in set(keys) - set(refused):
                had.setdefault((number, key), []).append(name)
            together.wait(timeout=30)
            if number % 3 != place:  # the third was killed
                leases.release(name)
            clocks[place].now += LASTS * 2

    with ThreadPoolExecutor(3) as pool:
        for finished in [pool.submit(run, place) for place in range(3)]:
            finished.result(timeout=120)
    assert {what: runs for what, runs in had.items() if len(runs) > 1} == {}
    assert len(had) == TRIES * 39


def test_removing_a_run_that_is_gone_and_taking_from_it_do_not_deadlock(
    own_engines: Callable[[], Engine], database_url: str
) -> None:
    clocks = [Clock(now=NOW), Clock(now=NOW)]
    operator = open_engine(database_url, Role.OPERATOR)
    taking = Leases(own_engines(), lasts=LASTS, clock=clocks[0])
    removing = Leases(operator, lasts=LASTS, clock=clocks[1])
    keys = [neighbour(number) for number in range(100)]
    with ThreadPoolExecutor(2) as pool:
        for number in range(TRIES):
            taking.take(f"gone {number}", keys)
            for each in clocks:
                each.now += LASTS
            removed = pool.submit(removing.remove_expired, f"gone {number}")
            taken = pool.submit(taking.take, f"next {number}", keys)
            assert taken.result(timeout=60) == {}
            assert removed.result(timeout=60) is True
            assert taking.held(keys) == dict.fromkeys(keys, f"next {number}")
            taking.release(f"next {number}")
    operator.dispose()
