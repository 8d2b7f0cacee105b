"""From PartitionState to the warehouse: what may be published, published, and its load records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.pointer import Authority, Pointer
from gads_assets.domain.state import DemotionIntent, LoadRecord, PartitionState
from gads_assets.errors import PublishRefusedError
from gads_assets.state.partition_states import AcceptedContent, StateStore
from gads_assets.state.run_records import RunRecords
from gads_assets.warehouse.publishing import Published, Publisher, publishing_scope


@dataclass(frozen=True, kw_only=True)
class Loader:
    publisher: Publisher
    store: StateStore
    records: RunRecords

    def load(self, keys: Sequence[PartitionKey]) -> Published:
        """Publishes the authority of each partition, all of one query, in one commit.

        Refuses the whole batch if state does not say success for one of them: the caller asks for what may be shown.
        """
        query_name = keys[0].query_name
        with self.records.exclusive(publishing_scope(keys[0].source, query_name)) as require_held:
            published = self.publisher.publish(query_name, self._authorities(keys), before_swap=require_held)
        self.store.record_loads(_load_record(pointer, published.pointer_version) for pointer in published.pointers)
        return published

    def withdraw(self, intent: DemotionIntent) -> None:
        """Hides a partition whose authority was rejected."""
        key = intent.key
        schema_version = self.store.states([key])[key].schema_version or ""
        with self.records.exclusive(publishing_scope(key.source, key.query_name)):
            self.publisher.withdraw(
                key, intent.run_id, schema_version=schema_version, state_version=intent.state_version
            )

    def _authorities(self, keys: Sequence[PartitionKey]) -> list[Authority]:
        states = {state.key: state for state in self.store.publishable(keys)}
        for key in keys:
            if key not in states:
                raise PublishRefusedError(f"{key} is not success in the state store, so it is not published")
        accepted = self.store.accepted_contents(keys)
        return [_authority(state, accepted) for state in states.values()]


def _authority(state: PartitionState, accepted: Mapping[tuple[PartitionKey, RunId], AcceptedContent]) -> Authority:
    if state.current_run_id is None or state.schema_version is None:
        raise PublishRefusedError(f"{state.key} is success without a run; the state store's guards were bypassed")
    content = accepted.get((state.key, state.current_run_id))
    if content is None:
        raise PublishRefusedError(f"{state.key} is success without an attempt; the state store's guards were bypassed")
    return Authority(
        key=state.key,
        run_id=state.current_run_id,
        schema_version=state.schema_version,
        record_count=content.record_count,
        content_digest=content.content_digest,
        state_version=state.version,
    )


def _load_record(pointer: Pointer, pointer_version: int) -> LoadRecord:
    return LoadRecord(
        key=pointer.key,
        run_id=pointer.run_id,
        schema_version=pointer.schema_version,
        record_count=pointer.record_count,
        content_digest=pointer.content_digest,
        stage_id=pointer.stage_id,
        pointer_version=pointer_version,
        loaded_at=pointer.loaded_at,
    )
