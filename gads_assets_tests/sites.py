"""A raw sink, a ledger and a warehouse, wired as the product wires them; only the extractor's part is done by hand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionState
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.validate.recording import Validation
from gads_assets.warehouse.pointers import shown_runs
from gads_assets_tests.ledgers import extraction
from gads_assets_tests.sealed_runs import catalog, row, seal


@dataclass
class Site:
    here: Workplace

    def extract(
        self,
        key: PartitionKey,
        rows: Sequence[Mapping[str, object]] | None = None,
        *,
        good: bool = True,
        is_recorded: bool = True,
        run: str = "dagster-run",
        schema_version: str = "1",
    ) -> RunManifest:
        """Two rows, unless others are given; a bad run has the same one twice."""
        store = self.here.store_as(Role.EXTRACTOR)
        [run_seq] = store.allocate_run_seqs(1)
        rows = [row(key, 1), row(key, 2 if good else 1)] if rows is None else rows
        sealed = seal(self.here.sink, key, rows, run_seq=run_seq, schema_version=schema_version)
        if is_recorded:
            attempt = replace(extraction(), key=key, run_id=sealed.run_id, run_seq=run_seq, dagster_run_id=run)
            store.record_extractions([attempt])
        return sealed

    def judge(self, *keys: PartitionKey, run: str, only_unjudged: bool = False) -> Validation:
        return self.here.validator.validate(keys, dagster_run_id=run, only_unjudged=only_unjudged)

    def publish(self, key: PartitionKey, *, run: str = "dagster-run") -> RunManifest:
        """Extracts, judges and loads a good run."""
        sealed = self.extract(key, run=run)
        self.judge(key, run=run)
        self.here.loader.load([key])
        assert self.shown(key) == sealed.run_id
        return sealed

    def spoil(self, key: PartitionKey) -> None:
        """The newest sealed run of a partition is not what it was any more: its next judging rejects it."""
        run_id = self.here.sink.sealed_runs(key)[-1]
        [payload] = self.here.sink.payload_uris(self.here.sink.manifest(key, run_id))
        Path(payload).write_bytes(b"")

    def state(self, key: PartitionKey) -> PartitionState:
        return self.here.store_as(Role.CONSUMER).states([key])[key]

    def shown(self, key: PartitionKey) -> RunId | None:
        return shown_runs(self.here.layout, [key]).get(key)


def make_site(root: Path, database_url: str, session: Callable[[], SparkSession]) -> Site:
    """Leave its workplace when done."""
    here = Workplace(read_settings({"GADS_HOME": str(root), "GADS_DATABASE_URL": database_url}), session=session)
    here.catalog = catalog()
    return Site(here=here)
