"""Which server the database is, and when the embedded one starts and stops.

A command that needs the embedded server starts it if it is down; the last of the overlapping commands to leave stops
it again. `start_database` makes it stay until `stop_database`. Under <home>:

    lock     held while somebody starts or stops the server, so that starters queue
    users    held shared by everyone who uses the server; whoever gets it exclusively is the last one
    keep     exists while the server is meant to stay

The locks are the kernel's (flock): a killed process lets go of them, so it can neither keep the server for ever nor
block anybody. The server that it started is stopped by the next command to leave.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gads_assets.errors import SetupError
from gads_assets.state.connection import require_reachable
from gads_assets.state.embedded_postgres import EmbeddedPostgres

_QUEUE_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class DatabaseStatus:
    """The embedded server's. `url` is None while it is down; `stays`: it outlives the commands that use it."""

    url: str | None
    process_id: int | None
    stays: bool


@contextmanager
def running_database(database_home: Path, database_url: str | None) -> Iterator[str]:
    """A database that answers, for the block; yields its URL.

    With `database_url` it is that server, which is only asked to answer. Otherwise the embedded one: it does not stop
    before the end of the block, and stops then unless it stays or others use it. Blocks may nest.
    """
    if database_url is not None:
        yield require_reachable(database_url)
        return
    server = _server(database_home)
    with _readable_errors(server.home):
        users = _open(server.home / "users")
        try:
            with _turn(server.home):
                fcntl.flock(users, fcntl.LOCK_SH)
                if server.start():
                    (server.home / "keep").unlink(missing_ok=True)
        except BaseException:
            os.close(users)
            raise
    try:
        yield server.url
    finally:
        with _readable_errors(server.home):
            try:
                _leave(server, users)
            finally:
                os.close(users)


def start_database(database_home: Path, database_url: str | None) -> str:
    """A database that answers and stays up; returns its URL."""
    if database_url is not None:
        return require_reachable(database_url)
    server = _server(database_home)
    with _readable_errors(server.home), _turn(server.home):
        server.start()
        (server.home / "keep").touch()
        return server.url


def stop_database(database_home: Path) -> bool:
    """Stops the embedded server, whoever uses it; False when it was not running."""
    if not database_home.exists():
        return False
    server = _server(database_home)
    with _readable_errors(server.home), _turn(server.home):
        (server.home / "keep").unlink(missing_ok=True)
        return server.stop()


def database_status(database_home: Path) -> DatabaseStatus:
    """Looks without starting anything or creating the folder."""
    server = EmbeddedPostgres(home=database_home.resolve())
    process_id = server.process_id()
    if process_id is None:
        return DatabaseStatus(url=None, process_id=None, stays=False)
    return DatabaseStatus(url=server.url, process_id=process_id, stays=(server.home / "keep").exists())


def _leave(server: EmbeddedPostgres, users: int) -> None:
    with _turn(server.home):
        if (server.home / "keep").exists():
            return
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        server.stop()


def _server(database_home: Path) -> EmbeddedPostgres:
    with _readable_errors(database_home):
        database_home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return EmbeddedPostgres(home=database_home.resolve())


@contextmanager
def _turn(home: Path) -> Iterator[None]:
    lock = _open(home / "lock")
    try:
        deadline = time.monotonic() + _QUEUE_SECONDS
        while not _locked(lock):
            if time.monotonic() > deadline:
                raise SetupError(
                    f"another process has been starting or stopping the database in {home} for minutes; "
                    f"see {home / 'server.log'}"
                )
            time.sleep(0.05)
        yield
    finally:
        os.close(lock)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


@contextmanager
def _readable_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SetupError(
            f"the database folder {home} cannot be used ({error.strerror or error}); "
            "set GADS_HOME to a folder of yours on a disk with free space"
        ) from error
