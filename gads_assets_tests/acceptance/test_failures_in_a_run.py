"""A run that cannot go on says why in one line, and publishes nothing by halves."""

import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from gads_assets.orchestration.instance import dagster_environment
from gads_assets.state.connection import open_engine
from gads_assets.state.server import database_status, running_database, start_database
from gads_assets_tests.acceptance.commands import (
    PATIENCE,
    PROGRAMS,
    Finished,
    Home,
    assert_refused,
    finish,
    kill,
    published_partitions,
)
from gads_assets_tests.acceptance.disks import can_mount, hardly_any_disk

PARTITION = "2145550101|2024-06-01"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Accounts are registered, and the database stays up."""
    home = Home(path=tmp_path_factory.mktemp("failing") / "home")
    start_database(home.settings.database_home, None)
    synchronised = home.gads("customers", "sync")
    assert synchronised.returncode == 0, synchronised.stderr
    yield home
    home.stop()


def counted(home: Home, statement: str) -> int:
    engine = open_engine(start_database(home.settings.database_home, None))
    try:
        with engine.begin() as connection:
            count: int = connection.execute(text(statement)).scalar_one()
            return count
    finally:
        engine.dispose()


def reason(finished: Finished) -> str:
    """The line with which Dagster's log gives a failed step's reason."""
    assert finished.returncode == 1, finished.stderr
    marker = "dagster._core.definitions.events.Failure: "
    lines = [line for line in finished.stderr.splitlines() if line.startswith(marker)]
    assert lines, finished.stderr
    # Our sentence says it all: what led to it would bury it under hundreds of lines.
    assert "The above exception" not in finished.stderr
    return lines[0].removeprefix(marker)


def test_a_full_raw_sink_fails_the_demo_with_the_reason_and_seals_nothing(home: Home, tmp_path: Path) -> None:
    with hardly_any_disk(tmp_path / "disk") as disk:
        finished = home.gads("demo", "--json", GADS_RAW_URI=str(disk / "raw"))
        left = [path for path in disk.rglob("*") if path.is_file()]
    assert_refused(finished, "84 of 84 partitions were not published", "cannot be written", "demo.log")
    assert left == []
    assert published_partitions(home) == {}
    assert counted(home, "SELECT count(*) FROM extraction_attempt WHERE error_class = 'raw_sink'") == 84
    assert counted(home, "SELECT count(*) FROM partition_state") == 0


def test_refused_credentials_fail_the_step_with_the_apis_reason(home: Home) -> None:
    finished = home.materialize("campaign", PARTITION, GADS_EMULATOR_FAULTS="bad_auth@*/campaign/*")
    assert "the API refuses these credentials" in reason(finished)


def test_a_warehouse_that_cannot_be_written_fails_with_sparks_reason_and_no_load_on_record(
    home: Home, tmp_path: Path
) -> None:
    (tmp_path / "warehouse").write_text("a file is in the way")
    blocked = home.materialize("campaign", PARTITION, GADS_WAREHOUSE_URI=str(tmp_path / "warehouse"))
    assert reason(blocked).startswith("Spark failed: [DELTA_CANNOT_CREATE_LOG_PATH] Cannot create ")
    assert reason(blocked).endswith("; set GADS_WAREHOUSE_URI to a place that can be written")
    assert counted(home, "SELECT attempt_count FROM partition_state") == 1
    assert counted(home, "SELECT count(*) FROM load_record") == 0


def test_a_warehouse_on_a_full_disk_fails_with_the_disks_reason_and_what_to_do_and_publishes_nothing(
    home: Home, tmp_path: Path
) -> None:
    with hardly_any_disk(tmp_path / "disk") as disk:
        small = replace(home, variables={"GADS_WAREHOUSE_URI": str(disk / "warehouse")})
        failed = small.materialize("campaign", PARTITION)
        assert published_partitions(small) == {}
    said = reason(failed)
    if can_mount():
        assert said == "Spark failed: No space left on device; free space, then run again"
    else:
        assert "Cannot create" in said
    assert counted(home, "SELECT count(*) FROM load_record") == 0


def test_a_run_without_java_says_so_in_one_line(home: Home, tmp_path: Path) -> None:
    failed = home.materialize("campaign", PARTITION, JAVA_HOME=str(tmp_path))
    assert reason(failed) == (
        f"JAVA_HOME {tmp_path} has no java; Spark needs Java 17 or 21: set it to one of these, or unset it"
    )
    assert counted(home, "SELECT count(*) FROM load_record") == 0


def test_a_run_left_alone_with_the_database_records_its_end_before_the_server_stops(home: Home) -> None:
    """As after a demo whose own process was killed: the run is then the last user of the embedded server."""
    home.stop()
    with running_database(home.settings.database_home, None) as url:
        environment = dagster_environment(home.settings, url)
        left_alone = home.start(
            [
                *(str(PROGRAMS / "dagster"), "asset", "materialize"),
                *("--select", "google_ads/raw/campaign,google_ads/campaign"),
                *("--partition", PARTITION, "-m", "gads_assets.definitions"),
            ],
            **environment,
        )
        try:
            _wait_for_an_extraction(url, left_alone)
        except BaseException:
            kill(left_alone)
            raise
    finished = finish(left_alone)

    assert finished.returncode == 0, finished.stderr
    assert database_status(home.settings.database_home).url is None
    assert counted(home, "SELECT count(*) FROM dagster.runs WHERE status NOT IN ('SUCCESS', 'FAILURE')") == 0


def _wait_for_an_extraction(url: str, run: subprocess.Popen[str]) -> None:
    since, deadline = datetime.now(UTC), time.monotonic() + PATIENCE
    engine = open_engine(url)
    try:
        while time.monotonic() < deadline:
            with engine.begin() as connection:
                found = text("SELECT count(*) FROM extraction_attempt WHERE finished_at > :since")
                if connection.execute(found, {"since": since}).scalar_one():
                    return
            assert run.poll() is None, "the run ended before it had extracted anything"
            time.sleep(0.2)
    finally:
        engine.dispose()
    raise TimeoutError("nothing was extracted")
