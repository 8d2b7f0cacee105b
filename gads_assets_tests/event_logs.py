"""Events in a real Dagster log, without the runs: as Dagster writes them, at moments of our choice."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import cast

import dagster as dg
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent, StepMaterializationData
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log import SqlEventLogStorage
from sqlalchemy import text

from gads_assets.domain.partition_status import Outcome, Place
from gads_assets.status.tracking import TrackedAsset

ENDS = {
    Outcome.SUCCEEDED: dg.DagsterEventType.RUN_SUCCESS,
    Outcome.FAILED: dg.DagsterEventType.RUN_FAILURE,
    Outcome.CANCELLED: dg.DagsterEventType.RUN_CANCELED,
}
JOB = "__ASSET_JOB"

# Dagster takes a millisecond an event. In what it stores, the partition stands in its key and in the tags of its parts.
_CLONE = text("""
    INSERT INTO event_logs (run_id, event, dagster_event_type, timestamp, step_key, asset_key, partition)
    SELECT run_id, replace(replace(replace(event, partition, copy),
            'customer_id": "' || split_part(partition, '|', 1), 'customer_id": "' || split_part(copy, '|', 1)),
            'logical_date": "' || split_part(partition, '|', 2), 'logical_date": "' || split_part(copy, '|', 2)),
        dagster_event_type, timestamp, step_key, asset_key, copy
    FROM event_logs CROSS JOIN unnest(CAST(:copies AS text[])) WITH ORDINALITY AS copies (copy, number)
    WHERE id = (SELECT max(id) FROM event_logs WHERE run_id = :run_id) ORDER BY number
""")


class MadeLog:
    """Every event is a second after the one before it, unless a moment is given."""

    def __init__(self, instance: dg.DagsterInstance, assets: Iterable[TrackedAsset], *, start: datetime) -> None:
        self.instance = instance
        self._assets = {asset.asset_key: asset for asset in assets}
        self._start = start
        self._seconds = count()

    def plan(self, run_id: str, *places: Place) -> None:
        self.store(self.planned(run_id, place) for place in places)

    def materialize(self, run_id: str, *places: Place, at: datetime | None = None, code_version: str = "") -> None:
        self.store(self.materialized(run_id, place, at=at, code_version=code_version) for place in places)

    def plan_many(self, run_id: str, asset_key: str, partition_keys: Sequence[str]) -> None:
        """As `plan`, in two statements however many there are: the first event is Dagster's, the others its copies."""
        self._store_many(self.planned(run_id, Place(asset_key, partition_keys[0])), partition_keys[1:])

    def materialize_many(
        self,
        run_id: str,
        asset_key: str,
        partition_keys: Sequence[str],
        *,
        at: datetime | None = None,
        code_version: str = "",
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        """All at the same moment, with the same metadata."""
        first = Place(asset_key, partition_keys[0])
        entry = self.materialized(run_id, first, at=at, code_version=code_version, metadata=metadata)
        self._store_many(entry, partition_keys[1:])

    def end(self, run_id: str, outcome: Outcome, *, at: datetime | None = None) -> None:
        event = DagsterEvent(event_type_value=ENDS[outcome].value, job_name=JOB, message="")
        self.instance.event_log_storage.store_event(self._entry(run_id, event, at))

    def run(self, run_id: str, *places: Place, outcome: Outcome, materializes: Iterable[Place] = ()) -> None:
        self.plan(run_id, *places)
        self.materialize(run_id, *materializes)
        self.end(run_id, outcome)

    def store(self, entries: Iterable[EventLogEntry]) -> None:
        if stored := list(entries):
            self.instance.event_log_storage.store_event_batch(stored)

    def _store_many(self, entry: EventLogEntry, partition_keys: Sequence[str]) -> None:
        self.store([entry])
        storage = cast("SqlEventLogStorage", self.instance.event_log_storage)
        with storage.index_connection() as connection:
            connection.execute(_CLONE, {"run_id": entry.run_id, "copies": list(partition_keys)})

    def planned(self, run_id: str, place: Place) -> EventLogEntry:
        asset_key = dg.AssetKey(place.asset_key.split("/"))
        data = AssetMaterializationPlannedData(asset_key, partition=place.partition_key)
        event = DagsterEvent.build_asset_materialization_planned_event(JOB, "__".join(asset_key.path), data)
        return self._entry(run_id, event, None)

    def materialized(
        self,
        run_id: str,
        place: Place,
        *,
        at: datetime | None = None,
        code_version: str = "",
        metadata: Mapping[str, object] | None = None,
    ) -> EventLogEntry:
        asset = self._assets[place.asset_key]
        materialization = dg.AssetMaterialization(
            asset_key=dg.AssetKey(place.asset_key.split("/")),
            partition=place.partition_key,
            metadata={asset.receipt: 1} if metadata is None else dict(metadata),  # type: ignore[arg-type]
            tags={"dagster/code_version": code_version or asset.code_version, **_dimensions(place)},
        )
        event = DagsterEvent(
            event_type_value=dg.DagsterEventType.ASSET_MATERIALIZATION.value,
            job_name=JOB,
            step_key="__".join(materialization.asset_key.path),
            event_specific_data=StepMaterializationData(materialization),
            message="",
        )
        return self._entry(run_id, event, at)

    def _entry(self, run_id: str, event: DagsterEvent, at: datetime | None) -> EventLogEntry:
        moment = at or self._start + timedelta(seconds=next(self._seconds))
        return EventLogEntry(  # type: ignore[no-untyped-call]
            error_info=None,
            level=10,
            user_message="",
            run_id=run_id,
            timestamp=moment.timestamp(),
            step_key=event.step_key,
            job_name=JOB,
            dagster_event=event,
        )


def _dimensions(place: Place) -> dict[str, str]:
    """By these Dagster's own page finds partitions of more than one dimension."""
    customer_id, _, day = place.partition_key.partition("|")
    return {"dagster/partition/customer_id": customer_id, "dagster/partition/logical_date": day} if day else {}
