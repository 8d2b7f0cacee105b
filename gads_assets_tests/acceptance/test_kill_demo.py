"""kill -9 of the demo's process group, at moments chosen by what it has done. `make drill` has the random ones."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from gads_assets.cli.demo import QUERIES
from gads_assets.state.connection import open_engine
from gads_assets.state.server import database_status
from gads_assets_tests.acceptance.commands import (
    GADS,
    PATIENCE,
    Home,
    demonstrated_home,
    finish,
    kill,
    published_content,
    published_partitions,
)
from gads_assets_tests.drills.damage import Damage
from gads_assets_tests.drills.demo import (
    broken_seals,
    common_days,
    compare,
    kill_database,
    left_running,
    unaccounted,
    watched,
)

WAITING = 0.1


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return demonstrated_home(tmp_path_factory.getbasetemp() / "demonstrated")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(path=tmp_path / "home", variables={"GADS_LEASE_SECONDS": "5"})
    yield home
    home.stop()


def sealed(home: Home) -> int:
    return len(list(Path(home.settings.raw_uri).rglob("metadata.json")))


def judged(home: Home) -> int:
    url = database_status(home.settings.database_home).url
    if url is None:
        return 0
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            count: int = connection.execute(text("SELECT count(*) FROM partition_attempt")).scalar_one()
            return count
    except SQLAlchemyError:
        return 0  # it is starting, or not migrated yet
    finally:
        engine.dispose()


def staged(home: Home) -> int:
    return len(list(Path(home.settings.warehouse_uri).rglob("stage_v*/_delta_log/*.json")))


def pointed(home: Home) -> int:
    return len(list(Path(home.settings.warehouse_uri).rglob("pointers/_delta_log/*.json")))


def kill_demo(home: Home, progress: Callable[[Home], int]) -> None:
    """Kills it as soon as it has done more of this than the ones before it."""
    before = progress(home)
    process = home.start([GADS, "demo", "--json"])
    deadline = time.monotonic() + PATIENCE
    try:
        while progress(home) <= before:
            assert process.poll() is None, "the demo ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(WAITING)
    finally:
        kill(process)


@pytest.mark.timeout(1800)
def test_a_demo_killed_again_and_again_ends_in_what_an_undisturbed_one_publishes(undisturbed: Home, home: Home) -> None:
    expected = published_content(undisturbed)
    damage = Damage()
    with watched(home) as reader:
        kill_demo(home, sealed)
        kill_demo(home, judged)
        kill_database(home)
        kill_demo(home, staged)
        kill_demo(home, pointed)
        shown = published_partitions(home)
        compare(damage, expected=expected, found=published_content(home), partitions=shown)
        finished = finish(home.start([GADS, "demo", "--json"]))
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["changed"] == 0
    found = published_partitions(home)
    wanted = common_days(published_partitions(undisturbed), found)
    assert set(shown) <= set(found)
    assert len(set(wanted) & set(found)) == len(wanted) >= 72
    compare(damage, expected=expected, found=published_content(home), partitions=wanted)
    damage.mixed_reads = reader.complaints
    damage.unaccounted = unaccounted(home, starts=5)
    damage.broken_seals = broken_seals(home)
    damage.stuck = left_running(home)
    assert damage.sentences() == []
    assert reader.reads > 0


def test_a_demo_run_again_publishes_nothing_and_changes_no_row(undisturbed: Home) -> None:
    before, pointers = published_content(undisturbed), published_partitions(undisturbed)
    finished = undisturbed.gads("demo")
    assert finished.returncode == 0
    # Past midnight there is a new day to publish; what was published stays as it was all the same.
    if set(published_partitions(undisturbed)) == set(pointers):
        assert "All 84 partitions were published already. No published row changed." in finished.stderr
        assert [line.strip() for line in finished.stdout.splitlines() if line.startswith("google_ads.")] == [
            f"google_ads.{query}" for query in QUERIES
        ]
        for shown in {word for partition in pointers for word in partition[1:]}:
            assert finished.stdout.count(shown) == 4, shown
        assert "2145550101 Harbor Street Bakery" in finished.stdout
    after = published_content(undisturbed)
    assert {partition: after[partition] for partition in before} == before
    assert published_partitions(undisturbed).items() >= pointers.items()
