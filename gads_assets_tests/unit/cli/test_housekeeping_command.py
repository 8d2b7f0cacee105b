"""`gads housekeeping`: needs a database and Spark only for what they must do, says what it did, and never touches a
sealed run."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gads_assets.cli.main import main
from gads_assets.domain.keys import RunId, StageId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.raw.layout import Entry, run_path
from gads_assets.raw.sink import RawSink
from gads_assets.warehouse.delta_tables import open_table
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.pointers import append_pointers
from gads_assets_tests.acceptance.disks import can_mount, full_disk
from gads_assets_tests.sealed_runs import key, row, seal, unused_run_id
from gads_assets_tests.warehouses import let_pass

PARTITION = key()
Gads = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("GADS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GADS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def gads(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gads:
    monkeypatch.setenv("GRPC_VERBOSITY", "ERROR")  # main sets it, and no other test should find it set

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gads", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return run


@pytest.fixture
def sealed(home: Path) -> RunManifest:
    return seal(RawSink(str(home / "raw")), PARTITION, [row(PARTITION, 1)])


def _leave_unsealed(home: Path, *, hours: float) -> RunId:
    run_id = unused_run_id()
    folder = home / "raw" / run_path(PARTITION, run_id)
    folder.mkdir(parents=True)
    (folder / "part-00000.jsonl.gz").write_text("left")
    for path in (folder / "part-00000.jsonl.gz", folder):
        then = path.stat().st_mtime - hours * 3600
        os.utime(path, (then, then))
    return run_id


def _runs(home: Path) -> set[str]:
    return {path.name for path in (home / "raw" / run_path(PARTITION, RunId(""))).iterdir()}


def test_old_orphans_go_and_everything_else_stays(home: Path, gads: Gads, sealed: RunManifest) -> None:
    old, young = _leave_unsealed(home, hours=30), _leave_unsealed(home, hours=5)
    (home / "raw" / "notes.txt").write_text("mine")
    code, output, message = gads("housekeeping", "--dry-run")
    assert (code, _runs(home)) == (0, {sealed.run_id, old, young})
    assert "would be removed" in output
    code, output, message = gads("housekeeping")
    [line] = [line for line in output.splitlines() if old in line]
    assert line.split() == [
        *("campaign", "1234567890", "2024-06-01", old, "unsealed", "run", "30.0", "h", "4", "removed")
    ]
    assert young not in output
    assert "notes.txt" in output
    assert message == (
        "raw sink: orphans: 2 (1 removed, 1 within the grace), bytes freed: 4, foreign entries left alone: 1\n"
        "warehouse: gone: 0 superseded and 0 abandoned partitions, 0 pointer rows, 0 files (0 bytes)\n"
    )
    assert (code, _runs(home)) == (0, {sealed.run_id, young})
    assert gads("housekeeping", "--grace-hours", "4")[0] == 0
    assert _runs(home) == {sealed.run_id}
    RawSink(str(home / "raw")).verify(sealed)


def test_json_is_one_document_with_every_orphan_and_its_outcome(home: Path, gads: Gads, sealed: RunManifest) -> None:
    old, young = _leave_unsealed(home, hours=30), _leave_unsealed(home, hours=5)
    code, output, _ = gads("housekeeping", "--json")
    document = json.loads(output)
    assert (code, document["dry_run"], document["grace_hours"], document["raw"]["foreign"]) == (0, False, 24, [])
    facts: dict[str, Any] = {
        "source": "google_ads",
        "customer_id": "1234567890",
        "query_name": "campaign",
        "logical_date": "2024-06-01",
        "kind": "unsealed run",
        "bytes": 4,
        "reason": None,
    }
    assert sorted(document["raw"]["orphans"], key=lambda orphan: orphan["age_hours"]) == [
        {**facts, "run_id": young, "age_hours": 5.0, "outcome": "young"},
        {**facts, "run_id": old, "age_hours": 30.0, "outcome": "removed"},
    ]


def test_a_home_without_a_raw_sink_has_nothing_to_do_and_none_is_made(home: Path, gads: Gads) -> None:
    code, output, message = gads("housekeeping")
    assert (code, output) == (0, "")
    assert message.startswith("raw sink: orphans: 0, ")
    assert not home.exists()


@pytest.fixture
def replaced(home: Path) -> WarehouseLayout:
    """A query whose only partition was replaced nine days ago."""
    layout = WarehouseLayout(root=str(home / "warehouse"), source="google_ads")
    for number in (1, 2):
        append_pointers(layout, "campaign", [_pointer(number)])
    let_pass(Path(layout.pointers("campaign")), hours=9 * 24)
    return layout


def _pointer(state_version: int) -> Pointer:
    return Pointer(
        key=PARTITION,
        run_id=unused_run_id(),
        stage_id=StageId(unused_run_id()),
        schema_version="1",
        record_count=0,
        content_digest="",
        state_version=state_version,
        stage_commit=0,
        status=PointerStatus.ACTIVE,
        loaded_at=datetime(2024, 7, 1, tzinfo=UTC),
    )


def test_a_dry_run_says_what_would_go_from_the_warehouse_and_starts_nothing(
    home: Path, gads: Gads, replaced: WarehouseLayout
) -> None:
    code, output, message = gads("housekeeping", "--dry-run")
    assert (code, output.split()[-8:]) == (0, ["campaign", "0", "0", "1", "0", "0", "0", "due"])
    assert message.endswith(
        "warehouse: would go: 0 superseded and 0 abandoned partitions, 1 pointer rows, 0 files (0 bytes)\n"
    )
    code, output, _ = gads("housekeeping", "--dry-run", "--json")
    document = json.loads(output)
    assert (code, document["retention_hours"], document["dry_run"]) == (0, 168, True)
    told = {query["query_name"]: query for query in document["warehouse"]["queries"]}
    assert told["campaign"] == {
        "query_name": "campaign",
        "superseded_partitions": 0,
        "abandoned_partitions": 0,
        "pointer_rows": 1,
        "small_files": 0,
        "files": 0,
        "bytes": 0,
        "outcome": "due",
        "reason": None,
    }
    assert {query["outcome"] for name, query in told.items() if name != "campaign"} == {"tidy"}
    assert open_table(replaced.pointers("campaign")).version() == 1
    assert {path.name for path in home.iterdir()} == {"warehouse"}


@pytest.mark.usefixtures("replaced")
def test_what_is_within_the_retention_stays(gads: Gads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GADS_RETENTION_HOURS", "240")
    code, output, message = gads("housekeeping")
    assert (code, output) == (0, "")
    assert "warehouse: gone: 0 superseded" in message


def test_a_table_that_cannot_be_tidied_ends_in_one_line_after_the_rest_was_done(
    home: Path, gads: Gads, replaced: WarehouseLayout
) -> None:
    orphan = _leave_unsealed(home, hours=30)
    (Path(replaced.pointers("campaign")) / "_delta_log" / f"{1:020d}.json").write_text('{"add": ')
    code, output, message = gads("housekeeping", "--json")
    assert code == 1
    told = {query["query_name"]: query for query in json.loads(output)["warehouse"]["queries"]}
    assert told["campaign"]["outcome"] == "failed"
    assert told["campaign"]["reason"].startswith(f"the table at {replaced.pointers('campaign')} cannot be used (")
    assert message.splitlines()[-1].startswith("gads: 1 of 12 queries could not be tidied (campaign): the table at ")
    assert orphan not in _runs(home)


def test_a_displaced_sealed_run_is_put_back(home: Path, gads: Gads, sealed: RunManifest) -> None:
    folder = home / "raw" / run_path(PARTITION, sealed.run_id)
    folder.rename(folder.with_name(Entry.ASIDE.name_for(sealed.run_id)))
    assert "would be put back" in gads("housekeeping", "--dry-run")[1]
    assert "sealed, in its place" in gads("housekeeping")[1]
    RawSink(str(home / "raw")).verify(sealed)


def test_what_cannot_be_removed_ends_in_one_line_after_the_rest_was_done(home: Path, gads: Gads) -> None:
    stuck, free = _leave_unsealed(home, hours=30), _leave_unsealed(home, hours=30)
    in_the_way = home / "raw" / run_path(PARTITION, stuck)
    in_the_way.with_name(Entry.ASIDE.name_for(stuck)).write_text("a file where the removal needs a folder")
    code, _, message = gads("housekeeping")
    assert code == 1
    last = message.splitlines()[-1]
    assert last.startswith(f"gads: 1 of 2 orphans could not be removed: run {stuck} of {PARTITION} cannot be removed (")
    assert "then run housekeeping again" in last
    assert free not in _runs(home)


def test_a_sink_that_cannot_be_read_ends_in_one_line(home: Path, gads: Gads) -> None:
    home.mkdir()
    (home / "raw").write_text("a file, not a folder")
    code, output, message = gads("housekeeping")
    assert (code, output, message.count("\n")) == (1, "", 1)
    assert message.startswith(f"gads: the raw sink {home / 'raw'} cannot be read (")


@pytest.mark.parametrize("uri", ["s3://KEY:SECRET@bucket/x", "ftp://KEY:SECRET@localhost:1/x", "memory://KEY:SECRET@x"])
def test_a_login_in_the_sinks_uri_is_never_told(gads: Gads, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.setenv("GADS_RAW_URI", uri)
    code, output, message = gads("housekeeping")
    assert (code, output, message.count("\n")) == (1, "", 1)
    assert uri.replace("KEY:SECRET@", "") in message
    assert "unexpected" not in message
    assert "KEY" not in message
    assert "SECRET" not in message


@pytest.mark.parametrize("wrong", [("--grace-hours", "-1"), ("--grace-hours", "soon"), ("now",), ("--force",)])
def test_wrong_usage_exits_2(gads: Gads, wrong: tuple[str, ...]) -> None:
    code, _, message = gads("housekeeping", *wrong)
    assert code == 2
    assert "Usage: gads" in message


def test_a_full_disk_can_be_tidied(tmp_path: Path, gads: Gads, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "disk"
    monkeypatch.setenv("GADS_HOME", str(home))
    with full_disk(home, kilobytes=64):
        sealed = seal(RawSink(str(home / "raw")), PARTITION, [])
        orphan = _leave_unsealed(home, hours=0)
        if can_mount():
            payload = home / "raw" / run_path(PARTITION, orphan) / "part-00000.jsonl.gz"
            with suppress(OSError), payload.open("wb") as file:
                file.write(b"x" * (1 << 20))
            with pytest.raises(OSError, match="No space left"):
                (home / "filler").write_text("more")
        assert gads("housekeeping", "--grace-hours", "0")[0] == 0
        assert _runs(home) == {sealed.run_id}
