"""Bringing a database to the declared schema."""

from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection

from gads_assets.errors import StateStoreError
from gads_assets.state.connection import open_engine, transaction

VERSION_TABLE = "gads_alembic_version"
DAGSTER_SCHEMA = "dagster"  # apart from ours: Dagster makes, names and migrates its tables itself

_ADVISORY_LOCK = 0x67616473  # "gads"


@dataclass(frozen=True, kw_only=True)
class MigrationStatus:
    """`current` is None for a database that was never migrated."""

    current: str | None
    head: str

    @property
    def is_current(self) -> bool:
        return self.current == self.head


def migrate(url: str) -> MigrationStatus:
    """Brings the database to this code's schema in one transaction; nothing happens when it is there already. The
    (empty) schema for Dagster's tables is made beside.

    Processes that migrate at once queue on a lock in the database. Returns what was found before.
    """
    configuration = _configuration()
    engine = open_engine(url)
    try:
        with transaction(engine) as connection:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_ADVISORY_LOCK,))
            connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {DAGSTER_SCHEMA}")
            found = _status(connection, configuration)
            if not found.is_current:
                configuration.attributes["connection"] = connection
                command.upgrade(configuration, "head")
    except CommandError:
        raise StateStoreError(
            "the database was migrated by a newer version of gads_assets; update this installation, "
            "or use another GADS_HOME or GADS_DATABASE_URL"
        ) from None
    finally:
        engine.dispose()
    return found


def migration_status(url: str) -> MigrationStatus:
    engine = open_engine(url)
    try:
        with transaction(engine) as connection:
            return _status(connection, _configuration())
    finally:
        engine.dispose()


def _configuration() -> Config:
    configuration = Config()
    configuration.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return configuration


def _status(connection: Connection, configuration: Config) -> MigrationStatus:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    head = ScriptDirectory.from_config(configuration).get_current_head()
    if head is None:
        raise StateStoreError("this installation of gads_assets has no migrations; install it again")
    return MigrationStatus(current=context.get_current_revision(), head=head)
