"""Tells every open page of a new version, while asking for it only once for all of them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

from gads_assets.errors import GadsError


@dataclass(frozen=True, kw_only=True)
class VersionMessage:
    """A version, or why there is none now; with neither, only a sign of life."""

    version: str | None = None
    error: str | None = None


class LiveVersions:
    """Asks while anybody listens, and never twice at once: there is one task, and it ends only by itself."""

    def __init__(self, ask: Callable[[], str], *, poll_seconds: float = 2.0, heartbeat_seconds: float = 15.0) -> None:
        self._ask = ask
        self._poll_seconds = poll_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._listeners: set[asyncio.Queue[VersionMessage | None]] = set()
        self._latest: VersionMessage | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def listen(self) -> AsyncIterator[VersionMessage]:
        """The version now, then each new one; signs of life between them, so that a dead connection is noticed."""
        if self._closed:
            return
        inbox: asyncio.Queue[VersionMessage | None] = asyncio.Queue()
        self._listeners.add(inbox)
        try:
            if self._task is None or self._task.done():
                self._latest = None
                self._task = asyncio.create_task(self._poll())
            elif self._latest is not None:
                yield self._latest
            while True:
                try:
                    message = await asyncio.wait_for(inbox.get(), self._heartbeat_seconds)
                except TimeoutError:
                    message = VersionMessage()
                if message is None:
                    return
                yield message
        finally:
            self._listeners.discard(inbox)

    def close(self) -> None:
        """Ends every stream; later listeners get an empty one."""
        self._closed = True
        self._tell(None)

    async def _poll(self) -> None:
        try:
            while self._listeners:
                try:
                    message = VersionMessage(version=await run_in_threadpool(self._ask))
                except GadsError as error:
                    message = VersionMessage(error=str(error))
                if message != self._latest:
                    self._latest = message
                    self._tell(message)
                await asyncio.sleep(self._poll_seconds)
        finally:
            # After an error that nobody foresaw the pages come back by themselves, and that starts the asking again.
            self._tell(None)

    def _tell(self, message: VersionMessage | None) -> None:
        for inbox in self._listeners:
            inbox.put_nowait(message)
