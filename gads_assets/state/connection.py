"""Reaching the database: one driver (psycopg 3), in one role, and its errors in one line without the password."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from gads_assets.domain.roles import Role
from gads_assets.errors import DatabaseUnavailableError, SettingsError, StateStoreError, TransitionError

CONNECT_TIMEOUT_SECONDS = 5

_FORBIDDEN_CHANGE = "GADS1"  # raised by guards.sql
_CONNECTION_LOST = ("08", "57P")  # connection exceptions; shutting down, starting up

NOW: Final = "coalesce(CAST(:clock AS timestamptz), statement_timestamp())"
"""In a statement: the database's moment, or, where `clock` is given, that of simulated time."""


def parse_database_url(url: str, *, variable: str = "GADS_DATABASE_URL") -> URL:
    """The URL with our driver, whichever PostgreSQL driver it named."""
    try:
        return make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, NoSuchModuleError, ValueError):
        # Not chained: the parser's own message quotes pieces of the URL, the password among them.
        raise SettingsError(
            f"{variable} cannot be read; write it as postgresql://user:password@host:port/name, "
            "with special characters of the password percent-encoded"
        ) from None


def open_engine(url: str, role: Role | None = None) -> Engine:
    """Connects lazily; dispose of it when done. Connections that a server restart has cut are replaced.

    With a role every connection acts as it from its first statement, with its rights and no others of the login's.
    """
    # What every role falls back on was read before, so a URL that cannot be is the role's own.
    parsed = parse_database_url(url, variable=f"GADS_DATABASE_URL_{role.upper()}") if role else parse_database_url(url)
    arguments = {} if "connect_timeout" in parsed.query else {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
    engine = create_engine(parsed, pool_pre_ping=True, connect_args=arguments)
    if role is not None:

        @event.listens_for(engine, "do_connect")
        def connect(dialect: Dialect, _: object, positional: list[object], named: dict[str, object]) -> object:
            connection: psycopg.Connection = dialect.connect(*positional, **named)  # type: ignore[assignment]
            try:
                _act_as(connection, role, parsed)
            except BaseException:
                connection.close()
                raise
            return connection

    return engine


def _act_as(connection: psycopg.Connection, role: Role, url: URL) -> None:
    connection.autocommit = True  # set in a transaction, the role would go with its rollback
    try:
        connection.execute("SELECT set_config('role', gads_role(%s), false)", [role])
    except (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidParameterValue):
        raise StateStoreError(f"{describe(url)} has no role of its own for the {role}; run `gads db migrate`") from None
    except psycopg.errors.InsufficientPrivilege:
        [(name, login)] = connection.execute(
            "SELECT quote_ident(gads_role(%s)), quote_ident(session_user)", [role]
        ).fetchall()
        raise StateStoreError(
            f"{describe(url)} does not let login {login} act as the {role}; an administrator's fix: "
            f"GRANT {name} TO {login}"
        ) from None
    connection.autocommit = False


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
        if interruption := _interruption_behind(error):
            raise interruption from None
        raise _translated(error, engine.url) from error
    except PoolTimeoutError as error:
        raise DatabaseUnavailableError(
            f"{describe(engine.url)} gave no connection in time; all of this process's are in use"
        ) from error


def require_reachable(url: str, role: Role | None = None) -> str:
    """Returns the URL with our driver once a server has answered on it, and let us act as the role."""
    engine = open_engine(url, role)
    try:
        with transaction(engine) as connection:
            connection.exec_driver_sql("SELECT 1")
    finally:
        engine.dispose()
    return engine.url.render_as_string(hide_password=False)


def describe(url: URL) -> str:
    """Where the database is, for messages: never the password."""
    host = url.query.get("host") or f"{url.host or 'localhost'}:{url.port or 5432}"
    return f"database {url.database or ''!r} at {host if isinstance(host, str) else ','.join(host)}"


def _interruption_behind(error: BaseException) -> BaseException | None:
    """A signal that ended a statement, where the driver's tidying up failed after it: who cancels a run, or presses
    Ctrl-C, must not be taken for a database that refuses."""
    behind = error.__cause__ or error.__context__
    if behind is None or not isinstance(behind, Exception):
        return behind
    return _interruption_behind(behind)


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
