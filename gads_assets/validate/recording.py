"""The validator as the only writer of PartitionState: choose the runs, judge them, record what was found."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from pyspark.sql import SparkSession

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.expectations import Surroundings
from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.state import (
    AttemptOutcome,
    DemotionIntent,
    ExtractionOutcome,
    Judgement,
    PartitionState,
    validation_id,
)
from gads_assets.domain.verdict import Finding, reject_altered
from gads_assets.errors import BrokenSealError, GadsError, RawSinkError, RunNotFoundError, UnreadableRunError
from gads_assets.raw.sink import RawSink
from gads_assets.state.partition_states import AcceptedContent, RecordedJudgement, StateStore
from gads_assets.state.run_records import RunRecords
from gads_assets.validate.judging import JudgedRun, judge_runs


@dataclass(frozen=True, kw_only=True)
class Judged(JudgedRun):
    """What was found now, and what the ledger holds: a step that is repeated within its Dagster run finds its first
    judgement recorded, which stands."""

    recorded: RecordedJudgement

    @property
    def accepted(self) -> bool:
        return self.recorded.outcome in {AttemptOutcome.ACCEPTED, AttemptOutcome.SUPERSEDED}

    @property
    def error_message(self) -> str | None:
        if self.accepted == self.verdict.accepted:
            return self.verdict.error_message
        return (
            f"recorded as {self.recorded.outcome} when this Dagster run first judged it, and found otherwise now "
            f"({self.verdict.error_message or 'it keeps every rule'}); run the check in a new run to judge it again"
        )


@dataclass(frozen=True, kw_only=True)
class Validation:
    """`unjudged` partitions have no run that could be judged: the reason is given, and no state was written."""

    judged: Mapping[PartitionKey, Judged]
    unjudged: Mapping[PartitionKey, str]


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """`schema_version` is what the ledger says of the authority; None where it says nothing of the run."""

    run_id: RunId
    run_seq: int
    schema_version: str | None = None


@dataclass(frozen=True, kw_only=True)
class Validator:
    """`withdraw` hides the rows of partitions of one query whose authorities were found bad, and has done so when it
    returns.
    `shown` tells which run's rows readers see of each partition that has any to see."""

    session: Callable[[], SparkSession]
    sink: RawSink
    catalog: Catalog
    store: StateStore
    records: RunRecords
    withdraw: Callable[[Sequence[DemotionIntent]], None]
    shown: Callable[[Sequence[PartitionKey]], Mapping[PartitionKey, RunId]]
    now: Callable[[], datetime]

    def validate(self, keys: Sequence[PartitionKey], *, dagster_run_id: str, only_unjudged: bool = False) -> Validation:
        """Judges each partition on its own and counts one attempt each, however often this is repeated in a run.

        The run that this Dagster run sealed is taken first, then the authority, then the newest sealed one. With
        `only_unjudged` it is the run that readers see, if it was never judged here, so that no other's verdict can
        take it from them; then the newest sealed, never judged one that is newer than the authority; then, of a
        partition that was adopted, the authority. A withdrawal that a crash left open is finished before anything else.
        """
        unfinished = self.finish_demotions(self.store.open_demotions(keys))
        choose = self._unjudged_candidates if only_unjudged else self._candidates
        candidates, unjudged = choose([key for key in keys if key not in unfinished], dagster_run_id)
        verdicts = judge_runs(
            self.session,
            self.sink,
            self.catalog,
            {key: candidate.run_id for key, candidate in candidates.items()},
            self._surroundings(candidates),
        )
        found = self._held_against_record(candidates, verdicts.judged)
        judgements = [(key, self._judgement(key, candidates[key], found[key], dagster_run_id)) for key in sorted(found)]
        recorded = self.store.record_judgements(
            judgements,
            now=self.now(),
            dagster_run_id=dagster_run_id,
            rule_results={
                judgement.validation_id: [_recorded(finding) for finding in found[key].verdict.findings]
                for key, judgement in judgements
            },
        )
        # What cannot be withdrawn now stays hidden from loaders, and is tried again by the next judging.
        self.finish_demotions(record.demotion_opened for record in recorded if record.demotion_opened)
        return Validation(
            judged={
                record.key: Judged(seal=run.seal, verdict=run.verdict, recorded=record)
                for record in recorded
                for run in [found[record.key]]
            },
            unjudged={**unjudged, **verdicts.unread, **unfinished},
        )

    def finish_demotions(self, intents: Iterable[DemotionIntent]) -> dict[PartitionKey, str]:
        """Withdraws the rows, then shows the failures; each query on its own. Returns those that could not be finished,
        and why."""
        unfinished: dict[PartitionKey, str] = {}
        for _, group in groupby(sorted(intents, key=_by_query), key=lambda intent: _by_query(intent)[:2]):
            together = list(group)
            try:
                self.withdraw(together)
                self.store.finish_demotions(together, now=self.now())
            except GadsError as error:
                unfinished |= {intent.key: f"its rows could not be withdrawn: {error}" for intent in together}
        return unfinished

    def _held_against_record(
        self, candidates: Mapping[PartitionKey, _Candidate], judged: Mapping[PartitionKey, JudgedRun]
    ) -> dict[PartitionKey, JudgedRun]:
        """Rejects a run that is no longer what it was when it was extracted, or accepted before."""
        accepted = self.store.accepted_contents(judged)
        held: dict[PartitionKey, JudgedRun] = {}
        for key, run in judged.items():
            differences = _differences(candidates[key], run, accepted.get((key, candidates[key].run_id)))
            held[key] = replace(run, verdict=reject_altered(run.verdict, differences)) if differences else run
        return held

    def _candidates(
        self, keys: Sequence[PartitionKey], dagster_run_id: str
    ) -> tuple[dict[PartitionKey, _Candidate], dict[PartitionKey, str]]:
        extracted = self.records.extractions(dagster_run_id, keys)
        states = self.store.states(keys)
        candidates: dict[PartitionKey, _Candidate] = {}
        unjudged: dict[PartitionKey, str] = {}
        unnamed: list[PartitionKey] = []
        for key in keys:
            extraction, state = extracted.get(key), states.get(key)
            if extraction and extraction.outcome is ExtractionOutcome.FAILED:
                unjudged[key] = extraction.error_message or "the extraction failed"
            elif extraction:
                candidates[key] = _Candidate(run_id=extraction.run_id, run_seq=extraction.run_seq)
            elif state and state.current_run_id and state.current_run_seq:
                candidates[key] = _Candidate(
                    run_id=state.current_run_id, run_seq=state.current_run_seq, schema_version=state.schema_version
                )
            else:
                unnamed.append(key)
        run_seqs = self.records.run_seqs(unnamed) if unnamed else {}
        for key in unnamed:
            newest = self._newest_sealed(key, run_seqs)
            if isinstance(newest, _Candidate):
                candidates[key] = newest
            else:
                unjudged[key] = newest
        return candidates, unjudged

    def _unjudged_candidates(
        self, keys: Sequence[PartitionKey], dagster_run_id: str
    ) -> tuple[dict[PartitionKey, _Candidate], dict[PartitionKey, str]]:
        states, adopted = self.store.states(keys), self.store.open_adoptions(keys)
        chosen = {
            # What was adopted needs a verdict, even if nothing of it is new.
            **{key: states[key].current_run_id for key in adopted if key in states},
            **{key: run.run_id for key, run in self.records.unjudged_of(keys).items()},
            **self._shown_without_verdict(keys, adopted),
            # A step that is repeated judges what it judged before, which is not unjudged any more.
            **{key: judged.run_id for key, judged in self.records.judgements(dagster_run_id, keys).items()},
        }
        run_seqs = self.records.run_seqs(chosen)
        candidates: dict[PartitionKey, _Candidate] = {}
        unjudged: dict[PartitionKey, str] = {}
        for key in keys:
            run_id = chosen.get(key)
            if run_id is None:
                unjudged[key] = "no sealed run of it waits for a verdict"
                continue
            try:
                run_seq = run_seqs.get((key, run_id)) or self.sink.manifest(key, run_id).run_seq
            except RawSinkError as error:
                unjudged[key] = str(error)
            else:
                candidates[key] = _Candidate(
                    run_id=run_id,
                    run_seq=run_seq,
                    schema_version=_known_schema_version(states.get(key), run_id),
                )
        return candidates, unjudged

    def _shown_without_verdict(
        self, keys: Sequence[PartitionKey], adopted: Collection[PartitionKey]
    ) -> dict[PartitionKey, RunId]:
        """Runs that readers see and nobody accepted here. One that was rejected is judged again only if it was adopted:
        then it was accepted since, in a history that is lost."""
        accepted, judged = self.store.accepted_contents(keys), self.records.judged_runs(keys)
        return {
            key: run_id
            for key, run_id in self.shown(keys).items()
            if (key, run_id) not in accepted and (key in adopted or (key, run_id) not in judged)
        }

    def _surroundings(self, keys: Collection[PartitionKey]) -> Surroundings:
        policies = self.catalog.spend_policies
        compared = {name for finer, policy in policies.items() for name in (finer, policy.against)}
        return self.store.surroundings(keys, days=self.catalog.volume_days, queries=compared)

    def _newest_sealed(self, key: PartitionKey, run_seqs: Mapping[tuple[PartitionKey, RunId], int]) -> _Candidate | str:
        """Or why there is none. The order is that on record; a seal tells its own only where nothing is."""
        newest: _Candidate | None = None
        broken: str | None = None
        try:
            for run_id in self.sink.sealed_runs(key):
                try:
                    manifest = self.sink.manifest(key, run_id)
                    run_seq = run_seqs.get((key, run_id), manifest.run_seq)
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
            seal_sha256=judged.seal.sha256 if judged.seal else None,
            accepted=verdict.accepted,
            error_message=verdict.error_message,
            validation_id=validation_id(candidate.run_id, dagster_run_id),
            spend_micros=verdict.spend.micros if verdict.spend else None,
            comparable_spend_micros=verdict.spend.comparable_micros if verdict.spend else None,
        )


def _by_query(intent: DemotionIntent) -> tuple[str, str, PartitionKey]:
    return intent.key.source, intent.key.query_name, intent.key


def _known_schema_version(state: PartitionState | None, run_id: RunId) -> str | None:
    return state.schema_version if state and state.current_run_id == run_id else None


def _differences(candidate: _Candidate, run: JudgedRun, accepted: AcceptedContent | None) -> list[str]:
    differences = []
    if run.manifest and run.manifest.run_seq != candidate.run_seq:
        differences.append("its run_seq")
    if run.manifest and candidate.schema_version not in (None, run.manifest.schema_version):
        differences.append("its schema_version")
    if accepted and run.verdict.content and str(run.verdict.content) != accepted.content_digest:
        differences.append("its content")
    # Told only where nothing of more consequence is, since each of those is a change of the seal too.
    if not differences and accepted and accepted.seal_sha256 and run.seal and run.seal.sha256 != accepted.seal_sha256:
        differences.append("its metadata.json")
    return differences


def _recorded(finding: Finding) -> dict[str, object]:
    kept: dict[str, object] = {"rule": finding.rule.value, "passed": finding.passed, "detail": finding.detail}
    return kept if finding.passed else {**kept, "severity": finding.rule.severity, "samples": finding.samples}
