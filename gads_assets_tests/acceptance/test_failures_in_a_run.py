"""A run that cannot go on says why in one line, and publishes nothing by halves."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from gads_assets.state.connection import open_engine
from gads_assets.state.server import start_database
from gads_assets_tests.acceptance.commands import (
    Finished,
    Home,
    assert_refused,
    published_partitions,
)
from gads_assets_tests.acceptance.disks import hardly_any_disk

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
    assert reason(blocked).startswith("Spark failed: ")
    assert counted(home, "SELECT attempt_count FROM partition_state") == 1
    assert counted(home, "SELECT count(*) FROM load_record") == 0
