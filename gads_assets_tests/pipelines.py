"""A warehouse with its ledger: runs are sealed, judged and loaded as in a Dagster run, each part in its role."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count

from sqlalchemy import Engine

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.roles import Role
from gads_assets.domain.state import ExtractionAttempt, ExtractionOutcome
from gads_assets.raw.sink import RawSink
from gads_assets.state.partition_states import StateStore
from gads_assets.state.run_records import RunRecords
from gads_assets.validate.recording import Validation, Validator
from gads_assets.warehouse.loading import Loader
from gads_assets.warehouse.pointers import shown_runs
from gads_assets_tests.sealed_runs import seal
from gads_assets_tests.warehouses import Warehouse


@dataclass
class Pipeline:
    """`acting` opens the database in a role."""

    warehouse: Warehouse
    acting: Callable[[Role], Engine]
    runs: Callable[[], int] = field(default_factory=lambda: count(1).__next__)

    @property
    def sink(self) -> RawSink:
        return self.warehouse.sink

    @property
    def loader(self) -> Loader:
        engine = self.acting(Role.LOADER)
        return Loader(publisher=self.warehouse.publisher, store=StateStore(engine), records=RunRecords(engine))

    @property
    def validator(self) -> Validator:
        engine = self.acting(Role.VALIDATOR)
        return Validator(
            session=lambda: self.warehouse.spark,
            sink=self.sink,
            catalog=self.warehouse.catalog,
            store=StateStore(engine),
            records=RunRecords(engine),
            withdraw=self.loader.withdraw,
            shown=partial(shown_runs, self.warehouse.layout),
            now=lambda: datetime.now(UTC),
        )

    def store(self, role: Role = Role.OPERATOR) -> StateStore:
        return StateStore(self.acting(role))

    def extract(
        self, key: PartitionKey, rows: Sequence[Mapping[str, object]], *, schema_version: str = "1"
    ) -> RunManifest:
        """A sealed run, on record as the newest extraction of its partition, in a Dagster run of its own."""
        extractor = StateStore(self.acting(Role.EXTRACTOR))
        [run_seq] = extractor.allocate_run_seqs(1)
        run = seal(self.sink, key, rows, run_seq=run_seq, schema_version=schema_version)
        extractor.record_extractions([_attempt(run, f"extraction {run_seq}")])
        return run

    def judge(self, *runs: RunManifest) -> Validation:
        """Judges these runs as the Dagster run that extracted them would."""
        judged = [self.validator.validate([run.key], dagster_run_id=f"extraction {run.run_seq}") for run in runs]
        return Validation(
            judged={key: each for validation in judged for key, each in validation.judged.items()},
            unjudged={key: reason for validation in judged for key, reason in validation.unjudged.items()},
        )

    def judge_again(self, *keys: PartitionKey) -> Validation:
        """The authority of each, as a check that is started on its own."""
        return self.validator.validate(keys, dagster_run_id=f"check {self.runs()}")

    def publish(
        self, key: PartitionKey, rows: Sequence[Mapping[str, object]], *, schema_version: str = "1"
    ) -> RunManifest:
        run = self.extract(key, rows, schema_version=schema_version)
        self.judge(run)
        self.loader.load([key])
        return run


def _attempt(run: RunManifest, dagster_run_id: str) -> ExtractionAttempt:
    return ExtractionAttempt(
        key=run.key,
        run_id=run.run_id,
        run_seq=run.run_seq,
        outcome=ExtractionOutcome.SEALED,
        error_class=None,
        error_message=None,
        started_at=run.extraction_started_at,
        finished_at=run.extraction_finished_at,
        dagster_run_id=dagster_run_id,
    )
