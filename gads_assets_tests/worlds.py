"""A home with emulated customers in which real Dagster runs happen."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)
from pyspark.sql import SparkSession
from sqlalchemy import text
from ulid import ULID

from gads_assets.domain.keys import PartitionKey, partition_key_from_label
from gads_assets.domain.partition_status import Outcome
from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionStatus
from gads_assets.orchestration.requested_runs import carry_out
from gads_assets.orchestration.resources import SparkResource
from gads_assets.orchestration.runs import BATCH
from gads_assets.orchestration.status import StatusDesk
from gads_assets.orchestration.workplace import Workplace
from gads_assets.state.rows import rows_json
from gads_assets.status.deriving import Selection
from gads_assets.warehouse.arrow import read_published

RAW = dg.AssetKey(["google_ads", "raw", "campaign"])
TABLE = dg.AssetKey(["google_ads", "campaign"])
VERDICT = dg.AssetCheckKey(RAW, "verdict")
STATUS_URL = "http://127.0.0.1:3010"
NEW_YORK, BERLIN, TOKYO = "2145550101", "3305550102", "4815550103"

_DISPATCHED = text("""
    INSERT INTO retry_schedule (source, customer_id, query_name, logical_date, purpose, disposition, next_run_at,
        backoff_strategy, batch_id, dispatched_at, scheduled_at)
    SELECT 'google_ads', split_part(label, '|', 1), query_name, CAST(split_part(label, '|', 2) AS date), 'retry', 'due',
        now(), 'none', :batch_id, now(), now()
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS n (query_name text, label text)
    ON CONFLICT (source, customer_id, query_name, logical_date) DO UPDATE
    SET batch_id = excluded.batch_id, dispatched_at = excluded.dispatched_at, dagster_run_id = NULL
""")


class SharedSpark(SparkResource):
    """The test process's session, which outlives the run."""

    def session(self) -> SparkSession:
        return SparkSession.active()

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        pass


@dataclass
class World:
    """A home with three registered customers; `run` is what launching partitions from Dagster's page does."""

    here: Workplace
    instance: dg.DagsterInstance
    definitions: dg.Definitions

    def make_batch(self, labels: Sequence[str], *, queries: Iterable[str] = ("campaign",)) -> str:
        """As the control plane dispatches partitions, whatever was scheduled of them before."""
        batch_id = str(ULID())
        rows = [{"query_name": query, "label": label} for query in queries for label in labels]
        with self.here.engine_as(Role.OPERATOR).begin() as connection:
            connection.execute(_DISPATCHED, {"batch_id": batch_id, "rows": rows_json(rows)})
        return batch_id

    def run_batch(
        self,
        labels: Sequence[str],
        *,
        assets: Sequence[dg.AssetKey] = (RAW, TABLE),
        checks: Sequence[dg.AssetCheckKey] | None = None,
    ) -> dg.JobExecutionResult:
        """What a sensor's request for scattered partitions leads to."""
        queries = {asset.path[-1] for asset in (*assets, *(check.asset_key for check in checks or ()))}
        batch_id = self.make_batch(labels, queries=queries)
        request = dg.RunRequest(
            run_key=batch_id, asset_selection=list(assets), asset_check_keys=checks, tags={BATCH: batch_id}
        )
        return carry_out(self.definitions, self.instance, request)

    def run(
        self, first: str, last: str | None = None, *, assets: Sequence[dg.AssetKey] = (RAW, TABLE)
    ) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_implicit_global_asset_job_def()
        if last is None:
            return job.execute_in_process(
                instance=self.instance, asset_selection=list(assets), partition_key=first, raise_on_error=False
            )
        tags = {ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last}
        return job.execute_in_process(
            instance=self.instance, asset_selection=list(assets), tags=tags, raise_on_error=False
        )

    def check_alone(
        self, label: str, job_name: str = "all_checks", *, tags: Mapping[str, str] | None = None
    ) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_job_def(job_name)
        customer, day = label.split("|")
        partition = {
            PARTITION_NAME_TAG: label,
            "dagster/partition/customer_id": customer,
            "dagster/partition/logical_date": day,
        }
        return job.execute_in_process(instance=self.instance, tags={**partition, **(tags or {})}, raise_on_error=False)

    def tick(self, sensor: str) -> tuple[list[dg.RunRequest], str | None]:
        """What the daemon hears from a sensor: runs to launch, or why there are none."""
        ticked = self.tick_from(sensor, None)
        return list(ticked.run_requests or []), ticked.skip_message

    def tick_from(self, sensor: str, cursor: str | None) -> SensorExecutionData:
        context = dg.build_sensor_context(
            instance=self.instance,
            repository_def=self.definitions.get_repository_def(),
            sensor_name=sensor,
            cursor=cursor,
        )
        return self.definitions.resolve_sensor_def(sensor).evaluate_tick(context)

    def status(self, label: str) -> PartitionStatus | None:
        state = self.here.store_as(Role.CONSUMER).states([key(label)]).get(key(label))
        return state.status if state else None

    def run_status(self, run_id: str) -> dg.DagsterRunStatus:
        run = self.instance.get_run_by_id(run_id)
        assert run
        return run.status

    def attempts(self, label: str) -> int:
        return self.here.store_as(Role.CONSUMER).states([key(label)])[key(label)].attempt_count

    def published(self) -> dict[str, set[str]]:
        """Partition → the runs its rows come from."""
        rows = read_published(self.here.layout, self.here.catalog, "campaign").to_pylist()
        found: dict[str, set[str]] = {}
        for row in rows:
            found.setdefault(f"{row['customer_id']}|{row['logical_date']}", set()).add(row["run_id"])
        return found

    def materialized(self, key: dg.AssetKey) -> set[str]:
        return set(self.instance.get_materialized_partitions(key))

    def materialization(self, key: dg.AssetKey, label: str) -> dg.AssetMaterialization:
        records = self.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=key, asset_partitions=[label]), limit=1
        ).records
        materialization = records[0].asset_materialization
        assert materialization is not None
        return materialization


def key(label: str) -> PartitionKey:
    return partition_key_from_label(label, source="google_ads", query_name="campaign")


def attempted(world: World, asset: dg.AssetKey) -> dict[str, Outcome]:
    """How the last attempt at each partition ended, as the fold reads it from the log."""
    desk = StatusDesk(world.here, world.instance)
    desk.folder.fold(desk.log)
    assets = [each for each in desk.assets if each.asset_key == asset.to_user_string()]
    found = desk.statuses.partitions(Selection(assets=assets), now=datetime.now(UTC), limit=100_000)
    return {row["partition_key"]: row["last_attempt_outcome"] for row in found if row["last_attempt_run_id"]}


def evaluations(result: dg.ExecuteInProcessResult | dg.JobExecutionResult) -> dict[str | None, bool]:
    return {
        evaluation.partition: evaluation.passed
        for evaluation in result.get_asset_check_evaluations()
        if evaluation.asset_check_key == VERDICT
    }


def step_failure(result: dg.ExecuteInProcessResult | dg.JobExecutionResult, step: str) -> str:
    for event in result.all_events:
        if event.step_key == step and event.event_type is dg.DagsterEventType.STEP_FAILURE:
            failure = event.step_failure_data
            return (failure.user_failure_data and failure.user_failure_data.description) or str(failure.error)
    raise AssertionError(f"step {step} did not fail")
