"""A loader in a process of its own, with a JVM of its own, that can be killed for real."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from select import select

from gads_assets.domain.keys import PartitionKey, RunId, partition_key_from_label
from gads_assets.orchestration.workplace import open_session
from gads_assets.settings import read_settings
from gads_assets_tests.acceptance.commands import PROJECT, Home
from gads_assets_tests.drills.failpoints import Failpoint, die_by_kill, dying_loader
from gads_assets_tests.sealed_runs import QUERY
from gads_assets_tests.sites import make_site

_PATIENCE_SECONDS = 180.0
_LOAD_SECONDS = 3.0
_SHORT_LIFE = "-XX:TieredStopAtLevel=1"
"""A JVM that lives for a few loads does not get back what its second compiler takes."""


class LoaderProcess:
    """Stays between loads, and starts again behind one's back when it was killed: a Spark session takes its time."""

    def __init__(self, root: Path, database_url: str) -> None:
        self._command = [sys.executable, "-m", __name__, str(root), database_url]
        self._home = Home(path=root / "loader")
        self._home.path.mkdir(parents=True)
        self._log = self._home.path / "stderr.log"
        self._seconds = _LOAD_SECONDS
        self._start()

    def load(self, keys: Sequence[PartitionKey]) -> dict[PartitionKey, RunId]:
        """What is shown of these now."""
        self._order(keys, None)
        answer = self._answer(_PATIENCE_SECONDS)
        assert answer, f"the loader gave no answer; see {self._log}"
        return _shown(answer)

    def load_and_die(self, keys: Sequence[PartitionKey], failpoint: Failpoint) -> None:
        self._order(keys, failpoint)
        answer = self._answer(_PATIENCE_SECONDS)
        assert answer == "", f"the loader did not die: {failpoint} is not reached any more"
        self._process.communicate()
        assert self._process.returncode == -signal.SIGKILL, f"the loader ended otherwise; see {self._log}"
        self._start()

    def load_and_kill(self, keys: Sequence[PartitionKey], moment: float) -> dict[PartitionKey, RunId] | None:
        """Killed at this part, from 0 to 1, of the time that a load takes. None, unless it was done before."""
        self._order(keys, None)
        started = time.monotonic()
        answer = self._answer(self._seconds * moment)
        assert answer != "", f"the loader ended by itself; see {self._log}"
        if answer is not None:
            self._seconds = time.monotonic() - started
            return _shown(answer)
        self.stop()
        self._start()
        return None

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _start(self) -> None:
        self._is_ready = False
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=PROJECT,
                env=self._home.environment(GADS_SPARK_MASTER="local[1]", JAVA_TOOL_OPTIONS=_SHORT_LIFE),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
                start_new_session=True,
            )

    def _order(self, keys: Sequence[PartitionKey], at: Failpoint | None) -> None:
        if not self._is_ready:
            assert self._answer(_PATIENCE_SECONDS), f"the loader did not start; see {self._log}"
            self._is_ready = True
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"partitions": [key.label for key in keys], "at": at}) + "\n")

    def _answer(self, patience: float) -> str | None:
        """A line; an empty one when the process has ended, None when there was none in time."""
        assert self._process.stdout
        ready, _, _ = select([self._process.stdout], [], [], patience)
        return self._process.stdout.readline() if ready else None


def _shown(answer: str) -> dict[PartitionKey, RunId]:
    return {_key(label): RunId(run_id) for label, run_id in json.loads(answer).items()}


def _key(label: str) -> PartitionKey:
    return partition_key_from_label(label, source="google_ads", query_name=QUERY)


def main() -> None:
    root, url = sys.argv[1:]
    session = open_session(read_settings(os.environ))
    with make_site(Path(root), url, lambda: session).here as here:
        _print({"is_ready": True})
        for line in sys.stdin:
            order = json.loads(line)
            keys = [_key(label) for label in order["partitions"]]
            if order["at"]:
                with dying_loader(here, Failpoint(order["at"]), die_by_kill) as loader:
                    loader.load(keys)
            published = here.loader.load(keys)
            _print({pointer.key.label: pointer.run_id for pointer in published.pointers})
    session.stop()


def _print(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
