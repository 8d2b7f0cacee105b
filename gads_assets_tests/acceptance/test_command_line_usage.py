"""What scripts rely on: exit codes, help for everything, and one JSON document where one is asked for."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gads_assets.cli.main import _COMMANDS, _load
from gads_assets_tests.acceptance.commands import GADS, Home, assert_refused, demonstrated_home, finish


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = demonstrated_home(tmp_path_factory.getbasetemp() / "demonstrated")
    assert home.gads("db", "start").returncode == 0
    yield home
    home.stop()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(path=tmp_path / "home")


def every_command() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [()]
    for name, place, _ in _COMMANDS:
        command: Any = _load(name, place)
        found += [(name,), *((name, below) for below in getattr(command, "commands", {}))]
    return found


def test_every_command_explains_itself_and_touches_nothing(home: Home) -> None:
    commands = every_command()
    assert {("demo",), ("db", "migrate"), ("customers", "add"), ("query",)} <= set(commands)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda command: home.gads(*command, "--help"), commands))
    for command, answer in zip(commands, answers, strict=True):
        assert (answer.returncode, answer.stderr) == (0, ""), command
        assert "Usage: gads" in answer.stdout
    assert not home.path.exists()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ((), ("GADS_HOME", "gads_assets/settings.py")),
        (("customers", "sync"), ("GADS_GOOGLE_ADS_CONFIG", "GADS_GOOGLE_ADS_LOGIN", "emulator")),
        (("query",), ("load_records has a row for each run",)),
    ],
)
def test_help_says_what_the_command_goes_by(home: Home, command: tuple[str, ...], told: tuple[str, ...]) -> None:
    shown = " ".join(home.gads(*command, "--help").stdout.split())
    for words in told:
        assert words in shown


@pytest.mark.parametrize(
    "wrong",
    [
        ("demoo",),
        ("demo", "--fast"),
        ("demo", "now"),
        ("db",),
        ("db", "restart"),
        ("query",),
        ("query", "SELECT 1", "SELECT 2"),
        ("customers", "add"),
        ("ready",),
        ("housekeeping", "--grace-hours", "soon"),
        ("ui", "--port", "many"),
        ("ui", "--port", "70000"),
        ("emulator", "--latency-ms", "-1"),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2_with_a_hint_and_touches_nothing(home: Home, wrong: tuple[str, ...]) -> None:
    answer = home.gads(*wrong)
    assert answer.returncode == 2
    assert "Usage: gads" in answer.stdout + answer.stderr
    assert not home.path.exists()


@pytest.mark.parametrize(
    "command",
    [
        ("demo", "--json"),
        ("customers", "list", "--json"),
        ("customers", "add", "214-555-0101", "--json"),
        ("db", "status", "--json"),
        ("doctor", "--json"),
        ("env", "--json"),
        ("catalog", "list", "--json"),
        ("catalog", "check", "--json"),
        ("catalog", "schema", "campaign", "--json"),
        ("quota", "--json"),
        ("ready", "campaign", "--json"),
        ("housekeeping", "--json"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_json_is_one_document_and_nothing_else(demonstrated: Home, command: tuple[str, ...]) -> None:
    answer = demonstrated.gads(*command)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout, parse_constant=pytest.fail)


def test_ready_tells_the_run_to_read_for_each_accepted_day_and_the_reason_for_each_gap(demonstrated: Home) -> None:
    since = (datetime.now(UTC) - timedelta(days=14)).date().isoformat()
    document = json.loads(demonstrated.gads("ready", "keyword_view", "--from", since, "--json").stdout)
    assert (document["query"], document["from"]) == ("keyword_view", since)
    assert len(document["ready"]) == 3 * 7  # what the demo publishes
    for partition in document["ready"]:
        assert Path(partition["raw_uri"], "metadata.json").is_file()
        assert partition["raw_uri"].endswith(partition["run_id"])
    before = demonstrated.gads("ready", "keyword_view", "--from", "2024-03-01", "--to", "2024-03-02", "--json")
    gaps = json.loads(before.stdout)
    assert gaps["ready"] == []
    assert {(gap["status"], gap["reason"]) for gap in gaps["not_ready"]} == {("pending", "no run of it was judged yet")}
    assert len(gaps["not_ready"]) == 3 * 2
    assert "0 of 6 partitions of keyword_view" in before.stderr
    table = demonstrated.gads("ready", "keyword_view", "--customer-id", "214-555-0101", "--from", since)
    assert table.stdout.count("ready") == 7
    elsewhere = demonstrated.gads(
        "ready", "campaign", "--from", since, "--json", GADS_RAW_URI="s3://KEY:SECRET@bucket/x"
    )
    places = [partition["raw_uri"] for partition in json.loads(elsewhere.stdout)["ready"]]
    assert len(places) == 3 * 7
    assert all(place.startswith("s3://bucket/x/google_ads/") for place in places)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("keywords",), "query 'keywords' is not in the catalog"),
        (("campaign", "--customer-id", "12"), "customer id '12' is not ten digits"),
        (("campaign", "--customer-id", "9999999999"), "customer 9999999999 is not registered"),
        (
            ("campaign", "--customer-id", "9999999999", "--customer-id", "8888888888"),
            "customers 8888888888, 9999999999 are not registered",
        ),
        (("campaign", "--to", "0001-01-03"), "day 0001-01-03 is outside the days of campaign"),
        (("campaign", "--from", "2023-12-31"), "it must be between 2024-01-01, its start_date in the catalog, and"),
        (("campaign", "--to", "9999-12-31"), "the last that is over anywhere"),
        (("campaign", "--from", "2024-02-30"), "not in the calendar"),
        (("campaign", "--from", "2024-06-02", "--to", "2024-06-01"), "give the earlier day first"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_what_cannot_be_ready_is_refused_in_one_line(demonstrated: Home, asked: tuple[str, ...], told: str) -> None:
    assert_refused(demonstrated.gads("ready", *asked), told)


def test_ready_without_a_registered_customer_says_how_to_register_them(home: Home) -> None:
    assert_refused(home.gads("ready", "campaign"), "no customer is registered; run `gads customers sync`")


def test_the_emulators_json_is_one_line_as_soon_as_it_serves(home: Home) -> None:
    process = home.start([GADS, "emulator", "--json"])
    assert process.stdout is not None
    document = json.loads(process.stdout.readline())
    assert document["endpoint"].startswith("localhost:")
    assert Path(document["ca_path"]).is_file()
    process.send_signal(signal.SIGINT)
    stopped = finish(process, patience=60)
    assert (stopped.returncode, stopped.stdout) == (0, "")
