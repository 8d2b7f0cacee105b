"""The status page served from a thread, as `gads` would serve it, on whatever a test wants it to show."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread

from gads_assets.status.serving import StatusServer, StatusSource, status_app
from gads_assets_tests.acceptance.browser import free_port

_PATIENCE_SECONDS = 20.0


@dataclass(kw_only=True)
class ServedStatus:
    """Running. `stop` and `start` again keep the port, as a person who restarts it does."""

    source: StatusSource
    port: int

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        return f"http://{self.host}"

    def start(self) -> None:
        self._server = StatusServer(status_app(self.source, hosts=[self.host]), port=self.port)
        self._thread = Thread(target=self._server.run)
        self._thread.start()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._server.started:
            assert self._thread.is_alive(), "the server ended by itself"
            assert time.monotonic() < deadline, "the server is not ready in time"
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(_PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the server does not end"


@contextmanager
def serve_status(source: StatusSource) -> Iterator[ServedStatus]:
    served = ServedStatus(source=source, port=free_port())
    served.start()
    try:
        yield served
    finally:
        served.stop()
