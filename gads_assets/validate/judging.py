"""From sealed runs to verdicts. Writes nothing: the caller records what comes back."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.accounts import day_opens_at
from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.verdict import RunMeasurement, Verdict, judge, reject_unreadable
from gads_assets.errors import RawSinkError
from gads_assets.raw.sink import RawSink
from gads_assets.validate.measuring import EMPTY, measure_runs

_READERS = 8


def judge_runs(
    session: Callable[[], SparkSession], sink: RawSink, catalog: Catalog, runs: Mapping[PartitionKey, RunId]
) -> dict[PartitionKey, tuple[RunManifest | None, Verdict]]:
    """A verdict for every partition asked about, whatever state its run directory is in.

    Each run is judged by the schema version it was extracted under. The session is opened only if there is something
    to read.
    """
    with ThreadPoolExecutor(_READERS) as pool:
        examined = dict(zip(runs, pool.map(lambda item: _examine(sink, *item), runs.items()), strict=True))
    intact = [manifest for manifest, problem in examined.values() if manifest is not None and problem is None]
    measured: dict[RunId, RunMeasurement] = {}
    for version in sorted({(manifest.query_name, manifest.schema_version) for manifest in intact}):
        runs_of_version = [run for run in intact if (run.query_name, run.schema_version) == version]
        uris = [uri for run in runs_of_version for uri in sink.payload_uris(run)]
        measured.update(measure_runs(session(), uris, catalog.schema(*version)))
    return {
        key: (manifest, reject_unreadable(key, problem or "there is no sealed run"))
        if manifest is None or problem
        else (manifest, judge(manifest, measured.get(manifest.run_id, EMPTY), day_ended_at=_day_ended_at(manifest)))
        for key, (manifest, problem) in examined.items()
    }


def _examine(sink: RawSink, key: PartitionKey, run_id: RunId) -> tuple[RunManifest | None, str | None]:
    manifest = None
    try:
        manifest = sink.manifest(key, run_id)
        sink.verify(manifest)
    except RawSinkError as error:
        return manifest, str(error)
    return manifest, None


def _day_ended_at(manifest: RunManifest) -> datetime:
    return day_opens_at(manifest.account_time_zone, manifest.logical_date, timedelta(0))
