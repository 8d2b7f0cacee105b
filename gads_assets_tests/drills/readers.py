"""Readers that look all the time, each in its own way, and hold every look against the journal."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from gads_assets.orchestration.workplace import Workplace
from gads_assets.warehouse.arrow import read_published
from gads_assets.warehouse.pointers import pointer_table
from gads_assets.warehouse.reading import published_rows
from gads_assets_tests.drills.damage import Damage
from gads_assets_tests.drills.journal import Journal, Seen, by_partition
from gads_assets_tests.integration.warehouse import independent_reader
from gads_assets_tests.sealed_runs import QUERY

_SHORTEST_REST = 0.2
"""Readers rest as long as they read, or this: without it they take both cores, and loaders get nowhere."""

Read = Callable[[], Iterable[Mapping[str, object]]]


def every_reader(here: Workplace) -> dict[str, Read]:
    """By name: Spark, delta-rs, and one that has nothing of ours but the documentation."""

    def with_spark() -> list[dict[str, object]]:
        rows = published_rows(here.session(), here.layout, here.catalog, QUERY)
        return [row.asDict() for row in rows.collect()]

    def without_jvm() -> list[dict[str, object]]:
        rows: list[dict[str, object]] = read_published(here.layout, here.catalog, QUERY).to_pylist()
        return rows

    def independently() -> list[dict[str, object]]:
        # Its document is about tables that exist.
        is_published = pointer_table(here.layout, QUERY) is not None
        return independent_reader.read(Path(here.layout.pointers(QUERY)).parent) if is_published else []

    return {"spark": with_spark, "delta_rs": without_jvm, "independent": independently}


class Reader(Thread):
    """A read that fails is a complaint too."""

    def __init__(self, name: str, read: Read, journal: Journal) -> None:
        super().__init__(name=name, daemon=True)
        self._read = read
        self._journal = journal
        self._stopped = Event()
        self.reads = 0
        self.damage = Damage()

    def run(self) -> None:
        rest = 0.0
        while not self._stopped.wait(rest):
            began = self._journal.clock()
            try:
                seen = by_partition(self._read())
            except Exception as error:  # noqa: BLE001  a reader knows no good reason to fail
                self.damage.failed_reads.append(f"{self.name}: {type(error).__name__}: {error}")
            else:
                self._hold_against_journal(seen, began=began, ended=self._journal.clock())
            self.reads += 1
            rest = max(_SHORTEST_REST, self._journal.clock() - began)

    def _hold_against_journal(self, seen: Seen, *, began: float, ended: float) -> None:
        for complaint in self._journal.complaints(seen, began=began, ended=ended):
            entries: list[str] = getattr(self.damage, complaint.fault)
            entries.append(f"{self.name}, read {self.reads}: {complaint.sentence}")

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@contextmanager
def looking_all_the_time(here: Workplace, journal: Journal) -> Iterator[list[Reader]]:
    readers = [Reader(name, read, journal) for name, read in every_reader(here).items()]
    for reader in readers:
        reader.start()
    try:
        yield readers
    finally:
        for reader in readers:
            reader.stop()
