"""Every sealed run of a source is found by looking, and nothing else is taken for one."""

from pathlib import Path

import pytest

from gads_assets.errors import RawSinkError
from gads_assets.raw.layout import SEAL, Entry, partition_path
from gads_assets.raw.listing import sealed_runs
from gads_assets.raw.sink import RawSink
from gads_assets_tests.sealed_runs import key, row, seal, unused_run_id

KEYS = [key(customer, day) for customer in ("1234567890", "2345678901") for day in ("2024-06-01", "2024-06-02")]


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_sealed_runs_are_listed_in_order_of_key_and_run(tmp_path: Path, kind: str) -> None:
    sink = RawSink(str(tmp_path / "raw") if kind == "disk" else f"memory://{tmp_path}")
    sealed = [(each, seal(sink, each, [row(each, 1)], run_seq=seq).run_id) for seq in (1, 2) for each in KEYS[::-1]]
    with sink.begin(KEYS[0], unused_run_id()):
        assert list(sealed_runs(sink, "google_ads")) == sorted(sealed)
    assert list(sealed_runs(sink, "another")) == []


def test_what_is_not_a_run_of_ours_is_passed_over(tmp_path: Path) -> None:
    sink = RawSink(str(tmp_path))
    folder = tmp_path / partition_path(KEYS[0])
    for place in (
        folder / "latest",
        folder / Entry.ASIDE.name_for(unused_run_id()),
        folder / unused_run_id() / "deeper",
        folder.parent / "yesterday" / unused_run_id(),
        tmp_path / "google_ads" / "customer" / "campaign" / "2024-06-01" / unused_run_id(),
    ):
        place.mkdir(parents=True)
        (place / SEAL).write_text("{}")
    (tmp_path / "google_ads" / SEAL).write_text("{}")
    assert list(sealed_runs(sink, "google_ads")) == []


def test_a_storage_that_does_not_answer_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "google_ads").write_text("a file where a folder belongs")
    with pytest.raises(RawSinkError, match=r"cannot be read .*then try again"):
        list(sealed_runs(RawSink(str(tmp_path)), "google_ads"))
