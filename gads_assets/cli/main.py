"""`gads`: one program, and the one place where errors become a line on standard error and an exit code."""

import importlib
import io
import os
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gads_assets import __version__
from gads_assets.cli.output import printable, writing
from gads_assets.errors import GadsError, SettingsError
from gads_assets.settings import read_settings

# Name, where it lives (a Typer app or a function), and its line in `gads --help`.
_COMMANDS = (
    ("setup", "gads_assets.cli.setup:setup", "Make this machine ready: Java, the Delta JARs, the database."),
    ("doctor", "gads_assets.cli.setup:doctor", "Check each part that a run needs: ok, or how to mend it."),
    ("demo", "gads_assets.cli.demo:demo", "Publish a week of three emulated accounts through Dagster."),
    ("ui", "gads_assets.cli.ui:ui", "Serve Dagster's page on this home."),
    ("env", "gads_assets.cli.environment:environment", "Print the shell lines that plain `dagster` commands need."),
    ("db", "gads_assets.cli.database:database_app", "Start, stop, migrate or look at the database."),
    ("catalog", "gads_assets.cli.catalog:catalog_app", "List, check and describe the queries."),
    ("customers", "gads_assets.cli.customers:customers_app", "Discover, register and list accounts."),
    ("quota", "gads_assets.cli.quota:quota", "Show how many of the day's API operations are used, and any pause."),
    ("ready", "gads_assets.cli.ready:ready", "List which customers' days are safe to read, and why not the others."),
    ("status", "gads_assets.cli.status:status_app", "Show which partitions are current, and why not the others."),
    ("state", "gads_assets.cli.state:state_app", "Look at partitions on record, and try them again."),
    ("backfill", "gads_assets.cli.backfill:backfill_app", "Extract history, after everything else; see how far it is."),
    ("query", "gads_assets.cli.query:query", "Run a SELECT over the published tables."),
    ("reconcile", "gads_assets.cli.reconcile:reconcile", "Make what readers see agree with the ledger again."),
    ("housekeeping", "gads_assets.cli.housekeeping:housekeeping", "Remove what no run and no reader needs any more."),
    ("emulator", "gads_assets.cli.emulator:emulator", "Serve an emulated Google Ads API on this machine."),
)


class LazyCommands(TyperGroup):
    """Imports a command's module when that command runs, so that `gads --help` and each command pay for no other."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=summary) for name, _, summary in _COMMANDS}

    # Any, because Typer's own types for these are private.
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        places = {name: place for name, place, _ in _COMMANDS}
        if args[0] not in places:
            return super().resolve_command(ctx, args)
        return args[0], _load(args[0], places[args[0]]), args[1:]


def _load(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    holder = typer.Typer(add_completion=False)
    holder.callback()(lambda: None)
    if isinstance(command, typer.Typer):
        holder.add_typer(command, name=name)
    else:
        holder.command(name)(command)
    return typer.main.get_group(holder).commands[name]


app = typer.Typer(
    cls=LazyCommands,
    help="Google Ads data you can trust: extracted, sealed, judged, published.\n\n"
    "Everything is kept in GADS_HOME, by default .gads beside the project. "
    "All settings are listed at the top of gads_assets/settings.py.",
    no_args_is_help=True,
    add_completion=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Exits 0 when done, 1 when refused or failed, 2 on wrong usage, 130 when interrupted."""
    # gRPC reads both when it is first imported. It would remark on every process started while a channel is open; and
    # its own handling of forks now and then breaks the channel, and the child that was about to become PostgreSQL.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a question mark, where the terminal lacks a character
    try:
        _run()
    except GadsError as error:
        _complain(str(error))
    except Exception as error:  # noqa: BLE001  whatever it is, people get a line and the trace goes to a file
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        _complain(f"unexpected {reason}; the trace is in {_write_trace()}")


def _run() -> None:
    """What was printed is written before the exit code tells that all went well."""
    try:
        typer.main.get_command(app).main(prog_name="gads")
    finally:
        if sys.stdout:
            with writing():
                sys.stdout.flush()


def _complain(message: str) -> None:
    sys.stderr.write(f"gads: {printable(' '.join(message.splitlines()))}\n")
    sys.exit(1)


def _write_trace() -> Path:
    name = f"gads-{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}.log"
    try:
        folder = read_settings(os.environ).home / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(traceback.format_exc(), encoding="utf-8")
    except (SettingsError, OSError):
        folder = Path(tempfile.gettempdir())
        (folder / name).write_text(traceback.format_exc(), encoding="utf-8")
    return folder / name
