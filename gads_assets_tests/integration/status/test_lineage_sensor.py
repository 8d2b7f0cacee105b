"""The lineage sensor on a real log, against a real receiver: what arrives, in which order, and after which failures."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest

from gads_assets.catalog.loading import load_catalog
from gads_assets.domain.partition_status import Outcome
from gads_assets.errors import SettingsError
from gads_assets.orchestration import lineage
from gads_assets.orchestration.code_location import code_location
from gads_assets.orchestration.lineage import LineageBackend, Position, lineage_backend, look
from gads_assets.orchestration.resources import SparkResource
from gads_assets.settings import read_settings
from gads_assets_tests.status_desks import FRESHNESS, MART, RAW, SHOES, TABLE, Desk, place
from gads_assets_tests.worlds import STATUS_URL

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

SENSOR = "google_ads_lineage"
RUN = "0c1f9a52-6f0e-4f5c-8a52-0f8c6a5b7d11"
NOW = datetime(2026, 11, 10, 12, tzinfo=UTC)


class Receiver:
    """Keeps what is posted to it. `answers` are given in turn, and a 201 after those."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.events: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self._server: ThreadingHTTPServer | None = None
        self.start()
        self.port = self._server.server_port  # type: ignore[attr-defined]

    def start(self, port: int = 0) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = receiver.answers.pop(0) if receiver.answers else 201
                receiver.paths.append(self.path)
                if status == 201:
                    receiver.events.append(document)
                self._answer(status)

            def do_GET(self) -> None:
                self._answer(200)

            def _answer(self, status: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                if status in {301, 302, 307}:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def partitions(self) -> list[str]:
        return [tags(event)["partition"] for event in self.events]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


@pytest.fixture(autouse=True)
def quick_inserts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one tick has seen, the next tells of."""
    monkeypatch.setattr(lineage, "_LONGEST_INSERT", 0.0)


class Daemon:
    """Ticks as Dagster's does: with the cursor that the last one left."""

    def __init__(self, instance: dg.DagsterInstance, url: str) -> None:
        self.instance = instance
        self.cursor: str | None = None
        backend = LineageBackend(url=url, namespace="shoes/main")
        definitions = code_location(load_catalog(), SparkResource(), status_url=STATUS_URL, lineage=backend)
        [self._sensor] = [each for each in definitions.sensors or () if each.name == SENSOR]

    def tick(self) -> str:
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor)
        told = self._sensor.evaluate_tick(context)
        assert told.run_requests == []
        self.cursor = told.cursor
        return told.skip_message or ""

    def ticks(self, number: int = 2) -> str:
        return [self.tick() for _ in range(number)][-1]


def days(number: int) -> list[str]:
    return [f"{SHOES}|{datetime(2020, 1, 1, tzinfo=UTC).date() + timedelta(days=day)}" for day in range(number)]


def tags(event: dict[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in event["run"]["facets"]["tags"]["tags"]}


def names(datasets: list[dict[str, Any]]) -> list[str]:
    return [dataset["name"] for dataset in datasets]


def test_a_thousand_materializations_of_a_run_all_arrive_once_and_oldest_first(
    desk: Desk, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "_TELLING_SECONDS", 0.2)
    desk.written.plan_many(RUN, TABLE, days(1000))
    desk.written.materialize_many(RUN, TABLE, days(1000))
    desk.written.end(RUN, Outcome.SUCCEEDED)
    daemon = Daemon(desk.instance, receiver.url)
    said = [daemon.tick()]
    while len(said) < 3 or "more are waiting" in said[-1]:
        said.append(daemon.tick())
    daemon.ticks()
    assert len(said) > 4
    assert receiver.partitions == days(1000)
    assert len({event["run"]["runId"] for event in receiver.events}) == 1000
    assert {event["run"]["facets"]["parent"]["run"]["runId"] for event in receiver.events} == {RUN}
    assert set(receiver.paths) == {"/api/v1/lineage"}


def test_an_event_has_its_inputs_columns_partition_and_extraction(desk: Desk, receiver: Receiver) -> None:
    said = {"run_id": "01K9ZZZZZZZZZZZZZZZZZZZZZZ", "schema_version": "1", "pointer_version": 3}
    desk.written.materialize_many(RUN, TABLE, days(1), metadata=said)
    desk.written.materialize(RUN, place(MART), place(FRESHNESS))
    Daemon(desk.instance, receiver.url).ticks()
    table, mart, freshness = receiver.events
    assert (table["eventType"], table["job"]["namespace"], table["job"]["name"]) == ("COMPLETE", "shoes/main", TABLE)
    assert (names(table["inputs"]), names(table["outputs"])) == ([RAW], [TABLE])
    assert tags(table) == {"partition": days(1)[0], "run_id": said["run_id"], "schema_version": "1"}
    columns = [field["name"] for field in table["outputs"][0]["facets"]["schema"]["fields"]]
    assert {"customer_id", "logical_date", "run_id", "campaign_id"} <= {*columns}
    assert TABLE in names(mart["inputs"])
    assert RAW not in names(mart["inputs"])
    assert tags(freshness) == {"partition": SHOES}


def test_what_other_code_made_is_told_without_the_columns_of_today(desk: Desk, receiver: Receiver) -> None:
    desk.written.materialize(RUN, place(TABLE), code_version="an earlier one")
    Daemon(desk.instance, receiver.url).ticks()
    [event] = receiver.events
    assert "schema" not in event["outputs"][0].get("facets", {})
    assert names(event["inputs"]) == [RAW]


def test_a_materialization_reported_by_hand_has_no_parent_and_one_of_other_assets_is_not_told(
    desk: Desk, receiver: Receiver
) -> None:
    for key in ("somebody/else", TABLE):
        desk.instance.report_runless_asset_event(dg.AssetMaterialization(dg.AssetKey(key.split("/"))))
    assert Daemon(desk.instance, receiver.url).ticks() == "1 materializations were told of"
    assert [names(event["outputs"]) for event in receiver.events] == [[TABLE]]
    assert "parent" not in receiver.events[0]["run"]["facets"]


def test_nothing_is_lost_while_the_receiver_is_down(desk: Desk, receiver: Receiver) -> None:
    desk.written.materialize_many(RUN, TABLE, days(40))
    daemon = Daemon(desk.instance, receiver.url)
    daemon.tick()
    receiver.stop()
    for said in (daemon.tick(), daemon.tick()):
        assert said == (
            "0 materializations were told of; the OpenLineage backend at 127.0.0.1 does not answer (ConnectionError); "
            "the rest waits until it does"
        )
    desk.written.materialize_many(str(uuid4()), RAW, days(40))
    receiver.start(receiver.port)
    daemon.ticks(3)
    assert receiver.partitions == days(40) * 2
    assert [names(event["outputs"]) for event in receiver.events] == [[TABLE]] * 40 + [[RAW]] * 40


@pytest.mark.parametrize("status", [204, 301, 302, 304, 307, 400, 401, 429, 500, 503])
def test_only_a_2xx_counts_as_delivered(desk: Desk, receiver: Receiver, status: int) -> None:
    desk.written.materialize_many(RUN, TABLE, days(20))
    daemon = Daemon(desk.instance, receiver.url)
    receiver.answers = [201] * 7 + [status]
    said = daemon.ticks()
    if status == 204:
        assert said == "20 materializations were told of"
        return
    assert said.startswith("7 materializations were told of; the OpenLineage backend at 127.0.0.1 ")
    assert daemon.tick() == "13 materializations were told of"
    assert receiver.partitions == days(20)


def test_an_event_that_is_told_again_is_the_same(desk: Desk, receiver: Receiver) -> None:
    desk.written.materialize(RUN, place(TABLE))
    daemon = Daemon(desk.instance, receiver.url)
    daemon.tick()
    before = daemon.cursor
    daemon.tick()
    daemon.cursor = before  # the process was killed before the cursor was on record
    daemon.tick()
    first, second = receiver.events
    assert first == second


def test_a_number_that_becomes_visible_late_is_told_in_its_place(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "_LONGEST_INSERT", 60.0)
    told: list[str] = []

    def tell(record: dg.EventLogRecord) -> bool:
        told.append(record.partition_key or "")
        return True

    early, late, last = days(3)
    storage: Any = desk.instance.event_log_storage
    desk.written.materialize_many(RUN, TABLE, [early])
    with storage.index_connection() as connection:
        taken = connection.exec_driver_sql("SELECT nextval(pg_get_serial_sequence('event_logs', 'id'))").scalar_one()
    desk.written.materialize_many(RUN, TABLE, [last])
    position, _ = look(desk.instance, Position(), tell, now=NOW)
    position, _ = look(desk.instance, position, tell, now=NOW + timedelta(seconds=30))
    assert told == []
    desk.written.materialize_many(RUN, TABLE, [late])
    with storage.index_connection() as connection:
        connection.exec_driver_sql("UPDATE event_logs SET id = %s WHERE partition = %s", (taken, late))
    position, _ = look(desk.instance, position, tell, now=NOW + timedelta(seconds=61))
    position, _ = look(desk.instance, position, tell, now=NOW + timedelta(seconds=200))
    assert told == [early, late, last]


def test_a_log_that_took_the_place_of_another_is_told_from_its_beginning(desk: Desk, receiver: Receiver) -> None:
    daemon = Daemon(desk.instance, receiver.url)
    daemon.cursor = json.dumps({"told": 1_000_000})
    desk.written.materialize(RUN, place(TABLE))
    daemon.ticks()
    assert len(receiver.events) == 1


@pytest.mark.parametrize("path", ["/secret/events", "/?key=secret", "/secret?key=secret"])
def test_the_address_is_used_as_given_and_shown_nowhere(
    desk: Desk, receiver: Receiver, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="dagster_openlineage")
    desk.written.materialize_many(RUN, TABLE, days(2))
    daemon = Daemon(desk.instance, receiver.url + path)
    receiver.answers = [201, 500]
    said = [daemon.tick(), daemon.tick()]
    receiver.stop()
    said.append(daemon.tick())
    assert receiver.paths == [path, path]
    assert "answered 500" in said[1]
    assert "does not answer" in said[2]
    assert "secret" not in "".join([*said, caplog.text, daemon.cursor or ""])
    assert "secret" not in repr(LineageBackend(url=receiver.url + path, namespace="default/default"))


def test_the_library_is_told_where_to_post_by_nothing_but_the_setting(
    desk: Desk, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "elsewhere")
    desk.written.materialize(RUN, place(TABLE))
    Daemon(desk.instance, receiver.url).ticks()
    assert [event["job"]["namespace"] for event in receiver.events] == ["shoes/main"]


def test_without_the_setting_there_is_no_such_sensor() -> None:
    assert lineage_backend(read_settings({})) is None
    definitions = code_location(load_catalog(), SparkResource(), status_url=STATUS_URL)
    assert SENSOR not in {sensor.name for sensor in definitions.sensors or ()}


@pytest.mark.parametrize("given", [{}, {"GADS_OPENLINEAGE_URL": "http://127.0.0.1:9"}])
def test_loading_the_definitions_imports_nothing_of_the_package(given: dict[str, str]) -> None:
    code = (
        "import sys; from gads_assets.definitions import defs; "
        "print([s.name for s in defs.sensors], [m for m in sys.modules if 'openlineage' in m])"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **given}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert (SENSOR in done.stdout) is bool(given)
    assert done.stdout.strip().endswith(" []")


def test_a_setting_without_the_package_is_refused_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dagster_openlineage", None)
    backend = lineage_backend(read_settings({"GADS_OPENLINEAGE_URL": "https://host/secret"}))
    with pytest.raises(SettingsError, match=r"^GADS_OPENLINEAGE_URL .* install 'gads_assets\[lineage\]'") as refused:
        code_location(load_catalog(), SparkResource(), status_url=STATUS_URL, lineage=backend)
    assert "secret" not in str(refused.value)
