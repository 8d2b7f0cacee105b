"""The status of a home whose log we write ourselves."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import dagster as dg
from sqlalchemy import RowMapping, text

from gads_assets.domain.accounts import Account
from gads_assets.domain.keys import CustomerId
from gads_assets.domain.partition_status import Outcome, Place
from gads_assets.domain.roles import Role
from gads_assets.orchestration.status import StatusDesk
from gads_assets.orchestration.workplace import Workplace
from gads_assets.status.deriving import Selection, Statuses
from gads_assets.status.event_log import EventLog
from gads_assets.status.folding import Folder, Progress
from gads_assets.status.telling import Document, told
from gads_assets.status.tracking import TrackedAsset, Workspace
from gads_assets_tests.event_logs import MadeLog

START = datetime(2026, 11, 10, 12, tzinfo=UTC)
SHOES, BIKES = CustomerId("1234567890"), CustomerId("2345678901")
DAY = date(2026, 11, 8)
RAW, TABLE = "google_ads/raw/campaign", "google_ads/campaign"
MART, FRESHNESS = "google_ads/marts/account_day", "google_ads/marts/freshness"


def account(customer_id: CustomerId, *, time_zone: str = "Europe/Berlin", name: str = "Shoes") -> Account:
    return Account(
        customer_id=customer_id,
        name=name,
        time_zone=time_zone,
        currency="EUR",
        login_customer_id=CustomerId("9876543210"),
        origin="emulator",
    )


def place(asset_key: str, customer_id: CustomerId = SHOES, day: date | None = DAY) -> Place:
    return Place(asset_key, customer_id if asset_key == FRESHNESS else f"{customer_id}|{day}")


class Desk:
    """`now` is when questions are asked; events carry the moments that the log gives them."""

    def __init__(self, here: Workplace, instance: dg.DagsterInstance, *, now: datetime) -> None:
        self.here = here
        self.instance = instance
        self.now = now
        self._desk = StatusDesk(here, instance)
        self.assets: Sequence[TrackedAsset] = self._desk.assets
        self.written = MadeLog(instance, self.assets, start=now)

    @property
    def board(self) -> Any:
        return self._desk.board

    @property
    def log(self) -> EventLog:
        return self._desk.log

    @property
    def statuses(self) -> Statuses:
        return self._desk.statuses

    def register(self, *accounts: Account) -> None:
        self.here.customers_as(Role.OPERATOR).register_customers(accounts, now=self.now)

    def asset(self, asset_key: str) -> TrackedAsset:
        return next(asset for asset in self.assets if asset.asset_key == asset_key)

    def folder(self, workspace: Workspace | None = None) -> Folder:
        chosen = workspace or self._desk.workspace
        return Folder(self.here.engine_as(Role.REPORTER), chosen, self.assets)

    def fold(self) -> Progress:
        return self.folder().fold(self._desk.log)

    def change_code(self, asset_key: str, version: str) -> None:
        """As a deployment does: definitions and folds know the new version from then on."""
        self.assets = [
            replace(asset, code_version=version) if asset.asset_key == asset_key else asset for asset in self.assets
        ]

    def selection(self, *asset_keys: str) -> Selection:
        return Selection(assets=[asset for asset in self.assets if not asset_keys or asset.asset_key in asset_keys])

    def told(self, where: Place) -> Document:
        """What is told of a partition, after a fold."""
        self.fold()
        found = self.statuses.partitions(
            replace(self.selection(where.asset_key), partition_key=where.partition_key), now=self.now, limit=2
        )
        assert len(found) == 1, found
        return told(found[0])

    def rows(self, workspace_id: str = "default") -> list[RowMapping]:
        """All that was folded, but for the versions of the rows."""
        with self.here.engine_as(Role.REPORTER).begin() as connection:
            rows = connection.execute(
                text("""
                    SELECT * FROM folded_status WHERE workspace_id = :workspace_id ORDER BY asset_key, partition_key
                """),
                {"workspace_id": workspace_id},
            ).mappings()
            return [
                {name: value for name, value in row.items() if name not in {"row_version", "workspace_id"}}  # type: ignore[misc]
                for row in rows
            ]

    def succeed(self, run_id: str, *places: Place, at: datetime | None = None, code_version: str = "") -> None:
        self.written.plan(run_id, *places)
        self.written.materialize(run_id, *places, at=at, code_version=code_version)
        self.written.end(run_id, Outcome.SUCCEEDED, at=at)

    def end_without(self, run_id: str, places: Iterable[Place], outcome: Outcome, at: datetime | None = None) -> None:
        self.written.plan(run_id, *places)
        self.written.end(run_id, outcome, at=at)
