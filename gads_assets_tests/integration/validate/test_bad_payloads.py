"""Whatever lies in a run directory, its run alone is rejected: one attempt, one line that names the cause."""

import gzip
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Engine, RowMapping, select

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.state import (
    AttemptOutcome,
    DemotionIntent,
    ExtractionAttempt,
    ExtractionOutcome,
    PartitionState,
    PartitionStatus,
)
from gads_assets.domain.verdict import SAMPLE_CHARACTERS, SAMPLES_PER_RULE
from gads_assets.errors import RawSinkError
from gads_assets.raw.layout import PAYLOAD
from gads_assets.raw.sink import RawSink
from gads_assets.state.partition_states import StateStore
from gads_assets.state.run_records import RunRecords
from gads_assets.state.tables import partition_attempt
from gads_assets.validate.recording import Validation, Validator
from gads_assets_tests.integration.validate.bad_files import BAD_FILES, SEALS
from gads_assets_tests.integration.validate.bad_rows import BAD_ROWS
from gads_assets_tests.integration.validate.spoiling import Run, Spoil, full_row, good, partition, strict_catalog
from gads_assets_tests.sealed_runs import unused_run_id

NOW = datetime(2024, 7, 1, 12, tzinfo=UTC)
BAD = BAD_FILES | BAD_ROWS
LONGEST_MESSAGE = 2_000

Withdraw = Callable[[Sequence[DemotionIntent]], None]


class Bench:
    """A raw sink and a ledger, with the extractor's part done by hand and the validator's by the product."""

    def __init__(self, root: Path, engine: Engine) -> None:
        self.sink = RawSink(str(root / "raw"))
        self.store = StateStore(engine)
        self._engine = engine

    def extract(self, spoils: Mapping[str, Spoil], *, dagster_run_id: str) -> dict[str, Run]:
        """A partition for each name, always the same one, and a run in it that was spoiled."""
        runs = {}
        for number, (name, run_seq) in enumerate(
            zip(spoils, self.store.allocate_run_seqs(len(spoils)), strict=True), start=1
        ):
            runs[name] = Run(sink=self.sink, key=partition(number), run_id=unused_run_id(), run_seq=run_seq)
            spoils[name](runs[name])
        self.store.record_extractions(
            ExtractionAttempt(
                key=run.key,
                run_id=run.run_id,
                run_seq=run.run_seq,
                outcome=ExtractionOutcome.SEALED,
                error_class=None,
                error_message=None,
                started_at=NOW,
                finished_at=NOW,
                dagster_run_id=dagster_run_id,
            )
            for run in runs.values()
        )
        return runs

    def validate(
        self,
        session: Callable[[], SparkSession],
        keys: Iterable[PartitionKey],
        *,
        dagster_run_id: str,
        withdraw: Withdraw | None = None,
    ) -> Validation:
        validator = Validator(
            session=session,
            sink=self.sink,
            catalog=strict_catalog(),
            store=self.store,
            records=RunRecords(self._engine),
            withdraw=withdraw or _never_withdrawn,
            shown=lambda _: {},
            now=lambda: NOW,
        )
        return validator.validate(list(keys), dagster_run_id=dagster_run_id)

    def states(self, runs: Mapping[str, Run]) -> dict[str, PartitionState]:
        found = self.store.states(_keys(runs))
        return {name: found[run.key] for name, run in runs.items()}

    def attempts(self, run: Run) -> list[RowMapping]:
        """Of one run, oldest first."""
        wanted = select(partition_attempt).where(partition_attempt.c.run_id == run.run_id)
        with self._engine.connect() as connection:
            return list(connection.execute(wanted.order_by(partition_attempt.c.attempt_number)).mappings())


def _keys(runs: Mapping[str, Run]) -> list[PartitionKey]:
    return [run.key for run in runs.values()]


def _has_a_readable_seal(sink: RawSink, run: Run) -> bool:
    try:
        sink.manifest(run.key, run.run_id)
    except RawSinkError:
        return False
    return True


def _never_withdrawn(intents: Sequence[DemotionIntent]) -> None:
    pytest.fail(f"{intents[0].key} was published by nobody")


@pytest.fixture
def bench(tmp_path: Path, engine: Engine) -> Bench:
    return Bench(tmp_path, engine)


def _rejections(bench: Bench, runs: Mapping[str, Run]) -> dict[str, str]:
    """What is wrong with the record of each rejection; nothing, when all is as it should be."""
    wrong = {}
    for name, run in runs.items():
        expected = BAD[name][1]
        found = [(attempt["outcome"], attempt["error_message"]) for attempt in bench.attempts(run)]
        if [outcome for outcome, _ in found] != [AttemptOutcome.REJECTED]:
            wrong[name] = f"recorded as {found}"
        elif not re.search(expected, found[0][1]):
            wrong[name] = f"{found[0][1][:LONGEST_MESSAGE]!r} does not say {expected!r}"
        elif len(found[0][1]) > LONGEST_MESSAGE or not found[0][1].isprintable():
            wrong[name] = f"{len(found[0][1])} characters, or not one line: {found[0][1][:LONGEST_MESSAGE]!r}"
    return wrong


def test_every_bad_run_fails_alone_with_one_attempt_that_names_the_cause(bench: Bench, spark: SparkSession) -> None:
    assert not BAD_FILES.keys() & BAD_ROWS.keys()
    spoils: dict[str, Spoil] = {f"good {number}": good for number in range(3)}
    spoils |= {name: spoil for name, (spoil, _) in BAD.items()}
    spoils |= {"good last": good, "good and without rows": lambda run: run.seal()}
    runs = bench.extract(spoils, dagster_run_id="first")

    validation = bench.validate(lambda: spark, _keys(runs), dagster_run_id="first")

    assert validation.unjudged == {}
    bad = {name: run for name, run in runs.items() if name in BAD}
    assert _rejections(bench, bad) == {}
    states = bench.states(runs)
    assert {
        name: (state.status, state.current_run_id, state.attempt_count)
        for name, state in states.items()
        if name in BAD
        and (state.status, state.current_run_id, state.attempt_count) != (PartitionStatus.FAILED, None, 1)
    } == {}
    assert {name for name, state in states.items() if state.status is PartitionStatus.SUCCESS} == spoils.keys() - bad
    assert all(states[name].current_run_id == run.run_id for name, run in runs.items() if name not in BAD)


def test_every_bad_run_leaves_the_run_that_was_accepted_before_where_it_is(bench: Bench, spark: SparkSession) -> None:
    first = bench.extract(dict.fromkeys(BAD, good), dagster_run_id="first")
    bench.validate(lambda: spark, _keys(first), dagster_run_id="first")
    before = bench.states(first)
    assert {state.status for state in before.values()} == {PartitionStatus.SUCCESS}

    again = bench.extract({name: spoil for name, (spoil, _) in BAD.items()}, dagster_run_id="again")
    validation = bench.validate(lambda: spark, _keys(again), dagster_run_id="again")

    assert validation.unjudged == {}
    assert _rejections(bench, again) == {}
    for name, state in bench.states(again).items():
        assert (state.status, state.current_run_id, state.error_message, state.attempt_count) == (
            PartitionStatus.SUCCESS,
            first[name].run_id,
            None,
            2,
        ), name
    assert len(bench.store.publishable(_keys(again))) == len(BAD)


def test_a_batch_of_seals_that_cannot_be_read_is_rejected_without_spark(bench: Bench) -> None:
    runs = bench.extract({name: spoil for name, (spoil, _) in SEALS.items()}, dagster_run_id="first")
    unreadable = {name: run for name, run in runs.items() if not _has_a_readable_seal(bench.sink, run)}
    assert len(unreadable) > 20

    bench.validate(lambda: pytest.fail("there is nothing to read"), _keys(unreadable), dagster_run_id="first")

    assert _rejections(bench, unreadable) == {}


def test_the_rows_that_break_a_rule_are_shown_in_the_attempt_some_of_them_and_shortened(
    bench: Bench, spark: SparkSession
) -> None:
    shown = {"a key many times": "natural_key", "a number for text": "schema", "a very long text": "schema"}
    runs = bench.extract({name: BAD[name][0] for name in shown}, dagster_run_id="first")

    bench.validate(lambda: spark, _keys(runs), dagster_run_id="first")

    samples = {
        name: [result["samples"] for result in attempt["rule_results"] if result["rule"] == shown[name]]
        for name, run in runs.items()
        for attempt in bench.attempts(run)
    }
    assert {name: len(found) for name, [found] in samples.items()} == {
        "a key many times": SAMPLES_PER_RULE,
        "a number for text": 1,
        "a very long text": 1,
    }
    assert '"campaign_name":5' in samples["a number for text"][0][0]
    assert len(samples["a very long text"][0][0]) == SAMPLE_CHARACTERS


def test_of_runs_that_no_extraction_names_the_newest_with_an_intact_seal_is_judged(
    bench: Bench, spark: SparkSession
) -> None:
    first = bench.extract({"partly damaged": good, "wholly damaged": good}, dagster_run_id="first")
    second = bench.extract({"partly damaged": good}, dagster_run_id="second")
    third = bench.extract({"partly damaged": BAD["run_seq zero"][0]}, dagster_run_id="third")
    first["wholly damaged"].reseal(run_seq=0)
    unanswered = replace(partition(3), query_name="q" * 300)

    validation = bench.validate(lambda: spark, [*_keys(first), unanswered], dagster_run_id="another")

    assert third["partly damaged"].key == first["partly damaged"].key
    assert bench.store.states(_keys(first)).keys() == {first["partly damaged"].key}
    assert bench.states(second)["partly damaged"].current_run_id == second["partly damaged"].run_id
    assert "run_seq must be from 1" in validation.unjudged[first["wholly damaged"].key]
    assert "cannot be listed" in validation.unjudged[unanswered]


def _replace_seal(run: Run) -> None:
    run.metadata.write_bytes(run.beside().metadata.read_bytes())


def _replace_rows(run: Run) -> None:
    """As somebody would who knows how runs are sealed."""
    rows = [full_row(run.key, number) | {"metrics_clicks": 0} for number in (1, 2, 3)]
    run.payload.write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode()))
    run.reseal()


DAMAGES: dict[str, tuple[Callable[[Run], object], str]] = {
    "the payload was edited": (lambda run: run.payload.write_bytes(run.beside(days=1).payload.read_bytes()), PAYLOAD),
    "the payload was cut": (lambda run: run.payload.write_bytes(run.payload.read_bytes()[:-1]), PAYLOAD),
    "the payload was deleted": (lambda run: run.payload.unlink(), "is missing"),
    "the seal was deleted": (lambda run: run.metadata.unlink(), "has no seal"),
    "the seal was replaced": (_replace_seal, "carries the seal of run"),
    "the seal's number was changed": (lambda run: run.reseal(run_seq=0), "run_seq"),
    "the rows were replaced, and sealed again": (_replace_rows, "altered and sealed again: its content"),
    "the seal's number was raised": (lambda run: run.reseal(run_seq=run.run_seq + 10**6), "again: its run_seq"),
    "the seal's currency was changed": (lambda run: run.reseal(account_currency="JPY"), "again: its metadata.json"),
    "the seal was written anew": (lambda run: run.reseal(), "again: its metadata.json"),
    "a blank was added to the seal": (
        lambda run: run.metadata.write_bytes(run.metadata.read_bytes() + b" "),
        "again: its metadata.json",
    ),
    "the seal vouches for other rows": (lambda run: run.reseal(record_count=9), "3 rows found where the seal says 9"),
}


def test_an_authority_that_was_damaged_after_its_success_is_withdrawn_and_fails(
    bench: Bench, spark: SparkSession
) -> None:
    runs = bench.extract(dict.fromkeys([*DAMAGES, "untouched"], good), dagster_run_id="first")
    bench.validate(lambda: spark, _keys(runs), dagster_run_id="first")
    for name, (damage, _) in DAMAGES.items():
        damage(runs[name])
    withdrawn: list[PartitionKey] = []

    def withdraw(intents: Sequence[DemotionIntent]) -> None:
        assert list(intents) == bench.store.open_demotions([intent.key for intent in intents])
        withdrawn.extend(intent.key for intent in intents)

    bench.validate(lambda: spark, _keys(runs), dagster_run_id="revalidation", withdraw=withdraw)

    assert sorted(withdrawn) == sorted(runs[name].key for name in DAMAGES)
    assert bench.store.open_demotions() == []
    states = bench.states(runs)
    for name, (_, cause) in DAMAGES.items():
        accepted, demoted = bench.attempts(runs[name])
        assert (accepted["outcome"], demoted["outcome"]) == (AttemptOutcome.ACCEPTED, AttemptOutcome.DEMOTED)
        assert cause in demoted["error_message"]
        assert (states[name].status, states[name].error_message) == (PartitionStatus.FAILED, demoted["error_message"])
        assert states[name].current_run_id == runs[name].run_id
    assert states["untouched"].status is PartitionStatus.SUCCESS
