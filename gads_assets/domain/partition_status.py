"""Is a partition's data current, and if not, why: ADR-026's rows, folded from the events of an orchestrator's log.

Two things are told apart. Materializations say what data there is, and only a success adds one. Attempts say how work
went, and every one counts. So a retry that fails, or is cancelled, never hides the good data from before it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    SUCCEEDED = "SUCCEEDED"
    """The attempt materialized the partition, or its run ended well without having to."""

    FAILED = "FAILED"
    """Its run failed, or was found to be gone, without materializing it."""

    CANCELLED = "CANCELLED"
    """Somebody ended its run before it was materialized."""


class StaleReason(StrEnum):
    """Why data that is there is no longer what it should be. If several became true at once, the first of these."""

    FRESHNESS_POLICY = "FRESHNESS_POLICY"
    """It was due to be there, or to be asked for again, and the deadline for that has passed."""

    UPSTREAM_CHANGED = "UPSTREAM_CHANGED"
    """What it is made of was materialized again after it."""

    CODE_CHANGED = "CODE_CHANGED"
    """It was made by another version of the code than today's."""


class DisplayStatus(StrEnum):
    NEVER_MATERIALIZED = "NeverMaterialized"
    """There is no data, however often it was tried."""

    LAST_ATTEMPT_FAILED = "MaterializedButLastAttemptFailed"
    """There is data, and the newest attempt to replace it failed."""

    STALE = "Stale"
    """There is data, and it is not current."""

    MATERIALIZED = "Materialized"
    """There is data, and it is current."""


def display_of(*, is_materialized: bool, has_failed_since: bool, is_stale: bool) -> DisplayStatus:
    """As ADR-026 has it: a failure is shown before staleness. Neither hides the other, since both stand beside it."""
    if not is_materialized:
        return DisplayStatus.NEVER_MATERIALIZED
    if has_failed_since:
        return DisplayStatus.LAST_ATTEMPT_FAILED
    return DisplayStatus.STALE if is_stale else DisplayStatus.MATERIALIZED


class Place(NamedTuple):
    """A partition of an asset."""

    asset_key: str
    partition_key: str


class Planned(NamedTuple):
    """A run was created that is to materialize a partition."""

    run_id: str
    place: Place


class Materialization(NamedTuple):
    """`content_at` is when what it holds was produced: publishing an older extraction again makes it no fresher."""

    event_id: int
    run_id: str
    at: datetime
    code_version: str | None
    content_at: datetime


class Ended(NamedTuple):
    """A run ended; what it planned and did not materialize ended with it."""

    event_id: int
    run_id: str
    at: datetime
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Events:
    """Some of a log. `event_id` is an event's place in it, by which all is ordered: clocks decide nothing."""

    planned: Sequence[Planned] = ()
    materialized: Sequence[tuple[Place, Materialization]] = ()
    ended: Sequence[Ended] = ()


class Attempt(NamedTuple):
    """A partition's part of a run, once it is over: by its materialization, or else by the run's end."""

    event_id: int
    run_id: str
    at: datetime
    outcome: Outcome


class Change(NamedTuple):
    """The first event by which something upstream was materialized after the partition."""

    event_id: int
    at: datetime


class Folded(NamedTuple):
    """What the log says of a partition, as far as it was read."""

    last_attempt: Attempt
    last_materialization: Materialization | None = None
    upstream_change: Change | None = None

    def record_attempt(self, attempt: Attempt) -> "Folded":
        """Whatever its outcome; unless a later one is known already."""
        return self._replace(last_attempt=attempt) if attempt.event_id > self.last_attempt.event_id else self

    def forget_end_of(self, attempt: Attempt) -> "Folded":
        """The run materialized the partition after all, as shows only now: its end was not how this attempt ended."""
        known, made = self.last_attempt, self.last_materialization
        if known.run_id != attempt.run_id or (made and made.event_id == known.event_id):
            return self
        return self._replace(last_attempt=attempt)

    def mark_materialized(self, materialization: Materialization) -> "Folded":
        """What changed upstream before it is in it; what did later makes it stale."""
        known = self.last_materialization
        if known and known.event_id >= materialization.event_id:
            return self
        change = self.upstream_change
        if change and change.event_id < materialization.event_id:
            change = None
        return self._replace(last_materialization=materialization, upstream_change=change)

    def mark_changed_upstream(self, change: Change) -> "Folded":
        made, known = self.last_materialization, self.upstream_change
        if made is None or change.event_id < made.event_id or (known and known.event_id <= change.event_id):
            return self
        return self._replace(upstream_change=change)


class Downstream:
    """Which partitions are made of which: the table's of the raw one, the marts' of the tables'."""

    def __init__(self, consumers: Mapping[str, Sequence[str]], *, by_customer: Iterable[str]) -> None:
        self._consumers = consumers
        self._by_customer = frozenset(by_customer)

    def of(self, place: Place) -> Iterator[Place]:
        for asset_key in self._consumers.get(place.asset_key, ()):
            whole = asset_key in self._by_customer
            yield Place(asset_key, place.partition_key.partition("|")[0] if whole else place.partition_key)


def places_touched(events: Events, downstream: Downstream) -> set[Place]:
    """Those of which something may be new: whatever is known of them has to be at hand for `fold`."""
    touched = {planned.place for planned in events.planned}
    for place, _ in events.materialized:
        touched.add(place)
        touched.update(downstream.of(place))
    return touched


def fold(events: Events, known: Mapping[Place, Folded], downstream: Downstream) -> dict[Place, Folded]:
    """The partitions of which these events say something new. Whatever was folded before says nothing new, and the
    order in which events come does not matter.

    All events are there from the first new one on: one that shows late may take back what later ones seemed to say. Of
    a run whose end or plan is among them, all that the log has are there, if it has ended.
    """
    rows = dict(known)
    for place, made in events.materialized:
        if row := rows.get(place):
            rows[place] = row.forget_end_of(_attempt(made))
    for place, attempt in _attempts(events):
        row = rows.get(place)
        rows[place] = row.record_attempt(attempt) if row else Folded(attempt)
    for place, materialization in events.materialized:
        rows[place] = rows[place].mark_materialized(materialization)
    for place, materialization in events.materialized:
        for made_of_it in downstream.of(place):
            if row := rows.get(made_of_it):
                change = Change(materialization.event_id, materialization.at)
                rows[made_of_it] = row.mark_changed_upstream(change)
    return {place: row for place, row in rows.items() if row != known.get(place)}


def _attempt(made: Materialization) -> Attempt:
    return Attempt(made.event_id, made.run_id, made.at, Outcome.SUCCEEDED)


def _attempts(events: Events) -> Iterator[tuple[Place, Attempt]]:
    done: set[tuple[str, Place]] = set()
    for place, made in events.materialized:
        done.add((made.run_id, place))
        yield place, _attempt(made)
    ends: dict[str, Ended] = {}
    for ended in events.ended:
        if ended.run_id not in ends or ended.event_id > ends[ended.run_id].event_id:
            ends[ended.run_id] = ended
    for planned in events.planned:
        if (end := ends.get(planned.run_id)) and planned not in done:
            yield planned.place, Attempt(*end)
