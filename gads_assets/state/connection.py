"""Reaching the database: one driver (psycopg 3), and its errors in one line without the password."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Connection, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from gads_assets.errors import DatabaseUnavailableError, SettingsError, StateStoreError, TransitionError

CONNECT_TIMEOUT_SECONDS = 5

_FORBIDDEN_CHANGE = "GADS1"  # raised by guards.sql
_CONNECTION_LOST = ("08", "57P")  # connection exceptions; shutting down, starting up


def parse_database_url(url: str) -> URL:
    """The URL with our driver, whichever PostgreSQL driver it named."""
    try:
        return make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, NoSuchModuleError, ValueError):
        # Not chained: the parser's own message quotes pieces of the URL, the password among them.
        raise SettingsError(
            "GADS_DATABASE_URL cannot be read; write it as postgresql://user:password@host:port/name, "
            "with special characters of the password percent-encoded"
        ) from None


def open_engine(url: str) -> Engine:
    """Connects lazily; dispose of it when done. Connections that a server restart has cut are replaced."""
    parsed = parse_database_url(url)
    arguments = {} if "connect_timeout" in parsed.query else {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
    return create_engine(parsed, pool_pre_ping=True, connect_args=arguments)


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One transaction, committed at the end; the database's errors come out as StateStoreError and its leaves."""
    with _translated_errors(engine), engine.begin() as connection:
        yield connection


@contextmanager
def session(engine: Engine) -> Iterator[Connection]:
    """A connection outside any transaction, closed at the end: what it held is let go, however the block ends."""
    with _translated_errors(engine), engine.connect() as connection:
        try:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")
        finally:
            connection.invalidate()


@contextmanager
def _translated_errors(engine: Engine) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise _translated(error, engine.url) from error
    except PoolTimeoutError as error:
        raise DatabaseUnavailableError(
            f"{describe(engine.url)} gave no connection in time; all of this process's are in use"
        ) from error


def require_reachable(url: str) -> str:
    """Returns the URL with our driver once a server has answered on it."""
    parsed = parse_database_url(url)
    engine = open_engine(url)
    try:
        with transaction(engine) as connection:
            connection.exec_driver_sql("SELECT 1")
    finally:
        engine.dispose()
    return parsed.render_as_string(hide_password=False)


def describe(url: URL) -> str:
    """Where the database is, for messages: never the password."""
    host = url.query.get("host") or f"{url.host or 'localhost'}:{url.port or 5432}"
    return f"database {url.database or ''!r} at {host if isinstance(host, str) else ','.join(host)}"


def _translated(error: DBAPIError, url: URL) -> StateStoreError:
    state = getattr(error.orig, "sqlstate", None)
    reason = str(error.orig).strip().partition("\n")[0]
    if state == _FORBIDDEN_CHANGE:
        return TransitionError(reason)
    lost = state is None or state.startswith(_CONNECTION_LOST)
    if error.connection_invalidated or (isinstance(error, OperationalError | InterfaceError) and lost):
        fix = "start that server, or correct GADS_DATABASE_URL" if url.host else "start it with `gads db start`"
        return DatabaseUnavailableError(f"{describe(url)} cannot be reached ({_shortened(reason)}); {fix}")
    return StateStoreError(f"{describe(url)} refused: {reason}")


def _shortened(reason: str) -> str:
    """libpq repeats the address before the cause; the cause is the last clause."""
    return reason.rpartition(": ")[2]
