"""Databases without any table, on one server a test process."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from gads_assets.state.connection import open_engine, parse_database_url
from gads_assets.state.server import running_database

NewDatabase = Callable[[], str]

_numbers = count(1)


@pytest.fixture(scope="session")
def new_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewDatabase]:
    """Makes an empty database and returns its URL; all of them go with the server."""
    with running_database(tmp_path_factory.mktemp("server") / "postgres", None) as server_url:

        def make() -> str:
            name = f"empty_{next(_numbers)}"
            engine = open_engine(server_url)
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {name}")
            engine.dispose()
            return parse_database_url(server_url).set(database=name).render_as_string(hide_password=False)

        yield make
