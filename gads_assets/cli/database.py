"""`gads db`: the database, embedded or one's own."""

import os

import typer

from gads_assets.cli.output import JsonOption, print_json
from gads_assets.errors import DatabaseUnavailableError, SetupError
from gads_assets.settings import Settings, read_settings
from gads_assets.state.connection import describe, parse_database_url, require_reachable
from gads_assets.state.migration import MigrationStatus, migrate, migration_status
from gads_assets.state.server import database_status, running_database, start_database, stop_database

database_app = typer.Typer(help="Start, stop, migrate or look at the database.", no_args_is_help=True)


@database_app.command()
def start() -> None:
    """Start the embedded database and leave it running."""
    settings = read_settings(os.environ)
    url = start_database(settings.database_home, settings.database_url)
    typer.echo(f"{describe(parse_database_url(url))} is up", err=True)


@database_app.command()
def stop() -> None:
    """Stop the embedded database, whoever uses it."""
    settings = read_settings(os.environ)
    if settings.database_url:
        raise SetupError("GADS_DATABASE_URL names a server of your own; stop it where it runs")
    stopped = stop_database(settings.database_home)
    typer.echo("the database is stopped" if stopped else "the database was not running", err=True)


@database_app.command("migrate")
def migrate_database() -> None:
    """Bring the tables to this version's schema; nothing happens when they are there already."""
    settings = read_settings(os.environ)
    with running_database(settings.database_home, settings.database_url) as url:
        found = migrate(url)
    if found.is_current:
        typer.echo(f"the schema is at {found.head} already", err=True)
    else:
        typer.echo(f"the schema went from {found.current or 'nothing'} to {found.head}", err=True)


@database_app.command()
def status(as_json: JsonOption = False) -> None:
    """Show where the database is, whether it runs and whether its schema is current. Starts nothing."""
    facts = _facts(read_settings(os.environ))
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        shown = "-" if value is None else ("no", "yes")[value] if isinstance(value, bool) else value
        typer.echo(f"{name.replace('_', ' '):16} {shown}")


def _facts(settings: Settings) -> dict[str, str | int | bool | None]:
    if settings.database_url:
        url, stays, process_id = _own_server(settings.database_url), True, None
        place = describe(parse_database_url(settings.database_url))
    else:
        server = database_status(settings.database_home)
        url, stays, process_id = server.url, server.stays, server.process_id
        place = str(settings.database_home)
    schema = migration_status(url) if url else MigrationStatus(current=None, head="")
    return {
        "embedded": settings.database_url is None,
        "place": place,
        "running": url is not None,
        "process_id": process_id,
        "stays": stays,
        "schema": schema.current,
        "schema_current": schema.is_current if url else None,
    }


def _own_server(database_url: str) -> str | None:
    try:
        return require_reachable(database_url)
    except DatabaseUnavailableError:
        return None
