"""What is in the rows of many sealed runs: all are screened in one job, the suspects examined in another."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no stubs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gads_assets.catalog.specification import QuerySchema
from gads_assets.domain.keys import RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.verdict import RowFault, Rule, RunMeasurement
from gads_assets.raw.frames import sealed_rows
from gads_assets.raw.sink import RawSink
from gads_assets.validate.examining import examine_runs
from gads_assets.validate.screening import Screening, screen_runs, screening_of_no_rows

_ROWS_AT_ONCE: Final = 3_000_000
"""A screening holds eight bytes, boxed, for each row: some hundred a row in all."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Runs of one schema version. `intact` waits for what reading their bytes finds, which goes on meanwhile: of each
    run that is as sealed, what is wrong with how its rows are written."""

    schema: QuerySchema
    runs: Mapping[RunId, RunManifest]
    intact: Callable[[], Mapping[RunId, RowFault | None]]


def measure_runs(spark: SparkSession, sink: RawSink, batch: Batch) -> dict[RunId, RunMeasurement]:
    """One answer for each intact run."""
    try:
        screened = _screen(spark, sink, batch, batch.runs, strict=True)
    except (PySparkException, Py4JError):
        # Some row does not fit its columns, or some file is damaged, missing or no gzip; Spark does not say which.
        readable = {run_id: batch.runs[run_id] for run_id in batch.intact()}
        screened = _screen(spark, sink, batch, readable, strict=False)
    intact = batch.intact()
    without_rows = screening_of_no_rows(batch.schema)
    found = {run_id: screened.get(run_id, without_rows) for run_id in intact}
    suspects = [run_id for run_id, screening in found.items() if screening.suspect or intact[run_id]]
    uris = _uris(sink, (batch.runs[run_id] for run_id in suspects))
    faults = examine_runs(spark, uris, batch.schema) if suspects else {}
    return {
        run_id: RunMeasurement(
            content=screening.content,
            spend=screening.spend,
            faults=_all_faults(intact[run_id], faults.get(run_id, ())),
        )
        for run_id, screening in found.items()
    }


def _all_faults(written_otherwise: RowFault | None, found: tuple[RowFault, ...]) -> tuple[RowFault, ...]:
    """Spark finds nothing wrong with some of the rows that are written otherwise; of the others it shows samples."""
    if written_otherwise is None:
        return found
    is_shown = any(fault.rule is Rule.SCHEMA for fault in found)
    return (replace(written_otherwise, samples=()) if is_shown else written_otherwise, *found)


def _screen(
    spark: SparkSession, sink: RawSink, batch: Batch, runs: Mapping[RunId, RunManifest], *, strict: bool
) -> dict[RunId, Screening]:
    """Files are read also where the seal promises no row: they may hold some all the same."""
    screened: dict[RunId, Screening] = {}
    for group in _by_size(runs.values()):
        rows = sealed_rows(spark, _uris(sink, group), batch.schema, strict=strict)
        screened |= screen_runs(rows, batch.schema, runs)
    return screened


def _uris(sink: RawSink, runs: Iterable[RunManifest]) -> list[str]:
    return [uri for run in runs for uri in sink.payload_uris(run)]


def _by_size(runs: Iterable[RunManifest]) -> Iterator[list[RunManifest]]:
    """As few groups as hold no more rows than a screening may keep in memory; a single larger run goes alone."""
    group: list[RunManifest] = []
    rows = 0
    for run in runs:
        if group and rows + run.record_count > _ROWS_AT_ONCE:
            yield group
            group, rows = [], 0
        group.append(run)
        rows += run.record_count
    if group:
        yield group
