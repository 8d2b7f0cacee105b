"""`gads db` and `gads env` as a shell sees them, and the errors of any command."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from gads_assets.state.connection import open_engine, parse_database_url
from gads_assets.state.server import database_status, stop_database
from gads_assets.state.tables import VERSION_TABLE
from gads_assets_tests.databases import execute, named
from gads_assets_tests.ledgers import SCHEMA_HEAD

PROGRAM = Path(sys.executable).parent / "gads"
SHELLS = [shell for shell in ("sh", "bash", "zsh") if shutil.which(shell)]


class Shell:
    """Runs programs with GADS_HOME set and nothing else of ours."""

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GADS_", "DAGSTER_", "PG"))}
        self.variables = kept | {"GADS_HOME": str(home)}

    def gads(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run([str(PROGRAM), *arguments], **variables)

    def run(self, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.variables | variables,
            cwd=self.home.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    home = tmp_path / "it's a home"
    yield Shell(home)
    stop_database(home / "postgres")


def assert_refused(finished: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert finished.returncode == 1
    assert finished.stdout == ""
    assert finished.stderr.startswith("gads: ")
    assert finished.stderr.count("\n") == 1
    for part in parts:
        assert part in finished.stderr


def test_help_is_quick_and_imports_no_heavy_part(shell: Shell) -> None:
    listing = "import sys; import gads_assets.cli.main; print(' '.join(sys.modules))"
    modules = set(shell.run([sys.executable, "-c", listing]).stdout.split())
    assert not modules & {"dagster", "pyspark", "google.ads", "grpc", "sqlalchemy", "pandas"}
    shown = shell.gads("--help")
    assert shown.returncode == 0
    for command in ("env", "db", "catalog", "emulator"):
        assert command in shown.stdout


def test_start_status_and_stop_tell_one_story(shell: Shell) -> None:
    assert json.loads(shell.gads("db", "status", "--json").stdout)["running"] is False
    assert not shell.home.exists()
    assert shell.gads("db", "start").returncode == 0
    facts = json.loads(shell.gads("db", "status", "--json").stdout)
    assert facts == {
        "embedded": True,
        "place": str(shell.home / "postgres"),
        "running": True,
        "process_id": database_status(shell.home / "postgres").process_id,
        "stays": True,
        "schema": None,
        "schema_current": False,
    }
    migrated = shell.gads("db", "migrate")
    assert migrated.stderr.strip() == f"the schema went from nothing to {SCHEMA_HEAD}"
    assert shell.gads("db", "migrate").stderr.strip() == f"the schema is at {SCHEMA_HEAD} already"
    assert shell.gads("db", "stop").stderr.strip() == "the database is stopped"
    assert shell.gads("db", "stop").stderr.strip() == "the database was not running"
    assert "running          no" in shell.gads("db", "status").stdout


def test_migrate_stops_the_server_that_it_started(shell: Shell) -> None:
    assert shell.gads("db", "migrate").returncode == 0
    assert database_status(shell.home / "postgres").process_id is None


def test_env_gives_any_shell_what_dagster_needs_and_leaves_the_database_up(shell: Shell) -> None:
    catalog = shell.home.parent / "my catalog.yaml"
    document = json.loads(
        shell.gads(
            *("env", "--json"),
            GADS_CATALOG=catalog.name,
            GADS_RAW_URI="s3://bucket/it's $raw",
            GADS_WAREHOUSE_URI="my warehouse",
        ).stdout
    )
    assert database_status(shell.home / "postgres").stays
    assert document["GADS_HOME"] == str(shell.home)
    assert document["GADS_CATALOG"] == str(catalog)
    assert document["GADS_RAW_URI"] == "s3://bucket/it's $raw"
    assert document["GADS_WAREHOUSE_URI"] == str(shell.home.parent / "my warehouse")
    assert document["DAGSTER_HOME"] == str(shell.home / "dagster")
    assert document["DAGSTER_EVENT_BATCH_SIZE"] == "500"
    assert document["PATH"].split(os.pathsep)[0] == str(PROGRAM.parent)
    for program in SHELLS:
        evaluated = shell.run(
            [program, "-c", f'eval "$("{PROGRAM}" env)"; env -0'],
            GADS_RAW_URI="s3://bucket/it's $raw",
            GADS_CATALOG=str(catalog),
            GADS_WAREHOUSE_URI="my warehouse",
        )
        seen = dict(line.split("=", 1) for line in evaluated.stdout.split("\0") if line)
        assert seen.items() >= document.items()


def test_a_plain_dagster_command_runs_after_env_and_its_events_are_in_the_same_database(
    shell: Shell, tmp_path: Path
) -> None:
    definitions = tmp_path / "trivial.py"
    definitions.write_text("import dagster as dg\n@dg.asset\ndef trivial() -> None: print('said')\n")
    script = f"""
        eval "$("{PROGRAM}" env)"
        dagster asset materialize --select trivial -f "{definitions}" && dagster instance info
    """
    finished = shell.run(["sh", "-c", script])
    assert finished.returncode == 0, finished.stderr
    assert "KeptEventLog" in finished.stdout
    url = database_status(shell.home / "postgres").url
    assert url is not None
    engine = open_engine(url)
    with engine.begin() as connection:
        kinds = connection.execute(text("SELECT dagster_event_type FROM dagster.event_logs")).scalars().all()
        ours = connection.execute(text("SELECT to_regclass('public.event_logs')")).scalar_one()
    engine.dispose()
    assert {"ASSET_MATERIALIZATION", "PIPELINE_SUCCESS"} <= set(kinds)
    assert ours is None
    logs = list((shell.home / "dagster" / "storage").rglob("*.out"))
    assert [log.read_text() for log in logs] == ["said\n"]


def test_a_database_of_ones_own_holds_dagsters_storage_too(shell: Shell, database_url: str) -> None:
    plain = database_url.replace("postgresql+psycopg://", "postgresql://")
    document = json.loads(
        shell.gads(
            "env", "--json", GADS_DATABASE_URL=plain, GADS_DATABASE_URL_LOADER=f"{plain}&application_name=x"
        ).stdout
    )
    assert document["GADS_DATABASE_URL"] == plain
    assert document["GADS_DATABASE_URL_LOADER"] == f"{plain}&application_name=x"
    listed = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, sqlalchemy as s; print(s.create_engine(os.environ['URL']).connect()"
            ".exec_driver_sql('SELECT current_database(), current_schema()').one())",
        ],
        env=shell.variables | {"URL": document["GADS_DAGSTER_POSTGRES_URL"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stdout.strip() == f"('{database_url.partition('?')[0].rpartition('/')[2]}', 'dagster')"
    assert not (shell.home / "postgres").exists()
    assert json.loads(shell.gads("db", "status", "--json", GADS_DATABASE_URL=plain).stdout)["schema_current"] is True
    assert_refused(shell.gads("db", "stop", GADS_DATABASE_URL=plain), "stop it where it runs")


@pytest.fixture
def empty_database(postgres_url: str) -> Iterator[str]:
    execute(postgres_url, "CREATE DATABASE empty")
    yield named(postgres_url, "empty").replace("postgresql+psycopg://", "postgresql://")
    execute(postgres_url, "DROP DATABASE empty WITH (FORCE)")


def schema_of(shell: Shell, url: str) -> str | None:
    schema: str | None = json.loads(shell.gads("db", "status", "--json", GADS_DATABASE_URL=url).stdout)["schema"]
    return schema


@pytest.mark.parametrize("command", [["customers", "list"], ["customers", "sync"], ["db", "start"]], ids=" ".join)
def test_a_server_of_ones_own_is_not_migrated_in_passing(shell: Shell, empty_database: str, command: list[str]) -> None:
    finished = shell.gads(*command, GADS_DATABASE_URL=empty_database)
    if command != ["db", "start"]:
        fix = f"has no schema, and this version of gads_assets needs {SCHEMA_HEAD}; run `gads db migrate`"
        assert_refused(finished, "database 'empty'", fix)
    assert schema_of(shell, empty_database) is None


@pytest.mark.parametrize("command", [["setup"], ["demo"], ["env"], ["db", "migrate"]], ids=" ".join)
def test_a_server_of_ones_own_is_migrated_by_the_commands_that_prepare_it(
    shell: Shell, empty_database: str, command: list[str]
) -> None:
    # A demo that gets no further than the database; neither Java nor a JAR is looked for.
    stops_the_demo = {"GADS_EMULATOR_FAULTS": "nonsense", "GADS_SPARK_REMOTE": "sc://localhost:1"}
    finished = shell.gads(*command, GADS_DATABASE_URL=empty_database, **stops_the_demo)
    assert finished.returncode == int(command == ["demo"]), finished.stderr
    assert schema_of(shell, empty_database) == SCHEMA_HEAD
    assert shell.gads("customers", "list", GADS_DATABASE_URL=empty_database).returncode == 0


def test_a_database_of_a_newer_version_is_refused_by_every_command(shell: Shell, database_url: str) -> None:
    newer = database_url.replace("postgresql+psycopg://", "postgresql://")
    execute(database_url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    for command in (["customers", "list"], ["db", "migrate"], ["env"]):
        assert_refused(
            shell.gads(*command, GADS_DATABASE_URL=newer),
            "has schema 9999, migrated by a newer version of gads_assets",
            "update this installation",
        )
    parts = json.loads(shell.gads("doctor", "--json", GADS_DATABASE_URL=newer).stdout)
    [database] = [part for part in parts if part["part"] == "database"]
    assert not database["ok"]
    assert "update this installation" in database["detail"]


def test_a_login_in_the_role_of_its_work_is_enough_for_a_migrated_database(shell: Shell, database_url: str) -> None:
    for statement in ("CREATE ROLE reader LOGIN", "GRANT test_consumer TO reader"):
        execute(database_url, statement)
    login = parse_database_url(database_url).set(drivername="postgresql", username="reader")
    url = login.render_as_string(hide_password=False)
    assert shell.gads("customers", "list", GADS_DATABASE_URL=url).returncode == 0
    refused = shell.gads("customers", "sync", GADS_DATABASE_URL=url)
    assert_refused(refused, "does not let login reader act as the operator", "GRANT test_operator TO reader")
    migrated = shell.gads("db", "migrate", GADS_DATABASE_URL=url)
    assert migrated.stderr.strip() == f"the schema is at {SCHEMA_HEAD} already"


def test_a_database_that_is_down_is_a_line_without_its_password(shell: Shell) -> None:
    down = "postgresql://me:s3cret@127.0.0.1:1/ads"
    for command in (["env"], ["db", "start"], ["db", "migrate"]):
        finished = shell.gads(*command, GADS_DATABASE_URL=down)
        assert_refused(finished, "database 'ads' at 127.0.0.1:1 cannot be reached", "correct GADS_DATABASE_URL")
        assert "s3cret" not in finished.stderr
    assert json.loads(shell.gads("db", "status", "--json", GADS_DATABASE_URL=down).stdout)["running"] is False


def test_a_home_that_cannot_be_written_is_a_line_with_the_fix(shell: Shell) -> None:
    shell.home.write_text("a file is in the way")
    for command in (["env"], ["db", "start"], ["db", "migrate"]):
        assert_refused(shell.gads(*command), "Not a directory", "set GADS_HOME to")


def test_a_wrong_setting_is_a_line_naming_it(shell: Shell) -> None:
    assert_refused(shell.gads("db", "status", GADS_DATABASE_URL="mysql://x"), "GADS_DATABASE_URL")


def test_wrong_usage_exits_2_and_suggests_the_nearest_command(shell: Shell) -> None:
    mistyped = shell.gads("catlog")
    assert mistyped.returncode == 2
    assert "catalog" in mistyped.stderr
    assert shell.gads("db", "start", "--fast").returncode == 2


def test_an_unexpected_error_is_a_line_and_its_trace_goes_to_the_homes_logs(shell: Shell) -> None:
    script = (
        "from gads_assets.cli import main\n"
        "main._COMMANDS = (('env', 'gads_assets.cli.nowhere:missing', ''),)\n"
        "main.main()\n"
    )
    finished = shell.run([sys.executable, "-c", script, "env"])
    assert_refused(finished, "unexpected ModuleNotFoundError: No module named 'gads_assets.cli.nowhere'")
    [log] = (shell.home / "logs").iterdir()
    assert str(log) in finished.stderr
    assert "Traceback" in log.read_text()


def test_a_reader_that_leaves_early_causes_no_complaint(shell: Shell) -> None:
    finished = shell.run(["sh", "-c", f'"{PROGRAM}" --help | true'])
    assert finished.stderr == ""
