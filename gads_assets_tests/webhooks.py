"""A webhook on this machine: a real server in a thread, which keeps what it is posted and answers as it is told."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

TOKEN = "T0KEN-of-the-webhook"

Answer = Callable[["Handler"], None]


@dataclass(kw_only=True)
class Webhook:
    """`posts` are documents in the order in which they came; `paths` are all that anybody asked for."""

    answer: Answer
    posts: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    over: Event = field(default_factory=Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/{TOKEN}?to=me"

    @property
    def told(self) -> list[dict[str, str]]:
        """The alerts of all posts."""
        return [alert for post in self.posts for alert in post["alerts"]]


class Handler(BaseHTTPRequestHandler):
    def __init__(self, webhook: Webhook, *arguments: Any) -> None:
        self.webhook = webhook
        super().__init__(*arguments)

    def do_POST(self) -> None:
        self.webhook.paths.append(self.path)
        self.webhook.headers.append(dict(self.headers))
        self.webhook.posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.webhook.answer(self)

    def do_GET(self) -> None:
        self.webhook.paths.append(self.path)
        answering(200)(self)

    def log_message(self, *_: object) -> None:
        pass


def answering(status: int, **headers: str) -> Answer:
    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def hanging_up(_: Handler) -> None:
    """The connection is closed without a word."""


def saying_nothing(handler: Handler) -> None:
    handler.webhook.over.wait(60)


def repeating_the_request(handler: Handler) -> None:
    """As a server does that speaks something else."""
    handler.wfile.write(f"{handler.requestline}\r\n".encode())


@contextmanager
def serve_webhook() -> Iterator[Webhook]:
    webhook = Webhook(answer=answering(204))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, webhook))
    webhook.port = server.server_address[1]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield webhook
    finally:
        webhook.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
