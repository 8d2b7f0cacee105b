"""Sessions of a real PostgreSQL: one that is cut, down or interrupted says so, and what it holds is told and let go."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Timer

import pytest
from sqlalchemy import Engine, text

from gads_assets.errors import DatabaseUnavailableError, ScopeTakenError, StateStoreError
from gads_assets.state.connection import open_engine, transaction
from gads_assets.state.partition_states import StateStore
from gads_assets.state.run_records import RunRecords
from gads_assets_tests.databases import end_sessions_with_locks
from gads_assets_tests.integration.conftest import wait_until
from gads_assets_tests.ledgers import KEY


def test_a_server_that_is_down_is_named_without_its_password() -> None:
    engine = open_engine("postgresql://reader:s3cret@127.0.0.1:1/ads")
    with pytest.raises(DatabaseUnavailableError) as refusal:
        StateStore(engine).states([KEY])
    assert str(refusal.value) == (
        "database 'ads' at 127.0.0.1:1 cannot be reached (Connection refused); "
        "start that server, or correct GADS_DATABASE_URL"
    )


def test_an_interruption_while_the_database_says_nothing_is_not_taken_for_its_refusal(database_url: str) -> None:
    """Its process is stopped, and a signal comes while a connection of the pool is asked whether it still lives."""

    class StoppedByHand(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise StoppedByHand

    engine = open_engine(database_url)
    with transaction(engine) as connection:
        backend = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    before = signal.signal(signal.SIGUSR1, interrupt)
    os.kill(backend, signal.SIGSTOP)
    try:
        Timer(0.3, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        with pytest.raises(StoppedByHand):
            StateStore(engine).states([KEY])
    finally:
        os.kill(backend, signal.SIGCONT)
        signal.signal(signal.SIGUSR1, before)
    assert StateStore(engine).states([KEY]) == {}
    engine.dispose()


def test_a_scope_is_held_by_one_at_a_time_and_let_go_at_the_end(engine: Engine) -> None:
    records = RunRecords(engine)
    order: list[str] = []

    def second() -> None:
        with records.exclusive("publish"):
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        with records.exclusive("publish") as require_held, records.exclusive("another"):
            waiting = pool.submit(second)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
            require_held()
            order.append("first")
        waiting.result(timeout=30)
    assert order == ["first", "second"]


def test_whether_a_scope_is_held_can_be_asked_without_waiting_and_without_taking_it(engine: Engine) -> None:
    records = RunRecords(engine)
    asked = ["publish", "another", "shared"]
    with records.exclusive("publish"), records.shared(["shared"]), records.shared(["shared", "another"]):
        assert records.held(asked) == set(asked)
    with records.shared(["shared"]):
        wait_until(lambda: records.held(asked) == {"shared"})  # the server needs a moment to notice
    wait_until(lambda: records.held(asked) == set())
    assert records.held([]) == set()


def test_shared_scopes_that_were_lost_with_the_connection_are_held_again(engine: Engine, database_url: str) -> None:
    records = RunRecords(engine)
    with records.shared(["shared"], alone="mine") as keep:
        for _ in range(2):
            end_sessions_with_locks(database_url)
            assert records.held(["shared", "mine"]) == set()
            keep()
            keep()
            assert records.held(["shared", "mine"]) == {"shared", "mine"}
    wait_until(lambda: records.held(["shared", "mine"]) == set())  # the server needs a moment to notice


def test_a_scope_that_another_took_meanwhile_stays_theirs_and_is_tried_for_again(
    engine: Engine, database_url: str
) -> None:
    records = RunRecords(engine)
    with records.shared(["shared"], alone="mine") as keep:
        end_sessions_with_locks(database_url)
        with records.shared([], alone="mine"):
            for _ in range(20):  # more than an engine has connections: none is kept
                with pytest.raises(ScopeTakenError):
                    keep()
            assert records.held(["shared"]) == set()
        wait_until(lambda: records.held(["mine"]) == set())  # the server needs a moment to notice
        keep()
        assert records.held(["shared", "mine"]) == {"shared", "mine"}


def test_whoever_has_no_time_to_wait_is_told_so_and_takes_nothing(engine: Engine) -> None:
    records = RunRecords(engine)
    with (
        records.exclusive("publish"),
        pytest.raises(StateStoreError, match="others have had the lock to publish all the time") as refused,
        records.exclusive("publish", patience=timedelta(milliseconds=50)),
    ):
        pass
    assert "\n" not in str(refused.value)
    with records.exclusive("publish", patience=timedelta(seconds=30)) as require_held:
        require_held()


def test_whoever_lost_a_scope_with_the_connection_is_told_before_it_does_harm(
    engine: Engine, database_url: str
) -> None:
    records = RunRecords(engine)
    with records.exclusive("publish") as require_held:
        end_sessions_with_locks(database_url)
        with records.exclusive("publish"):
            for _ in range(2):
                with pytest.raises(StateStoreError, match="the lock to publish was lost with its connection"):
                    require_held()
