"""The fold against a fold of ten lines, on random histories; and what is displayed, in every case there is."""

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from gads_assets.domain.partition_status import (
    Attempt,
    Change,
    Downstream,
    Ended,
    Events,
    Folded,
    Materialization,
    Outcome,
    Place,
    Planned,
    display_of,
    fold,
    places_touched,
)

START = datetime(2026, 11, 1, tzinfo=UTC)
HISTORIES = 1_200
RAW, TABLE, MART, FRESHNESS = "raw", "table", "mart", "freshness"
DOWNSTREAM = Downstream({RAW: [TABLE], TABLE: [MART, FRESHNESS]}, by_customer=[FRESHNESS])
KEYS = ("1111111111|2026-10-01", "1111111111|2026-10-02", "2222222222|2026-10-01")
PLACES = [*(Place(asset, key) for asset in (RAW, TABLE, MART) for key in KEYS), Place(FRESHNESS, "1111111111")]


class Logged(NamedTuple):
    """An event at its place in a log."""

    event_id: int
    event: Planned | Ended | tuple[Place, Materialization]

    @property
    def run_id(self) -> str:
        return self.event.run_id if isinstance(self.event, Planned | Ended) else self.event[1].run_id


def reference(log: Sequence[Logged], place: Place) -> tuple[Attempt | None, Materialization | None]:
    """What was last tried and last made of a place, by one look at the whole log."""
    made = [each for source, each in events_of(log).materialized if source == place]
    attempts = [Attempt(each.event_id, each.run_id, each.at, Outcome.SUCCEEDED) for each in made]
    for run_id in {each.run_id for each in log if isinstance(each.event, Planned) and each.event.place == place}:
        ends = [each.event for each in log if isinstance(each.event, Ended) and each.event.run_id == run_id]
        if ends and run_id not in {each.run_id for each in made}:
            attempts.append(Attempt(*max(ends)))
    return max(attempts, default=None), max(made, default=None)


def reference_change(log: Sequence[Logged], place: Place, made: Materialization | None) -> Change | None:
    """The first time that something upstream of it was made after it."""
    after = [
        Change(upstream.event_id, upstream.at)
        for source, upstream in events_of(log).materialized
        if made and upstream.event_id > made.event_id and place in DOWNSTREAM.of(source)
    ]
    return min(after, default=None)


def random_log(choose: random.Random) -> list[Logged]:
    """Runs that overlap, plan some places, make some of them, and end once, twice, or never: also a plan or a product
    after the end, by a process that nobody could stop."""
    events: list[tuple[float, object]] = []
    for number in range(choose.randint(1, 6)):
        run_id, start = f"run {number}", choose.uniform(0, 10)
        planned = choose.sample(PLACES, choose.randint(0, 5))
        end = start + choose.uniform(1, 5)
        events += [(start + (6 if choose.random() < 0.05 else 0), Planned(run_id, place)) for place in planned]
        for place in choose.sample(PLACES, choose.randint(0, 2)) + planned:
            if choose.random() < 0.5:
                late = 3 if choose.random() < 0.1 else 0
                events.append((choose.uniform(start, end) + late, (place, run_id, choose.choice(["a", "b", None]))))
        ends = choose.choices([0, 1, 2], weights=[1, 6, 1])[0]
        events += [(end + extra, (run_id, choose.choice([*Outcome]))) for extra in range(ends)]
    events.sort(key=lambda pair: pair[0])
    log: list[Logged] = []
    event_id = 0
    for _, event in events:
        event_id += choose.randint(1, 3)  # of other kinds of events, which nobody reads
        at = START + timedelta(seconds=event_id + choose.randint(-5, 5))  # a clock is a clock
        match event:
            case Planned():
                log.append(Logged(event_id, event))
            case (Place() as place, str(run_id), str() | None as version):
                made = Materialization(event_id, run_id, at, version, at)
                log.append(Logged(event_id, (place, made)))
            case (str(run_id), Outcome() as outcome):
                log.append(Logged(event_id, Ended(event_id, run_id, at, outcome)))
    return log


def events_of(log: Iterable[Logged]) -> Events:
    listed = [each.event for each in log]
    return Events(
        planned=[each for each in listed if isinstance(each, Planned)],
        materialized=[each for each in listed if not isinstance(each, Planned | Ended)],
        ended=[each for each in listed if isinstance(each, Ended)],
    )


def folded_in_steps(log: Sequence[Logged], choose: random.Random) -> dict[Place, Folded]:
    """As the shell does it: from a cursor on, which stays before what does not show yet; of runs that have ended all,
    some of it twice, and in any order."""
    rows: dict[Place, Folded] = {}
    last = log[-1].event_id if log else 0
    start = 0
    for upto in [*sorted(choose.randint(0, last) for _ in range(choose.randint(0, 4))), last]:
        seen = [each for each in log if each.event_id <= upto]
        if upto < last:  # in the end everything shows
            late = {each.event_id for each in seen if each.event_id > start and choose.random() < 0.1}
            seen = [each for each in seen if each.event_id not in late]
        else:
            late = set()
        new = [each for each in seen if each.event_id > start]
        ended = {each.run_id for each in seen if isinstance(each.event, Ended)}
        whole = ended & {each.run_id for each in new if isinstance(each.event, Ended | Planned)}
        read = new + [each for each in seen if each.event_id <= start and each.run_id in whole]
        read += choose.sample(read, choose.randint(0, len(read)))
        choose.shuffle(read)
        events = events_of(read)
        known = {place: rows[place] for place in places_touched(events, DOWNSTREAM) if place in rows}
        rows |= fold(events, known, DOWNSTREAM)
        start = min(late, default=upto + 1) - 1
    return rows


def test_any_history_folds_to_what_ten_lines_say_of_it_in_one_go_and_in_steps() -> None:
    for seed in range(HISTORIES):
        choose = random.Random(seed)
        log = random_log(choose)
        whole = fold(events_of(log), {}, DOWNSTREAM)
        for place in PLACES:
            attempt, made = reference(log, place)
            expected = Folded(attempt, made, reference_change(log, place, made)) if attempt else None
            assert whole.get(place) == expected, (seed, place)
        assert folded_in_steps(log, choose) == whole, seed


def test_what_was_folded_before_is_no_news() -> None:
    log = random_log(random.Random(7))
    rows = fold(events_of(log), {}, DOWNSTREAM)
    assert rows
    assert fold(events_of(log), rows, DOWNSTREAM) == {}


def test_a_failed_then_a_cancelled_retry_leave_the_materialization_untouched() -> None:
    place, made = PLACES[0], Materialization(2, "good", START, "1", START)
    row = Folded(Attempt(2, "good", START, Outcome.SUCCEEDED), made)
    for number, outcome in enumerate((Outcome.FAILED, Outcome.CANCELLED)):
        end = Ended(10 + number, f"retry {number}", START + timedelta(hours=number), outcome)
        row = fold(Events(planned=[Planned(end.run_id, place)], ended=[end]), {place: row}, DOWNSTREAM)[place]
        assert row == Folded(Attempt(*end), made)


def test_in_a_mixed_run_each_partition_has_its_own_outcome() -> None:
    good, bad = PLACES[0], PLACES[1]
    made, end = Materialization(5, "run", START, "1", START), Ended(9, "run", START, Outcome.FAILED)
    events = Events(planned=[Planned("run", good), Planned("run", bad)], materialized=[(good, made)], ended=[end])
    rows = fold(events, {}, DOWNSTREAM)
    assert {place: row.last_attempt.outcome for place, row in rows.items()} == {
        good: Outcome.SUCCEEDED,
        bad: Outcome.FAILED,
    }
    assert rows[bad].last_materialization is None


@pytest.mark.parametrize(
    ("is_materialized", "has_failed_since", "is_stale", "displayed"),
    [
        (False, False, False, "NeverMaterialized"),
        (False, False, True, "NeverMaterialized"),
        (False, True, False, "NeverMaterialized"),
        (False, True, True, "NeverMaterialized"),
        (True, False, False, "Materialized"),
        (True, False, True, "Stale"),
        (True, True, False, "MaterializedButLastAttemptFailed"),
        (True, True, True, "MaterializedButLastAttemptFailed"),
    ],
)
def test_what_is_displayed_in_every_case_there_is(
    is_materialized: bool, has_failed_since: bool, is_stale: bool, displayed: str
) -> None:
    shown = display_of(is_materialized=is_materialized, has_failed_since=has_failed_since, is_stale=is_stale)
    assert shown.value == displayed
