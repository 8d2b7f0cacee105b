"""`gads status` as people and scripts use it, on a real log: counts, lists, files, and what it refuses."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import RowMapping
from upath import UPath

from gads_assets.cli.main import main
from gads_assets.domain.partition_status import Outcome
from gads_assets.errors import WarehouseError
from gads_assets.status.exporting import SCHEMA, write_parquet
from gads_assets_tests.acceptance.browser import free_port
from gads_assets_tests.status_desks import BIKES, DAY, RAW, SHOES, TABLE, Desk, account, place

Gads = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gads(
    desk: Desk,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Gads:
    """Exit code, standard output, standard error."""
    monkeypatch.setenv("GADS_HOME", str(tmp_path))
    monkeypatch.setenv("GADS_DATABASE_URL", database_url)
    monkeypatch.setenv("COLUMNS", "240")
    desk.register(account(SHOES), account(BIKES, name="Bikes"))
    desk.succeed("good run", place(RAW), place(TABLE))
    desk.end_without("bad run", [place(TABLE)], Outcome.FAILED)
    desk.end_without("stopped run", [place(TABLE, BIKES)], Outcome.CANCELLED)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gads", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


def document(answer: tuple[int, str, str]) -> dict[str, Any]:
    code, out, err = answer
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_summary_counts_every_asset_and_tells_what_its_columns_leave_unsaid(gads: Gads) -> None:
    code, out, err = gads("status")
    assert (code, err) == (0, "")
    [line] = [line for line in out.splitlines() if line.startswith(" google_ads/campaign ")]
    current, stale, failed, never = (int(number) for number in line.split()[1:5])
    assert (current, stale, failed) == (0, 0, 1)
    assert never > 1000
    assert "1 with a cancelled last attempt" in line
    assert re.search(r"\d+ overdue", line)
    assert "google_ads/marts/freshness" in out


def test_scripts_get_one_document_with_stable_keys(gads: Gads) -> None:
    found = document(gads("status", "--query", "campaign", "--json"))
    assert [*found] == ["tenant_id", "workspace_id", "at", "assets"]
    table, raw = found["assets"]
    assert (table["asset_key"], raw["asset_key"]) == (TABLE, RAW)
    assert [*table] == ["asset_key", "partitions", "counts", "flags", "stale_reasons"]
    assert table["counts"]["MaterializedButLastAttemptFailed"] == 1
    assert table["flags"]["last_attempt_cancelled"] == 1
    assert sum(table["counts"].values()) == table["partitions"]


def test_filters_narrow_the_list_down_to_what_was_asked(gads: Gads) -> None:
    one = document(
        gads(
            "status",
            "--asset",
            TABLE,
            "--customer-id",
            "234-567-8901",
            "--from",
            f"{DAY}",
            "--to",
            f"{DAY}",
            "--json",
            "--list",
        )
    )
    [bikes] = one["partitions"]
    assert (bikes["partition_key"], bikes["display"]) == (f"{BIKES}|{DAY}", "NeverMaterialized")
    assert bikes["last_attempt"]["outcome"] == "CANCELLED"
    failed = document(gads("status", "--status", "MaterializedButLastAttemptFailed", "--json"))
    assert [each["partition_key"] for each in failed["partitions"]] == [f"{SHOES}|{DAY}"]
    limited = document(gads("status", "--asset", TABLE, "--list", "--limit", "3", "--json"))
    assert len(limited["partitions"]) == 3


def test_the_list_says_of_each_partition_how_it_stands_and_why(gads: Gads) -> None:
    code, out, err = gads(
        "status", "--query", "campaign", "--from", f"{DAY}", "--to", f"{DAY}", "--list", "--limit", "3"
    )
    assert code == 0
    assert "no more than 3 are listed; narrow them down, or raise --limit" in err
    [line] = [line for line in out.splitlines() if f"{SHOES}|{DAY}" in line and TABLE in line]
    assert "MaterializedButLastAttemptFailed" in line
    assert "FAILED 2026-11-10" in line
    assert "bad run" in line


def test_the_rows_are_written_as_parquet_whole_or_not_at_all(gads: Gads, tmp_path: Path) -> None:
    file = tmp_path / "somewhere" / "partition_status.parquet"
    for _ in range(2):
        code, out, err = gads("status", "--parquet", str(file))
        assert (code, out) == (0, "")
        assert "3 rows in" in err
    assert pq.read_table(file).schema.equals(SCHEMA)
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    in_the_way = tmp_path / "a file"
    in_the_way.write_text("")
    code, _, err = gads("status", "--parquet", str(in_the_way / "x.parquet"))
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "cannot be written" in err


@pytest.mark.parametrize("store", ["{folder}", "memory://status"])
def test_a_file_that_is_not_finished_leaves_the_one_before(desk: Desk, tmp_path: Path, store: str) -> None:
    uri = f"{store.format(folder=tmp_path)}/partition_status.parquet"
    desk.succeed("good run", place(RAW))
    desk.fold()
    assert write_parquet(uri, desk.statuses.rows(desk.selection(), now=desk.now)) == 1
    before = UPath(uri).read_bytes()
    desk.succeed("another run", place(TABLE))
    desk.fold()

    def broken() -> Iterator[Sequence[RowMapping]]:
        yield from desk.statuses.rows(desk.selection(), now=desk.now)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_parquet(uri, broken())
    assert UPath(uri).read_bytes() == before
    assert write_parquet(uri, desk.statuses.rows(desk.selection(), now=desk.now)) == 2
    assert [path.name for path in UPath(uri).parent.iterdir() if path.name.startswith(".draft")] == []


def test_an_address_that_cannot_be_written_is_named_without_its_login() -> None:
    with pytest.raises(WarehouseError, match=r"^nowhere://store/x cannot be written") as refused:
        write_parquet("nowhere://key:secret@store/x", [])
    assert "secret" not in str(refused.value)


def test_the_page_is_written_as_one_file(gads: Gads, tmp_path: Path) -> None:
    file = tmp_path / "status.html"
    code, out, err = gads("status", "--query", "campaign", "--html", str(file))
    assert (code, out) == (0, "")
    assert "the page is in" in err
    page = file.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "google_ads/marts" not in page
    assert f"{SHOES}|{DAY}" in page
    assert 'http-equiv="Content-Security-Policy"' in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--query", "nope"], "query 'nope' is not in the catalog; it has account,"),
        (["--asset", "google_ads/nope"], "asset 'google_ads/nope' is not known; there are google_ads/account,"),
        (["--asset", "'; DROP TABLE folded_status"], "is not known"),
        (["--customer-id", "12"], "customer id '12' is not ten digits"),
        (["--customer-id", "9999999999"], "customer 9999999999 is not registered; run `gads customers sync`"),
        (["--from", "yesterday"], "day 'yesterday' is not a date; write it as YYYY-MM-DD"),
        (["--from", "2026-02-30"], "day '2026-02-30' is not in the calendar"),
        (["--from", "2026-11-09", "--to", "2026-11-01"], "--from 2026-11-09 is after --to 2026-11-01"),
    ],
)
def test_wrong_uses_are_refused_in_one_line(gads: Gads, arguments: list[str], said: str) -> None:
    code, out, err = gads("status", *arguments)
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert said in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--status", "fine"],
        ["--limit", "0"],
        ["serve", "--port", "0"],
        ["--nope"],
        ["--query", "campaign", "serve"],
        ["--html", "x.html", "--status", "Stale"],
        ["--parquet", "x.parquet", "--json"],
    ],
)
def test_wrong_usage_is_told_apart(gads: Gads, arguments: list[str]) -> None:
    code, out, _ = gads("status", *arguments)
    assert (code, out) == (2, "")


def test_the_served_page_answers_follows_events_and_ends_when_asked(
    gads: Gads, desk: Desk, database_url: str, tmp_path: Path
) -> None:
    port = free_port()
    environment = {**os.environ, "GADS_HOME": str(tmp_path), "GADS_DATABASE_URL": database_url}
    process = subprocess.Popen(
        [Path(sys.executable).with_name("gads"), "status", "serve", "--port", str(port)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert f"The status page is on http://127.0.0.1:{port}" in process.stderr.readline()
        first = _asked(port, "/api/overview")
        desk.succeed("mended run", place(TABLE))
        second = _asked(port, "/api/overview")
        assert first["version"] != second["version"]
        partition = _asked(port, f"/api/partition?asset={TABLE}&partition={SHOES}%7C{DAY}")
        assert partition["last_materialization"]["run_id"] == "mended run"
        refused = gads("status", "serve", "--port", str(port))
        assert refused[0] == 1
        assert f"port {port} is in use" in refused[2]
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert "Traceback" not in err


def _asked(port: int, path: str) -> dict[str, Any]:
    """The server says where it is a moment before it listens there."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.URLError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
