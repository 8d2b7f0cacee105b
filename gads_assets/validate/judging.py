"""From sealed runs to verdicts. Writes nothing: the caller records what comes back."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from pyspark.sql import SparkSession

from gads_assets.catalog.specification import Catalog, QuerySchema
from gads_assets.domain.accounts import day_opens_at
from gads_assets.domain.expectations import NOTHING_KNOWN, Neighbours, Surroundings, spend_finding, volume_finding
from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.verdict import RowFault, Rule, RunMeasurement, Verdict, judge, reject_unread
from gads_assets.errors import (
    BrokenPayloadError,
    CatalogError,
    GadsError,
    PartitionKeyError,
    RawSinkError,
    UnreadableRunError,
)
from gads_assets.raw.sink import RawSink, Seal
from gads_assets.validate.measuring import Batch, measure_runs
from gads_assets.validate.written_rows import written_otherwise

_REASON_CHARACTERS = 1_000
"""A reason may quote the run, which may hold anything of any length."""


@dataclass(frozen=True, kw_only=True)
class JudgedRun:
    """`seal` is None when the run has none that can be read."""

    seal: Seal | None
    verdict: Verdict

    @property
    def manifest(self) -> RunManifest | None:
        return self.seal.manifest if self.seal else None


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """`unread`: the storage did not answer for these, which is no reason to condemn them."""

    judged: Mapping[PartitionKey, JudgedRun]
    unread: Mapping[PartitionKey, str]


@dataclass(frozen=True, kw_only=True)
class _Sealed:
    seal: Seal
    schema: QuerySchema
    day_ended_at: datetime

    @property
    def manifest(self) -> RunManifest:
        return self.seal.manifest


@dataclass(frozen=True, kw_only=True)
class _Intact:
    """Every byte is as sealed; `written_otherwise` tells of rows that are not as their schema version says, all the
    same."""

    written_otherwise: RowFault | None


def judge_runs(
    session: Callable[[], SparkSession],
    sink: RawSink,
    catalog: Catalog,
    runs: Mapping[PartitionKey, RunId],
    surroundings: Surroundings = NOTHING_KNOWN,
) -> Verdicts:
    """Judges every partition asked about, whatever state its run directory is in.

    Each run is judged by the schema version it was extracted under, and warned of by what surrounds it: what the
    ledger knows, and the other runs of this batch. The session is opened only if there is a seal that can be read.
    """
    answers = sink.for_each(lambda item: _read_seal(sink, catalog, *item), runs.items())
    read = dict(zip(runs, answers, strict=True))
    sealed = {key: found for key, found in read.items() if isinstance(found, _Sealed)}
    with ThreadPoolExecutor(1) as beside:
        # Bytes are compared with their seals here while Spark reads the same files: both take long, on their own.
        verifying = beside.submit(sink.for_each, partial(_verify, sink), sealed.values())

        def verified() -> dict[PartitionKey, _Intact | JudgedRun | UnreadableRunError]:
            return dict(zip(sealed, verifying.result(), strict=True))

        measured = _measure(session, sink, sealed, verified)
        results = {**read, **verified()}
    neighbours = _neighbours(catalog, measured, surroundings)
    judged: dict[PartitionKey, JudgedRun] = {}
    unread: dict[PartitionKey, str] = {}
    for key, found in results.items():
        if isinstance(found, UnreadableRunError):
            unread[key] = str(found)
        elif isinstance(found, JudgedRun):
            judged[key] = found
        else:
            verdict = _verdict(catalog, sealed[key], measured[key], neighbours.get(key, Neighbours()))
            judged[key] = JudgedRun(seal=sealed[key].seal, verdict=verdict)
    return Verdicts(judged=judged, unread=unread)


def _read_seal(
    sink: RawSink, catalog: Catalog, key: PartitionKey, run_id: RunId
) -> _Sealed | JudgedRun | UnreadableRunError:
    seal = None
    try:
        seal = sink.read_seal(key, run_id)
        manifest = seal.manifest
        return _Sealed(
            seal=seal,
            schema=catalog.schema(manifest.query_name, manifest.schema_version),
            day_ended_at=day_opens_at(manifest.account_time_zone, manifest.logical_date, timedelta(0)),
        )
    except UnreadableRunError as error:
        return error
    except RawSinkError as error:
        return JudgedRun(seal=seal, verdict=_unread(key, Rule.SEAL, error))
    except CatalogError as error:
        return JudgedRun(seal=seal, verdict=_unread(key, Rule.SCHEMA, error))
    except PartitionKeyError as error:
        return JudgedRun(seal=seal, verdict=_unread(key, Rule.DAY_OVER, error))


def _verify(sink: RawSink, sealed: _Sealed) -> _Intact | JudgedRun | UnreadableRunError:
    manifest = sealed.manifest
    try:
        return _Intact(written_otherwise=written_otherwise(sink.blocks(manifest), sealed.schema))
    except UnreadableRunError as error:
        return error
    except BrokenPayloadError as error:
        return JudgedRun(seal=sealed.seal, verdict=_unread(manifest.key, Rule.SCHEMA, error))
    except RawSinkError as error:
        return JudgedRun(seal=sealed.seal, verdict=_unread(manifest.key, Rule.SEAL, error))


def _unread(key: PartitionKey, rule: Rule, error: GadsError) -> Verdict:
    reason = str(error)
    return reject_unread(key, rule, reason if len(reason) <= _REASON_CHARACTERS else f"{reason[:_REASON_CHARACTERS]}…")


def _measure(
    session: Callable[[], SparkSession],
    sink: RawSink,
    sealed: Mapping[PartitionKey, _Sealed],
    verified: Callable[[], Mapping[PartitionKey, object]],
) -> dict[PartitionKey, RunMeasurement]:
    measured: dict[PartitionKey, RunMeasurement] = {}
    for schema in {(found.schema.query_name, found.schema.version): found.schema for found in sealed.values()}.values():
        runs = {found.manifest.run_id: found.manifest for found in sealed.values() if found.schema is schema}

        def intact(runs: Mapping[RunId, RunManifest] = runs) -> dict[RunId, RowFault | None]:
            found = verified()
            return {
                run_id: checked.written_otherwise
                for run_id, run in runs.items()
                if isinstance(checked := found[run.key], _Intact)
            }

        batch = Batch(schema=schema, runs=runs, intact=intact)
        answers = measure_runs(session(), sink, batch)
        measured.update({runs[run_id].key: answer for run_id, answer in answers.items()})
    return measured


def _neighbours(
    catalog: Catalog,
    measured: Mapping[PartitionKey, RunMeasurement],
    surroundings: Surroundings,
) -> dict[PartitionKey, Neighbours]:
    sound = {key: run for key, run in measured.items() if not run.faults}
    batch = Surroundings(
        rows={key: run.content.rows for key, run in sound.items()},
        spends={key: run.spend for key, run in sound.items() if run.spend},
    )
    return surroundings.neighbours(batch, days=catalog.volume_days)


def _verdict(catalog: Catalog, found: _Sealed, measured: RunMeasurement, neighbours: Neighbours) -> Verdict:
    key = found.manifest.key
    volume = volume_finding(measured.content.rows, neighbours, catalog.limits(key.query_name).volume)
    spend = spend_finding(key.query_name, measured.spend, neighbours, catalog.spend_policies)
    return judge(found.manifest, measured, day_ended_at=found.day_ended_at, warnings=(volume, spend))
