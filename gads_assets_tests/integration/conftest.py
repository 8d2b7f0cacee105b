"""A test's database in the hands of the product's parts."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dagster._core.storage.defs_state.base import set_defs_state_storage
from pyspark.sql import SparkSession
from sqlalchemy import Engine, text

from gads_assets.domain.roles import Role
from gads_assets.state.connection import open_engine
from gads_assets.state.partition_states import StateStore
from gads_assets_tests.sites import Site, make_site

_PATIENCE_SECONDS = 120


@pytest.fixture(autouse=True)
def no_instance_of_another_test() -> Iterator[None]:
    """Two Dagster instances that are not left in the order in which they were entered leave one behind, and whatever
    loads definitions later asks it, when it is long gone."""
    with set_defs_state_storage(None):
        yield


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def acting(database_url: str, request: pytest.FixtureRequest) -> Callable[[Role], Engine]:
    """Engines in the role that is asked for, put away after the test."""

    def open_as(role: Role) -> Engine:
        engine = open_engine(database_url, role)
        request.addfinalizer(engine.dispose)
        return engine

    return open_as


@pytest.fixture
def site(spark: SparkSession, database_url: str, tmp_path: Path) -> Iterator[Site]:
    """Its tables are those that the fixture `warehouse` reads."""
    made = make_site(tmp_path, database_url, lambda: spark)
    with made.here:
        yield made


@pytest.fixture
def store(engine: Engine) -> StateStore:
    return StateStore(engine)


def waiting_for_locks(engine: Engine, kind: str) -> int:
    """How many sessions of this database wait for a lock of that kind, as pg_locks names it."""
    with engine.begin() as connection:
        waiting = text("""
            SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
            WHERE NOT granted AND locktype = :kind AND datname = current_database()
        """)
        count: int = connection.execute(waiting, {"kind": kind}).scalar_one()
        return count


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.02)
