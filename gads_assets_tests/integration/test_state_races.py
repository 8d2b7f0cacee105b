"""Validators at once and in any order: no verdict is lost or counted twice, and the newest extraction stays."""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from threading import Barrier

import pytest
from sqlalchemy import Engine, text
from ulid import ULID

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.roles import Role
from gads_assets.domain.state import AttemptOutcome, Judgement, PartitionStatus
from gads_assets.state.connection import open_engine
from gads_assets.state.partition_states import StateStore
from gads_assets_tests.ledgers import NOW, judgement, neighbour, new_override_id

TRIES = 200


def test_two_validators_of_the_same_partitions_lose_no_verdict_in_two_hundred_tries(
    database_url: str, store: StateStore, engine: Engine
) -> None:
    """Overlapping batches in opposite order; every other try is the first verdict on its partitions."""
    together = Barrier(2)
    tries = [[neighbour(number - number % 2), neighbour(1000 + number - number % 2)] for number in range(TRIES)]
    seqs = {name: iter(range(start, 10_000, 2)) for start, name in enumerate(("ahead", "behind"), start=1)}

    def validator(name: str) -> None:
        own_engine = open_engine(database_url, Role.VALIDATOR)
        for keys in tries:
            batch = [(key, judgement(RunId(str(ULID())), next(seqs[name]))) for key in keys]
            together.wait(timeout=60)
            StateStore(own_engine).record_judgements(
                batch if name == "ahead" else batch[::-1], now=NOW, dagster_run_id=name
            )
        own_engine.dispose()

    with ThreadPoolExecutor(2) as pool:
        for finished in [pool.submit(validator, name) for name in seqs]:
            finished.result(timeout=120)

    with engine.begin() as connection:
        by_validator = dict(
            tuple(row)
            for row in connection.execute(text("SELECT dagster_run_id, count(*) FROM partition_attempt GROUP BY 1"))
        )
        histories = connection.execute(
            text("""
                SELECT s.version, s.attempt_count, s.current_run_seq, max(a.run_seq),
                    array_agg(a.state_version ORDER BY a.attempt_number)
                FROM partition_state AS s JOIN partition_attempt AS a
                    USING (source, customer_id, query_name, logical_date)
                GROUP BY source, customer_id, query_name, logical_date
            """)
        ).all()
    assert by_validator == {"ahead": 2 * TRIES, "behind": 2 * TRIES}
    assert [tuple(history) for history in histories if tuple(history)[:2] != (4, 4)] == []
    assert all(history[2] == history[3] and history[4] == [1, 2, 3, 4] for history in histories)
    assert len(histories) == TRIES


@dataclass
class Case:
    """One interleaving, in a partition of its own; validations are numbered in no order of importance."""

    key: PartitionKey
    order: Sequence[int]
    good: Sequence[bool]
    steps_done: Counter[int] = field(default_factory=Counter)
    run_seqs: dict[int, int] = field(default_factory=dict)
    judged: dict[int, Judgement] = field(default_factory=dict)
    recorded: list[int] = field(default_factory=list)
    authority: int = 0


def interleavings(left: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every order of the steps of several validations, each of which keeps its own order."""
    if not any(left):
        yield ()
    for number, steps in enumerate(left):
        if steps:
            for rest in interleavings([count - (place == number) for place, count in enumerate(left)]):
                yield (number, *rest)


@pytest.mark.parametrize(
    ("validations", "steps", "expected"),
    [
        (2, ("extract", "judge", "record", "repeat"), 70),
        (3, ("extract", "judge", "record"), 1680),
        (3, ("extract", "record", "repeat"), 1680),
    ],
)
def test_the_newest_good_extraction_stays_however_slowly_the_older_ones_are_judged(
    store: StateStore, validations: int, steps: Sequence[str], expected: int
) -> None:
    """A crash before the commit leaves nothing, so a validation that dies and is repeated is its last two steps."""
    orders = list(interleavings([len(steps)] * validations))
    assert len(orders) == expected
    verdicts = list(product((True, False), repeat=validations))
    all_good = [(order, verdicts[0]) for order in orders]
    mixed = [(order, verdicts[number % len(verdicts)]) for number, order in enumerate(orders * validations)]
    cases = [
        Case(key=neighbour(number), order=order, good=good) for number, (order, good) in enumerate([*all_good, *mixed])
    ]
    for moment in range(len(steps) * validations):
        to_record: list[tuple[Case, int]] = []
        numbers = iter(store.allocate_run_seqs(len(cases)))
        for case in cases:
            one = case.order[moment]
            step = steps[case.steps_done[one]]
            case.steps_done[one] += 1
            if step == "extract":
                case.run_seqs[one] = next(numbers)
                case.judged[one] = judgement(RunId(str(ULID())), case.run_seqs[one], accepted=case.good[one])
            elif step in {"record", "repeat"}:
                to_record.append((case, one))
        answers = store.record_judgements(
            [(case.key, case.judged[one]) for case, one in to_record], now=NOW, dagster_run_id=None
        )
        for (case, one), answer in zip(to_record, answers, strict=True):
            assert answer.repeated == (one in case.recorded)
            if not answer.repeated:
                case.recorded.append(one)
            assert (answer.state.current_run_seq or 0) >= case.authority
            case.authority = answer.state.current_run_seq or 0

    states = store.states(case.key for case in cases)
    for case in cases:
        state = states[case.key]
        newest = max((case.run_seqs[one] for one in range(validations) if case.good[one]), default=None)
        assert state.current_run_seq == newest
        assert state.status is (PartitionStatus.SUCCESS if newest else PartitionStatus.FAILED)
        assert (state.attempt_count, state.version) == (validations, validations)


def test_every_history_that_the_rules_allow_passes_the_guards(store: StateStore) -> None:
    """Three runs judged good or bad in any order, withdrawals finished, failures returned to pending: four in a row."""
    verdicts = list(product((1, 2, 3), (True, False)))
    histories = list(product([*verdicts, "finish", "return"], repeat=4))
    keys = [neighbour(number) for number in range(len(histories))]
    runs = {(key, number): RunId(str(ULID())) for key in keys for number in (1, 2, 3)}
    outcomes: Counter[AttemptOutcome] = Counter()
    for moment in range(4):
        doing = {key: history[moment] for key, history in zip(keys, histories, strict=True)}
        judged = [
            (key, judgement(runs[key, action[0]], action[0], accepted=action[1]))
            for key, action in doing.items()
            if isinstance(action, tuple)
        ]
        answers = store.record_judgements(judged, now=NOW, dagster_run_id=None)
        outcomes.update(answer.outcome for answer in answers)
        for intent in store.open_demotions():
            if doing[intent.key] == "finish":
                store.finish_demotions([intent], now=NOW)
                outcomes["finished"] += 1  # type: ignore[index]
        failures = [key for key, state in store.states(keys).items() if state.status is PartitionStatus.FAILED]
        store.return_to_pending(
            [key for key in failures if doing[key] == "return"],
            actor="operator",
            reason="again",
            now=NOW,
            new_override_id=new_override_id,
        )
    assert set(outcomes) >= set(AttemptOutcome)
    assert {state.status for state in store.states(keys).values()} == set(PartitionStatus)
