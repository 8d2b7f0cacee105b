"""The parts as a process uses them, and what it says when it leaves them."""

import subprocess
import sys
from pathlib import Path

from gads_assets.state.server import stop_database

# A finished run whose database cannot be put away: its lock is in nobody's hands any more.
ENDS_BADLY = """
import pathlib, sys
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
settings = read_settings({"GADS_HOME": sys.argv[1]})
with Workplace(settings, outlived_by_database=True) as here:
    here.database_url
(settings.database_home / "lock").unlink()
(settings.database_home / "lock").mkdir()
"""


def test_a_database_that_cannot_be_put_away_at_the_end_of_a_process_is_one_line(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", ENDS_BADLY, tmp_path], capture_output=True, text=True, check=False, timeout=120
    )
    (tmp_path / "postgres" / "lock").rmdir()
    assert stop_database(tmp_path / "postgres")
    assert finished.returncode == 0
    assert finished.stderr == (
        f"gads: the database folder {tmp_path / 'postgres'} cannot be used (Is a directory); "
        "set GADS_HOME to a folder of yours on a disk with free space\n"
    )
