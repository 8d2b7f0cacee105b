"""The validator as the only writer of PartitionState: choose the runs, judge them, record what was found."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import SparkSession

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.expectations import Surroundings
from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.state import DemotionIntent, ExtractionOutcome, Judgement, validation_id
from gads_assets.domain.verdict import Finding
from gads_assets.errors import BrokenSealError, RunNotFoundError, UnreadableRunError
from gads_assets.raw.sink import RawSink
from gads_assets.state.partition_states import RecordedJudgement, StateStore
from gads_assets.state.run_records import RunRecords
from gads_assets.validate.judging import JudgedRun, judge_runs


@dataclass(frozen=True, kw_only=True)
class Judged(JudgedRun):
    recorded: RecordedJudgement


@dataclass(frozen=True, kw_only=True)
class Validation:
    """`unjudged` partitions have no run that could be judged: the reason is given, and no state was written."""

    judged: Mapping[PartitionKey, Judged]
    unjudged: Mapping[PartitionKey, str]


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    run_id: RunId
    run_seq: int


@dataclass(frozen=True, kw_only=True)
class Validator:
    """`withdraw` hides the rows of a partition whose authority was found bad; it must have done so when it returns."""

    session: Callable[[], SparkSession]
    sink: RawSink
    catalog: Catalog
    store: StateStore
    records: RunRecords
    withdraw: Callable[[DemotionIntent], None]
    now: Callable[[], datetime]

    def validate(self, keys: Sequence[PartitionKey], *, dagster_run_id: str) -> Validation:
        """Judges each partition on its own and counts one attempt each, however often this is repeated in a run.

        The run that this Dagster run sealed is taken first, then the authority, then the newest sealed one. A
        withdrawal that a crash left open is finished before anything else.
        """
        self._finish_demotions(self.store.open_demotions(keys))
        candidates, unjudged = self._candidates(keys, dagster_run_id)
        verdicts = judge_runs(
            self.session,
            self.sink,
            self.catalog,
            {key: candidate.run_id for key, candidate in candidates.items()},
            self._surroundings(candidates),
        )
        judgements = [
            (key, self._judgement(key, candidates[key], verdicts.judged[key], dagster_run_id))
            for key in sorted(verdicts.judged)
        ]
        recorded = self.store.record_judgements(
            judgements,
            now=self.now(),
            dagster_run_id=dagster_run_id,
            rule_results={
                judgement.validation_id: [_recorded(finding) for finding in verdicts.judged[key].verdict.findings]
                for key, judgement in judgements
            },
        )
        self._finish_demotions(record.demotion_opened for record in recorded if record.demotion_opened)
        return Validation(
            judged={
                record.key: Judged(manifest=run.manifest, verdict=run.verdict, recorded=record)
                for record in recorded
                for run in [verdicts.judged[record.key]]
            },
            unjudged={**unjudged, **verdicts.unread},
        )

    def _finish_demotions(self, intents: Iterable[DemotionIntent]) -> None:
        for intent in intents:
            self.withdraw(intent)
            self.store.finish_demotion(intent, now=self.now())

    def _candidates(
        self, keys: Sequence[PartitionKey], dagster_run_id: str
    ) -> tuple[dict[PartitionKey, _Candidate], dict[PartitionKey, str]]:
        extracted = self.records.extractions(dagster_run_id, keys)
        states = self.store.states(keys)
        candidates: dict[PartitionKey, _Candidate] = {}
        unjudged: dict[PartitionKey, str] = {}
        for key in keys:
            extraction, state = extracted.get(key), states.get(key)
            if extraction and extraction.outcome is ExtractionOutcome.FAILED:
                unjudged[key] = extraction.error_message or "the extraction failed"
            elif extraction:
                candidates[key] = _Candidate(run_id=extraction.run_id, run_seq=extraction.run_seq)
            elif state and state.current_run_id and state.current_run_seq:
                candidates[key] = _Candidate(run_id=state.current_run_id, run_seq=state.current_run_seq)
            else:
                newest = self._newest_sealed(key)
                if isinstance(newest, _Candidate):
                    candidates[key] = newest
                else:
                    unjudged[key] = newest
        return candidates, unjudged

    def _surroundings(self, keys: Collection[PartitionKey]) -> Surroundings:
        policies = self.catalog.spend_policies
        compared = {name for finer, policy in policies.items() for name in (finer, policy.against)}
        return self.store.surroundings(keys, days=self.catalog.volume_days, queries=compared)

    def _newest_sealed(self, key: PartitionKey) -> _Candidate | str:
        """Or why there is none."""
        newest: _Candidate | None = None
        broken: str | None = None
        try:
            for run_id in self.sink.sealed_runs(key):
                try:
                    run_seq = self.sink.manifest(key, run_id).run_seq
                except (BrokenSealError, RunNotFoundError) as error:
                    # A broken seal has no place in the order; the intact ones are judged before it.
                    broken = str(error)
                    continue
                if newest is None or run_seq > newest.run_seq:
                    newest = _Candidate(run_id=run_id, run_seq=run_seq)
        except UnreadableRunError as error:
            # Of the runs that do answer, the newest need not be the partition's.
            return str(error)
        return newest or broken or "no sealed run exists; materialize the raw asset first"

    def _judgement(
        self,
        key: PartitionKey,
        candidate: _Candidate,
        judged: JudgedRun,
        dagster_run_id: str,
    ) -> Judgement:
        manifest, verdict = judged.manifest, judged.verdict
        current = self.catalog.query(key.query_name).schema.version
        return Judgement(
            run_id=candidate.run_id,
            run_seq=candidate.run_seq,
            schema_version=manifest.schema_version if manifest else current,
            record_count=verdict.content.rows if verdict.content else 0,
            content_digest=str(verdict.content) if verdict.content else None,
            accepted=verdict.accepted,
            error_message=verdict.error_message,
            validation_id=validation_id(candidate.run_id, dagster_run_id),
            spend_micros=verdict.spend.micros if verdict.spend else None,
            comparable_spend_micros=verdict.spend.comparable_micros if verdict.spend else None,
        )


def _recorded(finding: Finding) -> dict[str, object]:
    kept: dict[str, object] = {"rule": finding.rule.value, "passed": finding.passed, "detail": finding.detail}
    return kept if finding.passed else {**kept, "severity": finding.rule.severity, "samples": finding.samples}
