"""`gads ui`: Dagster's page and daemon on this home, and the status page that Dagster's links lead to."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from gads_assets.cli.output import messages
from gads_assets.cli.setup import require_spark, require_writable
from gads_assets.errors import SetupError
from gads_assets.settings import Settings, read_settings

_WORKSPACE: Final = Path(__file__).resolve().parents[2] / "workspace.yaml"
_POLL_SECONDS = 0.25
_GADS = "from gads_assets.cli.main import main; main()"
# Waits for the end of its standard input, which comes when `gads ui` is gone, however it went.
_GUARD = "read _; kill -s INT -- -$0; sleep 20; kill -s KILL -- -$0"


def ui(port: Annotated[int, typer.Option(min=1, max=65535, help="Where the page answers.")] = 3000) -> None:
    """Serve Dagster's page and the status page, and run what is launched there, until interrupted.

    What Dagster and the runs print goes to logs/ui.log in the home. An interruption ends runs in progress too. The
    status page is served where Dagster's links to it lead, unless GADS_STATUS_URL says that this is somewhere else.
    """
    from gads_assets.orchestration.instance import dagster_environment, write_dagster_home  # noqa: PLC0415
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    settings = read_settings(os.environ)
    require_writable(settings.home)
    require_spark(settings)
    require_free(port, "make ui PORT=3001")
    requests = _stop_requests()
    with Workplace(settings) as here:
        here.catalog  # noqa: B018  a bad one is better refused here than shown as a code location that failed
        write_dagster_home(settings.dagster_home)
        environment = {**os.environ, **dagster_environment(settings, here.database_url)}
        log = settings.home / "logs" / "ui.log"
        messages.print(f"Starting Dagster's page; what it says goes to {log}", soft_wrap=True)
        status_port = _status_port(settings)
        with _dagster(port, environment, log, status_port=status_port) as process:
            ready = False
            while not requests:
                time.sleep(_POLL_SECONDS)
                if process.poll() is not None:
                    raise SetupError(f"Dagster's page ended by itself; the reason is at the end of {log}")
                if not ready and _answers(port):
                    ready = True
                    messages.print(f"Dagster's page is on http://127.0.0.1:{port}; stop it with Ctrl-C")
                    if status_port:
                        messages.print(f"The status page is on {settings.status_url}")
            messages.print("Stopping Dagster's page")


def _stop_requests() -> list[int]:
    """Grows by each signal that asks for an end.

    Not an event: setting one from a handler can wait for ever for the very thread that it interrupted.
    """
    requests: list[int] = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        numbers.append(signal.SIGHUP)
    for number in numbers:
        signal.signal(number, lambda received, _: requests.append(received))
    return requests


def _status_port(settings: Settings) -> int | None:
    """None where the status page is served by somebody else, or cannot be."""
    address = urlsplit(settings.status_url)
    if address.hostname not in {"127.0.0.1", "localhost"} or not address.port:
        return None
    if not _is_free(address.port):
        messages.print(f"port {address.port} is in use, so the status page is not served here", soft_wrap=True)
        return None
    return address.port


@contextmanager
def _dagster(
    port: int, environment: Mapping[str, str], log: Path, *, status_port: int | None
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs for the block; afterwards neither Dagster nor any run, nor a run's Spark, is left, even if we are killed.

    On its own, `dagster dev` leaves its code server and the runs behind, and a run that outlives the database stays
    "started" for ever. In a process group of their own they are all interrupted while the database is up.
    """
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as output:

        def start(command: Sequence[str], *, group: int) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=group,
            )

        process = start(
            [
                *(sys.executable, "-m", "dagster", "dev", "--workspace", str(_WORKSPACE)),
                *("--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"),
            ],
            group=0,
        )
        serve_status = [sys.executable, "-c", _GADS, "status", "serve", "--port", str(status_port)]
        others = [start(serve_status, group=process.pid)] if status_port else []
    guard = subprocess.Popen(
        ["sh", "-c", _GUARD, str(process.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end_group(process)
        for other in others:
            other.wait()
        guard.kill()
        guard.communicate()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    # Spark's JVM ignores the first on purpose: a run must be able to end its session itself.
    for number, patience in ((signal.SIGINT, 20.0), (signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        _signal_group(process.pid, number)
        deadline = time.monotonic() + patience
        while process.poll() is None or _lives(process.pid):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        else:
            return


def _signal_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # nobody, or only the dead
        return False
    return True


def _lives(group: int) -> bool:
    """Whether any process of the group does. Zombies do not: where nothing reaps orphans they stay for ever."""
    if not Path("/proc/self").exists():
        return _signal_group(group, 0)
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, found, *_ = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(found) == group and state not in {"Z", "X"}:
            return True
    return False


def _answers(port: int) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=2)) as connection:
        try:
            connection.request("GET", "/server_info")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False


def require_free(port: int, another: str) -> None:
    if not _is_free(port):
        raise SetupError(f"port {port} is in use; stop what uses it, or choose another: {another}")


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
