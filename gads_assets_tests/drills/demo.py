"""Kill the demo at random moments, run it again, and count what was lost, doubled or mixed.

Every round starts in a fresh home. The demo is killed there several times with its whole process group (now and then
its database too), then left to finish, and what it published is compared with that of an undisturbed run. All the
while a reader that knows nothing of this looks at the tables through delta-rs.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from gads_assets.catalog.loading import load_catalog
from gads_assets.catalog.specification import Catalog
from gads_assets.errors import RawSinkError
from gads_assets.raw.sink import RawSink
from gads_assets.state.connection import open_engine
from gads_assets.state.partition_states import StateStore
from gads_assets.state.server import database_status, running_database
from gads_assets.state.tables import partition_attempt, partition_state
from gads_assets.warehouse.arrow import read_published
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.pointers import pointer_table, read_pointers
from gads_assets_tests.acceptance.commands import (
    GADS,
    Content,
    Home,
    Partition,
    demonstrated_home,
    finish,
    published_content,
    published_partitions,
)
from gads_assets_tests.drills.damage import Damage, Report, say

KILLS_A_ROUND = 5
DATABASE_TOO = 0.25
"""How often the database is killed with the demo."""
START_SHARE = 0.4
"""Of a demo's time, what passes before its first partition is published; a demo with less to do is as slow there."""
_PAUSE_SECONDS = 0.3
_GOODBYE_SECONDS = 20.0


def compare(damage: Damage, *, expected: Content, found: Content, partitions: Collection[Partition]) -> None:
    """What `partitions` should show, and does."""
    for partition in sorted(partitions):
        wanted, seen = Counter(expected.get(partition, [])), Counter(found.get(partition, []))
        if seen == wanted:
            continue
        (damage.doubled if wanted < seen else damage.differing).append(
            f"{partition} shows {seen.total()} rows, {(seen - wanted).total()} of them wrong, and not {wanted.total()}"
        )


def mixed_reads(layout: WarehouseLayout, catalog: Catalog, query: str) -> list[str]:
    """One look through delta-rs: every partition must come whole, from one run, and from one that was pointed at."""
    table = pointer_table(layout, query)
    before = read_pointers(table) if table else {}
    rows = read_published(layout, catalog, query).select(["customer_id", "logical_date", "run_id"])
    table = pointer_table(layout, query)
    if table is None:
        return [] if rows.num_rows == 0 else [f"{query} shows {rows.num_rows} rows that nothing points at"]
    after = read_pointers(table)
    # Append-only, so what was current at any moment of the read is still in it.
    pointed = {
        (row["customer_id"], row["logical_date"], row["run_id"]): row["record_count"]
        for row in table.to_pyarrow_table().to_pylist()
    }
    shown = Counter((row["customer_id"], row["logical_date"], row["run_id"]) for row in rows.to_pylist())
    runs = Counter((customer, day) for customer, day, _ in shown)
    complaints = [f"{query} {place} shows rows of {count} runs" for place, count in runs.items() if count > 1]
    complaints += [
        f"{query} {run} shows {count} rows, its pointer says {pointed.get(run)}"
        for run, count in shown.items()
        if pointed.get(run) != count
    ]
    complaints += [
        f"{query} {key.label} is pointed at and not shown"
        for key, pointer in before.items()
        if pointer.record_count and after.get(key) == pointer and (key.customer_id, key.logical_date) not in runs
    ]
    return complaints


class Reader(Thread):
    """Looks again and again until it is stopped; a read that fails is a complaint too."""

    def __init__(self, home: Home) -> None:
        super().__init__(name="reader", daemon=True)
        self._layout = home.layout
        self._stopped = Event()
        self.reads = 0
        self.complaints: list[str] = []

    def run(self) -> None:
        catalog = load_catalog(None)
        while not self._stopped.wait(_PAUSE_SECONDS):
            for query in catalog.queries:
                try:
                    self.complaints += mixed_reads(self._layout, catalog, query)
                except Exception as error:  # noqa: BLE001  a reader knows no good reason to fail
                    self.complaints.append(f"{query} cannot be read: {type(error).__name__}: {error}")
                self.reads += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@contextmanager
def watched(home: Home) -> Iterator[Reader]:
    reader = Reader(home)
    reader.start()
    try:
        yield reader
    finally:
        reader.stop()


def unaccounted(home: Home, *, starts: int) -> list[str]:
    """Where the books do not add up: attempts against states, load records against pointers."""
    complaints = []
    pointers = {pointer.key: pointer for pointer in published_partitions(home).values()}
    with running_database(home.settings.database_home, None) as url:
        engine = open_engine(url)
        store = StateStore(engine)
        with engine.begin() as connection:
            counts = Counter(
                (row.query_name, row.customer_id, row.logical_date)
                for row in connection.execute(partition_attempt.select())
            )
            attempts = {
                (row.query_name, row.customer_id, row.logical_date): row.attempt_count
                for row in connection.execute(partition_state.select())
            }
        states = store.states(pointers)
        loads = store.load_records()
        engine.dispose()
    complaints += [
        f"{place} counts {attempts.get(place)} attempts and has {counts[place]} on record, after {starts} starts"
        for place in sorted(counts.keys() | attempts.keys())
        if not 1 <= counts[place] == attempts.get(place, 0) <= starts
    ]
    recorded = Counter((record.key, record.run_id, record.content_digest, record.record_count) for record in loads)
    for key, pointer in pointers.items():
        if (state := states.get(key)) is None or state.current_run_id != pointer.run_id:
            complaints.append(f"{key} shows run {pointer.run_id}, which is not its authority")
        if recorded[key, pointer.run_id, pointer.content_digest, pointer.record_count] != 1:
            complaints.append(f"{key} shows run {pointer.run_id}, whose load is not on record")
    return complaints


def broken_seals(home: Home) -> list[str]:
    """Sealed runs that do not hold what their seals say."""
    sink, complaints = RawSink(home.settings.raw_uri), []
    for key in {pointer.key for pointer in published_partitions(home).values()}:
        for run_id in sink.sealed_runs(key):
            try:
                sink.verify(sink.manifest(key, run_id))
            except RawSinkError as error:
                complaints.append(str(error))
    return complaints


def left_running(home: Home) -> list[str]:
    """Processes that still use this home a while after its last command ended."""
    deadline = time.monotonic() + _GOODBYE_SECONDS
    while (alive := _processes_of(home)) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    return alive


def _processes_of(home: Home) -> list[str]:
    mark = f"GADS_HOME={home.path}\0".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes() + b"\0" and process.name != str(os.getpid()):
                found.append(f"process {process.name} ({(process / 'comm').read_text().strip()}) is still there")
        except OSError:
            continue  # it ended while we looked, or is not ours
    return found


def kill_database(home: Home) -> None:
    process_id = database_status(home.settings.database_home).process_id
    if process_id is not None:
        os.kill(process_id, signal.SIGKILL)


def common_days(expected: Collection[Partition], found: Collection[Partition]) -> list[Partition]:
    """Those of the expected that both runs were asked for: past midnight, the demo's week has moved by a day."""
    days = {day for _, _, day in found}
    shared = [partition for partition in expected if partition[2] in days]
    return shared if len({day for _, _, day in shared}) >= len({day for _, _, day in expected}) - 1 else list(expected)


class DemoDrill:
    def __init__(self, folder: Path, *, kills: int, seed: int) -> None:
        self._folder = folder
        self._wanted = kills
        self._chance = random.Random(seed)
        self.damage = Damage()
        self.kills = 0
        self.reads = 0

    def run(self) -> Report:
        started = time.monotonic()
        reference = demonstrated_home(self._folder / "reference")
        self._seconds = time.monotonic() - started
        self._expected = published_content(reference)
        self._partitions = list(published_partitions(reference))
        say(f"an undisturbed demo takes {self._seconds:.0f} s and publishes {len(self._partitions)} partitions")
        rounds = 0
        while self.kills < self._wanted:
            rounds += 1
            home = Home(path=self._folder / f"round-{rounds}", variables={"GADS_LEASE_SECONDS": "5"})
            try:
                self._round(home)
            finally:
                home.stop()
        return Report(damage=self.damage, kills=self.kills, reads={"demo": self.reads})

    def _round(self, home: Home) -> None:
        before = len(self.damage.sentences())
        starts = 0
        with watched(home) as reader:
            shown: set[Partition] = set()
            for _ in range(min(KILLS_A_ROUND, self._wanted - self.kills)):
                starts += 1
                if not self._interrupt(home, published=len(shown)):
                    break
                now = set(published_partitions(home))
                self.damage.lost += [f"{partition} was published and is gone" for partition in sorted(shown - now)]
                shown = now
                self._compare(home, set(self._partitions) & shown)
            self._finish(home)
        self.reads += reader.reads
        self.damage.mixed_reads += reader.complaints
        found = published_partitions(home)
        wanted = common_days(self._partitions, found)
        self.damage.lost += [f"{partition} is not published" for partition in sorted(set(wanted) - set(found))]
        self._compare(home, set(wanted) & set(found))
        self.damage.unaccounted += unaccounted(home, starts=starts + 1)
        self.damage.broken_seals += broken_seals(home)
        self.damage.stuck += left_running(home)
        if len(self.damage.sentences()) == before:
            shutil.rmtree(home.path)

    def _compare(self, home: Home, partitions: Collection[Partition]) -> None:
        compare(self.damage, expected=self._expected, found=published_content(home), partitions=partitions)

    def _interrupt(self, home: Home, *, published: int) -> bool:
        """False when the demo was done before its time had come."""
        left = 1 - published / len(self._partitions)
        seconds = self._chance.uniform(0, self._seconds * (START_SHARE + (1 - START_SHARE) * left))
        database_too = self._chance.random() < DATABASE_TOO
        started = time.monotonic()
        try:
            finished = finish(home.start([GADS, "demo", "--json"]), patience=seconds)
        except subprocess.TimeoutExpired:
            if database_too:
                kill_database(home)
            self.kills += 1
            say(f"kill {self.kills} of {self._wanted}: after {seconds:.1f} s{', and its database' * database_too}")
            return True
        if not published:
            # The machine has become faster than it was for the undisturbed run.
            self._seconds = min(self._seconds, time.monotonic() - started)
        self._judge(finished.returncode, finished.stderr)
        return False

    def _finish(self, home: Home) -> None:
        try:
            finished = finish(home.start([GADS, "demo", "--json"]), patience=60 + 6 * self._seconds)
        except subprocess.TimeoutExpired as error:
            self.damage.stuck.append(f"the demo did not end within {error.timeout:.0f} s in {home.path}")
            return
        self._judge(finished.returncode, finished.stderr)
        say(f"round finished: {self.damage.counts()}")

    def _judge(self, returncode: int, errors: str) -> None:
        if returncode:
            self.damage.stuck.append(f"the demo ended with {returncode}: {errors.strip().splitlines()[-1]}")
