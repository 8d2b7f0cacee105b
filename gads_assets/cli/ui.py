"""`gads ui`: Dagster's page and daemon on this home."""

import os
import socket
import subprocess
import sys
from contextlib import closing
from typing import Annotated

import typer

from gads_assets.cli.output import messages
from gads_assets.errors import SetupError
from gads_assets.settings import read_settings


def ui(port: Annotated[int, typer.Option(min=1, max=65535, help="Where the page answers.")] = 3000) -> None:
    """Serve Dagster's page, and run what is launched there, until interrupted."""
    from gads_assets.orchestration.instance import dagster_environment, write_dagster_home  # noqa: PLC0415
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    _require_free(port)
    with Workplace(read_settings(os.environ)) as here:
        write_dagster_home(here.settings.dagster_home)
        environment = {**os.environ, **dagster_environment(here.settings, here.database_url)}
        messages.print(f"Dagster's page opens on http://127.0.0.1:{port}; stop it with Ctrl-C")
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dagster", "dev", "-m", "gads_assets.definitions"),
                *("--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"),
            ],
            env=environment,
        )
        try:
            process.wait()
        except KeyboardInterrupt:
            process.wait()
    raise typer.Exit(0 if process.returncode in {0, 130, -2} else 1)


def _require_free(port: int) -> None:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise SetupError(
                f"port {port} is in use; stop what uses it, or choose another: make ui PORT=3001"
            ) from None
