"""Statuses that came about as they do in life: events in a real Dagster log, rows of a real ledger, real pointers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from itertools import count
from typing import Any, assert_never

import dagster as dg
from dagster._core.events import DagsterEvent
from dagster._core.utils import make_new_run_id
from ulid import ULID

from gads_assets.domain.accounts import AccountStatus
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId, StageId
from gads_assets.domain.partition_status import Outcome, Place
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.domain.roles import Role
from gads_assets.domain.state import ExtractionOutcome
from gads_assets.errors import GadsError, QuotaExhaustedError
from gads_assets.orchestration.status import StatusDesk
from gads_assets.orchestration.tracking import tracked_assets
from gads_assets.orchestration.workplace import Workplace
from gads_assets.status.board import StatusBoard
from gads_assets.status.tracking import FreshnessPolicy, TrackedAsset
from gads_assets.warehouse.pointers import append_pointers
from gads_assets_tests.event_logs import ENDS, JOB, MadeLog
from gads_assets_tests.ledgers import extraction, judgement, load
from gads_assets_tests.status_desks import account

NOW = datetime(2026, 11, 17, 18, tzinfo=UTC)
LAST_DAY = date(2026, 11, 16)
FIRST_DAY = LAST_DAY - timedelta(days=399)
FILLED_DAYS = 100
MADE_AT = datetime(2026, 11, 17, 5, tzinfo=UTC)
"""When the backfill ended that filled the newest days; what happens in a test is later."""

_RUN_TAKES = timedelta(minutes=20)
RECORDS = 1482
CAMPAIGN, AD_GROUP = "google_ads/campaign", "google_ads/ad_group"
ACCOUNT_DAY, FRESHNESS = "google_ads/marts/account_day", "google_ads/marts/freshness"
QUERIES = {CAMPAIGN: "campaign", AD_GROUP: "ad_group"}
HOSTILE = "Müller </script><img src=x onerror=alert(1)> & \u2028Söhne"
CLOSED_AT = NOW - timedelta(days=3)

# A day may be missing for eight and a half days. Content of its first day passes as long after the second.
_POLICY = FreshnessPolicy(settling=timedelta(hours=3), allowance=timedelta(days=8, hours=12), due_ages=(1, 2))
_NAMES = (
    "Harbor Street Bakery",
    "Alpine Cycle Works",
    "Meridian Dental Group",
    "Café Zürich",
    "Blue Fern Garden Centre",
    HOSTILE,
)


class Look(StrEnum):
    FRESH = "fresh"
    """Extracted, judged, loaded."""

    UPSTREAM_CHANGED = "upstream changed"
    """Extracted again since, and not loaded."""

    LATE = "late"
    """Loaded, of an extraction on the day's first day; for days that are at least ten days old."""

    CODE_CHANGED_CANCELLED = "code changed, cancelled"
    """Made by other code than today's, and somebody stopped the run that was to renew it."""

    FAILED = "failed"
    """There, and the run that was to renew it failed."""

    FAILED_AND_STALE = "failed and stale"
    """Extracted again since; the run after that failed."""

    CANCELLED = "cancelled"
    """There, and somebody stopped the run that was to renew it."""

    WITHDRAWN = "withdrawn"
    """There, until its run was judged again and rejected."""

    NEVER = "never"
    """Nobody ever tried; for the newest eight days."""

    NEVER_FAILED = "never, failed"
    """The first run failed; for the newest eight days."""

    OVERDUE = "overdue"
    """Nobody ever tried; for older days."""

    OVERDUE_FAILED = "overdue, failed"
    """The first run failed; for older days."""


_WITHOUT_DATA = frozenset({Look.NEVER, Look.NEVER_FAILED, Look.OVERDUE, Look.OVERDUE_FAILED})
_PUBLISHED_FOR = frozenset({Look.FRESH, Look.LATE, Look.CODE_CHANGED_CANCELLED})


class WrittenStatus:
    """Two queries with their raw extractions, and both marts. Events begin at `start`, a second apart."""

    def __init__(self, here: Workplace, instance: dg.DagsterInstance, *, start: datetime) -> None:
        self.here = here
        self.instance = instance
        desk = StatusDesk(here, instance, assets=[*_tracked(here)], now=lambda: NOW)
        self.assets: Sequence[TrackedAsset] = desk.assets
        self.board: StatusBoard = desk.board
        self.log = MadeLog(instance, desk.assets, start=start)
        self._start = start
        self._seconds = count()

    def register(self, customers: Mapping[CustomerId, str], *, closed: Iterable[CustomerId] = ()) -> None:
        accounts = [account(customer_id, name=name) for customer_id, name in customers.items()]
        gone = {"status": AccountStatus.INACTIVE, "closed_at": CLOSED_AT, "closed_reason": "CANCELED"}
        written = [replace(each, **gone) if each.customer_id in closed else each for each in accounts]  # type: ignore[arg-type]
        self.here.customers_as(Role.OPERATOR).register_customers(written, now=NOW)

    def change(self, customer_id: CustomerId, day: date, look: Look, asset_key: str = CAMPAIGN) -> None:
        """Appends what leads to that look. Data that is there stays: no look without data can follow one with it."""
        key = _key(asset_key, customer_id, day)
        is_made = key in self.here.store_as(Role.CONSUMER).states([key])
        if look in _WITHOUT_DATA:
            assert not is_made, f"{key} has data"
        elif not is_made or look in _PUBLISHED_FOR:
            content_at = _opened(day) if look is Look.LATE else None
            code_version = "schema-0" if look is Look.CODE_CHANGED_CANCELLED else ""
            self.publish([key], content_at=content_at, code_version=code_version)
        self._go_on(key, look)

    def _go_on(self, key: PartitionKey, look: Look) -> None:
        match look:
            case Look.UPSTREAM_CHANGED:
                self._extract_again(key)
            case Look.FAILED_AND_STALE:
                self._extract_again(key)
                self._fail(key)
            case Look.FAILED | Look.NEVER_FAILED | Look.OVERDUE_FAILED:
                self._fail(key)
            case Look.CANCELLED | Look.CODE_CHANGED_CANCELLED:
                self._cancel(key)
            case Look.WITHDRAWN:
                self._withdraw(key)
            case Look.FRESH | Look.LATE | Look.NEVER | Look.OVERDUE:
                pass
            case _:
                assert_never(look)

    def publish(
        self,
        keys: Sequence[PartitionKey],
        *,
        at: datetime | None = None,
        content_at: datetime | None = None,
        code_version: str = "",
    ) -> str:
        """All of one query, in one run that extracts, judges and loads them; the run's id."""
        moment, labels = at or self._moment(), [key.label for key in keys]
        table, raw = _assets_of(keys[0])
        run_id = self._begin(table, raw, labels=labels, at=moment - _RUN_TAKES)
        extracted = self._extract(keys, run_id, at=content_at or moment - _RUN_TAKES)
        content = {} if content_at is None else {"run_id": extracted[keys[0]][0]}
        self.log.materialize_many(run_id, raw, labels, at=moment, metadata={"run_seq": 1, **content})
        self._judge_and_load(extracted, run_id, at=moment)
        metadata = {"pointer_version": 1, **content}
        self.log.materialize_many(run_id, table, labels, at=moment, code_version=code_version, metadata=metadata)
        self._finish(run_id, Outcome.SUCCEEDED, at=moment)
        return run_id

    def make_marts(self, customer_days: Mapping[CustomerId, Sequence[date]], *, at: datetime) -> None:
        run_id = self._begin(at=at)
        labels = [f"{customer_id}|{day}" for customer_id, days in customer_days.items() for day in days]
        self.log.materialize_many(run_id, ACCOUNT_DAY, labels, at=at)
        self.log.materialize_many(run_id, FRESHNESS, list(customer_days), at=at)
        self._finish(run_id, Outcome.SUCCEEDED, at=at)

    def _extract_again(self, key: PartitionKey) -> None:
        moment, (_, raw) = self._moment(), _assets_of(key)
        run_id = self._begin(raw, labels=[key.label], at=moment)
        self._extract([key], run_id, at=moment)
        self.log.materialize(run_id, Place(raw, key.label), at=moment)
        self._finish(run_id, Outcome.SUCCEEDED, at=self._moment())

    def _fail(self, key: PartitionKey) -> None:
        moment = self._moment()
        run_id = self._begin(*_assets_of(key), labels=[key.label], at=moment)
        self._extract([key], run_id, at=moment, error=f"the quota is exhausted for {HOSTILE}; waiting 3600 s")
        self._finish(run_id, Outcome.FAILED, at=self._moment())

    def _cancel(self, key: PartitionKey) -> None:
        run_id = self._begin(*_assets_of(key), labels=[key.label], at=self._moment())
        self._finish(run_id, Outcome.CANCELLED, at=self._moment())

    def _withdraw(self, key: PartitionKey) -> None:
        """As its validator does: the verdict opens a demotion, a pointer hides the rows, and the demotion ends."""
        store, moment = self.here.store_as(Role.VALIDATOR), self._moment()
        state = store.states([key])[key]
        assert state.current_run_id
        assert state.current_run_seq
        rejected = judgement(state.current_run_id, state.current_run_seq, accepted=False)
        [recorded] = store.record_judgements([(key, rejected)], now=moment, dagster_run_id=None)
        assert recorded.demotion_opened
        pointer = _pointer(key, state.current_run_id, recorded.state_version, at=moment)
        hiding = replace(pointer, status=PointerStatus.UNAVAILABLE, record_count=0)
        append_pointers(self.here.layout, key.query_name, [hiding])
        store.finish_demotions([recorded.demotion_opened], now=moment)

    def _extract(
        self, keys: Sequence[PartitionKey], run_id: str, *, at: datetime, error: str | None = None
    ) -> dict[PartitionKey, tuple[RunId, int]]:
        store = self.here.store_as(Role.EXTRACTOR)
        numbers = store.allocate_run_seqs(len(keys))
        made = {key: (RunId(str(ULID.from_datetime(at))), seq) for key, seq in zip(keys, numbers, strict=True)}
        went = {"started_at": at, "finished_at": at, "dagster_run_id": run_id}
        if error:
            went |= {"outcome": ExtractionOutcome.FAILED, "error_message": error}
            went |= {"error_class": QuotaExhaustedError.error_class, "retry_at": at + timedelta(hours=1)}
        store.record_extractions(
            replace(extraction(), key=key, run_id=run, run_seq=seq, **went)  # type: ignore[arg-type]
            for key, (run, seq) in made.items()
        )
        return made

    def _judge_and_load(
        self, extracted: Mapping[PartitionKey, tuple[RunId, int]], run_id: str, *, at: datetime
    ) -> None:
        judged = [(key, replace(judgement(run, seq), record_count=RECORDS)) for key, (run, seq) in extracted.items()]
        recorded = self.here.store_as(Role.VALIDATOR).record_judgements(judged, now=at, dagster_run_id=run_id)
        pointers = [_pointer(each.key, extracted[each.key][0], each.state_version, at=at) for each in recorded]
        version = append_pointers(self.here.layout, pointers[0].key.query_name, pointers)
        self.here.store_as(Role.LOADER).record_loads(
            replace(load(key), run_id=run, record_count=RECORDS, pointer_version=version, loaded_at=at)
            for key, (run, _) in extracted.items()
        )

    def _begin(self, *asset_keys: str, labels: Sequence[str] = (), at: datetime) -> str:
        run_id = make_new_run_id()
        self.instance.add_run(dg.DagsterRun(job_name=JOB, run_id=run_id))
        self._tell_run(run_id, dg.DagsterEventType.RUN_START, at)
        for asset_key in asset_keys:
            self.log.plan_many(run_id, asset_key, labels)
        return run_id

    def _finish(self, run_id: str, outcome: Outcome, *, at: datetime) -> None:
        self.log.end(run_id, outcome, at=at)
        self._tell_run(run_id, ENDS[outcome], at)

    def _tell_run(self, run_id: str, kind: dg.DagsterEventType, at: datetime) -> None:
        event = DagsterEvent(event_type_value=kind.value, job_name=JOB)
        self.instance.run_storage.handle_run_event(run_id, event, at)

    def _moment(self) -> datetime:
        return self._start + timedelta(seconds=next(self._seconds))


class FaultyBoard:
    """The board, except that `trouble` is its answer to the `troubled` questions."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board
        self.trouble: GadsError | None = None
        self.troubled = frozenset({"version", "overview", "matrix", "partition"})

    def version(self) -> str:
        self._answer_trouble("version")
        return self._board.version()

    def overview(self) -> dict[str, Any]:
        self._answer_trouble("overview")
        return self._board.overview()

    def matrix(self, asset_key: str, first: date | None = None, last: date | None = None) -> dict[str, Any]:
        self._answer_trouble("matrix")
        return self._board.matrix(asset_key, first, last)

    def partition(self, asset_key: str, partition_key: str) -> dict[str, Any]:
        self._answer_trouble("partition")
        return self._board.partition(asset_key, partition_key)

    def _answer_trouble(self, question: str) -> None:
        if self.trouble and question in self.troubled:
            raise self.trouble


def customers_of(number: int) -> dict[CustomerId, str]:
    """Their names: one of them is hostile, and no two are alike."""
    return {CustomerId(f"{2145550101 + each * 1_000_003}"): _name(each) for each in range(number)}


def newest_days(days: int, *, customer_id: CustomerId, closed: Iterable[CustomerId] = ()) -> list[date]:
    """Those that are open: of an account that was closed, up to then."""
    last = CLOSED_AT.date() - timedelta(days=1) if customer_id in closed else LAST_DAY
    return [last - timedelta(days=age) for age in range(days)]


def keys_of(asset_key: str, customer_id: CustomerId, days: Iterable[date]) -> list[PartitionKey]:
    return [_key(asset_key, customer_id, day) for day in days]


def _tracked(here: Workplace) -> Iterable[TrackedAsset]:
    for asset in tracked_assets(here.catalog):
        if asset.query_name in QUERIES.values():
            yield replace(asset, first_day=FIRST_DAY, policy=_POLICY)
        elif asset.query_name is None:
            yield replace(asset, first_day=FIRST_DAY)


def _key(asset_key: str, customer_id: CustomerId, day: date) -> PartitionKey:
    return PartitionKey(source="google_ads", customer_id=customer_id, query_name=QUERIES[asset_key], logical_date=day)


def _assets_of(key: PartitionKey) -> tuple[str, str]:
    return f"google_ads/{key.query_name}", f"google_ads/raw/{key.query_name}"


def _opened(day: date) -> datetime:
    return datetime.combine(day + timedelta(days=1), time(5), UTC)


def _pointer(key: PartitionKey, run_id: RunId, state_version: int, *, at: datetime) -> Pointer:
    return Pointer(
        key=key,
        run_id=run_id,
        stage_id=StageId("stage"),
        schema_version="1",
        record_count=RECORDS,
        content_digest="digest",
        state_version=state_version,
        stage_commit=1,
        status=PointerStatus.ACTIVE,
        loaded_at=at,
    )


def _name(number: int) -> str:
    if number < len(_NAMES):
        return _NAMES[number]
    plain = _NAMES[:-1]
    return f"{plain[number % len(plain)]} {number // len(plain) + 1}"
