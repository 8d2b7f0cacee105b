"""Publishing: stage, verify, and swap the pointers in one commit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from pyspark.sql import SparkSession

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.keys import PartitionKey, RunId, StageId
from gads_assets.domain.pointer import Authority, LoadPlan, Pointer, PointerStatus, plan_load
from gads_assets.errors import PublishRefusedError
from gads_assets.raw.sink import RawSink
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.pointers import append_pointers, pointer_table, read_pointers
from gads_assets.warehouse.staging import stage_runs


@dataclass(frozen=True, kw_only=True)
class Published:
    """`pointers` are the current ones of every partition that now shows its authority, swapped just now or before."""

    plan: LoadPlan
    pointers: tuple[Pointer, ...]
    pointer_version: int
    """A version of the pointer table that has them all."""


@dataclass(frozen=True, kw_only=True)
class Publisher:
    session: Callable[[], SparkSession]
    layout: WarehouseLayout
    sink: RawSink
    catalog: Catalog
    new_stage_id: Callable[[], StageId]
    now: Callable[[], datetime]

    def publish(
        self, query_name: str, authorities: Sequence[Authority], *, before_swap: Callable[[], None] = lambda: None
    ) -> Published:
        """Makes these runs what readers see, all in one commit; those that are published already are left alone.

        Refuses the whole batch if readers see a newer state of one of them. `before_swap` may raise, and does nothing
        else, once everything is staged and before readers see it.
        A crash at any moment leaves readers on the pointers they had, or on all of the new ones.
        """
        keys = [authority.key for authority in authorities]
        if any(key.query_name != query_name for key in keys) or len(set(keys)) != len(keys):
            raise PublishRefusedError(f"a batch of {query_name} must name each of its partitions once, and no other")
        table = pointer_table(self.layout, query_name)
        current = read_pointers(table, keys) if table else {}
        plan = plan_load(authorities, current)
        if plan.overtaken:
            late = ", ".join(str(authority.key) for authority in plan.overtaken[:5])
            raise PublishRefusedError(
                f"the warehouse shows a newer state than the database for {late}; was the database restored? "
                "the warehouse keeps what it shows"
            )
        published = [current[authority.key] for authority in plan.already_published]
        version = table.version() if table else -1
        if plan.to_stage:
            staged = self._stage(query_name, plan.to_stage)
            before_swap()
            version = append_pointers(self.layout, query_name, staged)
            published += staged
        return Published(
            plan=plan,
            pointers=tuple(sorted(published, key=lambda pointer: pointer.key)),
            pointer_version=version,
        )

    def withdraw(self, key: PartitionKey, run_id: RunId, *, schema_version: str, state_version: int) -> None:
        """Hides a partition from every reader, in one commit; `state_version` is that of its demotion.

        Also one that was never published: a loader that lost its lock on the way may still come to publish it.
        """
        table = pointer_table(self.layout, key.query_name)
        current = read_pointers(table, [key]).get(key) if table else None
        if current and current.state_version >= state_version:
            return
        tombstone = Pointer(
            key=key,
            run_id=run_id,
            stage_id=self.new_stage_id(),
            schema_version=schema_version,
            record_count=0,
            content_digest="",
            state_version=state_version,
            stage_commit=0,
            status=PointerStatus.UNAVAILABLE,
            loaded_at=self.now(),
        )
        append_pointers(self.layout, key.query_name, [tombstone])

    def _stage(self, query_name: str, authorities: Sequence[Authority]) -> list[Pointer]:
        pointers = []
        by_version = sorted(authorities, key=lambda authority: (authority.schema_version, authority.key))
        for version, group in groupby(by_version, key=lambda authority: authority.schema_version):
            batch, stage_id = list(group), self.new_stage_id()
            schema = self.catalog.schema(query_name, version)
            commit = stage_runs(self.session(), self.layout, schema, batch, uris=self._uris(batch), stage_id=stage_id)
            loaded_at = self.now()
            pointers += [
                Pointer(
                    key=authority.key,
                    run_id=authority.run_id,
                    stage_id=stage_id,
                    schema_version=version,
                    record_count=authority.record_count,
                    content_digest=authority.content_digest,
                    state_version=authority.state_version,
                    stage_commit=commit,
                    status=PointerStatus.ACTIVE,
                    loaded_at=loaded_at,
                )
                for authority in batch
            ]
        return pointers

    def _uris(self, authorities: Sequence[Authority]) -> list[str]:
        uris = []
        for authority in authorities:
            if authority.record_count:
                uris += self.sink.payload_uris(self.sink.manifest(authority.key, authority.run_id))
        return uris


def publishing_scope(source: str, query_name: str) -> str:
    """What a publisher locks: state, pointers and the first creation of a table must not change under it."""
    return f"publish {source}/{query_name}"


def current_state(layout: WarehouseLayout, query_name: str) -> dict[PartitionKey, Pointer]:
    """The current pointer of every partition of a query."""
    table = pointer_table(layout, query_name)
    return read_pointers(table) if table else {}
