"""Folders that are killed while runs write: nothing is lost, doubled or mixed, and nobody has to mend anything."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from gads_assets.domain.partition_status import Outcome
from gads_assets.status.tracking import Workspace
from gads_assets_tests.integration.status import folding_process
from gads_assets_tests.status_desks import BIKES, FRESHNESS, MART, RAW, SHOES, TABLE, Desk, place

KILLS = 6
PROJECT = Path(__file__).resolve().parents[3]
PLACES = [place(asset, customer) for asset in (RAW, TABLE, MART, FRESHNESS) for customer in (SHOES, BIKES)]


@contextmanager
def writing(desk: Desk, choose: random.Random) -> Iterator[None]:
    """Runs go on as long as the block does, two of them interleaved."""
    stopped = Event()

    def write() -> None:
        number = 0
        while not stopped.is_set():
            some = choose.sample(PLACES, 4)
            first, second = f"run {number}", f"run {number + 1}"
            number += 2
            desk.written.plan(first, *some)
            desk.written.plan(second, *some[:2])
            desk.written.materialize(first, *some[1:3])
            desk.written.end(second, choose.choice([*Outcome]))
            desk.written.end(first, choose.choice([*Outcome]))

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@contextmanager
def folding(tmp_path: Path, database_url: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", folding_process.__name__, str(tmp_path), database_url],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_folders_that_are_killed_while_runs_write_leave_the_rows_of_a_fold_from_zero(
    desk: Desk, tmp_path: Path, database_url: str
) -> None:
    choose = random.Random(7)
    with writing(desk, choose), folding(tmp_path, database_url) as other:
        assert other.stdout is not None
        for _ in range(KILLS):
            with folding(tmp_path, database_url) as victim:
                assert victim.stdout is not None
                assert victim.stdout.readline() == "folded\n"
                time.sleep(choose.uniform(0, 0.3))
        assert other.poll() is None, "the folder that nobody killed ended by itself"
    assert desk.log.highest() > 500
    desk.fold()
    desk.folder(Workspace(tenant_id="default", workspace_id="from zero")).fold(desk.log)
    assert desk.rows() == desk.rows("from zero")
    assert len(desk.rows()) == len(PLACES)
