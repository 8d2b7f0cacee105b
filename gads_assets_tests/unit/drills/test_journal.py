"""The publishing drill finds the damage it looks for: reads that are wrong on purpose are complained about."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets_tests.drills.journal import Fault, Journal, by_partition
from gads_assets_tests.sealed_runs import key, row, unused_run_id

KEY, OTHER = key(day="2024-06-01"), key(day="2024-06-02")

UNKNOWN = unused_run_id()


@dataclass
class Clock:
    """Every look is a moment later."""

    now: float = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@dataclass
class Story:
    """What a writer did to one partition, and what a reader then sees of it."""

    journal: Journal = field(default_factory=lambda: Journal([KEY, OTHER], clock=Clock()))
    _rows: dict[RunId, list[dict[str, object]]] = field(default_factory=dict)

    def seal(self, campaigns: int = 3) -> RunId:
        run_id = unused_run_id()
        rows = [row(KEY, campaign, metrics_clicks=len(self._rows)) for campaign in range(campaigns)]
        self._rows[run_id] = rows
        self.journal.sealed(run_id, rows)
        return run_id

    def show(self, campaigns: int = 3) -> RunId:
        """A load from its beginning to its end."""
        run_id = self.seal(campaigns)
        self.journal.begins(KEY, run_id)
        self.journal.is_known(KEY, run_id)
        return run_id

    def withdraw(self) -> None:
        self.journal.begins(KEY, None)
        self.journal.is_known(KEY, None)

    def rows(self, run_id: RunId, partition: PartitionKey = KEY) -> list[Mapping[str, object]]:
        """As a reader gets them."""
        place = {"customer_id": partition.customer_id, "logical_date": partition.logical_date, "run_id": run_id}
        return [{**each, **place} for each in self._rows[run_id]]

    def read(self, rows: Sequence[Mapping[str, object]], *, began: float | None = None) -> list[Fault]:
        """Of a read that begins now, unless it began before."""
        began = self.journal.clock() if began is None else began
        found = self.journal.complaints(by_partition(rows), began=began, ended=self.journal.clock())
        assert all(str(KEY) in complaint.sentence for complaint in found)
        return [complaint.fault for complaint in found]


def test_what_was_loaded_is_what_must_be_read() -> None:
    story = Story()
    assert story.read([]) == []
    shown = story.show()
    assert story.read(story.rows(shown)) == []
    assert story.read(list(reversed(story.rows(shown)))) == []
    assert story.read([]) == [Fault.MISSING]


def test_during_a_load_both_runs_may_be_read_and_never_both_at_once() -> None:
    story = Story()
    old, new = story.show(), story.seal()
    story.journal.begins(KEY, new)
    assert story.read([*story.rows(old), *story.rows(new)]) == [Fault.MIXED]
    assert story.read(story.rows(old)) == []
    assert story.read(story.rows(new)) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: rows[:-1],
        lambda rows: [*rows, rows[0]],
        lambda rows: [*rows[:-1], {**rows[-1], "metrics_clicks": 99}],
        lambda rows: [{**each, "run_id": UNKNOWN} for each in rows],
    ],
)
def test_rows_that_are_not_exactly_those_of_their_run_are_complained_about(
    damage: Callable[[list[Mapping[str, object]]], list[Mapping[str, object]]],
) -> None:
    story = Story()
    shown = story.show()
    assert story.read(damage(story.rows(shown))) == [Fault.PARTIAL]


def test_a_run_is_stale_for_reads_that_begin_after_the_load_of_the_next() -> None:
    story = Story()
    old = story.show()
    during = story.journal.clock()
    story.show()
    assert story.read(story.rows(old), began=during) == []
    assert story.read(story.rows(old)) == [Fault.STALE]


def test_after_a_crash_both_may_be_read_until_somebody_has_read_the_new_one() -> None:
    story = Story()
    old, new = story.show(), story.seal()
    story.journal.begins(KEY, new)
    long_ago = story.journal.clock()
    assert story.read(story.rows(old)) == []
    assert story.read(story.rows(new)) == []
    assert story.read(story.rows(old)) == [Fault.STALE]
    assert story.read(story.rows(old), began=long_ago) == []
    assert story.read([]) == [Fault.MISSING]


def test_what_was_withdrawn_or_never_loaded_is_not_to_be_read() -> None:
    story = Story()
    retracted, rejected = story.show(), story.seal()
    during = story.journal.clock()
    story.withdraw()
    assert story.read(story.rows(retracted), began=during) == []
    assert story.read([]) == []
    assert story.read(story.rows(retracted)) == [Fault.RETRACTED]
    assert story.read(story.rows(rejected)) == [Fault.RETRACTED]
    new = story.show()
    assert story.read(story.rows(new)) == []
    assert story.read(story.rows(retracted)) == [Fault.RETRACTED]
    assert story.read([]) == [Fault.MISSING]


def test_a_run_without_rows_shows_nothing_and_hides_the_one_before() -> None:
    story = Story()
    old = story.show()
    story.show(campaigns=0)
    assert story.read([]) == []
    assert story.read(story.rows(old)) == [Fault.STALE]


def test_a_partition_that_is_nobodys_is_not_to_be_read() -> None:
    story = Story()
    elsewhere = Journal([OTHER])
    shown = story.show()
    [complaint] = elsewhere.complaints(by_partition(story.rows(shown)), began=0, ended=1)
    assert complaint.fault is Fault.RETRACTED
