"""The status page's server: read-only, and for the browser of whoever started it.

It has no accounts, so it answers only to the names it was told (another site's name that was pointed at this address
is refused), and only to its own page (no other site's script may ask it anything). A link to the page itself may stand
anywhere: the page holds no data.
"""

import json
from collections.abc import AsyncIterator, Collection
from datetime import date
from typing import Any, Final, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gads_assets.domain.keys import parse_logical_date
from gads_assets.errors import CatalogError, GadsError, PartitionKeyError
from gads_assets.status.live import LiveVersions, VersionMessage
from gads_assets.status.rendering import render_page

_COMPRESSED_FROM_BYTES = 2_000
_METHODS: Final = ("GET", "HEAD")
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class StatusSource(Protocol):
    """What the page shows, as JSON documents. Its methods may wait for a database, and may raise any GadsError."""

    def overview(self) -> dict[str, Any]: ...

    def matrix(self, asset_key: str, first: date | None, last: date | None) -> dict[str, Any]: ...

    def partition(self, asset_key: str, partition_key: str) -> dict[str, Any]: ...

    def version(self) -> str:
        """Another one when the documents are worth asking for again."""
        ...


def status_app(source: StatusSource, *, hosts: Collection[str]) -> Starlette:
    """Answers requests whose Host is one of `hosts`, each with its port as a browser would send it."""
    rendered = render_page(None)
    live = LiveVersions(source.version)

    async def page(_: Request) -> Response:
        return HTMLResponse(rendered.html, headers={"Content-Security-Policy": rendered.policy})

    async def overview(_: Request) -> Response:
        return JSONResponse(await run_in_threadpool(source.overview))

    async def matrix(request: Request) -> Response:
        asset_key, first, last = _required(request, "asset"), _day(request, "from"), _day(request, "to")
        if first and last and first > last:
            raise PartitionKeyError(f"from {first} is after to {last}; the first day comes first")
        return JSONResponse(await run_in_threadpool(source.matrix, asset_key, first, last))

    async def partition(request: Request) -> Response:
        asset_key, partition_key = _required(request, "asset"), _required(request, "partition")
        return JSONResponse(await run_in_threadpool(source.partition, asset_key, partition_key))

    async def versions(request: Request) -> Response:
        # To somebody who asks for headers only, a stream without an end would look like a server that hangs.
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return StreamingResponse(_events(live), media_type="text/event-stream")

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/api/overview", overview),
            Route("/api/matrix", matrix),
            Route("/api/partition", partition),
            Route("/api/live", versions),
        ],
        middleware=[
            Middleware(_Guard, hosts=frozenset(host.lower() for host in hosts)),
            Middleware(GZipMiddleware, minimum_size=_COMPRESSED_FROM_BYTES, compresslevel=5),
        ],
        exception_handlers={
            PartitionKeyError: _bad_request,
            CatalogError: _bad_request,
            GadsError: _unavailable,
            404: _not_found,
            Exception: _unexpected,
        },
    )
    app.state.live = live
    return app


class StatusServer(uvicorn.Server):
    """Serves on loopback. Asked to end, it says goodbye to the open streams, which would keep it waiting for ever."""

    def __init__(self, app: Starlette, *, port: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host="127.0.0.1",
                port=port,
                access_log=False,
                log_level="warning",
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=5,
                ws="none",
            )
        )
        self._live: LiveVersions = app.state.live

    async def shutdown(self, sockets: Any = None) -> None:
        self._live.close()
        await super().shutdown(sockets)


class _Guard:
    """Refuses what does not come from our own page, before anything else looks at it; marks every answer."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._refusal(scope) or self._app
        await answer(scope, receive, send_marked)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["method"] not in _METHODS:
            return _error(405, "this page only reads: GET and HEAD", headers={"Allow": ", ".join(_METHODS)})
        named = headers.getlist("host")
        if len(named) != 1 or named[0].lower() not in self._hosts:
            return _error(400, f"this server is not {', '.join(named) or 'nameless'}; open {min(self._hosts)}")
        if headers.get("sec-fetch-site", "none") not in {"same-origin", "none"} and not _follows_link(scope, headers):
            return _error(403, "another site's page asked; open this one by itself")
        return None


def _follows_link(scope: Scope, headers: Headers) -> bool:
    """Somebody comes to the page through a link elsewhere: in a tab of its own, not in another page's frame."""
    wanted = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return scope["path"] == "/" and wanted == ("navigate", "document")


async def _events(live: LiveVersions) -> AsyncIterator[str]:
    async for message in live.listen():
        yield _event(message)


def _event(message: VersionMessage) -> str:
    if message.error is not None:
        return f"event: trouble\ndata: {json.dumps({'error': message.error})}\n\n"
    if message.version is not None:
        return f"data: {json.dumps({'version': message.version})}\n\n"
    return ": nothing new\n\n"


def _required(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if not value:
        raise PartitionKeyError(f"the address has no {name}; add ?{name}=…")
    return value


def _day(request: Request, name: str) -> date | None:
    value = request.query_params.get(name)
    return parse_logical_date(value) if value else None


async def _bad_request(_: Request, error: Exception) -> Response:
    return _error(400, str(error))


async def _unavailable(_: Request, error: Exception) -> Response:
    return _error(503, str(error))


async def _not_found(request: Request, _: Exception) -> Response:
    return _error(404, f"there is nothing at {request.url.path}; the page is at /")


async def _unexpected(_: Request, __: Exception) -> Response:
    return _error(500, "the server met an error of its own; what it says about it is in its terminal")


def _error(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    # Its own marks, because the answer to an unforeseen error does not pass the guard.
    return JSONResponse({"error": sentence}, status_code=status, headers={**_HEADERS, **(headers or {})})
