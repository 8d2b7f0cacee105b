"""The embedded server's life: started on demand, shared, stopped by the last to leave, and back after any kill."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from gads_assets.errors import DatabaseUnavailableError, SettingsError, SetupError
from gads_assets.state.connection import open_engine, parse_database_url
from gads_assets.state.server import (
    DatabaseStatus,
    database_status,
    running_database,
    start_database,
    stop_database,
)

DOWN = DatabaseStatus(url=None, process_id=None, stays=False)

# A command that uses the database: says so, and leaves when its standard input closes.
USER = """
import sys
from itertools import chain
from pathlib import Path
from gads_assets.errors import GadsError
from gads_assets.state.connection import open_engine
from gads_assets.state.server import database_status, running_database

home = Path(sys.argv[1])
try:
    with running_database(home, None) as url:
        engine = open_engine(url)
        for _ in chain(["begin"], sys.stdin):
            with engine.begin() as connection:
                answer = connection.exec_driver_sql("SELECT current_database()").scalar_one()
            print(answer, database_status(home).process_id, flush=True)
        engine.dispose()
except GadsError as error:
    print("refused:", error, flush=True)
"""


class User:
    """Another process inside `running_database`."""

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", USER, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @property
    def _input(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self) -> str:
        self._input.write("again\n")
        self._input.flush()
        return self.answer()

    def leave(self) -> None:
        self._process.communicate(timeout=60)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=60)


@pytest.fixture(scope="session")
def made_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made_before") / "postgres"
    with running_database(folder, None):
        pass
    return folder


@pytest.fixture
def home(tmp_path: Path, made_before: Path) -> Iterator[Path]:
    """A home whose server ran and stopped before: a copy, since making one takes a second."""
    folder = tmp_path / "postgres"
    subprocess.run(["cp", "-a", made_before, folder], check=True)
    yield folder
    stop_database(folder)


@contextmanager
def user(home: Path) -> Iterator[User]:
    process = User(home)
    try:
        assert process.answer().startswith("gads ")
        yield process
    finally:
        process.leave()


def query(url: str, statement: str) -> object:
    engine = open_engine(url)
    try:
        with engine.begin() as connection:
            result = connection.exec_driver_sql(statement)
            return result.scalar() if result.returns_rows else None
    finally:
        engine.dispose()


def socket_folder(url: str) -> Path:
    return Path(str(parse_database_url(url).query["host"]))


def server_pid(home: Path) -> int:
    pid = database_status(home).process_id
    assert pid is not None
    return pid


def test_a_command_stops_the_server_that_it_started(home: Path) -> None:
    with running_database(home, None) as url:
        assert query(url, "SELECT current_database()") == "gads"
        assert database_status(home) == DatabaseStatus(url=url, process_id=server_pid(home), stays=False)
    assert database_status(home) == DOWN


def test_a_command_leaves_a_server_running_that_was_started_to_stay(home: Path) -> None:
    url = start_database(home, None)
    with running_database(home, None) as same:
        assert same == url
    assert database_status(home).stays
    assert query(url, "SELECT 1") == 1
    assert stop_database(home) is True
    assert stop_database(home) is False
    assert database_status(home) == DOWN


def test_a_server_started_on_demand_stays_once_somebody_asks_for_that(home: Path) -> None:
    with running_database(home, None):
        start_database(home, None)
    assert database_status(home).stays


def test_a_stopped_server_that_was_to_stay_does_not_make_the_next_one_stay(home: Path) -> None:
    start_database(home, None)
    os.kill(server_pid(home), signal.SIGKILL)
    with running_database(home, None):
        pass
    assert database_status(home) == DOWN


def test_blocks_may_nest_in_one_process(home: Path) -> None:
    with running_database(home, None) as outer:
        with running_database(home, None) as inner:
            assert inner == outer
        assert query(outer, "SELECT 1") == 1
    assert database_status(home) == DOWN


def test_the_first_of_two_overlapping_commands_does_not_pull_the_server_away_and_the_last_stops_it(home: Path) -> None:
    first = User(home)
    started = first.answer()
    with user(home) as second:
        first.leave()
        assert second.ask() == started
    assert database_status(home) == DOWN


def test_a_killed_command_neither_keeps_the_server_for_ever_nor_takes_it_from_others(home: Path) -> None:
    killed = User(home)
    started = killed.answer()
    with user(home) as survivor:
        killed.kill()
        assert survivor.ask() == started
    assert database_status(home) == DOWN


def test_the_server_that_a_killed_command_left_behind_serves_the_next_one_and_stops_with_it(home: Path) -> None:
    killed = User(home)
    started = killed.answer()
    killed.kill()
    assert database_status(home).process_id is not None
    with user(home) as successor:
        assert successor.ask() == started
    assert database_status(home) == DOWN


def test_commands_that_start_a_new_home_at_once_share_one_server(tmp_path: Path) -> None:
    home = tmp_path / "postgres"
    starters = [User(home) for _ in range(4)]
    answers = {starter.answer() for starter in starters}
    assert len(answers) == 1
    assert answers.pop().startswith("gads ")
    for starter in starters:
        starter.leave()
    assert database_status(home) == DOWN


def test_a_killed_server_starts_again_with_everything_that_was_committed(home: Path) -> None:
    url = start_database(home, None)
    query(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    os.kill(server_pid(home), signal.SIGKILL)
    with running_database(home, None) as again:
        assert query(again, "SELECT answer FROM kept") == 42


def test_a_pid_file_that_names_somebody_elses_process_is_no_server(home: Path) -> None:
    start_database(home, None)
    pid_file = home / "data" / "postmaster.pid"
    left_behind = pid_file.read_text().split("\n", 1)[1]
    stop_database(home)
    pid_file.write_text(f"{os.getpid()}\n{left_behind}")
    assert database_status(home) == DOWN
    with running_database(home, None) as url:
        assert query(url, "SELECT 1") == 1


def test_an_interrupted_first_start_leaves_nothing_that_the_next_one_trips_over(tmp_path: Path) -> None:
    home = tmp_path / "postgres"
    abandoned = home / "data.new-abandoned"
    abandoned.mkdir(parents=True)
    (abandoned / "PG_VERSION").write_text("18\n")
    with running_database(home, None) as url:
        assert query(url, "SELECT 1") == 1
    assert not abandoned.exists()


@pytest.mark.parametrize("deep", [False, True])
def test_deleting_the_home_under_a_running_server_is_a_clean_start(tmp_path: Path, deep: bool) -> None:
    home = tmp_path / ("d" * 150 if deep else "home") / "postgres"
    url = start_database(home, None)
    query(url, "CREATE TABLE gone ()")
    orphan = server_pid(home)
    shutil.rmtree(home.parent)
    try:
        with running_database(home, None) as new_url:
            assert query(new_url, "SELECT to_regclass('gone')") is None
    finally:
        os.kill(orphan, signal.SIGQUIT)
        shutil.rmtree(socket_folder(url), ignore_errors=True)


@pytest.mark.parametrize("name", ["d" * 150, 'it\'s, "odd" $HOME `x` é', "with space"])
def test_the_server_runs_in_any_folder_and_leaves_no_socket_outside_it(tmp_path: Path, name: str) -> None:
    home = tmp_path / name / "postgres"
    with running_database(home, None) as url:
        assert query(url, "SHOW data_directory") == str(home / "data")
        sockets = socket_folder(url)
        assert not sockets.stat().st_mode & 0o007
    assert sockets.is_relative_to(home) or not sockets.exists()


def test_a_home_behind_a_closed_folder_is_reached_without_opening_it_to_everybody(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with running_database(closed / "home" / "postgres", None) as url:
        assert query(url, "SELECT 1") == 1
    assert not closed.stat().st_mode & 0o007


def test_the_server_listens_on_no_network_port(home: Path) -> None:
    with running_database(home, None) as url:
        assert query(url, "SHOW listen_addresses") == ""


def run_unprivileged(python: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As this account, or as nobody when this is root."""
    nobody = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    return subprocess.run(
        [python, "-c", program, *arguments],
        input="again\n",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=120,
        user=nobody.pw_uid if nobody else None,
        group=nobody.pw_gid if nobody else None,
        extra_groups=[] if nobody else None,
    )


@pytest.fixture(scope="module")
def python_of_normal_accounts() -> str:
    """Root's own Python may be out of reach for others; the system's, of the same version, then serves as well."""

    def works(python: str) -> bool:
        try:
            return run_unprivileged(python, "import gads_assets.state.server").returncode == 0
        except OSError:
            return False

    same_version = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, same_version):
        if works(python):
            return python
    pytest.skip(f"this is root, and other accounts can reach neither {sys.executable} nor {same_version}")


@pytest.mark.parametrize("name", ["home", "d" * 150])
def test_a_normal_account_runs_the_server_as_itself(name: str, python_of_normal_accounts: str) -> None:
    # Not tmp_path, which pytest closes to other accounts.
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() == 0:
            os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        finished = run_unprivileged(python_of_normal_accounts, USER, str(Path(folder) / name / "postgres"))
    assert finished.stderr == ""
    assert finished.stdout.startswith("gads ")
    assert len(set(finished.stdout.splitlines())) == 1


def test_a_home_that_cannot_be_made_is_refused_in_one_line_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        SetupError, match=r"^the database folder .*file/postgres cannot be used \(Not a directory\); set GADS"
    ):
        start_database(tmp_path / "file" / "postgres", None)


def test_a_disk_that_fills_up_is_refused_in_one_line_and_leaves_no_half_made_database(tmp_path: Path) -> None:
    home = tmp_path / "postgres"
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))\n{USER}"
    finished = subprocess.run(
        [sys.executable, "-c", limited, str(home)], input="", capture_output=True, text=True, check=False, timeout=120
    )
    assert finished.stdout.startswith("refused: the embedded PostgreSQL cannot be set up: ")
    assert len(finished.stdout.splitlines()) == 1
    assert {entry.name for entry in home.iterdir()} == {"lock", "users"}


def test_files_of_another_postgresql_are_left_alone_with_the_fix_named(home: Path) -> None:
    (home / "data" / "PG_VERSION").write_text("16\n")
    with pytest.raises(SetupError, match="made by PostgreSQL 16 and this installation has 18; use another GADS_HOME"):
        start_database(home, None)


def test_a_server_that_cannot_start_says_why_and_where_its_log_is(home: Path) -> None:
    with (home / "data" / "postgresql.conf").open("a") as configuration:
        configuration.write("no_such_setting = 1\n")
    with pytest.raises(SetupError, match=r'did not start: .*postgresql.conf" contains errors; see .*server\.log$'):
        start_database(home, None)


def test_a_socket_folder_that_somebody_else_made_is_not_trusted(tmp_path: Path) -> None:
    home = tmp_path / ("d" * 150) / "postgres"
    with running_database(home, None) as url:
        folder = socket_folder(url)
    folder.symlink_to(tmp_path)
    try:
        with pytest.raises(SetupError, match="belongs to another account; remove it"):
            start_database(home, None)
    finally:
        folder.unlink()


def test_a_server_of_ones_own_is_used_as_it_is_and_never_stopped(tmp_path: Path, postgres_url: str) -> None:
    plain = postgres_url.replace("postgresql+psycopg://", "postgresql://")
    unused = tmp_path / "postgres"
    with running_database(unused, plain) as url:
        assert url == postgres_url
    assert start_database(unused, plain) == postgres_url
    assert query(postgres_url, "SELECT 1") == 1
    assert not unused.exists()


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("postgresql://u:s3cret@127.0.0.1:1/ads", DatabaseUnavailableError, "'ads' at 127.0.0.1:1 cannot be reached"),
        ("postgresql://u:s3cret@127.0.0.1:port/ads", SettingsError, "GADS_DATABASE_URL cannot be read"),
    ],
)
def test_a_server_of_ones_own_that_cannot_be_reached_is_named_without_its_password(
    tmp_path: Path, url: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as refusal, running_database(tmp_path, url):
        pass
    assert "s3cret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)
