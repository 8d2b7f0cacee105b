"""Bringing a database to the declared schema."""

from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from gads_assets.errors import StateStoreError
from gads_assets.state.connection import describe, open_engine, parse_database_url, transaction
from gads_assets.state.roles import ensure_roles
from gads_assets.state.tables import VERSION_TABLE

DAGSTER_SCHEMA = "dagster"  # apart from ours: Dagster makes, names and migrates its tables itself

_ADVISORY_LOCK = 0x67616473  # "gads"


@dataclass(frozen=True, kw_only=True)
class MigrationStatus:
    """`current` is None for a database that was never migrated; `is_newer`: by code that has more migrations."""

    current: str | None
    head: str
    is_newer: bool = False

    @property
    def is_current(self) -> bool:
        return self.current == self.head


def migrate(url: str) -> MigrationStatus:
    """Brings the database to this code's schema and its roles to their rights in one transaction; nothing happens when
    they are there already. The (empty) schema for Dagster's tables is made beside.

    Processes that migrate at once queue on a lock in the database. Returns what was found before.
    """
    configuration = _configuration()
    engine = open_engine(url)
    try:
        with transaction(engine) as connection:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_ADVISORY_LOCK,))
            found = _status(connection, configuration)
            if found.is_newer:
                raise _newer(found)
            # "IF NOT EXISTS" asks for the right to create even where it does.
            if connection.exec_driver_sql("SELECT to_regnamespace(%s)", (DAGSTER_SCHEMA,)).scalar_one() is None:
                connection.exec_driver_sql(f"CREATE SCHEMA {DAGSTER_SCHEMA}")
            if not found.is_current:
                configuration.attributes["connection"] = connection
                command.upgrade(configuration, "head")
            # Also where the schema was there: a database that was copied, renamed or restored has it without its roles.
            ensure_roles(connection)
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


def require_current_schema(url: str) -> str:
    """The schema's version. Raises StateStoreError, with the fix, where it is not this code's; changes nothing."""
    found = migration_status(url)
    if found.is_newer:
        raise _newer(found)
    if not found.is_current:
        raise StateStoreError(
            f"{describe(parse_database_url(url))} has {f'schema {found.current}' if found.current else 'no schema'}, "
            f"and this version of gads_assets needs {found.head}; run `gads db migrate`"
        )
    return found.head


def _newer(found: MigrationStatus) -> StateStoreError:
    return StateStoreError(
        f"the database has schema {found.current}, migrated by a newer version of gads_assets than this one, "
        f"which needs {found.head}; update this installation, or use another GADS_HOME or GADS_DATABASE_URL"
    )


def _configuration() -> Config:
    configuration = Config()
    configuration.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return configuration


def _status(connection: Connection, configuration: Config) -> MigrationStatus:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    scripts = ScriptDirectory.from_config(configuration)
    head = scripts.get_current_head()
    if head is None:
        raise StateStoreError("this installation of gads_assets has no migrations; install it again")
    current = context.get_current_revision()
    known = {script.revision for script in scripts.walk_revisions()}
    return MigrationStatus(current=current, head=head, is_newer=current is not None and current not in known)
