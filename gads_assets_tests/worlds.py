"""A home with emulated customers in which real Dagster runs happen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)
from pyspark.sql import SparkSession

from gads_assets.domain.keys import PartitionKey, partition_key_from_label
from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionStatus
from gads_assets.orchestration.resources import SparkResource
from gads_assets.orchestration.workplace import Workplace
from gads_assets.warehouse.arrow import read_published

RAW = dg.AssetKey(["google_ads", "raw", "campaign"])
TABLE = dg.AssetKey(["google_ads", "campaign"])
VERDICT = dg.AssetCheckKey(RAW, "verdict")
STATUS_URL = "http://127.0.0.1:3010"
NEW_YORK, BERLIN, TOKYO = "2145550101", "3305550102", "4815550103"


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
        context = dg.build_sensor_context(
            instance=self.instance, repository_def=self.definitions.get_repository_def(), sensor_name=sensor
        )
        ticked = self.definitions.resolve_sensor_def(sensor).evaluate_tick(context)
        return list(ticked.run_requests or []), ticked.skip_message

    def status(self, label: str) -> PartitionStatus | None:
        state = self.here.store_as(Role.CONSUMER).states([key(label)]).get(key(label))
        return state.status if state else None

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


def evaluations(result: dg.ExecuteInProcessResult) -> dict[str | None, bool]:
    return {
        evaluation.partition: evaluation.passed
        for evaluation in result.get_asset_check_evaluations()
        if evaluation.asset_check_key == VERDICT
    }


def step_failure(result: dg.ExecuteInProcessResult, step: str) -> str:
    for event in result.all_events:
        if event.step_key == step and event.event_type is dg.DagsterEventType.STEP_FAILURE:
            failure = event.step_failure_data
            return (failure.user_failure_data and failure.user_failure_data.description) or str(failure.error)
    raise AssertionError(f"step {step} did not fail")
