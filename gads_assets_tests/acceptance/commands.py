"""The real programs, run as a person would run them, each in a home of its own."""

import functools
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gads_assets.catalog.loading import load_catalog
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.settings import Settings, read_settings
from gads_assets.state.server import stop_database
from gads_assets.warehouse.arrow import read_published
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.publishing import current_state

PROJECT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent
GADS = str(PROGRAMS / "gads")
PATIENCE = 300.0

_OURS = ("GADS_", "GOOGLE_ADS_", "DAGSTER_", "SPARK_", "PYSPARK_", "PG")

Finished = subprocess.CompletedProcess[str]
Partition = tuple[str, str, str]
"""Query, customer, day."""
Content = dict[Partition, list[tuple[object, ...]]]


@dataclass(frozen=True, kw_only=True)
class Home:
    """A GADS_HOME, and the environment in which commands use it: the caller's, without what is ours in it.

    `prefix` stands before every command, to run it under a limit.
    """

    path: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()

    def environment(self, **changes: str) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        return {
            **inherited,
            "GADS_HOME": str(self.path),
            "GADS_SPARK_JARS": str(delta_jars()),
            **self.variables,
            **changes,
        }

    @property
    def settings(self) -> Settings:
        return read_settings(self.environment())

    @property
    def layout(self) -> WarehouseLayout:
        return WarehouseLayout(root=self.settings.warehouse_uri, source=load_catalog(None).source)

    def gads(self, *arguments: str, **changes: str) -> Finished:
        return finish(self.start([GADS, *arguments], **changes))

    def dagster(self, *arguments: str, **changes: str) -> Finished:
        """A plain `dagster` command in a shell that `gads env` has set up; leaves the database running."""
        script = f'eval "$({shlex.quote(GADS)} env)" && exec dagster {shlex.join(arguments)}'
        return finish(self.start(["bash", "-c", script], **changes))

    def materialize(self, query: str, partition: str, **changes: str) -> Finished:
        return self.dagster(
            *("asset", "materialize", "--select", f"google_ads/raw/{query},google_ads/{query}"),
            *("--partition", partition, "-m", "gads_assets.definitions"),
            **changes,
        )

    def start(self, command: list[str], **changes: str) -> subprocess.Popen[str]:
        """In a process group of its own, so that all of it can be killed."""
        return subprocess.Popen(
            [*self.prefix, *command],
            cwd=PROJECT,
            env=self.environment(**changes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def stop(self) -> None:
        stop_database(self.settings.database_home)


def finish(process: subprocess.Popen[str], *, patience: float = PATIENCE) -> Finished:
    """Waits for the end; what is not done in time is killed, and raises TimeoutExpired."""
    try:
        output, errors = process.communicate(timeout=patience)
    except BaseException:
        kill(process)
        raise
    return Finished(process.args, process.returncode, output, errors)


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the whole group, whether or not its leader is still there."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@functools.cache
def delta_jars() -> Path:
    """The JARs that this test run uses itself, so that a fresh home needs no download."""
    settings = read_settings(os.environ)
    return settings.spark_jars or settings.spark_home / "jars"


@functools.cache
def demonstrated_home(path: Path) -> Home:
    """A home in which one undisturbed demo has run; made once however many modules ask for it."""
    home = Home(path=path)
    finished = home.gads("demo", "--json")
    assert finished.returncode == 0, finished.stderr
    return home


def published_content(home: Home) -> Content:
    """Every published row, by partition and in an order of its own, without the run it came from."""
    catalog = load_catalog(None)
    content: Content = {}
    for query in catalog.queries:
        for row in read_published(home.layout, catalog, query).to_pylist():
            partition = (query, row["customer_id"], row["logical_date"].isoformat())
            values = tuple(value for name, value in row.items() if name != "run_id")
            content.setdefault(partition, []).append(values)
    return {partition: sorted(rows, key=repr) for partition, rows in content.items()}


def published_partitions(home: Home) -> dict[Partition, Pointer]:
    """What readers are shown, partitions without rows included."""
    return {
        (key.query_name, key.customer_id, key.logical_date.isoformat()): pointer
        for query in load_catalog(None).queries
        for key, pointer in current_state(home.layout, query).items()
        if pointer.status is PointerStatus.ACTIVE
    }


def assert_refused(finished: Finished, *parts: str) -> None:
    """One line that a person can act on, exit code 1, no trace; progress may stand before it."""
    assert finished.returncode == 1, finished.stderr
    last = finished.stderr.splitlines()[-1]
    assert last.startswith("gads: "), finished.stderr
    assert "Traceback" not in finished.stderr
    assert "unexpected" not in last
    for part in parts:
        assert part in last
