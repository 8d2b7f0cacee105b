"""What is in the rows of many sealed runs: all are screened in one job, the suspects examined in another."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no stubs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gads_assets.catalog.specification import Limits, QuerySchema
from gads_assets.domain.content import ContentDigest
from gads_assets.domain.keys import RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.verdict import RunMeasurement
from gads_assets.errors import BrokenPayloadError
from gads_assets.raw.frames import sealed_rows
from gads_assets.raw.sink import RawSink
from gads_assets.validate.examining import examine_runs
from gads_assets.validate.screening import Screening, screen_runs

_NOTHING: Final = Screening(content=ContentDigest(rows=0, first=0, second=0), spend=None, suspect=False)
_ROWS_AT_ONCE: Final = 3_000_000
"""A screening holds eight bytes, boxed, for each row: some hundred a row in all."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Verified runs of one schema version. `suspects` are examined whatever their screening says."""

    schema: QuerySchema
    limits: Limits
    runs: Mapping[RunId, RunManifest]
    suspects: Collection[RunId] = ()


def measure_runs(spark: SparkSession, sink: RawSink, batch: Batch) -> dict[RunId, RunMeasurement | BrokenPayloadError]:
    """One answer a run."""
    try:
        return {**_measure(spark, sink, batch, strict=True)}
    except (PySparkException, Py4JError):
        # Some row does not fit its columns, or some file is no gzip; Spark does not say for certain which.
        broken = _undecodable(sink, batch.runs.values())
    readable = {run_id: run for run_id, run in batch.runs.items() if run_id not in broken}
    return {**broken, **_measure(spark, sink, replace(batch, runs=readable), strict=False)}


def _measure(spark: SparkSession, sink: RawSink, batch: Batch, *, strict: bool) -> dict[RunId, RunMeasurement]:
    def uris(chosen: Collection[RunId]) -> list[str]:
        return [uri for run_id in chosen for uri in sink.payload_uris(batch.runs[run_id])]

    # A file is read also where the seal promises no row: it may hold some all the same.
    screened: dict[RunId, Screening] = {}
    for chosen in _by_size(batch.runs):
        rows = sealed_rows(spark, uris(chosen), batch.schema, strict=strict)
        screened |= screen_runs(rows, batch.schema, batch.limits, batch.runs)
    to_examine = [run_id for run_id in batch.runs if run_id in batch.suspects or screened.get(run_id, _NOTHING).suspect]
    faults = examine_runs(spark, uris(to_examine), batch.schema, batch.limits) if to_examine else {}
    return {
        run_id: RunMeasurement(content=found.content, spend=found.spend, faults=faults.get(run_id, ()))
        for run_id in batch.runs
        for found in [screened.get(run_id, _NOTHING)]
    }


def _by_size(runs: Mapping[RunId, RunManifest]) -> Iterator[list[RunId]]:
    """As few groups as hold no more rows than a screening may keep in memory; a single larger run goes alone."""
    group: list[RunId] = []
    rows = 0
    for run_id, run in runs.items():
        if group and rows + run.record_count > _ROWS_AT_ONCE:
            yield group
            group, rows = [], 0
        group.append(run_id)
        rows += run.record_count
    if group:
        yield group


def _undecodable(sink: RawSink, runs: Collection[RunManifest]) -> dict[RunId, BrokenPayloadError]:
    def decode(run: RunManifest) -> BrokenPayloadError | None:
        try:
            for _ in sink.payload_lines(run):
                pass
        except BrokenPayloadError as error:
            return error
        return None

    found = zip(runs, sink.for_each(decode, runs), strict=True)
    return {run.run_id: error for run, error in found if error}
