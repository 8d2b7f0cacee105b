"""Finding and removing what killed extractors left in the raw sink. A sealed run is never among it.

What our code did not put there is reported and left alone.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId, parse_logical_date
from gads_assets.errors import RawSinkError, SealedRunError
from gads_assets.raw.layout import SEAL, Entry, partition_path, read_entry
from gads_assets.raw.sink import RawSink
from gads_assets.raw.storage import on_disk
from gads_assets.raw.walking import all_below, answering, details_of_all, entries_of, is_customer, is_day

GRACE: Final = timedelta(hours=24)
"""Well above what an extraction may last: what has not changed for so long has no writer any more."""


class OrphanKind(Enum):
    UNSEALED_RUN = "unsealed run"
    """A run directory without a seal: its extractor was killed, or is still writing."""
    SEAL_DRAFT = "draft of a seal"
    """A seal whose writer was killed while putting it in its place; the run beside it may be sealed."""
    HALF_REMOVED = "half removed run"
    """An unsealed run whose removal was killed; no writer can reach it any more, so it needs no grace."""
    DISPLACED_RUN = "displaced sealed run"
    """Sealed in the moment in which it was moved aside, and the removal was killed before it put it back."""


class Fate(Enum):
    YOUNG = "young"
    """Changed within the grace, so somebody may still be writing: left alone."""
    DUE = "due"
    """To be removed, or put back if it is displaced; nothing was done, because this is a dry run."""
    REMOVED = "removed"
    SEALED = "sealed"
    """Has a seal after all: it is in its place, whole."""
    FAILED = "failed"
    """The storage refused; the reason is given."""


@dataclass(frozen=True, kw_only=True)
class _Leftover:
    kind: OrphanKind
    key: PartitionKey
    run_id: RunId


@dataclass(frozen=True, kw_only=True)
class Orphan(_Leftover):
    """`age` is the time since anything in it changed; none, if that is said to be in the future."""

    age: timedelta
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    orphan: Orphan
    fate: Fate
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """`foreign` are the paths, below the root, of files and folders that our code does not make.

    Folders above a day are made for what is in them, so an empty one is foreign too.
    """

    orphans: tuple[Orphan, ...]
    foreign: tuple[str, ...]


def find_orphans(sink: RawSink, *, now: datetime) -> Inventory:
    """Looks at the whole sink and changes nothing; a sink that was never written to is empty."""
    orphans: list[Orphan] = []
    foreign: list[str] = []
    with answering(sink.root):
        for source, is_directory in entries_of(sink.root):
            customers = list(entries_of(sink.root / source)) if is_directory else []
            if not customers:
                foreign.append(source)
            for customer, is_folder in customers:
                ours = is_folder and is_customer(customer)
                listed = list(all_below(sink.root / source / customer)) if ours else []
                if not listed:
                    foreign.append(f"{source}/{customer}")
                leftovers, not_ours = _sort_out(source, CustomerId(customer), listed)
                foreign += [f"{source}/{customer}/{path}" for path in not_ours]
                orphans += filter(None, (_measured(sink, leftover, now) for leftover in leftovers))
    return Inventory(orphans=tuple(orphans), foreign=tuple(sorted(foreign)))


def remove_orphans(
    sink: RawSink, orphans: Iterable[Orphan], *, now: datetime, grace: timedelta = GRACE, dry_run: bool = False
) -> list[Outcome]:
    """Removes those that did not change within the grace, each looked at again just before.

    One that cannot be removed does not keep the others; one that is gone by then has no outcome.
    """
    settled = (_settle(sink, orphan, now=now, grace=grace, dry_run=dry_run) for orphan in orphans)
    return [outcome for outcome in settled if outcome]


def _settle(sink: RawSink, orphan: Orphan, *, now: datetime, grace: timedelta, dry_run: bool) -> Outcome | None:
    try:
        with answering(sink.root):
            found = _measured(sink, orphan, now)
        if found is None:
            return None
        orphan = found
        if not _is_due(orphan, grace):
            return Outcome(orphan=orphan, fate=Fate.YOUNG)
        if dry_run:
            return Outcome(orphan=orphan, fate=Fate.DUE)
        remove = sink.remove_draft if orphan.kind is OrphanKind.SEAL_DRAFT else sink.remove_unsealed
        remove(orphan.key, orphan.run_id)
    except SealedRunError:
        return Outcome(orphan=orphan, fate=Fate.SEALED)
    except RawSinkError as error:
        return Outcome(orphan=orphan, fate=Fate.FAILED, reason=str(error))
    return Outcome(orphan=orphan, fate=Fate.REMOVED)


def _is_due(orphan: Orphan, grace: timedelta) -> bool:
    return orphan.kind in (OrphanKind.HALF_REMOVED, OrphanKind.DISPLACED_RUN) or orphan.age >= grace


def _sort_out(
    source: str, customer_id: CustomerId, listed: Collection[tuple[tuple[str, ...], bool]]
) -> tuple[list[_Leftover], list[str]]:
    """Tells what is left over, and what is foreign, from all that lies below a customer's folder.

    `listed` pairs the parts of a path (query, day, entry, …) with whether it is a directory.
    """
    inside: dict[tuple[PartitionKey, Entry, RunId], set[str]] = {}
    foreign: set[tuple[str, ...]] = set()
    filled = {parts[0] for parts, _ in listed if len(parts) > 1}
    for parts, is_directory in listed:
        if (len(parts) <= 2 and not is_directory) or parts[0] not in filled:
            foreign.add(parts)
        elif len(parts) >= 2 and not is_day(parts[1]):
            foreign.add(parts[:2])
        elif len(parts) >= 3:
            ours = read_entry(parts[2])
            is_folder = is_directory or len(parts) > 3
            if ours is None or is_folder == (ours[0] is Entry.DRAFT):
                foreign.add(parts[:3])
            else:
                day = parse_logical_date(parts[1])
                key = PartitionKey(source=source, customer_id=customer_id, query_name=parts[0], logical_date=day)
                inside.setdefault((key, *ours), set()).update(parts[3:4])
    leftovers = [
        _Leftover(kind=kind, key=key, run_id=run_id)
        for (key, entry, run_id), content in inside.items()
        if (kind := _kind(entry, sealed=SEAL in content))
    ]
    return leftovers, ["/".join(parts) for parts in foreign]


def _kind(entry: Entry, *, sealed: bool) -> OrphanKind | None:
    return {
        (Entry.RUN, True): None,
        (Entry.RUN, False): OrphanKind.UNSEALED_RUN,
        (Entry.ASIDE, True): OrphanKind.DISPLACED_RUN,
        (Entry.ASIDE, False): OrphanKind.HALF_REMOVED,
    }.get((entry, sealed), OrphanKind.SEAL_DRAFT)


_ENTRIES: Final = {
    OrphanKind.UNSEALED_RUN: Entry.RUN,
    OrphanKind.SEAL_DRAFT: Entry.DRAFT,
    OrphanKind.HALF_REMOVED: Entry.ASIDE,
    OrphanKind.DISPLACED_RUN: Entry.ASIDE,
}


def _measured(sink: RawSink, leftover: _Leftover, now: datetime) -> Orphan | None:
    """None when it is gone meanwhile: writers and other removals tidy up after themselves."""
    place = sink.root / partition_path(leftover.key) / _ENTRIES[leftover.kind].name_for(leftover.run_id)
    try:
        listed = list(details_of_all(place))
        # Outside a disk, directories have no time of their own, or are none at all.
        changes = [
            datetime.fromtimestamp(found["mtime"], UTC) if on_disk(place) else place.fs.modified(found["name"])
            for found in listed
            if on_disk(place) or found["type"] != "directory"
        ]
    except FileNotFoundError:
        return None
    if not changes:
        return None
    return Orphan(
        kind=leftover.kind,
        key=leftover.key,
        run_id=leftover.run_id,
        age=max(now - max(changes), timedelta(0)),
        bytes=sum(found["size"] or 0 for found in listed if found["type"] != "directory"),
    )
