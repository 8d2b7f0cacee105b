"""Publishing: stage, verify, and swap the pointers in one commit."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final

from pyspark.sql import SparkSession

from gads_assets.catalog.specification import Catalog, QuerySchema
from gads_assets.domain.keys import PartitionKey, RunId, StageId
from gads_assets.domain.pointer import Authority, Pointer, PointerStatus, plan_load
from gads_assets.errors import CatalogError, PublishRefusedError, RawSinkError
from gads_assets.raw.sink import RawSink
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.pointers import append_pointers, pointer_table, read_pointers
from gads_assets.warehouse.session import SPARK_ERRORS
from gads_assets.warehouse.staging import Stage, require_kept, stage_runs

_OVERTAKEN: Final = (
    "the warehouse shows a newer state of it than the database has, and keeps what it shows; if the database was "
    "restored, `gads reconcile --adopt` makes the two agree"
)
_UNKNOWN: Final = (
    "what the warehouse shows of it, or hides, is from a history that this database does not have, and stays so; "
    "if the database was lost or restored, `gads reconcile --adopt` makes the two agree"
)
_DIFFERS: Final = "its rows are not what the validator saw when it accepted the run; revalidate it"


@dataclass(frozen=True, kw_only=True)
class Published:
    """`pointers` are the current ones of every partition that now shows its authority, swapped just now or before.
    `refused` ones show what they showed, and why is said."""

    pointers: tuple[Pointer, ...]
    refused: Mapping[PartitionKey, str]
    pointer_version: int
    """A version of the pointer table that has them all."""


@dataclass(frozen=True, kw_only=True)
class Withdrawal:
    """Of a run that may not be read any more; `state_version` is that of the state which says so."""

    key: PartitionKey
    run_id: RunId
    schema_version: str
    state_version: int


def _all(pointers: Sequence[Pointer]) -> set[PartitionKey]:
    return {pointer.key for pointer in pointers}


@dataclass(frozen=True, kw_only=True)
class Publisher:
    session: Callable[[], SparkSession]
    layout: WarehouseLayout
    sink: RawSink
    catalog: Catalog
    new_stage_id: Callable[[], StageId]
    now: Callable[[], datetime]

    def publish(
        self,
        query_name: str,
        authorities: Sequence[Authority],
        *,
        replaceable: Callable[[Sequence[Pointer]], Collection[PartitionKey]] = _all,
        before_swap: Callable[[], None] = lambda: None,
    ) -> Published:
        """Makes these runs what readers see, all in one commit; those that are published already are left alone.

        A partition is refused if readers see a newer state of it, if its pointer is not among the `replaceable` ones,
        or if its run is not what it was when it was judged; the others are published without it. `before_swap` may
        raise, and does nothing else, once everything is staged and before readers see it.
        A crash at any moment leaves readers on the pointers they had, or on all of the new ones.
        """
        keys = [authority.key for authority in authorities]
        if any(key.query_name != query_name for key in keys) or len(set(keys)) != len(keys):
            raise PublishRefusedError(f"a batch of {query_name} must name each of its partitions once, and no other")
        table = pointer_table(self.layout, query_name)
        current = read_pointers(table, keys) if table else {}
        plan = plan_load(authorities, current)
        published = [current[authority.key] for authority in plan.already_published]
        refused = {authority.key: _OVERTAKEN for authority in plan.overtaken}
        version = table.version() if table else -1
        replaced = [current[authority.key] for authority in plan.to_stage if authority.key in current]
        kept = {pointer.key for pointer in replaced}.difference(replaceable(replaced) if replaced else ())
        refused |= dict.fromkeys(kept, _UNKNOWN)
        stages, unstaged = self._stage(query_name, [each for each in plan.to_stage if each.key not in kept])
        refused |= unstaged
        swapped = _pointers(stages, loaded_at=self.now())
        if swapped:
            before_swap()
            for stage in stages:
                require_kept(stage)
            version = append_pointers(self.layout, query_name, swapped)
        return Published(
            pointers=tuple(sorted([*published, *swapped], key=lambda pointer: pointer.key)),
            refused=refused,
            pointer_version=version,
        )

    def withdraw(self, query_name: str, withdrawals: Sequence[Withdrawal]) -> None:
        """Hides these partitions from every reader, in one commit.

        Also those that were never published: a loader that lost its lock on the way may still come to publish them.
        """
        table = pointer_table(self.layout, query_name)
        current = read_pointers(table, [each.key for each in withdrawals]) if table else {}
        tombstones = [
            Pointer(
                key=each.key,
                run_id=each.run_id,
                stage_id=self.new_stage_id(),
                schema_version=each.schema_version,
                record_count=0,
                content_digest="",
                state_version=each.state_version,
                stage_commit=0,
                status=PointerStatus.UNAVAILABLE,
                loaded_at=self.now(),
            )
            for each in withdrawals
            if each.key not in current or current[each.key].state_version < each.state_version
        ]
        if tombstones:
            append_pointers(self.layout, query_name, tombstones)

    def _stage(self, query_name: str, authorities: Sequence[Authority]) -> tuple[list[Stage], dict[PartitionKey, str]]:
        """One stage a schema version, and why some partitions are in none."""
        stages: list[Stage] = []
        refused: dict[PartitionKey, str] = {}
        by_version = sorted(authorities, key=lambda authority: (authority.schema_version, authority.key))
        for version, group in groupby(by_version, key=lambda authority: authority.schema_version):
            batch = list(group)
            try:
                schema = self.catalog.schema(query_name, version)
            except CatalogError as error:
                refused |= {authority.key: str(error) for authority in batch}
                continue
            try:
                stages.append(self._stage_batch(schema, batch))
            except (RawSinkError, *SPARK_ERRORS):
                broken = self._broken(batch)
                if not broken:
                    raise
                refused |= broken
                if whole := [authority for authority in batch if authority.key not in broken]:
                    stages.append(self._stage_batch(schema, whole))
        return stages, refused | {each.key: _DIFFERS for stage in stages for each in stage.differing}

    def _stage_batch(self, schema: QuerySchema, batch: Sequence[Authority]) -> Stage:
        uris = {
            authority.key: self.sink.payload_uris(self.sink.manifest(authority.key, authority.run_id))
            for authority in batch
            if authority.record_count
        }
        return stage_runs(self.session(), self.layout, schema, batch, uris=uris, stage_id=self.new_stage_id())

    def _broken(self, batch: Sequence[Authority]) -> dict[PartitionKey, str]:
        """Those whose sealed run is not whole any more. Every byte is read, so it is asked once a batch has failed."""
        broken = {}
        for authority in batch:
            try:
                self.sink.verify(self.sink.manifest(authority.key, authority.run_id))
            except RawSinkError as error:
                broken[authority.key] = str(error)
        return broken


def _pointers(stages: Sequence[Stage], *, loaded_at: datetime) -> list[Pointer]:
    return [
        Pointer(
            key=authority.key,
            run_id=authority.run_id,
            stage_id=stage.stage_id,
            schema_version=authority.schema_version,
            record_count=authority.record_count,
            content_digest=authority.content_digest,
            state_version=authority.state_version,
            stage_commit=stage.commit,
            status=PointerStatus.ACTIVE,
            loaded_at=loaded_at,
        )
        for stage in stages
        for authority in stage.sound
    ]


def publishing_scope(source: str, query_name: str) -> str:
    """What a publisher locks: state, pointers and the first creation of a table must not change under it."""
    return f"publish {source}/{query_name}"


def current_state(layout: WarehouseLayout, query_name: str) -> dict[PartitionKey, Pointer]:
    """The current pointer of every partition of a query."""
    table = pointer_table(layout, query_name)
    return read_pointers(table) if table else {}
