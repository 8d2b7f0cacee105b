"""Which version of a pointer table a reader of the past is shown."""

from collections.abc import Iterator
from datetime import UTC, datetime

from deltalake import DeltaTable

from gads_assets.errors import ReadError, WarehouseError
from gads_assets.warehouse.delta_tables import readable_delta_errors
from gads_assets.warehouse.marks import readable_from

_COMMITS_AT_ONCE = 32


def table_as_of(newest: DeltaTable, as_of: int | datetime, *, query_name: str, now: datetime) -> DeltaTable | None:
    """The pointer table as it was then, or None for a moment before its first commit.

    Moments are those that Delta wrote into each commit. Raises ReadError for what is still to come, and for what
    cannot be shown any more: housekeeping has collected its rows, or Delta its log.
    """
    version = _version_at(newest, as_of, query_name=query_name, now=now) if isinstance(as_of, datetime) else as_of
    if version is None:
        return None
    oldest = readable_from(newest)
    if not oldest <= version <= newest.version():
        raise ReadError(
            f"{query_name} cannot be read as of {_said(as_of, version)}: its readable pointer versions are {oldest} to "
            f"{newest.version()}; choose one of these"
        )
    uri = newest.table_uri
    try:
        with readable_delta_errors(uri):
            return DeltaTable(uri, version=version)
    except WarehouseError as error:
        raise gone(query_name, as_of) from error


def gone(query_name: str, as_of: int | datetime) -> ReadError:
    return ReadError(
        f"{query_name} cannot be read as of {as_of} any more: Delta has removed that part of its log or its files; "
        "choose a later time or version"
    )


def _version_at(newest: DeltaTable, moment: datetime, *, query_name: str, now: datetime) -> int | None:
    if moment.tzinfo is None:
        raise ReadError(f"the time {moment} has no zone; give one, for example {moment.isoformat()}+00:00")
    if moment > now:
        raise ReadError(f"the time {moment} is in the future; give one up to now, {now:%Y-%m-%dT%H:%M:%SZ}")
    oldest = None
    for version, committed in _commits(newest):
        if committed <= moment:
            return version
        oldest = version
    if oldest == 0:
        return None
    raise gone(query_name, moment)


def _commits(table: DeltaTable) -> Iterator[tuple[int, datetime]]:
    """Newest first and as far back as the log goes, a part of it at a time: most questions are about lately."""
    limit, told = _COMMITS_AT_ONCE, table.version() + 1
    while True:
        with readable_delta_errors(table.table_uri):
            commits = table.history(limit)
        for commit in commits:
            if commit["version"] < told:
                told = commit["version"]
                yield told, datetime.fromtimestamp(commit["timestamp"] / 1000, UTC)
        if len(commits) < limit:
            return
        limit *= 4


def _said(as_of: int | datetime, version: int) -> str:
    return f"{as_of} (pointer version {version})" if isinstance(as_of, datetime) else f"pointer version {as_of}"
