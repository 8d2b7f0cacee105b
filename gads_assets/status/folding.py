"""Dagster's events, folded into a row a partition: from where the last fold stopped, by one process at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, text
from ulid import ULID

from gads_assets.domain.partition_status import (
    Attempt,
    Change,
    Events,
    Folded,
    Materialization,
    Outcome,
    Place,
    fold,
    places_touched,
)
from gads_assets.state.connection import transaction
from gads_assets.state.rows import rows_json
from gads_assets.status.event_log import EventLog
from gads_assets.status.tracking import TrackedAsset, Workspace, downstream_of

_AT_ONCE: Final = 20_000
"""How many numbers of the log are looked at in one go: it bounds the memory."""
_KEPT_AT_ONCE: Final = 10 * _AT_ONCE
"""How many are folded in one transaction, where nothing can still be on its way."""

_LONGEST_INSERT: Final = timedelta(minutes=1)
"""From the moment at which an event has a number until it can be seen, or never will be."""

_OPEN = text("""
    INSERT INTO status_cursor (tenant_id, workspace_id, folded_until) VALUES (:tenant_id, :workspace_id, 0)
    ON CONFLICT DO NOTHING
""")

_LOCK = text("""
    SELECT folded_until, horizon, horizon_at <= statement_timestamp() - :longest_insert AS is_settled, last_end
    FROM status_cursor
    WHERE (tenant_id, workspace_id) = (:tenant_id, :workspace_id) FOR UPDATE
""")

_MOVE = text("""
    UPDATE status_cursor SET folded_until = :folded_until, horizon = :horizon,
        last_change = coalesce(:row_version, last_change), last_end = :last_end,
        horizon_at = CASE WHEN CAST(:horizon AS bigint) IS NULL THEN NULL
            WHEN horizon = :horizon THEN horizon_at ELSE statement_timestamp() END
    WHERE (tenant_id, workspace_id) = (:tenant_id, :workspace_id)
""")

_VERSION = text("SELECT last_change FROM status_cursor WHERE (tenant_id, workspace_id) = (:tenant_id, :workspace_id)")

# The log is another than the one that was folded: what its events said stays, and any event of the new one is newer.
_BEGIN_ANEW = text("""
    UPDATE folded_status SET materialization_event = materialization_event * 0, attempt_event = 0,
        upstream_event = NULL, upstream_changed_at = NULL
    WHERE (tenant_id, workspace_id) = (:tenant_id, :workspace_id)
""")

# By its key each, whatever PostgreSQL believes of how many there are: a table that grew since it was last looked at
# would be read once for every key.
_KNOWN = text("""
    SELECT f.* FROM jsonb_to_recordset(CAST(:places AS jsonb)) AS p (asset_key text, partition_key text)
        CROSS JOIN LATERAL (
            SELECT * FROM folded_status AS f
            WHERE (f.tenant_id, f.workspace_id, f.asset_key, f.partition_key)
                = (:tenant_id, :workspace_id, p.asset_key, p.partition_key)
            LIMIT 1
        ) AS f
""")

# Only a materialization clears what was found to be stale.
_SAVE = text("""
    INSERT INTO folded_status AS f (tenant_id, workspace_id, asset_key, partition_key, customer_id, logical_date,
        last_materialization_run_id, last_materialization_at, last_materialization_code_version, content_at,
        last_attempt_run_id, last_attempt_at, last_attempt_outcome, row_version,
        materialization_event, attempt_event, upstream_event, upstream_changed_at)
    SELECT :tenant_id, :workspace_id, asset_key, partition_key, split_part(partition_key, '|', 1),
        CAST(nullif(split_part(partition_key, '|', 2), '') AS date),
        last_materialization_run_id, last_materialization_at, last_materialization_code_version, content_at,
        last_attempt_run_id, last_attempt_at, last_attempt_outcome, :row_version,
        materialization_event, attempt_event, upstream_event, upstream_changed_at
    FROM jsonb_populate_recordset(NULL::folded_status, CAST(:rows AS jsonb))
    ON CONFLICT (tenant_id, workspace_id, asset_key, partition_key) DO UPDATE
    SET last_materialization_run_id = excluded.last_materialization_run_id,
        last_materialization_at = excluded.last_materialization_at,
        last_materialization_code_version = excluded.last_materialization_code_version,
        content_at = excluded.content_at,
        last_attempt_run_id = excluded.last_attempt_run_id,
        last_attempt_at = excluded.last_attempt_at,
        last_attempt_outcome = excluded.last_attempt_outcome,
        stale_since = CASE WHEN f.materialization_event IS NOT DISTINCT FROM excluded.materialization_event
            THEN f.stale_since END,
        stale_reason_code = CASE WHEN f.materialization_event IS NOT DISTINCT FROM excluded.materialization_event
            THEN f.stale_reason_code END,
        row_version = excluded.row_version,
        materialization_event = excluded.materialization_event,
        attempt_event = excluded.attempt_event,
        upstream_event = excluded.upstream_event,
        upstream_changed_at = excluded.upstream_changed_at
""")

_SEE_CODE = text("""
    INSERT INTO asset_code (tenant_id, workspace_id, asset_key, code_version, since)
    SELECT :tenant_id, :workspace_id, asset_key, code_version, statement_timestamp()
    FROM unnest(CAST(:asset_keys AS text[]), CAST(:code_versions AS text[])) AS n (asset_key, code_version)
    WHERE NOT EXISTS (
        SELECT FROM asset_code AS known
        WHERE (known.tenant_id, known.workspace_id, known.asset_key, known.code_version)
            = (:tenant_id, :workspace_id, n.asset_key, n.code_version))
    ON CONFLICT (tenant_id, workspace_id, asset_key) DO UPDATE
    SET code_version = excluded.code_version, since = excluded.since
""")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """`partitions` are those of which something was new, each time that it was."""

    events: int = 0
    partitions: int = 0

    def __add__(self, other: "Progress") -> "Progress":
        return Progress(events=self.events + other.events, partitions=self.partitions + other.partitions)


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """All up to `folded_until` is folded for good; nothing more can come up to `horizon` once it is settled."""

    folded_until: int
    horizon: int | None = None
    is_settled: bool | None = field(default=None, compare=False)
    last_end: int = field(default=0, compare=False)


class Folder:
    """Folds a log into the rows of a workspace. Whoever comes while another folds waits for it, and goes on from there.

    Events become visible in another order than that of their numbers: a slow insert may show a low one after a high one
    was folded. So the cursor stays before a number that is missing, until that can only be one that never comes; what
    is read again meanwhile changes nothing.
    """

    def __init__(self, engine: Engine, workspace: Workspace, assets: Sequence[TrackedAsset]) -> None:
        self._engine = engine
        self._assets = assets
        self._whose = {"tenant_id": workspace.tenant_id, "workspace_id": workspace.workspace_id}
        self._downstream = downstream_of(assets)

    def fold(self, log: EventLog, *, progress: Callable[[int, int], None] | None = None) -> Progress:
        """`progress` hears how many numbers of how many were looked at. Of a long log each portion that is old enough
        stays folded, also if the process is killed in the next."""
        done = Progress()
        while True:
            with self._folding(log) as (connection, cursor):
                start, highest, settled = cursor.folded_until, log.highest(), log.settled()
                # The highest may have been deleted since it was folded.
                upto = min(settled, start + _KEPT_AT_ONCE) if settled > start else max(start, highest)
                # Asked before they are read: what came in between would pass for read.
                is_whole = upto <= settled or log.is_whole(start, upto)
                moved = move_cursor(cursor, start, upto, is_whole=is_whole)
                done += self._fold_portions(connection, cursor, moved, _read_ahead(log, start, upto))
            if progress:
                progress(upto, highest)
            if upto >= highest:
                return done

    def _fold_portions(
        self, connection: Connection, cursor: Cursor, moved: Cursor, portions: Iterable[Events]
    ) -> Progress:
        row_version = str(ULID())
        is_new = self._see_code(connection)
        done, last_end = Progress(), cursor.last_end
        for events in portions:
            known = self._known(connection, places_touched(events, self._downstream))
            news = fold(events, known, self._downstream)
            self._save(connection, news, row_version)
            last_end = max(last_end, *(ended.event_id for ended in events.ended), 0)
            seen = len(events.planned) + len(events.materialized) + len(events.ended)
            done += Progress(events=seen, partitions=len(news))
        is_new = is_new or done.partitions > 0 or last_end > cursor.last_end
        if is_new or moved != cursor:
            now = {"folded_until": moved.folded_until, "horizon": moved.horizon, "last_end": last_end}
            connection.execute(_MOVE, {**self._whose, **now, "row_version": row_version if is_new else None})
        return done

    def version(self) -> str:
        """Another as soon as a fold has changed a row, or seen other code, or the end of a run, which may have changed
        the ledger."""
        with transaction(self._engine) as connection:
            return connection.execute(_VERSION, self._whose).scalar() or ""

    @contextmanager
    def _folding(self, log: EventLog) -> Iterator[tuple[Connection, Cursor]]:
        """A transaction in which nobody else folds, and where the last fold stopped."""
        with transaction(self._engine) as connection:
            connection.execute(_OPEN, self._whose)
        with transaction(self._engine) as connection:
            row = connection.execute(_LOCK, {**self._whose, "longest_insert": _LONGEST_INSERT}).one()
            cursor = Cursor(**row._mapping)
            if log.numbers_given() < cursor.folded_until:
                connection.execute(_BEGIN_ANEW, self._whose)
                cursor = Cursor(folded_until=0)
            yield connection, cursor

    def _see_code(self, connection: Connection) -> bool:
        """From when on partitions that were made by another version are stale. Whether there is a new one."""
        versions = {asset.asset_key: asset.code_version for asset in self._assets}
        asked = {"asset_keys": list(versions), "code_versions": list(versions.values())}
        return connection.execute(_SEE_CODE, {**self._whose, **asked}).rowcount > 0

    def _known(self, connection: Connection, places: set[Place]) -> dict[Place, Folded]:
        asked = rows_json(place._asdict() for place in places)
        rows = connection.execute(_KNOWN, {**self._whose, "places": asked})
        return {Place(row.asset_key, row.partition_key): _from_row(row) for row in rows}

    def _save(self, connection: Connection, news: Mapping[Place, Folded], row_version: str) -> None:
        if news:
            rows = rows_json(_row(place, folded) for place, folded in news.items())
            connection.execute(_SAVE, {**self._whose, "rows": rows, "row_version": row_version})


def _read_ahead(log: EventLog, start: int, upto: int) -> Iterator[Events]:
    """The next portion is read while the last one is written: the database and this process take turns otherwise."""
    portions = [(after, min(after + _AT_ONCE, upto)) for after in range(start, upto, _AT_ONCE)]
    with ThreadPoolExecutor(1) as ahead:
        coming = deque(ahead.submit(log.between, *portion) for portion in portions[:1])
        for number in range(1, len(portions) + 1):
            events = coming.popleft().result()
            coming.extend(ahead.submit(log.between, *portion) for portion in portions[number : number + 1])
            yield events


def move_cursor(cursor: Cursor, start: int, highest: int, *, is_whole: bool) -> Cursor:
    """Where the next fold starts, once all from `start` to `highest` is folded.

    Where a number was missing, `highest` is remembered as a horizon; all up to it that ever comes has come once it is
    settled.
    """
    if is_whole:
        return Cursor(folded_until=highest, horizon=None)
    horizon = cursor.horizon if cursor.horizon and start < cursor.horizon <= highest else None
    if horizon is None:
        return Cursor(folded_until=start, horizon=highest)
    if not cursor.is_settled:
        return Cursor(folded_until=start, horizon=horizon)
    return Cursor(folded_until=horizon, horizon=highest if highest > horizon else None)


def _from_row(row: Row[Any]) -> Folded:
    made = change = None
    if row.materialization_event is not None:
        made = Materialization(
            row.materialization_event,
            row.last_materialization_run_id,
            row.last_materialization_at,
            row.last_materialization_code_version,
            row.content_at,
        )
    if row.upstream_event is not None:
        change = Change(row.upstream_event, row.upstream_changed_at)
    outcome = Outcome(row.last_attempt_outcome)
    attempt = Attempt(row.attempt_event, row.last_attempt_run_id, row.last_attempt_at, outcome)
    return Folded(attempt, made, change)


def _row(place: Place, folded: Folded) -> dict[str, object]:
    made, attempt, change = folded.last_materialization, folded.last_attempt, folded.upstream_change
    row: dict[str, object] = {
        "asset_key": place.asset_key,
        "partition_key": place.partition_key,
        "attempt_event": attempt.event_id,
        "last_attempt_run_id": attempt.run_id,
        "last_attempt_at": attempt.at,
        "last_attempt_outcome": attempt.outcome,
    }
    if made:
        row["materialization_event"] = made.event_id
        row["last_materialization_run_id"] = made.run_id
        row["last_materialization_at"] = made.at
        row["last_materialization_code_version"] = made.code_version
        row["content_at"] = made.content_at
    if change:
        row["upstream_event"] = change.event_id
        row["upstream_changed_at"] = change.at
    return row
