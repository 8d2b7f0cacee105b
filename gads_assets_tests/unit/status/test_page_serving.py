import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pytest

from gads_assets.errors import CatalogFileError, DatabaseUnavailableError, DayNotOpenError, GadsError
from gads_assets_tests.status_servers import ServedStatus, serve_status

LARGE = {"rows": ["a" * 90] * 200}


@dataclass
class Source:
    """Says what it was asked; `error` is raised instead, and `hold` is waited for before a version is told."""

    error: Exception | None = None
    current: str = "v1"
    hold: threading.Event | None = None
    asked: list[object] = field(default_factory=list)
    asking: int = 0
    most_asking: int = 0

    def overview(self) -> dict[str, Any]:
        return self._answer({"thread": threading.current_thread().name})

    def matrix(self, asset_key: str, first: date | None, last: date | None) -> dict[str, Any]:
        self.asked.append((asset_key, first, last))
        return self._answer(LARGE)

    def partition(self, asset_key: str, partition_key: str) -> dict[str, Any]:
        self.asked.append((asset_key, partition_key))
        return self._answer({"name": "Café \u2028 </script>"})

    def version(self) -> str:
        self.asking += 1
        self.most_asking = max(self.most_asking, self.asking)
        self.asked.append("version")
        try:
            if self.hold:
                self.hold.wait(10)
            self._answer({})
            return self.current
        finally:
            self.asking -= 1

    def _answer(self, document: dict[str, Any]) -> dict[str, Any]:
        if self.error:
            raise self.error
        return document


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def server(source: Source) -> Iterator[ServedStatus]:
    with serve_status(source) as server:
        yield server


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        [(name, sentence)] = json.loads(self.body).items()
        assert name == "error"
        assert "Traceback" not in sentence
        return str(sentence)


def ask(server: ServedStatus, path: str, method: str = "GET", **headers: str) -> Answer:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())


def test_the_page_comes_with_the_policy_for_exactly_its_code(server: ServedStatus) -> None:
    answer = ask(server, "/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'sha256-" in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert b"<h1>Partition status</h1>" in answer.body


def test_documents_come_as_the_source_has_them_and_never_from_the_loop_thread(server: ServedStatus) -> None:
    assert "worker" in json.loads(ask(server, "/api/overview").body)["thread"].lower()
    partition = ask(server, "/api/partition?asset=google_ads%2Fcampaign&partition=2145550101%7C2026-11-15")
    assert json.loads(partition.body) == {"name": "Café \u2028 </script>"}
    assert partition.headers["content-type"] == "application/json"


def test_a_matrix_is_asked_for_the_days_in_the_address(server: ServedStatus, source: Source) -> None:
    assert ask(server, "/api/matrix?asset=google_ads/campaign").status == 200
    assert ask(server, "/api/matrix?asset=a&from=2026-01-01&to=2026-02-01").status == 200
    assert source.asked == [("google_ads/campaign", None, None), ("a", date(2026, 1, 1), date(2026, 2, 1))]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/api/matrix", "the address has no asset; add ?asset=…"),
        ("/api/matrix?asset=", "the address has no asset; add ?asset=…"),
        ("/api/partition?asset=a", "the address has no partition; add ?partition=…"),
        ("/api/matrix?asset=a&from=soon", "day 'soon' is not a date; write it as YYYY-MM-DD"),
        ("/api/matrix?asset=a&to=2026-02-30", "day '2026-02-30' is not in the calendar; write it as YYYY-MM-DD"),
        (
            "/api/matrix?asset=a&from=2026-02-02&to=2026-02-01",
            "from 2026-02-02 is after to 2026-02-01; the first day comes first",
        ),
    ],
)
def test_an_address_that_names_no_partition_is_refused_before_the_source(
    server: ServedStatus, source: Source, path: str, sentence: str
) -> None:
    answer = ask(server, path)
    assert (answer.status, answer.error) == (400, sentence)
    assert not source.asked


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (DayNotOpenError("the day is not open yet"), 400),
        (CatalogFileError("no such query", file="google_apis.yaml"), 400),
        (DatabaseUnavailableError("no server answers"), 503),
        (GadsError("something else"), 503),
    ],
)
def test_an_error_of_ours_is_told_in_its_own_words(
    server: ServedStatus, source: Source, error: Exception, status: int
) -> None:
    source.error = error
    answer = ask(server, "/api/overview")
    assert (answer.status, answer.error) == (status, str(error))


def test_an_unforeseen_error_is_told_without_its_insides(server: ServedStatus, source: Source) -> None:
    source.error = RuntimeError("postgresql://secret")
    answer = ask(server, "/api/overview")
    assert answer.status == 500
    assert "secret" not in answer.error
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/", "/api/overview", "/api/live", "/nowhere"])
def test_nothing_can_be_changed(server: ServedStatus, source: Source, method: str, path: str) -> None:
    answer = ask(server, path, method)
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD"
    assert not source.asked


def test_headers_alone_can_be_asked_for_everywhere(server: ServedStatus) -> None:
    for path in ("/", "/api/overview", "/api/matrix?asset=a", "/api/live"):
        answer = ask(server, path, "HEAD")
        assert (answer.status, answer.body) == (200, b""), path


def test_another_name_for_this_address_is_refused(server: ServedStatus, source: Source) -> None:
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", "127.0.0.1:1", ""):
        for path in ("/", "/api/overview", "/api/live"):
            answer = ask(server, path, Host=host)
            assert answer.status == 400, host
            assert answer.error
    assert not source.asked


def test_a_request_with_two_names_is_refused(server: ServedStatus) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        connection.putrequest("GET", "/api/overview", skip_host=True)
        connection.putheader("Host", server.host)
        connection.putheader("Host", "evil.example")
        connection.endheaders()
        assert connection.getresponse().status == 400


def test_another_sites_page_is_refused(server: ServedStatus, source: Source) -> None:
    for site in ("cross-site", "same-site", "anything"):
        for path in ("/", "/api/overview", "/api/live"):
            assert ask(server, path, Sec_Fetch_Site=site).status == 403
        framed = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}
        assert ask(server, "/", Sec_Fetch_Site=site, **framed).status == 403
    for site in ("same-origin", "none"):
        assert ask(server, "/api/overview", Sec_Fetch_Site=site).status == 200
    assert not source.asked


def test_a_link_elsewhere_leads_to_the_page_and_to_no_document(server: ServedStatus) -> None:
    followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert ask(server, "/", **followed).status == 200
    assert ask(server, "/api/overview", **followed).status == 403


def test_every_answer_is_marked(server: ServedStatus, source: Source) -> None:
    for path in ("/", "/api/overview", "/api/matrix", "/nowhere"):
        headers = ask(server, path, Origin="http://evil.example").headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert not [name for name in headers if name.startswith("access-control")]


def test_large_documents_are_compressed_for_who_can_read_that(server: ServedStatus) -> None:
    whole = ask(server, "/api/matrix?asset=a")
    small = ask(server, "/api/matrix?asset=a", Accept_Encoding="gzip")
    assert "content-encoding" not in whole.headers
    assert small.headers["content-encoding"] == "gzip"
    assert len(small.body) * 10 < len(whole.body)


@contextmanager
def listening(server: ServedStatus) -> Iterator[Callable[[], str]]:
    """Gives what reads the stream's next block."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        connection.request("GET", "/api/live", headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.getheader("Content-Type") == "text/event-stream; charset=utf-8"
        assert answer.getheader("Content-Encoding") is None

        def read() -> str:
            lines: list[str] = []
            while (line := answer.readline().decode()) not in {"\n", ""}:
                lines.append(line)
            return "".join(lines)

        yield read


def test_a_listener_hears_the_version_and_each_new_one(server: ServedStatus, source: Source) -> None:
    with listening(server) as read:
        assert read() == 'data: {"version": "v1"}\n'
        source.current = "v2"
        assert read() == 'data: {"version": "v2"}\n'


def test_all_listeners_share_one_question(server: ServedStatus, source: Source) -> None:
    with listening(server) as first, listening(server) as second:
        assert first() == second() == 'data: {"version": "v1"}\n'
        source.current = "v2"
        assert first() == second() == 'data: {"version": "v2"}\n'
    assert len(source.asked) <= 3
    assert source.most_asking == 1


def test_a_slow_source_is_never_asked_twice_at_once(server: ServedStatus, source: Source) -> None:
    source.hold = threading.Event()
    for _ in range(3):
        with listening(server):
            time.sleep(0.2)
    source.hold.set()
    with listening(server) as read:
        assert read() == 'data: {"version": "v1"}\n'
    assert source.most_asking == 1


def test_nobody_listening_means_nobody_asking(server: ServedStatus, source: Source) -> None:
    with listening(server) as read:
        read()
    time.sleep(2.5)
    asked = len(source.asked)
    time.sleep(2.5)
    assert len(source.asked) == asked


def test_listeners_hear_of_trouble_and_of_its_end(server: ServedStatus, source: Source) -> None:
    with listening(server) as read:
        read()
        source.error = DatabaseUnavailableError("no server answers")
        assert read() == 'event: trouble\ndata: {"error": "no server answers"}\n'
        source.error = None
        assert read() == 'data: {"version": "v1"}\n'


def test_an_unforeseen_error_ends_the_streams_and_the_next_listener_starts_again(
    server: ServedStatus, source: Source
) -> None:
    source.error = RuntimeError("unforeseen")
    with listening(server) as read:
        assert read() == ""
    source.error = None
    with listening(server) as read:
        assert read() == 'data: {"version": "v1"}\n'


def test_a_quiet_stream_gives_signs_of_life(server: ServedStatus) -> None:
    with listening(server) as read:
        read()
        before = time.monotonic()
        assert read() == ": nothing new\n"
        assert 14 < time.monotonic() - before < 20


def test_open_streams_do_not_keep_the_server_from_ending(source: Source) -> None:
    with serve_status(source) as server, listening(server) as read:
        read()
        before = time.monotonic()
        server.stop()
        assert time.monotonic() - before < 3
        assert read() == ""
