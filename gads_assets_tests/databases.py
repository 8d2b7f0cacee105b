"""Databases on a test's server: templates, copies of them, and statements that no transaction may hold."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gads_assets.state.connection import open_engine, parse_database_url

_DATABASE: Final = "test"


def make_template(server_url: str, name: str, fill: Callable[[str], object], *, of: str | None = None) -> str:
    """Filled under the name that its copies get, since roles carry the database's: a copy needs no migration."""
    execute(server_url, f"CREATE DATABASE {_DATABASE}" + (f" TEMPLATE {of} STRATEGY file_copy" if of else ""))
    fill(named(server_url, _DATABASE))
    execute(server_url, f"ALTER DATABASE {_DATABASE} RENAME TO {name}")
    return name


@contextmanager
def copied_database(server_url: str, template: str) -> Iterator[str]:
    """Copying a template takes a few milliseconds."""
    execute(server_url, f"CREATE DATABASE {_DATABASE} TEMPLATE {template} STRATEGY file_copy")
    yield named(server_url, _DATABASE)
    execute(server_url, f"DROP DATABASE {_DATABASE} WITH (FORCE)")


def named(url: str, database: str) -> str:
    return parse_database_url(url).set(database=database).render_as_string(hide_password=False)


def execute(url: str, statement: str) -> None:
    engine = open_engine(url)
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    finally:
        engine.dispose()


def end_sessions_with_locks(url: str) -> None:
    """As a restart of the server ends all: what they held by advisory locks is free, and rows stay as they are."""
    engine = open_engine(url)
    holders = """
        SELECT {} FROM pg_locks WHERE locktype = 'advisory'
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    """
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(holders.format("pg_terminate_backend(pid, 10000)")).all()
            assert connection.exec_driver_sql(holders.format("pid")).all() == []
    finally:
        engine.dispose()
