"""Partition status as an asset: the rows folded, swept and written as one Parquet file, and their counts over time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import cast

import dagster as dg
from dagster._core.storage.event_log import SqlEventLogStorage

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.partition_status import DisplayStatus
from gads_assets.domain.roles import Role
from gads_assets.orchestration.assets import OWNERS
from gads_assets.orchestration.conditions import condition_checks, condition_results, stale_conditions
from gads_assets.orchestration.keys import status_key
from gads_assets.orchestration.metadata import Metadata
from gads_assets.orchestration.resources import WorkplaceResource
from gads_assets.orchestration.runs import readable_failures
from gads_assets.orchestration.tracking import tracked_assets
from gads_assets.orchestration.workplace import Workplace
from gads_assets.raw.storage import without_login
from gads_assets.status.board import StatusBoard
from gads_assets.status.deriving import Selection, Statuses
from gads_assets.status.event_log import EventLog
from gads_assets.status.exporting import write_parquet
from gads_assets.status.folding import Folder
from gads_assets.status.stories import read_story
from gads_assets.status.telling import FLAGS, Summary, summaries
from gads_assets.status.tracking import AssetKind, TrackedAsset, Workspace
from gads_assets.warehouse.pointers import pointers_of


class StatusDesk:
    """The status of one home's partitions: what folds, derives and tells it, wired to its database and its log."""

    def __init__(
        self,
        here: Workplace,
        instance: dg.DagsterInstance,
        *,
        assets: Sequence[TrackedAsset] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Of the catalog's assets, unless others are given; `now` is when the board is asked."""
        self._here = here
        self._instance = instance
        self._now = now
        self.workspace = Workspace(tenant_id=here.settings.tenant_id, workspace_id=here.settings.workspace_id)
        self.assets = tracked_assets(here.catalog) if assets is None else [*assets]

    @cached_property
    def log(self) -> EventLog:
        return EventLog(cast("SqlEventLogStorage", self._instance.event_log_storage), self.assets)

    @cached_property
    def folder(self) -> Folder:
        return Folder(self._here.engine_as(Role.REPORTER), self.workspace, self.assets)

    @cached_property
    def statuses(self) -> Statuses:
        return Statuses(self._here.engine_as(Role.REPORTER), self.workspace, source=self._here.catalog.source)

    @cached_property
    def board(self) -> StatusBoard:
        return StatusBoard(
            workspace=self.workspace,
            source=self._here.catalog.source,
            assets=self.assets,
            folder=self.folder,
            log=self.log,
            statuses=self.statuses,
            read_story=partial(read_story, self._here.engine_as(Role.REPORTER)),
            read_pointer=self._read_pointer,
            instance=self._instance,
            dagster_url=self._here.settings.dagster_url,
            now=self._now,
        )

    def _read_pointer(self, key: PartitionKey) -> Mapping[str, object] | None:
        pointer = pointers_of(self._here.layout, [key]).get(key)
        if pointer is None:
            return None
        return {
            "run_id": pointer.run_id,
            "status": pointer.status.value,
            "state_version": pointer.state_version,
            "record_count": pointer.record_count,
            "loaded_at": pointer.loaded_at.isoformat(),
        }


def status_asset(catalog: Catalog, *, status_url: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=status_key(catalog),
        group_name=f"{catalog.source}_upkeep",
        kinds={"parquet", "postgres"},
        owners=OWNERS,
        metadata={"status_page": dg.MetadataValue.url(status_url)},
        check_specs=condition_checks(status_key(catalog)),
        description="Of every partition: is its data current, and if not, why. A failed or cancelled retry never hides "
        f"good data. The same live, partition by partition: [the status page]({status_url}) (`gads status serve`).",
    )
    def partition_status(
        context: dg.AssetExecutionContext, workplace: WorkplaceResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        here, now = workplace.get(), datetime.now(UTC)
        desk = StatusDesk(here, context.instance)
        everything = Selection(assets=desk.assets)
        with readable_failures():
            folded = desk.folder.fold(desk.log)
            swept = desk.statuses.sweep(everything, now=now)
            rows = write_parquet(here.layout.partition_status, desk.statuses.rows(everything, now=now))
            by_asset = summaries(desk.statuses.summary(everything, now=now))
            waiting = here.alerts.waiting()
            stale = list(stale_conditions(here, desk.statuses, desk.assets, now=now))
        yield dg.MaterializeResult(
            check_results=condition_results(catalog, waiting, stale, today=now.date()),
            metadata={
                **_counts(desk.assets, by_asset),
                "dagster/row_count": dg.MetadataValue.int(rows),
                "events_folded": dg.MetadataValue.int(folded.events),
                "staleness_changed": dg.MetadataValue.int(swept),
                "file": dg.MetadataValue.path(without_login(here.layout.partition_status)),
                "status_page": dg.MetadataValue.url(here.settings.status_url),
            },
        )

    return partition_status


def status_schedule(catalog: Catalog) -> dg.ScheduleDefinition:
    """On from the start: it costs seconds, and without it the counts have no history."""
    name = f"{catalog.source}_partition_status"
    return dg.ScheduleDefinition(
        name=name,
        job=dg.define_asset_job(name, dg.AssetSelection.assets(status_key(catalog))),
        cron_schedule="*/30 * * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Writes down what is stale, missing and failed, twice an hour.",
    )


def _counts(assets: Sequence[TrackedAsset], by_asset: Mapping[str, Summary]) -> Metadata:
    """Dagster draws each number over time: those of the published tables, since raw runs and marts follow them."""
    published = [by_asset[asset.asset_key] for asset in assets if asset.kind is AssetKind.TABLE]
    numbers = {status.value: sum(each.counts[status] for each in published) for status in DisplayStatus}
    numbers |= {flag: sum(each.flags[flag] for each in published) for flag in FLAGS}
    return {
        **{name: dg.MetadataValue.int(number) for name, number in numbers.items()},
        "by_asset": dg.MetadataValue.table(
            [
                dg.TableRecord(
                    {
                        "asset": asset.asset_key,
                        **{status.value: by_asset[asset.asset_key].counts[status] for status in DisplayStatus},
                        **{flag: by_asset[asset.asset_key].flags[flag] for flag in FLAGS},
                    }
                )
                for asset in assets
            ]
        ),
    }
