"""The sensor that tells an OpenLineage backend of every materialization, in the log's order: what does not arrive holds
up the rest.

The package's own sensor is not used: it reads the newest events first, and moves on from what was not delivered.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Final, cast

import dagster as dg
from dagster._core.storage.event_log import SqlEventLogStorage

from gads_assets.catalog.specification import Catalog
from gads_assets.errors import LineageError, SettingsError
from gads_assets.settings import Settings
from gads_assets.status.event_log import EventLog

_LONGEST_INSERT: Final = 60.0
"""Seconds from the moment at which an event has a number until it can be seen, or never will be."""
_TELLING_SECONDS: Final = 30.0
"""The daemon gives a tick a minute, and the last event of it may have to be waited for."""
_READ_AT_ONCE: Final = 500


@dataclass(frozen=True, kw_only=True)
class LineageBackend:
    """Where events are posted to, and whose assets they tell of."""

    url: str = field(repr=False)
    namespace: str


@dataclass(frozen=True, kw_only=True)
class Position:
    """All up to the number `told` has arrived, and `seen` was the highest at `seen_at`. A slow insert shows a low
    number after a high one, so nothing is told before all that may come ahead of it has come."""

    told: int = 0
    seen: int = 0
    seen_at: float = 0.0

    def settled(self, now: float) -> int:
        return max(self.told, self.seen) if now - self.seen_at >= _LONGEST_INSERT else self.told


Tell = Callable[[dg.EventLogRecord], bool]
"""Returns once the event has arrived, and whether it was one to tell of; raises LineageError where it has not."""


def lineage_backend(settings: Settings) -> LineageBackend | None:
    if settings.openlineage_url is None:
        return None
    return LineageBackend(url=settings.openlineage_url, namespace=f"{settings.tenant_id}/{settings.workspace_id}")


def lineage_sensor(
    catalog: Catalog, assets: Sequence[dg.AssetsDefinition], backend: LineageBackend | None
) -> dg.SensorDefinition | None:
    """None without a backend. The package is imported by a tick: every run loads the definitions, and tells nobody."""
    if backend is None:
        return None
    if find_spec("dagster_openlineage") is None:
        raise SettingsError(
            "GADS_OPENLINEAGE_URL is set, and dagster-openlineage is not installed; install 'gads_assets[lineage]', or "
            "unset it"
        )

    @dg.sensor(
        name=f"{catalog.source}_lineage",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells the OpenLineage backend in GADS_OPENLINEAGE_URL of every materialization, with what the "
        "asset is made of. Where nobody answers, it waits.",
    )
    def lineage(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        # It would warn at each tick that it prints to the console; and at its chattiest it logs the whole address.
        logging.getLogger("openlineage.client").setLevel(logging.ERROR)
        from gads_assets.orchestration.lineage_events import telling  # noqa: PLC0415

        position = Position(**json.loads(context.cursor)) if context.cursor else Position()
        with telling(backend, assets) as tell:
            moved, said = look(context.instance, position, tell, now=datetime.now(UTC))
        context.update_cursor(json.dumps(asdict(moved)))
        return dg.SkipReason(said)

    return lineage


def look(instance: dg.DagsterInstance, position: Position, tell: Tell, *, now: datetime) -> tuple[Position, str]:
    """Where the next look begins, and one line for people."""
    log = EventLog(cast("SqlEventLogStorage", instance.event_log_storage), [])
    if log.numbers_given() < position.told:
        position = Position()  # another log has taken the place of the one that was told
    deadline = time.monotonic() + _TELLING_SECONDS
    told, number, upto = position.told, 0, position.settled(now.timestamp())
    try:
        for record in _materializations(instance, told, upto):
            number += tell(record)
            told = record.storage_id
            if time.monotonic() > deadline:
                return replace(position, told=told), f"{number} materializations were told of; more are waiting"
    except LineageError as error:
        return replace(position, told=told), f"{number} materializations were told of; {error}"
    if now.timestamp() - position.seen_at >= _LONGEST_INSERT:
        position = Position(seen=log.highest(), seen_at=now.timestamp())
    return replace(position, told=upto), f"{number} materializations were told of"


def _materializations(instance: dg.DagsterInstance, after: int, upto: int) -> Iterator[dg.EventLogRecord]:
    """Oldest first. The instance's own way to read them is for one asset at a time, so without an order among them."""
    while after < upto:
        chosen = dg.EventRecordsFilter(
            event_type=dg.DagsterEventType.ASSET_MATERIALIZATION, after_cursor=after, before_cursor=upto + 1
        )
        records = instance.event_log_storage.get_event_records(chosen, limit=_READ_AT_ONCE, ascending=True)
        yield from records
        after = records[-1].storage_id if len(records) == _READ_AT_ONCE else upto
