"""What killed extractors leave is found and removed; a sealed run never is, whoever seals it and when."""

import errno
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Event

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from gads_assets.domain.keys import RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.errors import BrokenSealError, RawSinkError, SealedRunError
from gads_assets.raw.housekeeping import Fate, OrphanKind, Outcome, find_orphans, remove_orphans
from gads_assets.raw.layout import Entry, partition_path, run_path
from gads_assets.raw.sink import RawSink
from gads_assets_tests.sealed_runs import key, row, run_facts, seal, unused_run_id

PARTITION = key()
HOUR = timedelta(hours=1)
PROJECT = Path(__file__).resolve().parents[3]

# A writer that stops for ever at one of its steps, after a line that says that it is there.
WRITER = """
import os, pathlib, sys, time
from gads_assets.raw.sink import RawSink
from gads_assets_tests.sealed_runs import key, run_facts

root, run_id, moment = sys.argv[1:]

def stop(*_, **__):
    print("here", flush=True)
    time.sleep(600)

writer = RawSink(root).begin(key(), run_id)
if moment == "begun":
    stop()
for _ in range(10_000):
    writer.write(os.urandom(20).hex().encode() + b"\\n")
if moment == "written":
    stop()
if moment == "seal drafted":
    os.link = stop
if moment == "seal linked":
    pathlib.Path.unlink = stop
writer.seal(run_facts(key()))
"""


@pytest.fixture
def sink(tmp_path: Path) -> RawSink:
    return RawSink(str(tmp_path / "raw"))


@pytest.fixture(params=["disk", "memory"])
def any_sink(request: pytest.FixtureRequest, tmp_path: Path) -> RawSink:
    return RawSink(str(tmp_path / "raw") if request.param == "disk" else f"memory://{unused_run_id()}")


def _leave_unsealed(sink: RawSink, content: str = "left") -> RunId:
    run_id = unused_run_id()
    folder = sink.root / run_path(PARTITION, run_id)
    folder.mkdir(parents=True)
    (folder / "part-00000.jsonl.gz").write_text(content)
    return run_id


def _keep_house(sink: RawSink, *, later: timedelta = 25 * HOUR, grace: timedelta = 24 * HOUR) -> list[Outcome]:
    now = datetime.now(UTC) + later
    return remove_orphans(sink, find_orphans(sink, now=now).orphans, now=now, grace=grace)


def _fates(outcomes: list[Outcome]) -> dict[RunId, Fate]:
    return {outcome.orphan.run_id: outcome.fate for outcome in outcomes}


def _in_partition(sink: RawSink) -> set[str]:
    folder = sink.root / partition_path(PARTITION)
    return {entry.name for entry in folder.iterdir()} if folder.exists() else set()


def test_an_unsealed_run_is_removed_after_the_grace_and_a_sealed_one_never(any_sink: RawSink) -> None:
    run = seal(any_sink, PARTITION, [row(PARTITION, 1)])
    orphan = _leave_unsealed(any_sink)
    assert _fates(_keep_house(any_sink, later=23 * HOUR)) == {orphan: Fate.YOUNG}
    [outcome] = _keep_house(any_sink, later=25 * HOUR)
    assert (outcome.orphan.key, outcome.orphan.run_id) == (PARTITION, orphan)
    assert (outcome.orphan.kind, outcome.orphan.bytes) == (OrphanKind.UNSEALED_RUN, len("left"))
    assert 24 * HOUR < outcome.orphan.age < 26 * HOUR
    assert outcome.fate is Fate.REMOVED
    assert _in_partition(any_sink) == {run.run_id}
    any_sink.verify(run)
    assert find_orphans(any_sink, now=datetime.now(UTC)).orphans == ()


def test_a_sink_that_was_never_written_to_has_no_orphans(any_sink: RawSink) -> None:
    found = find_orphans(any_sink, now=datetime.now(UTC))
    assert (found.orphans, found.foreign) == ((), ())


def test_the_newest_change_of_anything_inside_counts(sink: RawSink) -> None:
    run_id = _leave_unsealed(sink)
    folder = Path((sink.root / run_path(PARTITION, run_id)).path)
    (folder / "below").mkdir()
    for path in (folder / "part-00000.jsonl.gz", folder):
        os.utime(path, (0, 0))
    assert _fates(_keep_house(sink, later=HOUR)) == {run_id: Fate.YOUNG}
    for path in (folder / "below", folder):
        os.utime(path, (0, 0))
    assert _fates(_keep_house(sink, later=HOUR)) == {run_id: Fate.REMOVED}


def test_a_change_in_the_future_counts_as_one_of_this_moment(sink: RawSink) -> None:
    run_id = _leave_unsealed(sink)
    tomorrow = time.time() + 86_400
    os.utime((sink.root / run_path(PARTITION, run_id)).path, (tomorrow, tomorrow))
    [outcome] = _keep_house(sink, later=timedelta(0), grace=HOUR)
    assert (outcome.fate, outcome.orphan.age) == (Fate.YOUNG, timedelta(0))
    assert _fates(_keep_house(sink, later=timedelta(0), grace=timedelta(0))) == {run_id: Fate.REMOVED}


def test_an_orphan_is_looked_at_again_just_before_it_goes(sink: RawSink) -> None:
    run_id = _leave_unsealed(sink)
    now = datetime.now(UTC)
    folder = Path((sink.root / run_path(PARTITION, run_id)).path)
    for path in (folder / "part-00000.jsonl.gz", folder):
        os.utime(path, (0, 0))
    [orphan] = find_orphans(sink, now=now).orphans
    (folder / "part-00000.jsonl.gz").write_text("its writer lives")
    assert _fates(remove_orphans(sink, [orphan], now=now)) == {run_id: Fate.YOUNG}
    seal_later = _leave_unsealed(sink)
    [found] = (found for found in find_orphans(sink, now=now).orphans if found.run_id == seal_later)
    (sink.root / run_path(PARTITION, seal_later) / "metadata.json").write_text("sealed")
    assert _fates(remove_orphans(sink, [found], now=now, grace=-HOUR)) == {seal_later: Fate.SEALED}
    assert sink.sealed_runs(PARTITION) == [seal_later]


def test_a_dry_run_changes_nothing(any_sink: RawSink) -> None:
    old = _leave_unsealed(any_sink)
    now = datetime.now(UTC) + 25 * HOUR
    orphans = find_orphans(any_sink, now=now).orphans
    assert _fates(remove_orphans(any_sink, orphans, now=now, dry_run=True)) == {old: Fate.DUE}
    assert _in_partition(any_sink) == {old}


def test_removing_what_is_not_there_is_no_error(any_sink: RawSink) -> None:
    any_sink.remove_unsealed(PARTITION, unused_run_id())
    any_sink.remove_draft(PARTITION, unused_run_id())
    run_id = _leave_unsealed(any_sink)
    orphans = find_orphans(any_sink, now=datetime.now(UTC)).orphans
    any_sink.remove_unsealed(PARTITION, run_id)
    assert remove_orphans(any_sink, orphans, now=datetime.now(UTC), grace=timedelta(0)) == []


def test_what_is_not_ours_is_reported_and_left_alone(any_sink: RawSink) -> None:
    run_id = unused_run_id()
    foreign = {
        "notes.txt",
        "google_ads/readme.md",
        "google_ads/123-456-7890/campaign/2024-06-01/x",
        "google_ads/1234567890/file",
        "google_ads/1234567890/campaign/file",
        "google_ads/1234567890/campaign/latest/metadata.json",
        "google_ads/1234567890/campaign/2024-06-31/x",
        f"google_ads/1234567890/campaign/2024-06-01/{run_id}",
        "google_ads/1234567890/campaign/2024-06-01/_SUCCESS",
        "google_ads/1234567890/campaign/2024-06-01/backup/part-00000.jsonl.gz",
        f"google_ads/1234567890/campaign/2024-06-01/.{run_id}.metadata.json/x",
    }
    for path in foreign:
        (any_sink.root / path).parent.mkdir(parents=True, exist_ok=True)
        (any_sink.root / path).write_text("mine")
    assert _keep_house(any_sink, later=999 * HOUR) == []
    assert set(find_orphans(any_sink, now=datetime.now(UTC)).foreign) == {
        "notes.txt",
        "google_ads/readme.md",
        "google_ads/123-456-7890",
        "google_ads/1234567890/file",
        "google_ads/1234567890/campaign/file",
        "google_ads/1234567890/campaign/latest",
        "google_ads/1234567890/campaign/2024-06-31",
        f"google_ads/1234567890/campaign/2024-06-01/{run_id}",
        "google_ads/1234567890/campaign/2024-06-01/_SUCCESS",
        "google_ads/1234567890/campaign/2024-06-01/backup",
        f"google_ads/1234567890/campaign/2024-06-01/.{run_id}.metadata.json",
    }
    assert all((any_sink.root / path).read_text() == "mine" for path in foreign)


def test_an_empty_folder_is_foreign_unless_a_removal_may_have_emptied_it(any_sink: RawSink) -> None:
    empty = {"backup", "google_ads/1234567890", "google_ads/2345678901/latest", "google_ads/2345678901/campaign/copy"}
    day = any_sink.root / partition_path(PARTITION).replace(PARTITION.customer_id, "2345678901")
    for folder in (*(any_sink.root / path for path in empty), day):
        folder.mkdir(parents=True)
    assert set(find_orphans(any_sink, now=datetime.now(UTC)).foreign) == empty
    assert _keep_house(any_sink) == []
    assert all((any_sink.root / path).is_dir() for path in empty)


def test_a_seal_that_leads_nowhere_is_damage_to_be_told_and_nothing_to_be_removed(sink: RawSink) -> None:
    run = seal(sink, PARTITION, [row(PARTITION, 1)])
    metadata = Path((sink.root / run_path(PARTITION, run.run_id) / "metadata.json").path)
    metadata.unlink()
    metadata.symlink_to("gone")
    assert sink.sealed_runs(PARTITION) == [run.run_id]
    with pytest.raises(
        BrokenSealError, match=f"run {run.run_id} of .*: metadata.json is a name with no file behind it"
    ):
        sink.manifest(PARTITION, run.run_id)
    assert _keep_house(sink) == []
    assert _in_partition(sink) == {run.run_id}


def test_a_link_in_place_of_a_run_is_foreign_and_what_it_leads_to_is_untouched(sink: RawSink, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    inside = Path((sink.root / run_path(PARTITION, _leave_unsealed(sink))).path)
    (inside / "link").symlink_to(precious)
    beside = inside.with_name(unused_run_id())
    beside.symlink_to(precious)
    _keep_house(sink)
    assert not inside.exists()
    assert beside.is_symlink()
    assert (precious / "file").read_text() == "mine"


@pytest.mark.parametrize("moment", ["begun", "written", "seal drafted", "seal linked"])
def test_what_a_killed_writer_leaves_is_removed_and_never_taken_for_a_run(sink: RawSink, moment: str) -> None:
    run_id = unused_run_id()
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(sink.root), run_id, moment], cwd=PROJECT, stdout=subprocess.PIPE, text=True
    )
    with writer:
        assert writer.stdout
        assert writer.stdout.readline() == "here\n"
        writer.kill()
    sealed = [run_id] if moment == "seal linked" else []
    assert sink.sealed_runs(PARTITION) == sealed
    left = _in_partition(sink)
    assert left == {run_id} | ({f".{run_id}.metadata.json"} if moment.startswith("seal") else set())
    assert {outcome.fate for outcome in _keep_house(sink, later=HOUR)} == {Fate.YOUNG}
    assert {outcome.fate for outcome in _keep_house(sink)} == {Fate.REMOVED}
    assert sorted(_in_partition(sink)) == sealed
    for survivor in sealed:
        sink.verify(sink.manifest(PARTITION, RunId(survivor)))


def test_a_seal_put_in_place_during_the_removal_wins(sink: RawSink, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = unused_run_id()
    writer = sink.begin(PARTITION, run_id)
    move, sealed = Path.rename, list[RunManifest]()

    def seal_then_move(self: Path, target: Path) -> Path:
        if not sealed:
            sealed.append(writer.seal(run_facts(PARTITION)))
        return move(self, target)

    monkeypatch.setattr(Path, "rename", seal_then_move)
    with pytest.raises(SealedRunError):
        sink.remove_unsealed(PARTITION, run_id)
    assert _in_partition(sink) == {run_id}
    sink.verify(sealed[0])


def test_a_run_that_was_removed_cannot_be_sealed(sink: RawSink) -> None:
    run_id = unused_run_id()
    with sink.begin(PARTITION, run_id) as writer:
        writer.write(b"{}\n")
        sink.remove_unsealed(PARTITION, run_id)
        with pytest.raises(RawSinkError, match="it was removed meanwhile: run again"):
            writer.seal(run_facts(PARTITION))
    assert _in_partition(sink) == set()


@pytest.mark.parametrize("sealed", [True, False])
def test_a_removal_that_was_killed_half_way_is_finished_by_the_next(sink: RawSink, sealed: bool) -> None:
    run = seal(sink, PARTITION, [row(PARTITION, 1)])
    folder = Path((sink.root / run_path(PARTITION, run.run_id)).path)
    if not sealed:
        (folder / "metadata.json").unlink()
    folder.rename(folder.with_name(Entry.ASIDE.name_for(run.run_id)))
    assert sink.sealed_runs(PARTITION) == []
    assert _fates(_keep_house(sink, later=timedelta(0))) == {run.run_id: Fate.SEALED if sealed else Fate.REMOVED}
    assert _in_partition(sink) == ({run.run_id} if sealed else set())
    if sealed:
        sink.verify(run)


def test_of_a_seal_and_a_removal_at_the_same_moment_exactly_one_wins_in_400_tries(sink: RawSink) -> None:
    together = Barrier(2)

    def seal_one(run_id: RunId) -> RunManifest | None:
        with sink.begin(PARTITION, run_id) as writer:
            writer.write(b"{}\n")
            together.wait()
            try:
                return writer.seal(run_facts(PARTITION))
            except RawSinkError:
                return None

    def remove_one(run_id: RunId, delay: float) -> bool:
        together.wait()
        time.sleep(delay)
        try:
            sink.remove_unsealed(PARTITION, run_id)
        except SealedRunError:
            return False
        return True

    kept = set()
    with ThreadPoolExecutor(2) as pool:
        for number in range(400):
            run_id = unused_run_id()
            writing = pool.submit(seal_one, run_id)
            removing = pool.submit(remove_one, run_id, number % 20 / 4_000)
            run, removed = writing.result(60), removing.result(60)
            assert (run is None) == removed
            if run:
                kept.add(run_id)
                sink.verify(run)
    assert set(sink.sealed_runs(PARTITION)) == kept
    assert _in_partition(sink) == kept


def test_writers_and_two_housekeepers_without_any_grace_lose_no_sealed_run_in_300_tries(sink: RawSink) -> None:
    done = Event()

    def write(number: int) -> RunManifest | None:
        try:
            return seal(sink, PARTITION, [row(PARTITION, number)])
        except RawSinkError:
            return None

    def sweep() -> list[Outcome]:
        outcomes = []
        while not done.is_set():
            outcomes += _keep_house(sink, later=HOUR, grace=timedelta(0))
        return outcomes

    with ThreadPoolExecutor(4) as pool:
        housekeepers = [pool.submit(sweep) for _ in range(2)]
        try:
            sealed = [run for run in pool.map(write, range(300), timeout=300) if run]
        finally:
            done.set()
        outcomes = [outcome for housekeeper in housekeepers for outcome in housekeeper.result(60)]
    _keep_house(sink, later=HOUR, grace=timedelta(0))
    assert [outcome.reason for outcome in outcomes if outcome.fate is Fate.FAILED] == []
    assert _in_partition(sink) == {run.run_id for run in sealed}
    for run in sealed:
        sink.verify(run)


def test_on_an_object_store_a_seal_that_appears_during_the_removal_stays_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = RawSink(f"memory://{unused_run_id()}")
    run_id = unused_run_id()
    writer = sink.begin(PARTITION, run_id)
    delete = MemoryFileSystem.rm_file

    def seal_then_delete(self: MemoryFileSystem, path: str) -> None:
        writer.seal(run_facts(PARTITION))
        delete(self, path)

    monkeypatch.setattr(MemoryFileSystem, "rm_file", seal_then_delete)
    with pytest.raises(BrokenSealError, match=f"run {run_id} was sealed while its files were being removed"):
        sink.remove_unsealed(PARTITION, run_id)
    assert sink.sealed_runs(PARTITION) == [run_id]
    with pytest.raises(BrokenSealError, match="is missing"):
        sink.verify(sink.manifest(PARTITION, run_id))


@contextmanager
def _nobody() -> Iterator[None]:
    """Permissions do not bind root, so root steps down for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that everybody may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(place)


def test_an_orphan_that_may_not_be_removed_is_told_in_a_line_and_does_not_keep_the_others(open_place: Path) -> None:
    sink = RawSink(str(open_place))
    stuck = _leave_unsealed(sink)
    free = key(day="2024-06-02")
    removable = sink.root / run_path(free, unused_run_id())
    removable.mkdir(parents=True)
    for folder in (Path(removable.path), Path(removable.parent.path)):
        folder.chmod(0o777)
    partition = Path((sink.root / partition_path(PARTITION)).path)
    partition.chmod(0o555)
    with _nobody():
        first, second = _keep_house(sink)
    partition.chmod(0o755)
    assert (first.fate, second.fate) == (Fate.FAILED, Fate.REMOVED)
    assert first.reason is not None
    assert f"run {stuck} of {PARTITION} cannot be removed (Permission denied); mend the storage" in first.reason
    assert "\n" not in first.reason
    assert _in_partition(sink) == {stuck}


@pytest.mark.parametrize("folder", ["", "google_ads", "google_ads/1234567890/campaign/2024-06-01"])
def test_a_folder_that_may_not_be_read_is_told_in_a_line(open_place: Path, folder: str) -> None:
    sink = RawSink(str(open_place / "raw"))
    _leave_unsealed(sink)
    (open_place / "raw" / folder).chmod(0o000)
    try:
        with _nobody(), pytest.raises(RawSinkError, match=r"cannot be read \(Permission denied\); mend") as refused:
            _keep_house(sink)
    finally:
        (open_place / "raw" / folder).chmod(0o755)
    assert "\n" not in str(refused.value)
    assert len(find_orphans(sink, now=datetime.now(UTC)).orphans) == 1


def test_a_file_in_place_of_the_sink_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("a file, not a folder")
    with pytest.raises(RawSinkError, match=r"cannot be read \(.*is not a folder\)"):
        find_orphans(RawSink(str(tmp_path / "raw")), now=datetime.now(UTC))


@pytest.mark.parametrize("question", ["ls", "find", "modified"])
def test_an_object_store_that_does_not_answer_loses_nothing(monkeypatch: pytest.MonkeyPatch, question: str) -> None:
    sink = RawSink(f"memory://{unused_run_id()}")
    run = seal(sink, PARTITION, [])
    orphan = _leave_unsealed(sink)

    def down(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    orphans = find_orphans(sink, now=datetime.now(UTC)).orphans
    monkeypatch.setattr(MemoryFileSystem, question, down)
    with pytest.raises(RawSinkError, match="Input/output error"):
        find_orphans(sink, now=datetime.now(UTC))
    assert _fates(remove_orphans(sink, orphans, now=datetime.now(UTC), grace=timedelta(0))) == {orphan: Fate.FAILED}
    monkeypatch.undo()
    sink.verify(run)
    assert _in_partition(sink) == {run.run_id, orphan}


@pytest.mark.parametrize("remove", [RawSink.remove_unsealed, RawSink.remove_draft])
def test_a_disk_that_fails_during_the_removal_is_told_in_a_line(
    sink: RawSink, monkeypatch: pytest.MonkeyPatch, remove: Callable[..., None]
) -> None:
    run_id = _leave_unsealed(sink)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for operation in ("rename", "unlink"):
        monkeypatch.setattr(Path, operation, full)
    with pytest.raises(RawSinkError, match=r"cannot be removed \(No space left on device\); mend the storage"):
        remove(sink, PARTITION, run_id)
    monkeypatch.undo()
    assert _in_partition(sink) == {run_id}
