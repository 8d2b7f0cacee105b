"""One customer's partitions, in the database and in the model of it, taken through every step side by side."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import count

from ulid import ULID

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId, StageId
from gads_assets.domain.pointer import Pointer as TablePointer
from gads_assets.domain.pointer import PointerStatus
from gads_assets.domain.state import (
    DemotionIntent,
    ExtractionAttempt,
    ExtractionOutcome,
    Judgement,
    LoadRecord,
    PartitionState,
    validation_id,
)
from gads_assets.errors import TransitionError
from gads_assets.state.partition_states import RecordedJudgement
from gads_assets_tests.integration.crashing import Actors, Crash
from gads_assets_tests.integration.state_model import (
    Extraction,
    Partition,
    Pointer,
    adopted,
    check_promises,
    expected_rows,
    extracted,
    finished,
    judged,
    loaded,
    returned,
    stored_rows,
    withdrawn,
)
from gads_assets_tests.ledgers import SEAL

DAYS = (date(2024, 6, 1), date(2024, 6, 2))


@dataclass(frozen=True, kw_only=True)
class Run:
    day: date
    run_id: RunId
    run_seq: int


Verdict = tuple[date, Judgement]


class Ledger:
    """One customer's partitions: each step is done by the product in its role, and told to the model if it commits."""

    def __init__(self, users: Actors, number: int, judge: Callable[..., Partition] = judged) -> None:
        self.users = users
        self.customer_id = CustomerId(f"{number:010d}")
        self.model = dict.fromkeys(DAYS, Partition())
        self._judge = judge
        self._previous = expected_rows(self.model)
        self._numbers = count(1)

    def extract(
        self, *days: date, is_sealed: bool = True, numbering: Crash | None = None, recording: Crash | None = None
    ) -> list[Run]:
        """The runs that exist in the raw sink afterwards, whether or not their recording got through."""
        numbered = self.users.extractor.attempt(lambda store: store.allocate_run_seqs(len(days)), numbering)
        if numbered.answer is None:
            return []
        # Ids fall while numbers rise: whoever compared ids would take the oldest run for the newest.
        runs = [
            Run(day=day, run_id=RunId(f"{10**20 - number:026d}"), run_seq=number)
            for day, number in zip(days, numbered.answer, strict=True)
        ]
        self.record_extractions(runs, is_sealed=is_sealed, crash=recording)
        return runs if is_sealed else []

    def record_extractions(self, runs: list[Run], *, is_sealed: bool, crash: Crash | None = None) -> None:
        outcome = ExtractionOutcome.SEALED if is_sealed else ExtractionOutcome.FAILED
        tries = [self._extraction(run, outcome) for run in runs]
        if self.users.extractor.attempt(lambda store: store.record_extractions(tries), crash).is_committed:
            for run in runs:
                extraction = Extraction(run_id=run.run_id, run_seq=run.run_seq, outcome=outcome)
                self.model[run.day] = extracted(self.model[run.day], extraction)

    def verdict(self, run: Run, *, accepted: bool) -> Verdict:
        """A judgement that was not made before."""
        number = next(self._numbers)
        return run.day, Judgement(
            run_id=run.run_id,
            run_seq=run.run_seq,
            schema_version="1",
            record_count=run.run_seq,
            content_digest="digest" if accepted else None,
            seal_sha256=SEAL if accepted else None,
            accepted=accepted,
            error_message=None if accepted else f"bad, says judgement {number}",
            validation_id=validation_id(run.run_id, f"dagster-run-{number}"),
        )

    def record(self, *verdicts: Verdict, crash: Crash | None = None) -> list[DemotionIntent]:
        """The demotions that the caller is told to carry out."""
        at = next(self._numbers)
        before, after = self.model, dict(self.model)
        for day, judgement in verdicts:
            after[day] = self._judge(after[day], judgement, at=at)
        asked = [(self._key(day), judgement) for day, judgement in verdicts]
        happened = self.users.validator.attempt(
            lambda store: store.record_judgements(asked, now=_time(at), dagster_run_id="dagster-run"), crash
        )
        if happened.is_committed:
            self.model = after
        if happened.answer is None:
            return []
        for (day, judgement), answer in zip(verdicts, happened.answer, strict=True):
            _check_answer(answer, judgement, before[day], after[day])
        return list(
            {answer.key: answer.demotion_opened for answer in happened.answer if answer.demotion_opened}.values()
        )

    def withdraw(self, intent: DemotionIntent) -> None:
        day = intent.key.logical_date
        self.model[day] = withdrawn(self.model[day], intent, stage=self._stage())

    def finish(self, intent: DemotionIntent, crash: Crash | None = None) -> None:
        day, at = intent.key.logical_date, next(self._numbers)
        happened = self.users.validator.attempt(lambda store: store.finish_demotions([intent], now=_time(at))[0], crash)
        if happened.is_committed:
            self.model[day] = finished(self.model[day], intent, at=at)
        if happened.answer is not None:
            expected = (self.model[day].status, self.model[day].version)
            _require_equal((happened.answer.status, happened.answer.version), expected)

    def open_demotions(self) -> list[DemotionIntent]:
        found: list[DemotionIntent] = self.users.validator.store.open_demotions(map(self._key, DAYS))
        return found

    def retry(self, *days: date, crash: Crash | None = None) -> None:
        """Refused, and known to be, unless every one of them failed."""
        at = next(self._numbers)
        is_allowed = all(self.model[day].status == "failed" for day in days)
        try:
            happened = self.users.operator.attempt(
                lambda store: store.return_to_pending(
                    map(self._key, days),
                    actor="somebody",
                    reason="the API was mended",
                    now=_time(at),
                    new_override_id=lambda: str(ULID()),
                ),
                crash,
            )
        except TransitionError:
            assert not is_allowed
            return
        assert is_allowed or happened.answer is None
        if happened.is_committed:
            self.model |= {day: returned(self.model[day], at=at) for day in days}

    def adopt(self, *days: date, above: int, crash: Crash | None = None) -> None:
        """As if a pointer of each carried a version so far above the state's."""
        floors = {day: max(self.model[day].version + above, 1) for day in days}
        pointers = [self._pointer(day, version) for day, version in floors.items()]
        happened = self.users.operator.attempt(
            lambda store: store.adopt(
                pointers, actor="somebody", reason="restored", now=_time(1), new_override_id=lambda: str(ULID())
            ),
            crash,
        )
        if happened.is_committed:
            self.model |= {day: adopted(self.model[day], floor) for day, floor in floors.items()}
        if happened.answer is not None:
            to_come = {day: max(self.model[day].floors, default=0) for day in days}
            expected = {
                self._key(day): floor for day, floor in to_come.items() if floor and floor >= self.model[day].version
            }
            _require_equal(happened.answer, expected)

    def publishable(self) -> list[PartitionState]:
        return self.users.loader.store.publishable(map(self._key, DAYS))

    def publish(self, state: PartitionState, crash: Crash | None = None) -> None:
        """As a loader does that was told this some time ago and has lost its lock since: without looking again."""
        day, stage = state.key.logical_date, self._stage()
        known, run_id = self.model[day], RunId(state.current_run_id or "")
        pointer = Pointer(state_version=state.version, stage=stage, run_id=run_id)
        self.model[day] = replace(known, pointers=(*known.pointers, pointer))
        record = LoadRecord(
            key=state.key,
            run_id=run_id,
            schema_version="1",
            record_count=state.record_count or 0,
            content_digest="digest",
            stage_id=StageId(stage),
            pointer_version=1,
            loaded_at=_time(1),
        )
        if self.users.loader.attempt(lambda store: store.record_loads([record]), crash).is_committed:
            self.model[day] = loaded(self.model[day], run_id, stage=stage)

    def check(self) -> None:
        rows = stored_rows(self.users.observer, self.customer_id)
        _require_equal(rows, expected_rows(self.model))
        if rows != self._previous:
            ready = self.users.consumer.store.publishable(map(self._key, DAYS))
            expected = [day for day in DAYS if self.model[day].is_ready]
            _require_equal([state.key.logical_date for state in ready], expected)
        check_promises(rows, self._previous, {day.isoformat(): self.model[day].shown for day in DAYS})
        self._previous = rows

    def _key(self, day: date) -> PartitionKey:
        return PartitionKey(source="google_ads", customer_id=self.customer_id, query_name="campaign", logical_date=day)

    def _pointer(self, day: date, version: int) -> TablePointer:
        return TablePointer(
            key=self._key(day),
            run_id=RunId(f"{version:026d}"),
            stage_id=StageId(self._stage()),
            schema_version="1",
            record_count=1,
            content_digest="digest",
            state_version=version,
            stage_commit=1,
            status=PointerStatus.ACTIVE,
            loaded_at=_time(1),
        )

    def _stage(self) -> str:
        return f"stage-{next(self._numbers):06d}"

    def _extraction(self, run: Run, outcome: ExtractionOutcome) -> ExtractionAttempt:
        error = None if outcome is ExtractionOutcome.SEALED else "quota"
        return ExtractionAttempt(
            key=self._key(run.day),
            run_id=run.run_id,
            run_seq=run.run_seq,
            outcome=outcome,
            error_class=error,
            error_message=error,
            started_at=_time(1),
            finished_at=_time(2),
            dagster_run_id="dagster-run",
        )


def contrary(verdict: Verdict) -> Verdict:
    """What the same judging would say if it found the opposite, repeated."""
    day, judgement = verdict
    return day, replace(
        judgement,
        accepted=not judgement.accepted,
        content_digest=None if judgement.accepted else "digest",
        seal_sha256=None if judgement.accepted else SEAL,
        error_message="bad after all" if judgement.accepted else None,
    )


def _time(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _check_answer(answer: RecordedJudgement, judgement: Judgement, before: Partition, after: Partition) -> None:
    names = [attempt.validation_id for attempt in after.attempts]
    number = names.index(judgement.validation_id) + 1
    attempt = after.attempts[number - 1]
    told = answer.demotion_opened
    is_demoted = attempt.outcome == "demoted"
    still_open = after.demotion if is_demoted and after.demotion and after.demotion.run_id == attempt.run_id else None
    _require_equal(
        {
            "outcome": answer.outcome,
            "attempt_number": answer.attempt_number,
            "state_version": answer.state_version,
            "state": (answer.state.status, answer.state.version),
            "repeated": answer.repeated,
            "demotion_opened": told.state_version if told else None,
        },
        {
            "outcome": attempt.outcome,
            "attempt_number": number,
            "state_version": attempt.state_version,
            "state": (after.status, after.version),
            "repeated": number <= len(before.attempts),
            "demotion_opened": still_open.state_version if still_open else None,
        },
    )


def _require_equal(found: object, expected: object) -> None:
    # pytest explains the assertions of test modules only.
    assert found == expected, f"\nfound    {found}\nexpected {expected}"
