import errno
import gzip
import json
import os
import resource
import socket
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from gads_assets.domain.manifest import RunManifest
from gads_assets.errors import (
    BrokenSealError,
    RawSinkError,
    RunNotFoundError,
    SealedRunError,
    SettingsError,
    UnreadableRunError,
)
from gads_assets.raw.layout import run_path
from gads_assets.raw.sink import RawSink
from gads_assets.raw.storage import without_login
from gads_assets_tests.sealed_runs import key, row, run_facts, seal, unused_run_id

PARTITION = key()


@pytest.fixture
def sink(tmp_path: Path) -> RawSink:
    return RawSink(str(tmp_path))


@pytest.fixture(params=["disk", "memory"])
def any_sink(request: pytest.FixtureRequest, tmp_path: Path) -> RawSink:
    return RawSink(str(tmp_path) if request.param == "disk" else f"memory://{unused_run_id()}")


def _everything(sink: RawSink) -> list[str]:
    """Each file and run directory in the sink."""
    found: list[str] = sink.root.fs.find(sink.root.path, withdirs=True)
    return [path for path in found if path.count("/") >= sink.root.path.count("/") + 5]


def _folder(tmp_path: Path, run: RunManifest) -> Path:
    return tmp_path / "google_ads" / run.customer_id / run.query_name / run.logical_date.isoformat() / run.run_id


def test_a_sealed_run_reads_back_row_by_row(any_sink: RawSink) -> None:
    sink = any_sink
    rows = [row(PARTITION, 1), row(PARTITION, 2, campaign_name=None)]
    run = seal(sink, PARTITION, rows)
    assert sink.manifest(PARTITION, run.run_id) == run
    assert list(sink.rows(run)) == rows
    assert run.record_count == 2
    assert sink.sealed_runs(PARTITION) == [run.run_id]
    sink.verify(run)


def test_an_empty_day_is_sealed_with_zero_rows(sink: RawSink) -> None:
    run = seal(sink, PARTITION, [])
    sink.verify(run)
    assert (run.record_count, list(sink.rows(run))) == (0, [])


def test_the_same_rows_give_the_same_bytes(sink: RawSink) -> None:
    rows = [row(PARTITION, number) for number in range(50)]
    first, second = seal(sink, PARTITION, rows), seal(sink, PARTITION, rows)
    assert first.files == second.files


def test_the_same_rows_give_the_same_bytes_in_whatever_portions_they_come(sink: RawSink) -> None:
    lines = [b"%s\n" % sha256(b"%d" % number).hexdigest().encode()[: number % 60] for number in range(5000)]
    files = set()
    for portion in (1, 7, 64, 5000):
        with sink.begin(PARTITION, unused_run_id()) as writer:
            for first in range(0, len(lines), portion):
                writer.write(b"".join(lines[first : first + portion]))
            run = writer.seal(run_facts(PARTITION))
        assert run.record_count == len(lines)
        files.add(run.files)
    assert len(files) == 1


def test_a_run_without_its_seal_does_not_exist(any_sink: RawSink) -> None:
    run_id = unused_run_id()
    writer = any_sink.begin(PARTITION, run_id)
    writer.write(b"{}\n")
    assert any_sink.sealed_runs(PARTITION) == []
    with pytest.raises(RunNotFoundError, match="does not exist"):
        any_sink.manifest(PARTITION, run_id)
    writer.abandon()
    assert not _everything(any_sink)


def test_only_what_is_named_like_a_run_is_listed_as_one(sink: RawSink, tmp_path: Path) -> None:
    run = seal(sink, PARTITION, [])
    folder = _folder(tmp_path, run)
    (folder.parent / f".{unused_run_id()}.metadata.json").write_text("a seal that was never put in its place")
    for name in (f".{unused_run_id()}.removing", "copy of a run", run.run_id.lower()):
        (folder.parent / name).mkdir()
        (folder.parent / name / "metadata.json").write_bytes((folder / "metadata.json").read_bytes())
    assert sink.sealed_runs(PARTITION) == [run.run_id]


def test_runs_are_listed_oldest_first(sink: RawSink) -> None:
    runs = [seal(sink, PARTITION, []).run_id for _ in range(3)]
    assert sink.sealed_runs(PARTITION) == sorted(runs)


def test_a_run_id_is_used_once(any_sink: RawSink) -> None:
    run = seal(any_sink, PARTITION, [])
    with pytest.raises(SealedRunError, match="exists already"):
        any_sink.begin(PARTITION, run.run_id)


def test_a_run_id_is_used_once_even_if_nothing_was_sealed(any_sink: RawSink) -> None:
    run_id = unused_run_id()
    with any_sink.begin(PARTITION, run_id), pytest.raises(SealedRunError, match="exists already"):
        any_sink.begin(PARTITION, run_id)


def test_a_sealed_run_takes_neither_rows_nor_a_second_seal_nor_its_removal(any_sink: RawSink) -> None:
    with any_sink.begin(PARTITION, unused_run_id()) as writer:
        run = writer.seal(run_facts(PARTITION))
        with pytest.raises(SealedRunError):
            writer.write(b"{}\n")
        with pytest.raises(SealedRunError):
            writer.seal(run_facts(PARTITION))
        writer.abandon()
    with pytest.raises(SealedRunError, match="is sealed and stays"):
        any_sink.remove_unsealed(PARTITION, run.run_id)
    any_sink.verify(run)


def test_a_run_that_was_given_up_takes_neither_rows_nor_a_seal(any_sink: RawSink) -> None:
    writer = any_sink.begin(PARTITION, unused_run_id())
    writer.abandon()
    with pytest.raises(RawSinkError, match="ended without a seal; begin another"):
        writer.write(b"{}\n")
    with pytest.raises(RawSinkError, match="ended without a seal; begin another"):
        writer.seal(run_facts(PARTITION))


def test_a_run_with_a_write_that_failed_cannot_be_sealed(sink: RawSink) -> None:
    incompressible = os.urandom(1 << 20)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with sink.begin(PARTITION, unused_run_id()) as writer:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
        try:
            with pytest.raises(RawSinkError, match="cannot be written"):
                writer.write(incompressible)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with pytest.raises(RawSinkError, match="ended without a seal"):
            writer.seal(run_facts(PARTITION))
    assert sink.sealed_runs(PARTITION) == []


def test_a_seal_that_somebody_else_wrote_is_not_replaced(any_sink: RawSink) -> None:
    run_id = unused_run_id()
    writer = any_sink.begin(PARTITION, run_id)
    seal_file = any_sink.root / run_path(PARTITION, run_id) / "metadata.json"
    seal_file.write_text("theirs")
    with pytest.raises(SealedRunError):
        writer.seal(run_facts(PARTITION))
    assert seal_file.read_text() == "theirs"


def test_an_error_while_writing_leaves_no_directory_behind(sink: RawSink, tmp_path: Path) -> None:
    def crash_after_a_row() -> None:
        with sink.begin(PARTITION, unused_run_id()) as writer:
            writer.write(b"{}\n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crash_after_a_row()
    assert not list(tmp_path.rglob("*.gz"))


def _flip(folder: Path) -> None:
    payload = next(folder.glob("*.gz"))
    content = bytearray(payload.read_bytes())
    content[len(content) // 2] ^= 1
    payload.write_bytes(content)


def _truncate(folder: Path) -> None:
    payload = next(folder.glob("*.gz"))
    payload.write_bytes(payload.read_bytes()[:-3])


def _other_rows(folder: Path) -> None:
    next(folder.glob("*.gz")).write_bytes(gzip.compress(b"{}\n"))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_flip, "the seal says"),
        (_truncate, "the seal says"),
        (_other_rows, "the seal says"),
        (lambda folder: next(folder.glob("*.gz")).unlink(), "is missing"),
        (lambda folder: (folder / "part-00001.jsonl.gz").touch(), "is not named by the seal"),
    ],
)
def test_every_change_of_a_sealed_run_is_found(sink: RawSink, tmp_path: Path, damage: Any, complaint: str) -> None:
    run = seal(sink, PARTITION, [row(PARTITION, 1)])
    damage(_folder(tmp_path, run))
    with pytest.raises(BrokenSealError, match=complaint):
        sink.verify(run)
    with pytest.raises(BrokenSealError, match=complaint):
        next(sink.rows(run))


def test_a_seal_from_another_run_is_refused(sink: RawSink, tmp_path: Path) -> None:
    mine, theirs = seal(sink, PARTITION, []), seal(sink, key(day="2024-06-02"), [])
    (_folder(tmp_path, mine) / "metadata.json").write_bytes((_folder(tmp_path, theirs) / "metadata.json").read_bytes())
    with pytest.raises(BrokenSealError, match="carries the seal of run"):
        sink.manifest(PARTITION, mine.run_id)


def test_a_folder_where_a_file_should_be_is_found(sink: RawSink, tmp_path: Path) -> None:
    run = seal(sink, PARTITION, [row(PARTITION, 1)])
    [payload] = _folder(tmp_path, run).glob("part-*")
    payload.unlink()
    payload.mkdir()
    with pytest.raises(BrokenSealError, match=payload.name):
        sink.verify(run)


def test_a_storage_that_does_not_answer_condemns_no_run(sink: RawSink) -> None:
    seal(sink, PARTITION, [])
    unreachable = replace(PARTITION, query_name="q" * 300)  # longer than any disk takes
    with pytest.raises(UnreadableRunError, match=r"cannot be read \(File name too long\); mend the storage"):
        sink.manifest(unreachable, unused_run_id())
    with pytest.raises(UnreadableRunError, match=r"cannot be listed \(File name too long\); mend the storage"):
        sink.sealed_runs(unreachable)


def test_an_object_store_that_does_not_answer_condemns_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = RawSink(f"memory://{unused_run_id()}")
    run = seal(sink, PARTITION, [])

    def down(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    for question in ("ls", "info", "find", "_open"):
        monkeypatch.setattr(MemoryFileSystem, question, down)
    for ask in (
        lambda: sink.manifest(PARTITION, run.run_id),
        lambda: sink.verify(run),
        lambda: sink.sealed_runs(PARTITION),
    ):
        with pytest.raises(UnreadableRunError, match="Input/output error"):
            ask()
    with pytest.raises(RawSinkError, match=r"cannot be removed \(Input/output error\)"):
        sink.remove_unsealed(PARTITION, run.run_id)
    monkeypatch.undo()
    sink.verify(run)


def test_a_seal_that_appeared_though_sealing_failed_is_not_taken_away(sink: RawSink, tmp_path: Path) -> None:
    run_id = unused_run_id()
    with sink.begin(PARTITION, run_id) as writer:
        [folder] = tmp_path.rglob(run_id)
        (folder / "metadata.json").write_text("of another process")
        with pytest.raises(SealedRunError):
            writer.seal(run_facts(PARTITION))
    assert sink.sealed_runs(PARTITION) == [run_id]


def test_a_malformed_seal_is_refused_naming_the_run(sink: RawSink, tmp_path: Path) -> None:
    run = seal(sink, PARTITION, [])
    (_folder(tmp_path, run) / "metadata.json").write_text(json.dumps({"manifest_version": 1}))
    with pytest.raises(BrokenSealError, match=run.run_id):
        sink.manifest(PARTITION, run.run_id)


def test_a_place_that_cannot_be_written_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("a file, not a folder")
    with pytest.raises(RawSinkError, match="cannot be written"):
        RawSink(str(tmp_path / "raw")).begin(PARTITION, unused_run_id())


@pytest.mark.parametrize("root", ["unheard://bucket/raw", "s3://bucket/raw"])
def test_a_storage_that_is_not_installed_is_named_with_the_fix(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(SettingsError, match=r"set GADS_RAW_URI to another place") as refused:
        RawSink(root)
    assert root in str(refused.value)


def test_a_storage_that_does_not_answer_is_named_with_the_fix() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        root = f"ftp://127.0.0.1:{unheard.getsockname()[1]}/raw"
        with pytest.raises(SettingsError, match=r"Connection refused.*set GADS_RAW_URI to another place") as refused:
            RawSink(root)
    assert root in str(refused.value)


@pytest.mark.parametrize("login", ["KEY:SECRET@", "KEY:SEC/RET@", "KEY:SEC@RET@", "SECRET@"])
@pytest.mark.parametrize("storage", ["unheard", "s3", "ftp", "memory"])
def test_a_login_in_the_sinks_uri_is_never_told(login: str, storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(SettingsError) as refused:
        RawSink(f"{storage}://{login}localhost:1/raw")
    told = str(refused.value)
    assert f"{storage}://localhost:1/raw" in told
    assert not [part for part in ("KEY", "SEC", "RET", "@") if part in told]
    assert "\n" not in told


@pytest.mark.parametrize(
    "uri",
    [
        "/home/me@work/raw",
        "file:///home/me@work/raw",
        "s3://bucket/a@b",
        "abfss://raw@account.dfs.core.windows.net/ads",
    ],
)
def test_an_at_sign_that_is_no_logins_is_shown(uri: str) -> None:
    assert without_login(uri) == uri
