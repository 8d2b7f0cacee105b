"""One PostgreSQL server a test process, and a fresh migrated database for each test that asks."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Engine, text

from gads_assets.domain.roles import Role
from gads_assets.state.connection import open_engine, parse_database_url
from gads_assets.state.migration import migrate
from gads_assets.state.partition_states import StateStore
from gads_assets.state.server import running_database
from gads_assets_tests.sites import Site, make_site

_PATIENCE_SECONDS = 120
_TEMPLATE = "migrated"
_DATABASE = "test"


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running server; its own database is left alone, so that tests can copy the template beside it."""
    with running_database(tmp_path_factory.mktemp("server") / "postgres", None) as url:
        yield url


@pytest.fixture(scope="session")
def _template(postgres_url: str) -> str:
    """Migrated under the name that its copies get, since roles carry the database's: a copy needs no migration."""
    execute(postgres_url, f"CREATE DATABASE {_DATABASE}")
    migrate(named(postgres_url, _DATABASE))
    execute(postgres_url, f"ALTER DATABASE {_DATABASE} RENAME TO {_TEMPLATE}")
    return _TEMPLATE


@pytest.fixture
def database_url(postgres_url: str, _template: str) -> Iterator[str]:
    """A database of the test's own, migrated and empty; copying a template takes a few milliseconds."""
    execute(postgres_url, f"CREATE DATABASE {_DATABASE} TEMPLATE {_template} STRATEGY file_copy")
    yield named(postgres_url, _DATABASE)
    execute(postgres_url, f"DROP DATABASE {_DATABASE} WITH (FORCE)")


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


def named(url: str, database: str) -> str:
    return parse_database_url(url).set(database=database).render_as_string(hide_password=False)


def execute(url: str, statement: str) -> None:
    engine = open_engine(url)
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    finally:
        engine.dispose()


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
