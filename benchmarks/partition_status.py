"""Folding a hundred thousand events, and counting a hundred thousand partitions with all that makes them stale."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final, cast

import dagster as dg
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value
from ulid import ULID

from benchmarks.results import Result
from benchmarks.timing import in_turns, side_by_side
from gads_assets.domain.accounts import Account
from gads_assets.domain.keys import CustomerId
from gads_assets.domain.partition_status import Outcome, Place, StaleReason
from gads_assets.domain.roles import Role
from gads_assets.orchestration.customers import dagster_instance, register_accounts
from gads_assets.orchestration.partitions import customer_days
from gads_assets.orchestration.status import StatusDesk
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.status.deriving import Selection
from gads_assets.status.folding import Folder
from gads_assets.status.telling import summaries
from gads_assets.status.tracking import Workspace
from gads_assets_tests.event_logs import MadeLog

RAW: Final = "google_ads/raw/campaign"
TABLE: Final = "google_ads/campaign"
FIRST_DAY: Final = date(2024, 1, 1)
_EXTRACTED: Final = datetime(2026, 11, 1, tzinfo=UTC)
_LONG_BEFORE: Final = datetime(2024, 1, 2, tzinfo=UTC)
_PER_RUN: Final = 400
_WANTED_RATE: Final = 20_000.0
_ALLOWANCE_MILLISECONDS: Final = 1000.0
_AT_ONCE: Final = 20_000
_ZONES: Final = ("America/New_York", "Europe/Berlin", "Asia/Tokyo", "Australia/Sydney", "America/Sao_Paulo")


def measure_fold(
    folder: Path, *, customers: int = 50, days: int = 500, warm_up: int = 1, rounds: int = 3
) -> list[Result]:
    """Each partition was planned and materialized, raw and published: four events, and one a run for its end."""
    partitions = customers * days
    with open_desk(folder) as desk:
        desk.fill([RAW, TABLE], customers=customers, days=days)
        highest = desk.log.highest()

        def fold(_: int) -> None:
            folded = desk.new_folder().fold(desk.log)
            assert folded.partitions == 2 * partitions

        def read(_: int) -> None:
            for after in range(0, highest, _AT_ONCE):
                desk.log.between(after, min(after + _AT_ONCE, highest))

        def read_as_dagster_does(_: int) -> None:
            assert desk.read_as_dagster_does() == 4 * partitions

        def select(_: int) -> None:
            assert desk.select_all() == highest

        taken = in_turns(fold, read, select, read_as_dagster_does, warm_up=warm_up, rounds=rounds)
    ours, reading, selecting, dagsters = map(median, taken)
    return [
        Result(
            name="fold_events",
            unit="ms",
            ours=ours,
            peer=f"reading the same {highest} events from the log, decoded, and folding nothing",
            peer_value=reading,
            goal=2.0,
        ),
        Result(
            name="fold_events_rate",
            unit="events/s",
            ours=highest / ours * 1000,
            peer="the rate it has to reach",
            peer_value=_WANTED_RATE,
            goal=1.0,
            better="higher",
        ),
        Result(
            name="fold_events_select",
            unit="ms",
            ours=ours,
            peer="a plain SELECT of the same rows, of which nothing is decoded",
            peer_value=selecting,
        ),
        Result(
            name="fold_events_dagster",
            unit="ms",
            ours=ours,
            peer="reading the same events as Dagster's sensors and pages do",
            peer_value=dagsters,
        ),
    ]


def measure_summary(
    folder: Path, *, customers: int = 200, days: int = 500, warm_up: int = 1, rounds: int = 3
) -> list[Result]:
    """Of one asset, with partitions that are stale for each of the reasons; most are current."""
    partitions = customers * days
    with open_desk(folder) as desk:
        desk.fill([TABLE], customers=customers, days=days)
        desk.extract_again(customers=customers, days=days)
        desk.fold()
        # A small log has one run only.
        wanted = {*StaleReason} if partitions > _PER_RUN else {StaleReason.UPSTREAM_CHANGED, StaleReason.CODE_CHANGED}

        def summarize(_: int) -> None:
            found = desk.statuses.summary(desk.selection(days), now=_EXTRACTED + timedelta(days=2))
            counted = summaries(found)[TABLE]
            assert counted.partitions == partitions
            assert counted.stale.keys() >= wanted

        def ask_dagster(_: int) -> None:
            assert desk.ask_dagster() == partitions

        taken = side_by_side(summarize, ask_dagster, warm_up=warm_up, rounds=rounds)
    return [
        Result(
            name="status_summary",
            unit="ms",
            ours=median(taken.ours),
            peer=f"Dagster's own cold status of the same {partitions} partitions",
            peer_value=median(taken.peer),
            goal=0.2,
        ),
        Result(
            name="status_summary_total",
            unit="ms",
            ours=median(taken.ours),
            peer="the second it is allowed",
            peer_value=_ALLOWANCE_MILLISECONDS,
            goal=1.0,
        ),
    ]


class Desk:
    """A home whose log holds as many runs as wanted; each is written by Dagster's own storage."""

    def __init__(self, here: Workplace, instance: dg.DagsterInstance) -> None:
        self.here = here
        self.instance = instance
        self._desk = StatusDesk(here, instance)
        self._written = MadeLog(instance, self._desk.assets, start=_EXTRACTED)
        self.log = self._desk.log
        self.board = self._desk.board
        self.statuses = self._desk.statuses

    def fill(self, assets: Sequence[str], *, customers: int, days: int) -> None:
        """Runs of the default size, all of which went well; some published what an older version had made, or what had
        been extracted long before."""
        keys = self.register(customers=customers, days=days)
        for start in range(0, len(keys), _PER_RUN):
            some, run_id = keys[start : start + _PER_RUN], f"run {start}"
            self._written.plan(run_id, *(Place(asset, key) for asset in assets for key in some))
            for asset in assets:
                number = start // _PER_RUN % 10
                extracted = _LONG_BEFORE if number == 1 else _EXTRACTED
                self._materialize(run_id, asset, some, code_version="" if number else "older", extracted=extracted)
            self._written.end(run_id, Outcome.SUCCEEDED)

    def fill_at_once(self, asset: str, *, customers: int, days: int) -> None:
        """One run, whose events are copies of Dagster's first; one in ten of its partitions failed since."""
        keys = self.register(customers=customers, days=days)
        self._written.materialize_many("all", asset, keys)
        self._written.plan_many("retry", asset, keys[::10])
        self._written.end("retry", Outcome.FAILED)

    def register(self, *, customers: int, days: int) -> list[str]:
        """The partitions of so many customers and days."""
        ids = [CustomerId(f"{1_000_000_000 + number}") for number in range(customers)]
        register_accounts(self.here, [_account(customer_id) for customer_id in ids], now=_EXTRACTED)
        return [f"{customer_id}|{FIRST_DAY + timedelta(days=day)}" for customer_id in ids for day in range(days)]

    def extract_again(self, *, customers: int, days: int) -> None:
        """Some days of every customer, without publishing them."""
        for number in range(customers):
            keys = [f"{1_000_000_000 + number}|{FIRST_DAY + timedelta(days=day)}" for day in range(0, days, 50)]
            self._materialize(f"again {number}", RAW, keys)
            self._written.end(f"again {number}", Outcome.SUCCEEDED)

    def _materialize(
        self,
        run_id: str,
        asset: str,
        keys: Sequence[str],
        *,
        code_version: str = "",
        extracted: datetime = _EXTRACTED,
    ) -> None:
        self._written.store(
            self._written.materialized(
                run_id, Place(asset, key), code_version=code_version, metadata=_metadata(extracted)
            )
            for key in keys
        )

    def new_folder(self) -> Folder:
        """Of a workspace that nothing was folded into yet."""
        workspace = Workspace(tenant_id="bench", workspace_id=str(ULID()))
        return Folder(self.here.engine_as(Role.REPORTER), workspace, self._desk.assets)

    def fold(self) -> None:
        self._desk.folder.fold(self.log)

    def selection(self, days: int) -> Selection:
        [table] = [asset for asset in self._desk.assets if asset.asset_key == TABLE]
        return Selection(assets=[table], first=FIRST_DAY, last=FIRST_DAY + timedelta(days=days - 1))

    def select_all(self) -> int:
        storage = cast("SqlEventLogStorage", self.instance.event_log_storage)
        with storage.index_connection() as connection:
            return len(connection.exec_driver_sql("SELECT * FROM event_logs").fetchall())

    def read_as_dagster_does(self) -> int:
        """Event by event of each kind and asset, as sensors and pages read them."""
        found = 0
        for kind in (dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED):
            cursor = 0
            while True:
                wanted = dg.EventRecordsFilter(event_type=kind, after_cursor=cursor)
                records = self.instance.event_log_storage.get_event_records(wanted, limit=_AT_ONCE, ascending=True)
                if not records:
                    break
                found += len(records)
                cursor = records[-1].storage_id
        return found

    def ask_dagster(self) -> int:
        """What its page does first for an asset that it has no cached status of."""
        key = dg.AssetKey(TABLE.split("/"))
        partitions_def = customer_days(self.here.catalog)
        self.instance.event_log_storage.wipe_asset_cached_status(key)
        status = get_and_update_asset_status_cache_value(self.instance, key, partitions_def)
        assert status is not None
        return len(status.deserialize_materialized_partition_subsets(partitions_def))


@contextmanager
def open_desk(folder: Path) -> Iterator[Desk]:
    with Workplace(read_settings({"GADS_HOME": str(folder)})) as here, dagster_instance(here) as instance:
        yield Desk(here, instance)


def _account(customer_id: CustomerId) -> Account:
    return Account(
        customer_id=customer_id,
        name=f"Account {customer_id}",
        time_zone=_ZONES[int(customer_id) % len(_ZONES)],
        currency="EUR",
        login_customer_id=CustomerId("9876543210"),
        origin="emulator",
    )


def _metadata(extracted: datetime) -> dict[str, object]:
    """What a materialization of either asset carries, but for the preview, which runs of this size have none of."""
    return {
        "run_id": str(ULID.from_datetime(extracted)),
        "run_seq": 1,
        "schema_version": "1",
        "dagster/row_count": 541,
        "pointer_version": 3,
        "state_version": 1,
        "stage_id": str(ULID()),
        "content_digest": "541-f348417974614f73f5b3203a171d1cfa",
        "loaded_at": dg.MetadataValue.timestamp(_EXTRACTED),
    }
