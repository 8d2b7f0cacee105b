"""What this project needs from Dagster and Dagster does not offer in public.

`test_dagster_runs.py` and `test_api_pool.py` fail when an upgrade changes any of it.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluation,
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.errors import raise_execution_interrupts
from dagster._core.events import EngineEventData
from dagster._core.events.log import EventLogEntry
from dagster._core.execution.api import ExecuteRunWithPlanIterable
from dagster._core.execution.context.metadata_logging import AssetMetadataHandle, OutputMetadataAccumulator
from dagster._core.execution.context.system import PlanExecutionContext, PlanOrchestrationContext
from dagster._core.execution.context_creation_job import PlanExecutionContextManager
from dagster._core.execution.plan.execute_plan import inner_plan_execution_iterator
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.storage.event_log import SqlEventLogStorageTable
from dagster._serdes import ConfigurableClassData
from dagster_postgres import PostgresEventLogStorage
from dagster_postgres.utils import create_pg_engine, pg_url_from_config
from sqlalchemy.exc import DBAPIError

__all__ = [
    "AssetCheckEvaluation",
    "KeptEventLog",
    "PatientClaims",
    "PatientExecutor",
    "describe_partitions",
    "materialization_targets",
    "materialized_runs",
    "narrow_output",
]

_LONGEST_SLEEP = 1.0
_RECORDS_AT_ONCE = 1_000

IsPresent = Callable[[str], bool]
"""Whether the process of the run with this id is still there."""


def narrow_output(context: dg.OutputContext, partitions_def: dg.PartitionsDefinition[str], keys: Sequence[str]) -> None:
    """Makes Dagster log materializations for these keys only.

    A step's output stands for every partition of its run; after a mixed outcome that would mark the failed ones
    materialized too.
    """
    context._asset_partitions_subset = partitions_def.subset_with_partition_keys(keys)


def describe_partitions(context: dg.OutputContext, metadata: Mapping[str, Mapping[str, dg.MetadataValue]]) -> None:
    """Metadata for each partition's own materialization; the public call puts the same on all of a run's.

    Dagster has a call for one partition, which lists all partitions of the run to see whether it is among them.
    """
    step = context.step_context
    described = dict(step._metadata_accumulator.per_output_metadata)
    for key, shown in metadata.items():
        described[AssetMetadataHandle(asset_key=context.asset_key, partition_key=key)] = shown
    step._metadata_accumulator = OutputMetadataAccumulator(per_output_metadata=described)


def materialization_targets(
    instance: dg.DagsterInstance, asset_key: dg.AssetKey, keys: Sequence[str]
) -> dict[str, AssetCheckEvaluationTargetMaterializationData]:
    """The latest materialization of each key. An evaluation without one is missing from the check's partition view."""
    return {
        key: AssetCheckEvaluationTargetMaterializationData(
            storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
        )
        for key, record in _latest_materializations(instance, asset_key, keys).items()
    }


def materialized_runs(
    instance: dg.DagsterInstance, asset_key: dg.AssetKey, keys: Sequence[str]
) -> dict[str, str | None]:
    """The `run_id` that the latest materialization of each key carries; None for one that somebody reported by hand."""
    found: dict[str, str | None] = {}
    for key, record in _latest_materializations(instance, asset_key, keys).items():
        value = record.asset_materialization and record.asset_materialization.metadata.get("run_id")
        found[key] = str(value.value) if value else None
    return found


def _latest_materializations(
    instance: dg.DagsterInstance, asset_key: dg.AssetKey, keys: Sequence[str]
) -> dict[str, dg.EventLogRecord]:
    latest = instance.event_log_storage.get_latest_storage_id_by_partition(
        asset_key, dg.DagsterEventType.ASSET_MATERIALIZATION, partitions=set(keys)
    )
    ids = list(latest.values())
    by_id: dict[int, dg.EventLogRecord] = {}
    for start in range(0, len(ids), _RECORDS_AT_ONCE):
        some = ids[start : start + _RECORDS_AT_ONCE]
        asked = dg.AssetRecordsFilter(asset_key=asset_key, storage_ids=some)
        records = instance.fetch_materializations(asked, limit=len(some)).records
        by_id |= {record.storage_id: record for record in records}
    return {key: by_id[storage_id] for key, storage_id in latest.items() if storage_id in by_id}


class KeptEventLog(PostgresEventLogStorage):
    """Dagster's event log, on connections that it keeps, and with the plan of a run in one statement.

    Dagster's own opens one or more connections for each event, which was most of a run of hundreds of partitions, and
    stores what a run plans event by event. dagster.yaml names this class, so every process has it: also the daemon,
    which creates the runs.
    """

    def __init__(
        self,
        postgres_url: str,
        should_autocreate_tables: bool = True,
        inst_data: ConfigurableClassData | None = None,
    ) -> None:
        super().__init__(postgres_url, should_autocreate_tables, inst_data)
        self._engine = create_pg_engine(
            postgres_url,
            isolation_level="AUTOCOMMIT",
            pool_size=2,  # storing an event takes a second one, to look whether a table exists
            max_overflow=-1,
            pool_pre_ping=True,  # the database may have been stopped and started since
        )

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Self:
        return cls(
            pg_url_from_config(config_value), config_value.get("should_autocreate_tables", True), inst_data=inst_data
        )

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        planned = [event for event in events if event.get_dagster_event().is_asset_materialization_planned]
        others = [event for event in events if not event.get_dagster_event().is_asset_materialization_planned]
        if planned:
            self._store_planned(planned)
        if others:
            super().store_event_batch(others)

    def _store_planned(self, events: Sequence[EventLogEntry]) -> None:
        inserted = self.prepare_insert_event_batch(events).returning(SqlEventLogStorageTable.c.id)
        with self.run_connection() as connection:
            ids = connection.execute(inserted).scalars().all()
        last = {event.get_dagster_event().asset_key: (event, id_) for event, id_ in zip(events, ids, strict=True)}
        with self.index_transaction() as connection:
            for event, id_ in last.values():
                self._store_asset_event(connection, event, id_)

    def dispose(self) -> None:
        super().dispose()
        self._engine.dispose()


class PatientExecutor(dg.Executor):
    """Runs steps in this process as Dagster's own executor does, but for the wait for a place in a pool.

    Dagster's takes a whole core to wait, hears no signal meanwhile, and waits for ever if the run in the place was
    killed. This one looks once a second, can be interrupted, and frees places of runs that are gone. `join` makes this
    run present to others for a block, and says who else is.
    """

    def __init__(self, *, join: Callable[..., AbstractContextManager[IsPresent]]) -> None:
        self._join = join

    @property
    def retries(self) -> RetryMode:
        return RetryMode.ENABLED

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        yield dg.DagsterEvent.engine_event(
            plan_context,
            f"Executing steps in process (pid: {os.getpid()})",
            event_specific_data=EngineEventData.in_process(os.getpid(), execution_plan.step_keys_to_execute),
        )
        yield from ExecuteRunWithPlanIterable(
            execution_plan=execution_plan,
            iterator=self._steps,
            execution_context_manager=PlanExecutionContextManager(
                job=plan_context.job,
                retry_mode=plan_context.retry_mode,
                execution_plan=execution_plan,
                run_config=plan_context.run_config,
                dagster_run=plan_context.dagster_run,
                instance=plan_context.instance,
                raise_on_error=plan_context.raise_on_error,
                output_capture=plan_context.output_capture,
            ),
        )

    def _steps(self, job_context: PlanExecutionContext, execution_plan: ExecutionPlan) -> Iterator[dg.DagsterEvent]:
        run = job_context.dagster_run
        with (
            self._join(run.run_id, run.root_run_id) as is_present,
            PatientClaims(job_context.instance, run, is_present) as claims,
        ):
            yield from inner_plan_execution_iterator(job_context, execution_plan, claims)


class PatientClaims(InstanceConcurrencyContext):
    """The places of one run in pools."""

    def __init__(self, instance: dg.DagsterInstance, run: dg.DagsterRun, is_present: IsPresent) -> None:
        super().__init__(instance, run)
        self._is_present = is_present

    def claim(self, concurrency_key: str, step_key: str, step_priority: int = 0) -> bool:
        with raise_execution_interrupts():  # held back otherwise until a step runs
            self._free_places_of_the_gone(concurrency_key)
        try:
            return super().claim(concurrency_key, step_key, step_priority)
        except DBAPIError:
            # Of runs that are the first ever to need the pool, one puts it into the database. Dagster means the others
            # to find it there, which PostgreSQL refuses in the transaction of the failed attempt.
            return super().claim(concurrency_key, step_key, step_priority)

    def interval_to_next_pending_claim_check(self) -> float:
        now = time.time()
        waits = [ready_at - now for ready_at in self._pending_timeouts.values()]
        return min(max(min(waits, default=0.0), 0.0), _LONGEST_SLEEP)

    def _free_places_of_the_gone(self, pool: str) -> None:
        """Those that wait for a place too: it would be given to them."""
        storage = self._instance.event_log_storage
        info = storage.get_concurrency_info(pool)
        runs = {slot.run_id for slot in info.claimed_slots} | {step.run_id for step in info.pending_steps}
        for run_id in runs - {self._run_id}:
            if not self._is_present(run_id):
                storage.free_concurrency_slots_for_run(run_id)
