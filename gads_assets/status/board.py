"""What the page asks for: an overview, a matrix, a partition, and whether anything is new."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from string import ascii_letters, digits
from threading import Lock
from typing import Final

import dagster as dg
from sqlalchemy import RowMapping

from gads_assets.domain.keys import PartitionKey, partition_key_from_label
from gads_assets.errors import CatalogError, PartitionKeyError
from gads_assets.status.deriving import Facts, Selection, Statuses, facts_of_cell
from gads_assets.status.event_log import EventLog
from gads_assets.status.folding import Folder
from gads_assets.status.stories import Story
from gads_assets.status.telling import Document, flags_of, summaries, told, written
from gads_assets.status.tracking import AssetKind, TrackedAsset, Workspace

ReadStory = Callable[[PartitionKey], Story]
ReadPointer = Callable[[PartitionKey], Mapping[str, object] | None]

DAYS_SHOWN: Final = 90
_LONGEST_RANGE: Final = 1_500
_CODES: Final = ascii_letters + digits
_TICK: Final = timedelta(minutes=5)
"""How often something may have become stale by the time alone."""


class StatusBoard:
    """Folds what is new before it answers, so that it tells of runs while they go on, whoever else folds."""

    def __init__(
        self,
        *,
        workspace: Workspace,
        source: str,
        assets: Sequence[TrackedAsset],
        folder: Folder,
        log: EventLog,
        statuses: Statuses,
        read_story: ReadStory,
        read_pointer: ReadPointer,
        instance: dg.DagsterInstance,
        dagster_url: str,
        now: Callable[[], datetime],
    ) -> None:
        self._workspace = workspace
        self._source = source
        self._assets = {asset.asset_key: asset for asset in assets}
        self._folder = folder
        self._log = log
        self._statuses = statuses
        self._read_story = read_story
        self._read_pointer = read_pointer
        self._instance = instance
        self._dagster_url = dagster_url.rstrip("/")
        self._now = now
        self._folding = Lock()

    def version(self) -> str:
        """Another as soon as the events tell something new, and every few minutes: what the ledger or the time alone
        have changed is told then."""
        with self._folding:
            self._folder.fold(self._log)
        return f"{self._folder.version()}-{int(self._now().timestamp() // _TICK.total_seconds())}"

    def overview(self, selection: Selection | None = None) -> Document:
        """Of everything, or of what was selected alone."""
        now, version = self._now(), self.version()
        chosen = selection or Selection(assets=[*self._assets.values()])
        counted = summaries(self._statuses.summary(chosen, now=now))
        last_day = now.astimezone(UTC).date()
        return {
            "tenant_id": self._workspace.tenant_id,
            "workspace_id": self._workspace.workspace_id,
            "source": self._source,
            "generated_at": now.isoformat(),
            "version": version,
            "dagster_url": self._dagster_url,
            "assets": [
                {
                    "asset_key": asset.asset_key,
                    "title": asset.title,
                    "kind": asset.kind.value,
                    "has_days": asset.has_days,
                    "first_day": asset.first_day.isoformat(),
                    "last_day": last_day.isoformat(),
                    **counted[asset.asset_key].document(),
                }
                for asset in chosen.assets
            ],
        }

    def matrix(self, asset_key: str, first: date | None = None, last: date | None = None) -> Document:
        """The last ninety days, unless told otherwise."""
        asset, now = self._asset(asset_key), self._now()
        if not asset.has_days:
            raise CatalogError(f"asset {asset_key} has a partition a customer and no days; ask for another asset")
        end = last or now.astimezone(UTC).date()
        start = first or max(asset.first_day, end - timedelta(days=DAYS_SHOWN - 1))
        if start > end:
            raise PartitionKeyError(f"first day {start} is after last day {end}; give the earlier day first")
        if (end - start).days >= _LONGEST_RANGE:
            raise PartitionKeyError(f"{start} to {end} is more than {_LONGEST_RANGE} days; ask for fewer")
        version = self.version()
        rows = self._statuses.matrix(asset, start, end, now=now)
        cells = sorted({cell for row in rows for cell in row.cells} - {"-"})
        codes = dict(zip(cells, _CODES, strict=False))
        written = str.maketrans(codes)
        return {
            "asset_key": asset_key,
            "from": start.isoformat(),
            "to": end.isoformat(),
            "version": version,
            "generated_at": now.isoformat(),
            "legend": {codes[cell]: _legend(facts_of_cell(cell)) for cell in cells},
            "rows": [
                {
                    "customer_id": row.customer_id,
                    "name": row.name,
                    "is_active": row.is_active,
                    "cells": row.cells.translate(written),
                }
                for row in rows
            ],
        }

    def partition(self, asset_key: str, partition_key: str) -> Document:
        self.version()
        return self._partition(asset_key, partition_key)

    def _partition(self, asset_key: str, partition_key: str) -> Document:
        asset, now = self._asset(asset_key), self._now()
        key = _key(self._source, asset, partition_key)
        day = key.logical_date if asset.has_days else None
        selection = Selection(
            assets=[asset], customer_ids=[key.customer_id], first=day, last=day, partition_key=partition_key
        )
        found = self._statuses.partitions(selection, now=now, limit=1)
        if not found:
            raise PartitionKeyError(
                f"{partition_key} is no partition of {asset_key}: its day is not open yet, or none of the query's, or "
                "of the account's"
            )
        story = self._read_story(key) if asset.query_name else None
        return {
            **told(found[0]),
            "freshness": _freshness(found[0]),
            "current_code_version": asset.code_version,
            "state": _plain(story.state) if story else None,
            "pointer": self._read_pointer(key) if asset.kind is AssetKind.TABLE else None,
            "load_record": _plain(story.load_record) if story and asset.kind is AssetKind.TABLE else None,
            "next_retry": _plain(story.next_retry) if story else None,
            "attempts": [_plain(attempt) for attempt in story.attempts] if story else [],
            "runs": self._runs(found[0], story),
        }

    def remarkable(self, asset_key: str, selection: Selection, *, limit: int) -> dict[str, Document]:
        """All that is known of partitions that were tried and of which there is more to say than that they are current:
        of so many at most."""
        chosen = replace(selection, assets=[self._asset(asset_key)])
        found = self._statuses.partitions(chosen, now=self._now(), wanted=_is_remarkable, limit=limit)
        return {row["partition_key"]: self._partition(asset_key, row["partition_key"]) for row in found}

    def _runs(self, row: RowMapping, story: Story | None) -> list[Document]:
        """Those that the partition's row and its attempts name, as far as Dagster still has them."""
        named = [row["last_attempt_run_id"], row["last_materialization_run_id"]]
        named += [attempt["dagster_run_id"] for attempt in story.attempts] if story else []
        wanted = list(dict.fromkeys(run_id for run_id in named if run_id))
        if not wanted:
            return []
        records = self._instance.get_run_records(dg.RunsFilter(run_ids=wanted))
        return [
            {
                "run_id": record.dagster_run.run_id,
                "status": record.dagster_run.status.value,
                "started_at": _moment(record.start_time),
                "ended_at": _moment(record.end_time),
                "url": f"{self._dagster_url}/runs/{record.dagster_run.run_id}",
            }
            for record in records
        ]

    def _asset(self, asset_key: str) -> TrackedAsset:
        try:
            return self._assets[asset_key]
        except KeyError:
            raise CatalogError(
                f"asset {asset_key[:80]!r} is not one whose partitions are followed; see `gads status`"
            ) from None


def _is_remarkable(facts: Facts) -> bool:
    return facts.last_attempt is not None and any(flags_of(facts))


def _freshness(row: RowMapping) -> Document | None:
    if row["due_at"] is None:
        return None
    return {"due_at": written(row["due_at"]), "deadline": written(row["deadline"])}


def _legend(facts: Facts) -> Document:
    return {
        "display": facts.display.value,
        "stale_reason": facts.stale_reason and facts.stale_reason.value,
        "last_attempt": facts.last_attempt and facts.last_attempt.value,
        "is_withdrawn": facts.is_withdrawn,
    }


def _key(source: str, asset: TrackedAsset, partition_key: str) -> PartitionKey:
    label = partition_key if asset.has_days else f"{partition_key}|{asset.first_day}"
    return partition_key_from_label(label, source=source, query_name=asset.query_name or asset.title)


def _plain(row: RowMapping | None) -> Document | None:
    return None if row is None else {name: written(value) for name, value in row.items()}


def _moment(timestamp: float | None) -> str | None:
    return None if timestamp is None else datetime.fromtimestamp(timestamp, UTC).isoformat()
