"""`gads reconcile` as a process of its own, on homes whose parts have drifted apart."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.state import PartitionStatus
from gads_assets_tests.acceptance.commands import delta_jars
from gads_assets_tests.worlds import BERLIN, NEW_YORK, RAW, TABLE, World, key

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

PROGRAM = str(Path(sys.executable).parent / "gads")
FIRST, LAST = f"{NEW_YORK}|2024-06-01", f"{BERLIN}|2024-06-02"
ALL = {f"{customer}|2024-06-0{day}" for customer in (NEW_YORK, BERLIN) for day in (1, 2)}
JARS = str(delta_jars())
LEDGER = "partition_state, partition_attempt, load_record, demotion, extraction_attempt, override_log, retry_schedule"


def reconcile(*arguments: str) -> tuple[int, dict[str, object], str]:
    """Its exit code, its JSON document, and its last line for people. The world's fixture has set the environment."""
    done = subprocess.run(
        [PROGRAM, "reconcile", "--json", *arguments],
        env={**os.environ, "GADS_SPARK_JARS": JARS},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout, done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr.strip().splitlines()[-1]


def test_what_was_judged_and_not_loaded_is_loaded_after_a_dry_run_that_changes_nothing(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    world.run(FIRST, LAST, assets=[RAW])

    code, document, line = reconcile("--dry-run")

    assert (code, document["found"], line) == (0, {"campaign": {"not loaded": 4}}, "4 successes wait to be loaded")
    assert world.published() == {}

    assert reconcile() == (
        0,
        {"dry_run": False, "found": {"campaign": {"not loaded": 4}}, "left": {}},
        "readers see what the ledger says",
    )
    assert set(world.published()) == world.materialized(TABLE) == ALL
    assert reconcile()[1] == {"dry_run": False, "found": {}, "left": {}}


def test_a_lost_database_is_adopted_and_new_runs_go_on_from_there(
    make_world: Callable[..., World], engine: Engine
) -> None:
    """All runs of one partition were spoiled, so it was withdrawn; and the numbers of runs start again at one."""
    world = make_world()
    for _ in range(2):
        world.run(FIRST, LAST)
    for run_id in world.here.sink.sealed_runs(key(LAST)):
        [payload] = world.here.sink.payload_uris(world.here.sink.manifest(key(LAST), run_id))
        Path(payload).write_bytes(b"")
    world.check_alone(LAST)
    before = world.published()
    assert set(before) == ALL - {LAST}
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text(f"TRUNCATE {LEDGER}"))
        connection.execute(text("ALTER SEQUENCE run_seq RESTART"))

    code, document, line = reconcile()
    assert (code, document["left"]) == (1, {"campaign": {"estranged": 4}})
    assert "run `gads reconcile --adopt`" in line
    assert world.published() == before

    code, document, line = reconcile("--adopt")
    assert (code, document["left"], line) == (0, {}, "readers see what the ledger says")
    assert world.published() == before
    assert {world.status(label) for label in before} == {PartitionStatus.SUCCESS}
    assert world.status(LAST) is PartitionStatus.FAILED

    world.run(FIRST, LAST)
    assert world.published() == {label: {_newest(world, label).run_id} for label in ALL}


def _newest(world: World, label: str) -> RunManifest:
    return max(
        (world.here.sink.manifest(key(label), run_id) for run_id in world.here.sink.sealed_runs(key(label))),
        key=lambda manifest: manifest.run_seq,
    )
