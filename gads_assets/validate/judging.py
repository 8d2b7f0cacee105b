"""From sealed runs to verdicts. Writes nothing: the caller records what comes back."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from gads_assets.catalog.specification import Catalog, QuerySchema
from gads_assets.domain.accounts import day_opens_at
from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.verdict import Rule, RunMeasurement, Verdict, judge, reject_unread
from gads_assets.errors import CatalogError, PartitionKeyError, RawSinkError, UnreadableRunError
from gads_assets.raw.sink import RawSink
from gads_assets.validate.measuring import EMPTY, measure_runs

_READERS = 8


@dataclass(frozen=True, kw_only=True)
class JudgedRun:
    """`manifest` is None when the run has no seal that can be read."""

    manifest: RunManifest | None
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """`unread`: the storage did not answer for these, which is no reason to condemn them."""

    judged: Mapping[PartitionKey, JudgedRun]
    unread: Mapping[PartitionKey, str]


@dataclass(frozen=True, kw_only=True)
class _Intact:
    manifest: RunManifest
    schema: QuerySchema
    day_ended_at: datetime


def judge_runs(
    session: Callable[[], SparkSession], sink: RawSink, catalog: Catalog, runs: Mapping[PartitionKey, RunId]
) -> Verdicts:
    """Judges every partition asked about, whatever state its run directory is in.

    Each run is judged by the schema version it was extracted under. The session is opened only if there is something
    to read.
    """
    with ThreadPoolExecutor(_READERS) as pool:
        examined = dict(zip(runs, pool.map(lambda item: _examine(sink, catalog, *item), runs.items()), strict=True))
    intact = [found for found in examined.values() if isinstance(found, _Intact)]
    measured: dict[RunId, RunMeasurement] = {}
    for schema in {(found.schema.query_name, found.schema.version): found.schema for found in intact}.values():
        uris = [uri for found in intact if found.schema is schema for uri in sink.payload_uris(found.manifest)]
        measured.update(measure_runs(session(), uris, schema))
    judged: dict[PartitionKey, JudgedRun] = {}
    unread: dict[PartitionKey, str] = {}
    for key, found in examined.items():
        if isinstance(found, _Intact):
            measurement = measured.get(found.manifest.run_id, EMPTY)
            verdict = judge(found.manifest, measurement, day_ended_at=found.day_ended_at)
            judged[key] = JudgedRun(manifest=found.manifest, verdict=verdict)
        elif isinstance(found, JudgedRun):
            judged[key] = found
        else:
            unread[key] = str(found)
    return Verdicts(judged=judged, unread=unread)


def _examine(
    sink: RawSink, catalog: Catalog, key: PartitionKey, run_id: RunId
) -> _Intact | JudgedRun | UnreadableRunError:
    manifest = None
    try:
        manifest = sink.manifest(key, run_id)
        sink.verify(manifest)
        return _Intact(
            manifest=manifest,
            schema=catalog.schema(manifest.query_name, manifest.schema_version),
            day_ended_at=day_opens_at(manifest.account_time_zone, manifest.logical_date, timedelta(0)),
        )
    except UnreadableRunError as error:
        return error
    except RawSinkError as error:
        return JudgedRun(manifest=manifest, verdict=reject_unread(key, Rule.SEAL, str(error)))
    except CatalogError as error:
        return JudgedRun(manifest=manifest, verdict=reject_unread(key, Rule.SCHEMA, str(error)))
    except PartitionKeyError as error:
        return JudgedRun(manifest=manifest, verdict=reject_unread(key, Rule.DAY_OVER, str(error)))
