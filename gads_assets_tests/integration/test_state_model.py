"""The ledger against a model of it: any order of steps, by anybody, with a crash at any moment of any of them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import date
from enum import Enum

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Engine

from gads_assets.domain.keys import RunId
from gads_assets.domain.state import DemotionIntent, Judgement, PartitionState
from gads_assets_tests.databases import execute
from gads_assets_tests.integration.crashing import Actors, Crash, Moment, actors
from gads_assets_tests.integration.modelled_ledger import DAYS, Ledger, Run, Verdict, contrary
from gads_assets_tests.integration.state_model import Partition, judged

CRASHES = (
    *(Crash(moment=Moment.BEFORE_STATEMENT, statement=number) for number in range(6)),
    *(Crash(moment=Moment.BEFORE_STATEMENT, statement=number, is_killed=True) for number in range(6)),
    Crash(moment=Moment.BEFORE_COMMIT),
    Crash(moment=Moment.BEFORE_COMMIT, is_killed=True),
    *[Crash(moment=Moment.BEFORE_ANSWER)] * 3,
    Crash(moment=Moment.BEFORE_ANSWER, is_killed=True),
)
crashes = st.sampled_from([*[None] * 60, *CRASHES])
some_days = st.sampled_from([DAYS[:1], DAYS[1:], DAYS])


class Progress(Enum):
    """How far a caller comes with a demotion before it dies."""

    INTENDED = "intended"
    WITHDRAWN = "withdrawn"
    FINISHED = "finished"


progress = st.sampled_from([Progress.FINISHED, Progress.INTENDED, Progress.WITHDRAWN])


class Steps(RuleBasedStateMachine):
    """What has happened survives between steps in the bundles, as it does in the raw sink and in slow processes."""

    runs = Bundle("runs")
    verdicts = Bundle("verdicts")
    intents = Bundle("intents")
    readings = Bundle("readings")

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger
        self.checked = 0
        self.newest: dict[date, Run] = {}
        self.known: dict[RunId, Run] = {}

    @initialize(target=runs)
    def begin(self) -> MultipleResults[Run]:
        return self._sealed(self.ledger.extract(*DAYS, *DAYS))

    @rule(
        target=runs,
        days=some_days,
        is_sealed=st.sampled_from([True, True, False]),
        numbering=crashes,
        recording=crashes,
    )
    def extract(
        self, days: tuple[date, ...], is_sealed: bool, numbering: Crash | None, recording: Crash | None
    ) -> MultipleResults[Run]:
        return self._sealed(self.ledger.extract(*days, is_sealed=is_sealed, numbering=numbering, recording=recording))

    @rule(run=runs, crash=crashes)
    def record_an_extraction_again(self, run: Run, crash: Crash | None) -> None:
        self.ledger.record_extractions([run], is_sealed=True, crash=crash)

    def _has(self, condition: Callable[[Partition], object]) -> bool:
        return any(condition(partition) for partition in self.ledger.model.values())

    def _sealed(self, runs: list[Run]) -> MultipleResults[Run]:
        self.newest |= {run.day: run for run in runs}
        self.known |= {run.run_id: run for run in runs}
        return multiple(*runs)

    @rule(target=verdicts, day=st.sampled_from(DAYS), accepted=st.booleans(), crash=crashes, reached=progress)
    def judge_the_newest_run(
        self, day: date, accepted: bool, crash: Crash | None, reached: Progress
    ) -> MultipleResults[Verdict]:
        return self._judge([(self.newest[day], accepted)], crash, reached)

    @precondition(lambda self: self._has(lambda partition: partition.authority))
    @rule(target=verdicts, day=st.sampled_from(DAYS), accepted=st.booleans(), crash=crashes, reached=progress)
    def judge_the_authority_again(
        self, day: date, accepted: bool, crash: Crash | None, reached: Progress
    ) -> MultipleResults[Verdict]:
        authority = self.ledger.model[day].authority
        return self._judge([(self.known[authority], accepted)] if authority else [], crash, reached)

    @rule(
        target=verdicts,
        batch=st.lists(st.tuples(runs, st.booleans()), min_size=1, max_size=4),
        crash=crashes,
        reached=progress,
    )
    def judge_any_runs_at_once(
        self, batch: list[tuple[Run, bool]], crash: Crash | None, reached: Progress
    ) -> MultipleResults[Verdict]:
        return self._judge(batch, crash, reached)

    def _judge(self, batch: list[tuple[Run, bool]], crash: Crash | None, reached: Progress) -> MultipleResults[Verdict]:
        verdicts = [self.ledger.verdict(run, accepted=accepted) for run, accepted in batch]
        self._record(verdicts, crash, reached)
        return multiple(*verdicts)

    @rule(batch=st.lists(verdicts, min_size=1, max_size=4), is_contrary=st.booleans(), crash=crashes, reached=progress)
    def repeat_earlier_judgements(
        self, batch: list[Verdict], is_contrary: bool, crash: Crash | None, reached: Progress
    ) -> None:
        self._record([contrary(verdict) for verdict in batch] if is_contrary else batch, crash, reached)

    def _record(self, verdicts: list[Verdict], crash: Crash | None, reached: Progress) -> None:
        for intent in self.ledger.record(*verdicts, crash=crash):
            self._carry_out(intent, reached, None)

    @precondition(lambda self: self._has(lambda partition: partition.demotion))
    @rule(target=intents)
    def look_for_open_demotions(self) -> MultipleResults[DemotionIntent]:
        return multiple(*self.ledger.open_demotions())

    @rule(intent=intents, reached=progress, crash=crashes)
    def carry_out_a_demotion_found_earlier(
        self, intent: DemotionIntent, reached: Progress, crash: Crash | None
    ) -> None:
        self._carry_out(intent, reached, crash)

    @precondition(lambda self: self._has(lambda partition: partition.demotion))
    @rule(reached=progress, crash=crashes)
    def carry_out_open_demotions(self, reached: Progress, crash: Crash | None) -> None:
        for intent in self.ledger.open_demotions():
            self._carry_out(intent, reached, crash)

    def _carry_out(self, intent: DemotionIntent, reached: Progress, crash: Crash | None) -> None:
        if reached in (Progress.WITHDRAWN, Progress.FINISHED):
            self.ledger.withdraw(intent)
        if reached is Progress.FINISHED:
            self.ledger.finish(intent, crash)

    @precondition(lambda self: self._has(lambda partition: partition.status == "failed"))
    @rule(days=some_days, crash=crashes)
    def retry(self, days: tuple[date, ...], crash: Crash | None) -> None:
        self.ledger.retry(*days, crash=crash)

    @rule(days=some_days, above=st.sampled_from([-1, 0, 1, 5]), crash=crashes)
    def adopt(self, days: tuple[date, ...], above: int, crash: Crash | None) -> None:
        self.ledger.adopt(*days, above=above, crash=crash)

    @precondition(lambda self: self._has(lambda partition: partition.is_ready))
    @rule(crash=crashes)
    def publish_at_once(self, crash: Crash | None) -> None:
        for state in self.ledger.publishable():
            self.ledger.publish(state, crash)

    @precondition(lambda self: self._has(lambda partition: partition.is_ready))
    @rule(target=readings)
    def read_what_may_be_published(self) -> MultipleResults[PartitionState]:
        return multiple(*self.ledger.publishable())

    @rule(state=readings, crash=crashes)
    def publish_what_was_read_earlier(self, state: PartitionState, crash: Crash | None) -> None:
        self.ledger.publish(state, crash)

    @invariant()
    def ledger_is_as_expected(self) -> None:
        self.ledger.check()
        self.checked += 1


# Few for each seed: from the eleventh on, Hypothesis mostly varies those before, and many variations stop early.
SEQUENCES = settings(
    max_examples=10,
    stateful_step_count=30,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],  # explaining a failure takes minutes more, and the steps explain it
    suppress_health_check=list(HealthCheck),
)
SEEDS = range(57)  # nine or ten sequences of full length each


@pytest.fixture
def users(database_url: str, engine: Engine) -> Iterator[Actors]:
    # The server is never crashed here, so a commit need not wait for the disk.
    execute(database_url, "ALTER DATABASE test SET synchronous_commit = off")
    with actors(database_url, engine) as everybody:
        yield everybody


def play(
    users: Actors, sequences: settings, seeds: Iterable[int], judge: Callable[..., Partition] = judged
) -> list[int]:
    """How many steps each sequence had. Each has partitions of its own in the one database."""
    played: list[Steps] = []

    class TheseSteps(Steps):
        def __init__(self) -> None:
            super().__init__(Ledger(users, len(played), judge))
            played.append(self)

    for number in seeds:
        run_state_machine_as_test(seed(number)(TheseSteps), settings=sequences)
    return [steps.checked for steps in played]


def test_no_order_of_steps_and_crashes_leads_the_ledger_away_from_its_model(users: Actors) -> None:
    lengths = play(users, SEQUENCES, SEEDS)
    assert lengths.count(SEQUENCES.stateful_step_count) >= 500


def _without_order(before: Partition, judgement: Judgement, *, at: int) -> Partition:
    return judged(replace(before, authority_seq=None), judgement, at=at)


def _counting_repeats(before: Partition, judgement: Judgement, *, at: int) -> Partition:
    return replace(judged(before, judgement, at=at), version=before.version + 1)


def _without_demotions(before: Partition, judgement: Judgement, *, at: int) -> Partition:
    return replace(judged(before, judgement, at=at), demotion=None)


@pytest.mark.parametrize("wrong", [_without_order, _counting_repeats, _without_demotions])
def test_a_ledger_that_differs_from_its_model_is_found(users: Actors, wrong: Callable[..., Partition]) -> None:
    with pytest.raises(AssertionError):
        play(users, settings(SEQUENCES, phases=[Phase.generate]), SEEDS, judge=wrong)


@pytest.fixture
def ledger(users: Actors) -> Iterator[Ledger]:
    """Whatever a test does, the database is what the model expects at its end, and no promise is broken."""
    made = Ledger(users, 1)
    yield made
    made.check()


DAY = DAYS[0]
ROLLED_BACK = [
    Crash(moment=Moment.BEFORE_STATEMENT, statement=0),
    Crash(moment=Moment.BEFORE_STATEMENT, statement=1, is_killed=True),
    Crash(moment=Moment.BEFORE_STATEMENT, statement=2),
    Crash(moment=Moment.BEFORE_COMMIT),
    Crash(moment=Moment.BEFORE_COMMIT, is_killed=True),
]
UNHEARD = Crash(moment=Moment.BEFORE_ANSWER)


@pytest.fixture
def published(ledger: Ledger) -> Run:
    """The first day's authority, whose rows readers see."""
    [run] = ledger.extract(DAY)
    ledger.record(ledger.verdict(run, accepted=True))
    [state] = ledger.publishable()
    ledger.publish(state)
    ledger.check()
    assert ledger.model[DAY].shown == run.run_id
    return run


@pytest.fixture
def intent(ledger: Ledger, published: Run) -> DemotionIntent:
    [opened] = ledger.record(ledger.verdict(published, accepted=False))
    return opened


@pytest.mark.parametrize("crash", ROLLED_BACK, ids=str)
def test_a_judging_that_dies_before_its_commit_leaves_no_trace_in_any_partition_and_counts_once_when_repeated(
    ledger: Ledger, crash: Crash
) -> None:
    verdicts = [ledger.verdict(run, accepted=True) for run in ledger.extract(*DAYS)]
    ledger.record(*verdicts, crash=crash)
    ledger.check()
    assert [partition.version for partition in ledger.model.values()] == [0, 0]
    ledger.record(*verdicts)
    assert [(partition.status, partition.version) for partition in ledger.model.values()] == [("success", 1)] * 2


def test_a_judging_whose_answer_was_lost_is_not_counted_again(ledger: Ledger) -> None:
    [run] = ledger.extract(DAY)
    verdict = ledger.verdict(run, accepted=True)
    ledger.record(verdict, crash=UNHEARD)
    ledger.check()
    ledger.record(verdict)
    assert (ledger.model[DAY].status, len(ledger.model[DAY].attempts)) == ("success", 1)


def test_a_demotion_whose_answer_was_lost_is_handed_out_again_and_listed(ledger: Ledger, published: Run) -> None:
    verdict = ledger.verdict(published, accepted=False)
    assert ledger.record(verdict, crash=UNHEARD) == []
    ledger.check()
    assert ledger.record(verdict) == ledger.open_demotions() != []


def test_a_death_between_intent_and_pointer_leaves_readers_their_rows_and_nothing_publishable(
    ledger: Ledger, published: Run, intent: DemotionIntent
) -> None:
    assert (ledger.model[DAY].status, ledger.model[DAY].shown) == ("success", published.run_id)
    assert ledger.publishable() == []


def test_a_death_between_pointer_and_finish_leaves_no_rows_and_is_finished_by_whoever_finds_the_intent(
    ledger: Ledger, intent: DemotionIntent
) -> None:
    ledger.withdraw(intent)
    ledger.check()
    assert (ledger.model[DAY].status, ledger.model[DAY].shown, ledger.publishable()) == ("success", None, [])
    [found] = ledger.open_demotions()
    ledger.withdraw(found)
    ledger.finish(found)
    assert ledger.model[DAY].status == "failed"


@pytest.mark.parametrize("crash", ROLLED_BACK, ids=str)
def test_a_finish_that_dies_before_its_commit_leaves_the_demotion_open_for_the_next(
    ledger: Ledger, intent: DemotionIntent, crash: Crash
) -> None:
    ledger.withdraw(intent)
    ledger.finish(intent, crash)
    ledger.check()
    assert ledger.open_demotions() == [intent]
    ledger.finish(intent)
    assert ledger.model[DAY].status == "failed"


def test_a_finish_whose_answer_was_lost_changes_nothing_when_repeated(ledger: Ledger, intent: DemotionIntent) -> None:
    ledger.withdraw(intent)
    ledger.finish(intent, UNHEARD)
    ledger.check()
    ledger.finish(intent)
    assert (ledger.model[DAY].status, ledger.model[DAY].version) == ("failed", 3)


def test_a_loader_that_wakes_up_after_the_demotion_shows_nothing_again(ledger: Ledger, published: Run) -> None:
    [read_before] = ledger.publishable()
    [intent] = ledger.record(ledger.verdict(published, accepted=False))
    ledger.withdraw(intent)
    ledger.finish(intent)
    ledger.publish(read_before)
    assert ledger.model[DAY].shown is None


@pytest.mark.parametrize("crash", ROLLED_BACK, ids=str)
def test_a_retry_that_dies_before_its_commit_is_neither_logged_nor_done(ledger: Ledger, crash: Crash) -> None:
    ledger.record(*[ledger.verdict(run, accepted=False) for run in ledger.extract(*DAYS)])
    ledger.retry(*DAYS, crash=crash)
    ledger.check()
    assert [partition.status for partition in ledger.model.values()] == ["failed", "failed"]
    ledger.retry(*DAYS)
    assert [partition.overridden_versions for partition in ledger.model.values()] == [(2,), (2,)]


def test_a_retry_whose_answer_was_lost_is_logged_once_and_refused_when_repeated(ledger: Ledger) -> None:
    [run] = ledger.extract(DAY)
    ledger.record(ledger.verdict(run, accepted=False))
    ledger.retry(DAY, crash=UNHEARD)
    ledger.check()
    ledger.retry(DAY)
    assert (ledger.model[DAY].status, ledger.model[DAY].overridden_versions) == ("pending", (2,))


def test_an_adoption_that_dies_before_its_commit_is_not_logged_and_one_unheard_is_logged_once(ledger: Ledger) -> None:
    [run] = ledger.extract(DAY)
    ledger.adopt(DAY, above=7, crash=Crash(moment=Moment.BEFORE_COMMIT, is_killed=True))
    ledger.check()
    for crash in (UNHEARD, None):
        ledger.adopt(DAY, above=7, crash=crash)
        ledger.check()
    assert ledger.model[DAY].floors == (7,)
    ledger.record(ledger.verdict(run, accepted=True), crash=Crash(moment=Moment.BEFORE_COMMIT))
    ledger.record(ledger.verdict(run, accepted=True))
    assert (ledger.model[DAY].status, ledger.model[DAY].version) == ("success", 8)


@pytest.mark.parametrize("crash", [Crash(moment=Moment.BEFORE_COMMIT, is_killed=True), UNHEARD], ids=str)
def test_numbers_that_an_extractor_lost_are_never_given_again(ledger: Ledger, crash: Crash) -> None:
    [before] = ledger.extract(DAY)
    assert ledger.extract(DAY, numbering=crash) == []
    [after] = ledger.extract(DAY)
    assert after.run_seq == before.run_seq + 2


@pytest.mark.parametrize("crash", [Crash(moment=Moment.BEFORE_COMMIT, is_killed=True), UNHEARD], ids=str)
def test_a_sealed_run_whose_record_was_lost_touches_no_state_and_can_be_judged(ledger: Ledger, crash: Crash) -> None:
    [run] = ledger.extract(DAY, recording=crash)
    ledger.check()
    assert ledger.model[DAY].version == 0
    ledger.record(ledger.verdict(run, accepted=True))
    assert ledger.model[DAY].status == "success"
