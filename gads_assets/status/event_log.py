"""Dagster's event log, read as it is stored: of each event no more than the fold needs.

Dagster's own way to read events makes objects of all that they hold, which takes several times as long as all the rest.
`test_event_log.py` fails when an upgrade changes what is read here.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import dagster as dg
import msgspec
from dagster._core.storage.event_log import SqlEventLogStorage, SqlEventLogStorageTable
from sqlalchemy import ColumnElement, and_, case, cast, func, null, or_, select, true
from sqlalchemy.dialects.postgresql import REGCLASS

from gads_assets.domain.keys import parse_customer_id, parse_run_id, partition_key_from_label
from gads_assets.domain.partition_status import Ended, Events, Materialization, Outcome, Place, Planned
from gads_assets.errors import PartitionKeyError
from gads_assets.status.tracking import TrackedAsset

_PLANNED: Final = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED.value
_MATERIALIZED: Final = dg.DagsterEventType.ASSET_MATERIALIZATION.value
_OUTCOMES: Final = {
    dg.DagsterEventType.RUN_SUCCESS.value: Outcome.SUCCEEDED,
    dg.DagsterEventType.RUN_FAILURE.value: Outcome.FAILED,
    dg.DagsterEventType.RUN_CANCELED.value: Outcome.CANCELLED,
}
_CODE_VERSION: Final = "dagster/code_version"
_RUN_ID: Final = "run_id"
_CROCKFORD: Final = str.maketrans("ABCDEFGHJKMNPQRSTVWXYZ", "abcdefghijklmnopqrstuv")
_RUNS_AT_ONCE: Final = 1_000
_LONGEST_INSERT: Final = timedelta(days=1)
"""Far longer than any, since the times of events are those of many clocks."""
_RUN, _KIND = 1, 2  # where they stand in a row


class _Entry(msgspec.Struct):
    label: str
    entry_data: msgspec.Raw


class _Materialization(msgspec.Struct):
    metadata_entries: list[_Entry]
    tags: dict[str, str] | None = None


class _Details(msgspec.Struct):
    materialization: _Materialization


class _DagsterEvent(msgspec.Struct):
    event_specific_data: _Details


class _Stored(msgspec.Struct):
    dagster_event: _DagsterEvent


class _Text(msgspec.Struct):
    text: str | None = None


_decode_stored = msgspec.json.Decoder(_Stored).decode
_decode_text = msgspec.json.Decoder(_Text).decode


class EventLog:
    """The part of the log that tells of these assets."""

    def __init__(self, storage: SqlEventLogStorage, assets: Sequence[TrackedAsset]) -> None:
        self._storage = storage
        self._assets = {_stored_key(asset): asset for asset in assets}

    def highest(self) -> int:
        """Of the events that can be seen; later ones may have lower numbers, while they are being written."""
        return self._number(select(func.coalesce(func.max(_log.id), 0)))

    def numbers_given(self) -> int:
        """Those of deleted events among them: it falls only if another log takes this one's place."""
        sequence = func.pg_get_serial_sequence(SqlEventLogStorageTable.name, _log.id.name)
        return self._number(select(func.coalesce(func.pg_sequence_last_value(cast(sequence, REGCLASS)), 0)))

    def settled(self) -> int:
        """Up to here nothing is on its way any more: what follows is at least a day old."""
        old = func.timezone("UTC", func.now()) - _LONGEST_INSERT
        newest = select(_log.id).where(_log.timestamp < old).order_by(_log.id.desc()).limit(1)
        return self._number(select(func.coalesce(newest.scalar_subquery(), 0)))

    def is_whole(self, after: int, upto: int) -> bool:
        """Every number between was seen, so none of them can still be on its way."""
        return self._number(select(func.count()).where(_log.id > after, _log.id <= upto)) == upto - after

    def between(self, after: int, upto: int) -> Events:
        """Those with higher numbers than `after`. Of runs that have ended, as far as these tell of their end or of what
        they planned, all earlier ones too: together they say how each partition ended."""
        rows = self._rows(and_(_log.id > after, _log.id <= upto))
        ended = {row[_RUN] for row in rows if row[_KIND] in _OUTCOMES}
        planned = {row[_RUN] for row in rows if row[_KIND] == _PLANNED} - ended
        earlier_ends = self._earlier(planned, after, _log.dagster_event_type.in_(list(_OUTCOMES)))
        return self._events(rows + self._earlier(ended | {row[_RUN] for row in earlier_ends}, after, true()))

    def _earlier(self, runs: Collection[str], after: int, condition: ColumnElement[bool]) -> list[Any]:
        listed = sorted(runs)
        rows: list[Any] = []
        for start in range(0, len(listed), _RUNS_AT_ONCE):
            some = listed[start : start + _RUNS_AT_ONCE]
            rows += self._rows(and_(_log.run_id.in_(some), _log.id <= after, condition))
        return rows

    def _rows(self, condition: ColumnElement[bool]) -> list[Any]:
        """A run's id is empty where somebody reported a materialization without a run: that is no event of ours."""
        of_an_asset = and_(
            _log.asset_key.in_(list(self._assets)),
            _log.partition.is_not(None),
            _log.dagster_event_type.in_([_PLANNED, _MATERIALIZED]),
        )
        stored = case((_log.dagster_event_type == _MATERIALIZED, _log.event), else_=null())
        chosen = select(
            *(_log.id, _log.run_id, _log.dagster_event_type, _log.timestamp, _log.asset_key, _log.partition), stored
        ).where(condition, _log.run_id != "", or_(of_an_asset, _log.dagster_event_type.in_(list(_OUTCOMES))))
        with self._storage.index_connection() as connection:
            return list(connection.execute(chosen).fetchall())

    def _number(self, statement: Any) -> int:
        with self._storage.index_connection() as connection:
            return int(connection.execute(statement).scalar_one())

    def _events(self, rows: Sequence[Any]) -> Events:
        planned: list[Planned] = []
        materialized: list[tuple[Place, Materialization]] = []
        ended: list[Ended] = []
        for event_id, run_id, kind, timestamp, stored_key, partition, stored in rows:
            at = timestamp.replace(tzinfo=UTC)
            if kind in _OUTCOMES:
                ended.append(Ended(event_id, run_id, at, _OUTCOMES[kind]))
                continue
            asset = self._assets[stored_key]
            if not _is_partition(partition, asset.has_days):
                continue
            place = Place(asset.asset_key, partition)
            if kind == _PLANNED:
                planned.append(Planned(run_id, place))
            elif receipt := _read_receipt(asset, stored):
                code_version, content_at = receipt
                made = Materialization(event_id, run_id, at, code_version, content_at or at)
                materialized.append((place, made))
        return Events(planned=planned, materialized=materialized, ended=ended)


_log = SqlEventLogStorageTable.c


def _read_receipt(asset: TrackedAsset, stored: str) -> tuple[str | None, datetime | None] | None:
    """The version of the code, and when the content was extracted. None where somebody else reported the event."""
    details = _decode_stored(stored).dagster_event.event_specific_data.materialization
    entries = {entry.label: entry.entry_data for entry in details.metadata_entries}
    if asset.receipt not in entries:
        return None
    run_id = _decode_text(entries[_RUN_ID]).text if _RUN_ID in entries else None
    return (details.tags or {}).get(_CODE_VERSION), _started_at(run_id) if run_id else None


def _started_at(text: str) -> datetime | None:
    """A run's id begins with the moment at which its extraction did. Not by the library that makes ids: to take them
    apart it needs as long as all else that is read of an event."""
    try:
        run_id = parse_run_id(text)
    except PartitionKeyError:
        return None
    milliseconds = int(run_id[:10].translate(_CROCKFORD), 32)
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


@lru_cache(maxsize=1 << 17)
def _is_partition(partition: str, has_days: bool) -> bool:
    try:
        if has_days:
            return partition_key_from_label(partition, source="", query_name="").label == partition
        return parse_customer_id(partition) == partition
    except PartitionKeyError:
        return False


def _stored_key(asset: TrackedAsset) -> str:
    return dg.AssetKey(asset.asset_key.split("/")).to_string()
