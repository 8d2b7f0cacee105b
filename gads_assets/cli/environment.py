"""`gads env`: what a shell needs before plain `dagster` commands work on this home."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import typer

from gads_assets.cli.output import JsonOption, print_json
from gads_assets.orchestration.instance import dagster_environment, write_dagster_home
from gads_assets.settings import Settings, read_settings
from gads_assets.state.migration import migrate
from gads_assets.state.server import start_database

_LIBRARY_FILE = "GOOGLE_ADS_CONFIGURATION_FILE_PATH"


def environment(as_json: JsonOption = False) -> None:
    """Print the shell lines that plain `dagster` commands need: eval "$(gads env)".

    The database is brought to this version's schema, and the embedded one is left running until `gads db stop`.
    """
    settings = read_settings(os.environ)
    write_dagster_home(settings.dagster_home)
    database_url = start_database(settings.database_home, settings.database_url)
    migrate(database_url)
    variables = {
        **given_variables(settings, os.environ),
        **dagster_environment(settings, database_url),
        "PATH": path_with(Path(sys.executable).parent, os.environ.get("PATH", os.defpath)),
    }
    if as_json:
        print_json(variables)
        return
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")


def given_variables(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """The GADS_* variables that are set, with paths made absolute: the shell may change its folder.

    Of the library's own variables only the path is among them: the shell has the others, and they hold secrets.
    """
    given = {
        name: value
        for name, value in environment.items()
        if (name.startswith("GADS_") or name == _LIBRARY_FILE) and value.strip()
    }
    resolved = {
        "GADS_RAW_URI": settings.raw_uri,
        "GADS_WAREHOUSE_URI": settings.warehouse_uri,
        "GADS_CATALOG": settings.catalog_path,
        "GADS_SPARK_JARS": settings.spark_jars,
        "GADS_GOOGLE_ADS_CONFIG": settings.google_ads_config,
        # Which gives way to the one above, and to an emulator's endpoint.
        _LIBRARY_FILE: None if "GADS_GOOGLE_ADS_CONFIG" in given else settings.google_ads_config,
    }
    return given | {name: str(place) for name, place in resolved.items() if name in given and place is not None}


def path_with(first: Path, path: str) -> str:
    """`path` with that folder in front, once."""
    others = [entry for entry in path.split(os.pathsep) if entry and entry != str(first)]
    return os.pathsep.join([str(first), *others])
