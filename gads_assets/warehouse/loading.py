"""From PartitionState to the warehouse: what may be published, published, and its load records."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.pointer import Authority, Pointer
from gads_assets.domain.reconciling import Difference, compare, may_replace, may_withdraw
from gads_assets.domain.state import DemotionIntent, LoadRecord, PartitionState, Reconcilable
from gads_assets.errors import PublishRefusedError
from gads_assets.state.partition_states import AcceptedContent, StateStore
from gads_assets.state.run_records import RunRecords
from gads_assets.warehouse.comparing import split_by_agreement
from gads_assets.warehouse.pointers import (
    NO_POINTERS,
    pointer_table,
    pointers_from_arrow,
    pointers_of,
    read_pointer_rows,
)
from gads_assets.warehouse.publishing import Published, Publisher, Withdrawal, publishing_scope

LONGEST_LOAD: Final = timedelta(hours=6)
"""Housekeeping takes staged rows that no pointer names for abandoned after four times as long."""

_NO_SUCCESS: Final = "state does not call it a success"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """`ledger` and `pointers` are of the partitions that differ."""

    ledger: Mapping[PartitionKey, Reconcilable]
    pointers: Mapping[PartitionKey, Pointer]
    differences: Mapping[PartitionKey, Difference]
    _agreed: pa.Table

    def with_difference(self, difference: Difference) -> list[PartitionKey]:
        return [key for key, found in self.differences.items() if found is difference]

    def shown(
        self, *, loaded_after: datetime | None = None, loaded_before: datetime | None = None
    ) -> dict[PartitionKey, Pointer]:
        """What readers see, of partitions about which the ledger and the pointers agree."""
        rows = self._agreed
        if loaded_after is not None:
            rows = rows.filter(pc.field("loaded_at") > loaded_after)
        if loaded_before is not None:
            rows = rows.filter(pc.field("loaded_at") < loaded_before)
        return {pointer.key: pointer for pointer in pointers_from_arrow(rows)}


@dataclass(frozen=True, kw_only=True)
class Loader:
    """`clock` counts seconds, and never back. `patience` is how long it waits for others who publish, for ever unless
    given."""

    publisher: Publisher
    store: StateStore
    records: RunRecords
    patience: timedelta | None = None
    clock: Callable[[], float] = time.monotonic

    def load(self, keys: Sequence[PartitionKey]) -> Published:
        """Publishes the authority of each partition, all of one query, in one commit.

        What state does not call a success is refused, and so is what the publisher refuses, or what shows a run from a
        history that this ledger does not have; the others are published.
        """
        query_name, started = keys[0].query_name, self.clock()
        with self._alone(keys[0].source, query_name) as require_held:

            def may_swap() -> None:
                require_held()
                if self.clock() - started > LONGEST_LOAD.total_seconds():
                    raise PublishRefusedError(
                        f"this load of {query_name} took more than {LONGEST_LOAD // timedelta(hours=1)} hours, after "
                        "which its rows may be taken for abandoned; nothing was published, run it again"
                    )

            authorities = self._authorities(keys)
            published = self.publisher.publish(
                query_name, authorities, replaceable=self._replaceable, before_swap=may_swap
            )
        self.store.record_loads(_load_record(pointer, published.pointer_version) for pointer in published.pointers)
        unsuccessful = set(keys) - {authority.key for authority in authorities}
        return replace(published, refused={**published.refused, **dict.fromkeys(unsuccessful, _NO_SUCCESS)})

    def withdraw(self, intents: Sequence[DemotionIntent]) -> None:
        """Hides partitions of one query whose authorities were rejected, in one commit; but not a run of a history that
        the ledger does not have, of which no verdict here speaks."""
        first, keys = intents[0].key, [intent.key for intent in intents]
        with self._alone(first.source, first.query_name):
            pointers = pointers_of(self.publisher.layout, keys)
            entries = self.store.reconcilable({key: pointers.get(key) for key in keys})
            withdrawals = [
                Withdrawal(
                    key=intent.key,
                    run_id=intent.run_id,
                    schema_version=(state.schema_version if (state := entries[intent.key].state) else None) or "",
                    state_version=intent.state_version,
                )
                for intent in intents
                if intent.key not in pointers or may_withdraw(entries[intent.key], pointers[intent.key], intent)
            ]
            self.publisher.withdraw(first.query_name, withdrawals)

    def estranged(self, keys: Sequence[PartitionKey]) -> set[PartitionKey]:
        """Of these partitions, all of one query, those whose pointers are from a history that the ledger lacks and has
        not adopted."""
        pointers = pointers_of(self.publisher.layout, keys)
        entries = self.store.reconcilable(pointers) if pointers else {}
        return {
            key
            for key, found in compare(entries, pointers).items()
            if found is Difference.ESTRANGED and entries[key].version_floor is None
        }

    def compare(self, source: str, query_name: str) -> Standing:
        """Every partition of a query, as the ledger and the readers have it. What moves on between the two looks may
        seem to differ; making it agree once more changes nothing."""
        table = pointer_table(self.publisher.layout, query_name)
        rows = read_pointer_rows(table) if table else NO_POINTERS
        agreed, doubtful = split_by_agreement(self.store.standings(query_name, source=source), rows)
        keys = [
            PartitionKey(source=source, query_name=query_name, **place)  # customer_id and logical_date
            for place in doubtful.to_pylist()
        ]
        pointers = {each.key: each for each in pointers_from_arrow(_of_places(rows, doubtful))}
        ledger = self.store.reconcilable({key: pointers.get(key) for key in keys}) if keys else {}
        return Standing(
            ledger=ledger,
            pointers=pointers,
            differences=compare(ledger, pointers),
            _agreed=_of_places(rows, agreed),
        )

    def sweep(self, source: str, query_name: str) -> list[PartitionKey]:
        """Hides, in one commit, what the ledger does not call a success any more; returns it."""
        with self._alone(source, query_name):
            found = self.compare(source, query_name)
            withdrawals = [
                Withdrawal(
                    key=key,
                    run_id=found.pointers[key].run_id,
                    schema_version=found.pointers[key].schema_version,
                    state_version=state.version,
                )
                for key in found.with_difference(Difference.NOT_WITHDRAWN)
                if (state := found.ledger[key].state)
            ]
            self.publisher.withdraw(query_name, withdrawals)
        return [each.key for each in withdrawals]

    def _alone(self, source: str, query_name: str) -> AbstractContextManager[Callable[[], None]]:
        return self.records.exclusive(publishing_scope(source, query_name), patience=self.patience)

    def _replaceable(self, pointers: Sequence[Pointer]) -> set[PartitionKey]:
        entries = self.store.reconcilable({pointer.key: pointer for pointer in pointers})
        return {pointer.key for pointer in pointers if may_replace(entries[pointer.key], pointer)}

    def _authorities(self, keys: Sequence[PartitionKey]) -> list[Authority]:
        states = self.store.publishable(keys)
        accepted = self.store.accepted_contents([state.key for state in states])
        return [_authority(state, accepted) for state in states]


def _of_places(pointers: pa.Table, places: pa.Table) -> pa.Table:
    return pointers.join(places, places.column_names, join_type="left semi")


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
