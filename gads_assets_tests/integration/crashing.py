"""The users of the ledger, each in its role, who can be made to die at a chosen moment of a transaction."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from select import select
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, event, text

from gads_assets.domain.roles import Role
from gads_assets.errors import DatabaseUnavailableError
from gads_assets.state.connection import open_engine
from gads_assets.state.partition_states import StateStore


class Moment(Enum):
    BEFORE_STATEMENT = "before statement"
    BEFORE_COMMIT = "before the commit"
    BEFORE_ANSWER = "before the answer"


@dataclass(frozen=True, kw_only=True)
class Crash:
    """`is_killed` ends the connection on the server; otherwise the caller itself fails."""

    moment: Moment
    statement: int = 0
    is_killed: bool = False

    def __str__(self) -> str:
        number = f" {self.statement}" if self.moment is Moment.BEFORE_STATEMENT else ""
        return f"{self.moment.value}{number}{', killed' if self.is_killed else ''}"


class DiedError(Exception):
    """The caller is gone."""


@dataclass(frozen=True, kw_only=True)
class Happened:
    """What a transaction came to, and its answer unless the caller died before it came."""

    is_committed: bool
    answer: Any = None


class Actor:
    """The product's store in one role, over one kept connection, whose next transaction may be made to crash."""

    def __init__(self, url: str, role: Role, kill: Callable[[psycopg.Connection], None]) -> None:
        self.engine = open_engine(url, role)
        self.store = StateStore(self.engine)
        self._kill = kill
        self._planned: Crash | None = None
        self._statements = 0
        self._is_dying = False
        self._is_committed = False
        event.listen(self.engine, "before_cursor_execute", self._before_statement)
        event.listen(self.engine, "commit", self._before_commit)

    def attempt(self, act: Callable[[StateStore], object], crash: Crash | None = None) -> Happened:
        """A crash planned for a statement that is never reached does not happen."""
        self._planned, self._statements, self._is_dying, self._is_committed = crash, 0, False, False
        try:
            answer = act(self.store)
            assert not self._is_dying, f"survived a crash {crash}"
            return Happened(is_committed=True, answer=answer)
        except (DiedError, DatabaseUnavailableError):
            if crash is None:
                raise
            return Happened(is_committed=self._is_committed)
        finally:
            self._planned = None

    def _before_statement(self, connection: Connection, *_: object) -> None:
        planned = self._planned
        if planned and planned.moment is Moment.BEFORE_STATEMENT and planned.statement == self._statements:
            self._die(connection, planned)
        self._statements += 1

    def _before_commit(self, connection: Connection) -> None:
        planned = self._planned
        if planned and planned.moment is Moment.BEFORE_COMMIT:
            self._die(connection, planned)
        elif planned and planned.moment is Moment.BEFORE_ANSWER:
            connection.connection.commit()
            self._is_committed = True
            self._die(connection, planned)
            raise DiedError

    def _die(self, connection: Connection, crash: Crash) -> None:
        self._is_dying = True
        if not crash.is_killed:
            raise DiedError
        victim = connection.connection.driver_connection
        assert isinstance(victim, psycopg.Connection)
        self._kill(victim)


@dataclass(frozen=True, kw_only=True)
class Actors:
    """Everybody who uses the ledger, and a login that sees all of it."""

    extractor: Actor
    validator: Actor
    operator: Actor
    loader: Actor
    consumer: Actor
    reporter: Actor
    observer: Connection


@contextmanager
def actors(url: str, login: Engine) -> Iterator[Actors]:
    with login.connect().execution_options(isolation_level="AUTOCOMMIT") as observer:

        def kill(victim: psycopg.Connection) -> None:
            backend = {"backend": victim.info.backend_pid}
            assert observer.execute(text("SELECT pg_terminate_backend(:backend)"), backend).scalar_one()
            # Its last words: PostgreSQL's own waiting for the end looks every tenth of a second only.
            assert select([victim.fileno()], [], [], 10)[0]

        made = {role: Actor(url, role, kill) for role in Role}
        try:
            yield Actors(observer=observer, **{role.value: actor for role, actor in made.items()})
        finally:
            for actor in made.values():
                actor.engine.dispose()
