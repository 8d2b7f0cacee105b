"""Sealed runs that the database no longer knows, since it was lost or restored: put back on record from their seals."""

from dataclasses import dataclass
from itertools import islice
from typing import Final

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.state import extraction_from_seal
from gads_assets.errors import BrokenSealError, RunNotFoundError
from gads_assets.raw.listing import sealed_runs
from gads_assets.raw.sink import RawSink
from gads_assets.state.partition_states import StateStore

_RUNS_AT_ONCE: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Restored:
    """`broken` says of each run whose seal cannot be read why; such a run was left out."""

    runs: int
    broken: tuple[str, ...]


def restore_extractions(sink: RawSink, store: StateStore, source: str) -> Restored:
    """As extractor: records every sealed run that is not on record, and takes care that new runs are newer than all.

    Repeating it changes nothing but that a few numbers are skipped.
    """
    highest, runs, broken = 0, 0, list[str]()
    found = sealed_runs(sink, source)
    while batch := list(islice(found, _RUNS_AT_ONCE)):
        seals = sink.for_each(lambda run: _manifest(sink, *run), batch)
        manifests = [seal for seal in seals if isinstance(seal, RunManifest)]
        broken += [seal for seal in seals if isinstance(seal, str)]
        if above := [manifest.run_seq for manifest in manifests if manifest.run_seq > highest]:
            highest = max(above)
            store.raise_run_seq(highest)
        store.record_extractions(map(extraction_from_seal, manifests))
        runs += len(manifests)
    return Restored(runs=runs, broken=tuple(broken))


def _manifest(sink: RawSink, key: PartitionKey, run_id: RunId) -> RunManifest | str:
    """Or what is wrong with the seal. A storage that does not answer ends it all: its run might be the newest."""
    try:
        return sink.manifest(key, run_id)
    except (BrokenSealError, RunNotFoundError) as error:
        return str(error)
