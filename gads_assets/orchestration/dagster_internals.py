"""What this project needs from Dagster and Dagster does not offer in public.

`test_dagster_runs.py`, `test_scattered_runs.py` and `test_api_pool.py` fail when an upgrade changes any of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluation,
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.definitions.partitions.utils import get_tags_from_multi_partition_key
from dagster._core.events import (
    AssetMaterializationPlannedData,
    AssetObservationData,
    DagsterEventBatchMetadata,
    generate_event_batch_id,
)
from dagster._core.events.log import EventLogEntry
from dagster._core.execution.context.metadata_logging import AssetMetadataHandle, OutputMetadataAccumulator
from dagster._core.storage.event_log import SqlEventLogStorageTable
from dagster._serdes import ConfigurableClassData
from dagster_postgres import PostgresEventLogStorage
from dagster_postgres.utils import create_pg_engine, pg_url_from_config

__all__ = [
    "AssetCheckEvaluation",
    "KeptEventLog",
    "ListedPartitions",
    "describe_partitions",
    "listing",
    "materialization_targets",
    "materialized_runs",
    "narrow_output",
    "observe_partitions",
    "plan_partitions",
    "planned_assets",
    "plans_partitions",
    "report_together",
]

_LISTED: Final = "listed"
_RECORDS_AT_ONCE = 1_000


class ListedPartitions(dg.MultiPartitionsDefinition):
    """Partitions of which a run can do a list: to Dagster, in the run's own process only, it is a range like others."""

    def get_partition_keys_in_range(  # type: ignore[override]
        self, partition_key_range: dg.PartitionKeyRange, dynamic_partitions_store: Any = None
    ) -> Sequence[str]:
        mark, _, listed = partition_key_range.start.partition("|")
        if mark != _LISTED:
            return super().get_partition_keys_in_range(partition_key_range, dynamic_partitions_store)
        return [self.get_partition_key_from_str(label) for label in listed.replace("/", "|").split()]


def listing(labels: Sequence[str]) -> str:
    """As a key, which is two parts: no partition's name has a slash or a blank in it."""
    return f"{_LISTED}|{' '.join(labels).replace('|', '/')}"


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


def observe_partitions(
    instance: dg.DagsterInstance,
    run: dg.DagsterRun,
    asset_key: dg.AssetKey,
    observed: Mapping[dg.MultiPartitionKey, Mapping[str, dg.MetadataValue]],
    *,
    description: str,
) -> None:
    """Puts an observation by the run on the page of each partition."""
    observations = [
        dg.AssetObservation(
            asset_key=asset_key,
            partition=key,
            description=description,
            metadata=metadata,
            tags=get_tags_from_multi_partition_key(key),
        )
        for key, metadata in observed.items()
    ]
    events = [
        dg.DagsterEvent(
            event_type_value=dg.DagsterEventType.ASSET_OBSERVATION.value,
            job_name=run.job_name,
            event_specific_data=AssetObservationData(observation),
            message=description,
        )
        for observation in observations
    ]
    report_together(instance, run, events)


def report_together(instance: dg.DagsterInstance, run: dg.DagsterRun, events: Sequence[dg.DagsterEvent]) -> None:
    """Hundreds of events in one statement."""
    batch_id = generate_event_batch_id()  # type: ignore[no-untyped-call]
    for number, event in enumerate(events, start=1):
        batch = DagsterEventBatchMetadata(batch_id, is_end=number == len(events))
        instance.report_dagster_event(event, run.run_id, batch_metadata=batch)


def plan_partitions(
    instance: dg.DagsterInstance,
    run: dg.DagsterRun,
    assets: Iterable[tuple[str, dg.AssetKey]],
    listed: Mapping[str, Sequence[str]],
) -> None:
    """Says which partitions the run is to materialize, of each asset with the step that does. Of other runs Dagster
    does when it creates them; of one over a list it knew none, and whatever does not come to a materialization would
    leave no trace."""
    events = [
        dg.DagsterEvent.build_asset_materialization_planned_event(
            run.job_name, step_key, AssetMaterializationPlannedData(asset_key, partition=label)
        )
        for step_key, asset_key in assets
        for label in listed.get(asset_key.path[-1], ())
    ]
    report_together(instance, run, events)


def plans_partitions(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether that was said of the run. As it is created Dagster plans its assets, without a partition."""
    planned = instance.get_records_for_run(
        run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, limit=1, ascending=False
    )
    return any(record.event_log_entry.get_dagster_event().partition for record in planned.records)


def planned_assets(instance: dg.DagsterInstance, run: dg.DagsterRun) -> list[tuple[str, dg.AssetKey]]:
    """Those that a run was created to materialize, with the steps that do."""
    if run.execution_plan_snapshot_id is None:
        return []
    steps = instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).steps
    found = {(step.key, output.properties.asset_key) for step in steps for output in step.outputs if output.properties}
    return sorted(((step_key, asset_key) for step_key, asset_key in found if asset_key), key=str)


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
