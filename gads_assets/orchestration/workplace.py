"""One way to wire the parts from settings, for Dagster's runs and for the command line alike."""

import atexit
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Self

from sqlalchemy import Engine
from ulid import ULID

from gads_assets.catalog.loading import load_catalog
from gads_assets.catalog.specification import Catalog
from gads_assets.domain.keys import CustomerId, RunId, StageId, parse_customer_id
from gads_assets.domain.roles import Role
from gads_assets.errors import GadsError, PartitionKeyError, SettingsError
from gads_assets.raw.sink import RawSink
from gads_assets.settings import Settings
from gads_assets.state.alerts import Alerts
from gads_assets.state.backfills import Backfills
from gads_assets.state.connection import open_engine
from gads_assets.state.customers import CustomerRegister
from gads_assets.state.desk import OperatorDesk
from gads_assets.state.leases import Leases
from gads_assets.state.migration import migrate, require_current_schema
from gads_assets.state.operations import OperationsBudget
from gads_assets.state.partition_states import StateStore
from gads_assets.state.run_records import RunRecords
from gads_assets.state.schedule import Schedule
from gads_assets.state.server import running_database
from gads_assets.warehouse.layout import WarehouseLayout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gads_assets.extract.client import GoogleAdsSource
    from gads_assets.extract.pacing import Pacer
    from gads_assets.extract.partitions import Extractor
    from gads_assets.validate.recording import Validator
    from gads_assets.warehouse.housekeeping import Housekeeper
    from gads_assets.warehouse.loading import Loader
    from gads_assets.warehouse.marts.refreshing import MartRefresher


class Workplace:
    """Each part is made when it is first asked for, and put away when the workplace is left.

    Spark, gRPC and google-ads are imported with the parts that need them: most commands need none.
    `outlived_by_database` keeps the database until the process ends. `patience` is how long publishing waits for others
    who publish, without end unless given.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        session: "Callable[[], SparkSession] | None" = None,
        outlived_by_database: bool = False,
        patience: timedelta | None = None,
    ) -> None:
        self.settings = settings
        self._patience = patience
        self._given_session = session
        self._outlived_by_database = outlived_by_database
        self._open = ExitStack()
        self._engines: dict[Role, Engine] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @cached_property
    def catalog(self) -> Catalog:
        return load_catalog(self.settings.catalog_path)

    @cached_property
    def sink(self) -> RawSink:
        return RawSink(self.settings.raw_uri)

    @cached_property
    def layout(self) -> WarehouseLayout:
        return WarehouseLayout(root=self.settings.warehouse_uri, source=self.catalog.source)

    @cached_property
    def database_url(self) -> str:
        """A database that is up and has this code's schema, at least until the workplace is left.

        Only the embedded one is brought there: a server of one's own is others' too, and changes when somebody asks.
        """
        held = self._open
        if self._outlived_by_database:
            held = ExitStack()
            atexit.register(_close, held)
        url = held.enter_context(running_database(self.settings.database_home, self.settings.database_url))
        if self.settings.database_url is None:
            migrate(url)
        else:
            require_current_schema(url)
        return url

    def engine_as(self, role: Role) -> Engine:
        """Every part reaches the database in the role of its work, by the login that settings have for it."""
        if role not in self._engines:
            url = self.database_url
            self._engines[role] = open_engine(self.settings.role_database_urls.get(role, url), role)
            self._open.callback(self._engines[role].dispose)
        return self._engines[role]

    def store_as(self, role: Role) -> StateStore:
        return StateStore(self.engine_as(role))

    def records_as(self, role: Role) -> RunRecords:
        return RunRecords(self.engine_as(role))

    def schedule_as(self, role: Role) -> Schedule:
        return Schedule(self.engine_as(role), source=self.catalog.source)

    def leases_as(self, role: Role) -> Leases:
        return Leases(self.engine_as(role), lasts=self.settings.lease)

    @cached_property
    def desk(self) -> OperatorDesk:
        return OperatorDesk(self.engine_as(Role.OPERATOR), source=self.catalog.source)

    @cached_property
    def backfills(self) -> Backfills:
        return Backfills(self.engine_as(Role.OPERATOR), source=self.catalog.source, new_override_id=lambda: str(ULID()))

    @cached_property
    def alerts(self) -> Alerts:
        return Alerts(self.engine_as(Role.OPERATOR), source=self.catalog.source)

    def customers_as(self, role: Role) -> CustomerRegister:
        return CustomerRegister(self.engine_as(role))

    def operations_as(self, role: Role) -> OperationsBudget:
        """Of the API that settings name; nothing is asked of it."""
        origin = "google" if self.settings.asks_google else "emulator"
        return OperationsBudget(self.engine_as(role), origin=origin, allowed=self.settings.api_daily_operations)

    @cached_property
    def _session(self) -> "SparkSession":
        session = open_session(self.settings)
        self._open.callback(session.stop)
        return session

    def session(self) -> "SparkSession":
        return self._given_session() if self._given_session else self._session

    @cached_property
    def endpoint(self) -> str:
        """The emulator that settings name, or one of this process's own."""
        from gads_assets.emulator.faults import parse_faults  # noqa: PLC0415
        from gads_assets.emulator.server import serve_emulator  # noqa: PLC0415

        if self.settings.google_ads_endpoint:
            return self.settings.google_ads_endpoint
        faults = parse_faults(self.settings.emulator_faults or "")
        return self._open.enter_context(serve_emulator(home=self.settings.emulator_home, faults=faults)).endpoint

    @cached_property
    def source(self) -> "GoogleAdsSource":
        """Google when there are credentials, else the emulator."""
        from gads_assets.emulator.accounts import MANAGER_CUSTOMER_ID  # noqa: PLC0415
        from gads_assets.emulator.authority import CA_FILE  # noqa: PLC0415
        from gads_assets.extract.client import Patience, connect_to_emulator, connect_to_google  # noqa: PLC0415

        settings, version = self.settings, self.catalog.api_version
        login = _given_login(settings)
        patience = Patience(deadline=settings.api_deadline, silence=settings.api_silence)
        if settings.asks_google:
            credentials = settings.google_ads_config or settings.google_ads_variables
            return connect_to_google(credentials, api_version=version, login_customer_id=login, patience=patience)
        authority = settings.emulator_home / CA_FILE
        return connect_to_emulator(
            self.endpoint,
            authority,
            api_version=version,
            login_customer_id=login or MANAGER_CUSTOMER_ID,
            patience=patience,
        )

    @cached_property
    def pacer(self) -> "Pacer":
        from gads_assets.extract.pacing import Pacer  # noqa: PLC0415

        return Pacer(budget=self.operations_as(Role.EXTRACTOR), now=_now, sleep=time.sleep)

    @cached_property
    def extractor(self) -> "Extractor":
        from gads_assets.extract.partitions import Extractor  # noqa: PLC0415

        return Extractor(
            source=self.source,
            sink=self.sink,
            store=self.store_as(Role.EXTRACTOR),
            pacer=self.pacer,
            new_run_id=lambda: RunId(str(ULID())),
            now=_now,
            calls_at_once=self.settings.api_calls_at_once,
            estranged=self.loader.estranged,
        )

    @cached_property
    def validator(self) -> "Validator":
        from gads_assets.validate.recording import Validator  # noqa: PLC0415
        from gads_assets.warehouse.pointers import shown_runs  # noqa: PLC0415

        return Validator(
            session=self.session,
            sink=self.sink,
            catalog=self.catalog,
            store=self.store_as(Role.VALIDATOR),
            records=self.records_as(Role.VALIDATOR),
            withdraw=self.loader.withdraw,
            shown=partial(shown_runs, self.layout),
            now=_now,
        )

    @cached_property
    def loader(self) -> "Loader":
        from gads_assets.warehouse.loading import Loader  # noqa: PLC0415
        from gads_assets.warehouse.publishing import Publisher  # noqa: PLC0415

        publisher = Publisher(
            session=self.session,
            layout=self.layout,
            sink=self.sink,
            catalog=self.catalog,
            new_stage_id=lambda: StageId(str(ULID())),
            now=_now,
        )
        return Loader(
            publisher=publisher,
            store=self.store_as(Role.LOADER),
            records=self.records_as(Role.LOADER),
            patience=self._patience,
        )

    @cached_property
    def marts(self) -> "MartRefresher":
        from gads_assets.warehouse.marts.refreshing import MartRefresher  # noqa: PLC0415

        return MartRefresher(
            session=self.session,
            layout=self.layout,
            catalog=self.catalog,
            store=self.store_as(Role.CONSUMER),
            records=self.records_as(Role.CONSUMER),
            now=_now,
        )

    @cached_property
    def housekeeper(self) -> "Housekeeper":
        from gads_assets.warehouse.housekeeping import Housekeeper  # noqa: PLC0415

        return Housekeeper(
            session=self.session,
            records=lambda: self.records_as(Role.LOADER),
            layout=self.layout,
            catalog=self.catalog,
            retention_hours=self.settings.retention_hours,
            now=_now,
        )


def _given_login(settings: Settings) -> CustomerId | None:
    try:
        return parse_customer_id(settings.google_ads_login) if settings.google_ads_login else None
    except PartitionKeyError as error:
        raise SettingsError(f"GADS_GOOGLE_ADS_LOGIN cannot be used: {error}") from None


def open_session(settings: Settings) -> "SparkSession":
    """The session that settings ask for: a Spark Connect server's, or one of this process's own."""
    from gads_assets.warehouse.java import find_jars, find_java  # noqa: PLC0415
    from gads_assets.warehouse.session import LocalSpark, connect_session, open_local_session  # noqa: PLC0415

    if settings.spark_remote and settings.spark_address:
        return connect_session(settings.spark_remote, address=settings.spark_address)
    return open_local_session(
        LocalSpark(
            java=find_java(os.environ),
            jars=find_jars(given=settings.spark_jars, kept=settings.spark_home / "jars"),
            conf_dir=settings.spark_conf_dir,
            scratch=settings.spark_home / "scratch",
            log=settings.home / "logs" / "spark.log",
            master=settings.spark_master,
        )
    )


def _close(held: ExitStack) -> None:
    """At the end of a process, where an error would be printed as a traceback."""
    try:
        held.close()
    except GadsError as error:
        sys.stderr.write(f"gads: {error}\n")


def _now() -> datetime:
    return datetime.now(UTC)
