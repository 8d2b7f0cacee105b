"""Bad surroundings: each is one line with the fix, exit code 1, and nothing half-written."""

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gads_assets.catalog.loading import PACKAGED_CATALOG
from gads_assets_tests.acceptance.commands import Home, assert_refused, finish
from gads_assets_tests.acceptance.disks import full_disk, read_only_disk

# The program as it is, on a machine without the folders in which Debian keeps its Javas.
NO_USUAL_PLACES = """
import functools, pathlib
from gads_assets.cli import main, setup
setup.find_java = functools.partial(setup.find_java, usual_places=pathlib.Path("/nonexistent"))
main.main()
"""

USE_SPARK = [["setup"], ["demo"], ["query", "SELECT 1"], ["ui"]]
USE_HOME = [
    ["setup"],
    ["demo"],
    ["env"],
    ["db", "start"],
    ["query", "SELECT * FROM load_records"],
    ["customers", "list"],
]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(path=tmp_path / "home")
    yield home
    home.stop()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def written(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


@pytest.mark.parametrize("command", USE_SPARK, ids=" ".join)
def test_a_java_home_without_java_is_named_before_anything_is_written(
    home: Home, tmp_path: Path, command: list[str]
) -> None:
    assert_refused(
        home.gads(*command, JAVA_HOME=str(tmp_path)), f"JAVA_HOME {tmp_path} has no java", "needs Java 17 or 21"
    )
    assert written(home.path) == []


@pytest.mark.parametrize(
    ("script", "found"),
    [("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "is Java 11"), ("exit 1", "has no java")],
)
def test_an_unsuitable_java_is_named_with_what_it_is(home: Home, tmp_path: Path, script: str, found: str) -> None:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert_refused(home.gads("setup", JAVA_HOME=str(tmp_path / "jdk")), found, "set it to one of these, or unset it")
    assert written(home.path) == []


@pytest.mark.parametrize("command", USE_SPARK, ids=" ".join)
def test_a_machine_without_java_is_told_how_to_get_it(home: Home, tmp_path: Path, command: list[str]) -> None:
    # Without a PATH there is no apt-get either, with which root would install it.
    program = [sys.executable, "-c", NO_USUAL_PLACES, *command]
    finished = finish(home.start(program, PATH=str(tmp_path), JAVA_HOME=""))
    assert_refused(finished, "no Java 17 or 21 was found", "apt-get install openjdk-17-jre-headless", "set JAVA_HOME")
    assert written(home.path) == []


@pytest.mark.parametrize("command", USE_SPARK, ids=" ".join)
def test_a_folder_without_the_delta_jars_is_named_with_what_it_lacks(
    home: Home, tmp_path: Path, command: list[str]
) -> None:
    finished = home.gads(*command, GADS_SPARK_JARS=str(tmp_path))
    assert_refused(finished, f"GADS_SPARK_JARS {tmp_path} lacks delta-spark_", "delta-storage-", "put them there")
    assert written(home.path) == []


@pytest.mark.parametrize("command", USE_SPARK[1:], ids=" ".join)
def test_jars_that_were_never_fetched_are_named_with_the_command_that_fetches_them(
    home: Home, command: list[str]
) -> None:
    assert_refused(home.gads(*command, GADS_SPARK_JARS=""), "delta-spark_", "run `make setup` or `gads setup`")
    assert written(home.path) == []


def test_a_catalog_without_the_demos_queries_is_named_before_anything_is_written(home: Home, tmp_path: Path) -> None:
    shutil.copytree(PACKAGED_CATALOG.parent, tmp_path / "config")
    catalog = tmp_path / "config" / PACKAGED_CATALOG.name
    kept, found, _ = catalog.read_text().partition("  ad_group:\n")
    assert found
    catalog.write_text(kept)
    assert_refused(
        home.gads("demo", GADS_CATALOG=str(catalog)),
        f"GADS_CATALOG {catalog} lacks ad_group, keyword_view, search_term_view",
        "unset GADS_CATALOG",
    )
    assert written(home.path) == []


def test_a_registry_out_of_reach_leaves_no_jar_behind(home: Home, closed_port: int) -> None:
    proxies = " ".join(
        f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={closed_port}" for scheme in ("http", "https")
    )
    finished = home.gads("setup", GADS_SPARK_JARS="", JAVA_TOOL_OPTIONS=proxies)
    assert_refused(finished, "could not be fetched from Maven Central", "set GADS_SPARK_JARS")
    assert written(home.path) == ["spark"]


def test_a_port_in_use_is_named_with_another(home: Home, taken_port: int) -> None:
    assert_refused(home.gads("ui", "--port", str(taken_port)), f"port {taken_port} is in use", "choose another")
    assert_refused(home.gads("emulator", "--port", str(taken_port)), f"port {taken_port}", "--port 0 for any")
    assert [name for name in written(home.path) if not name.startswith("emulator")] == []


def test_a_read_only_home_is_named_with_the_fix(tmp_path: Path, closed_port: int) -> None:
    with read_only_disk(tmp_path / "disk") as folder:
        home = Home(path=folder)
        for command in [*USE_HOME, ["customers", "sync"], ["emulator"], ["ui", "--port", str(closed_port)]]:
            assert_refused(home.gads(*command), str(folder), "set GADS_HOME to")
        assert written(folder) == []
        parts = {part["part"]: part for part in json.loads(home.gads("doctor", "--json").stdout)}
    assert not parts["home"]["ok"]


def test_a_disk_too_small_for_the_database_is_said_and_left_without_half_a_database(tmp_path: Path) -> None:
    with full_disk(tmp_path / "disk", kilobytes=12_000) as prefix:
        home = Home(path=tmp_path / "disk" / "home", prefix=prefix)
        for command in USE_HOME[:4]:
            assert_refused(home.gads(*command), "the embedded PostgreSQL cannot be set up", "set GADS_HOME")
            assert [name for name in written(home.path) if "postgres/data" in name] == []


def test_a_home_without_a_byte_left_is_said_before_the_first_stage(tmp_path: Path) -> None:
    with full_disk(tmp_path / "disk", kilobytes=1) as prefix:
        home = Home(path=tmp_path / "disk" / "home", prefix=prefix)
        (tmp_path / "disk" / "filler").write_bytes(b"x" * 4096)  # the least that a file system can be made of
        for command in (["setup"], ["demo"]):
            assert_refused(home.gads(*command), "set GADS_HOME to")
            assert written(home.path) == []


@pytest.mark.parametrize(
    "command", [*USE_HOME, ["demo", "--json"], ["db", "migrate"], ["customers", "sync"], ["ui"]], ids=" ".join
)
def test_a_database_that_is_down_is_named_without_its_password(
    home: Home, closed_port: int, command: list[str]
) -> None:
    port = ["--port", str(closed_port)] if command == ["ui"] else []
    finished = home.gads(*command, *port, GADS_DATABASE_URL=f"postgresql://me:s3cret@127.0.0.1:{closed_port}/ads")
    assert_refused(
        finished, f"database 'ads' at 127.0.0.1:{closed_port} cannot be reached", "correct GADS_DATABASE_URL"
    )
    assert "s3cret" not in finished.stdout + finished.stderr
    assert finished.stdout == ""
    assert not {"postgres", "raw", "warehouse", "spark"} & set(written(home.path))
