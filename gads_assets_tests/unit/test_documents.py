"""What the documents say about the tests is true."""

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def test_every_promise_of_the_warehouse_names_tests_that_exist() -> None:
    named = re.findall(r"`(test_\w+)`", (PROJECT / "docs" / "warehouse.md").read_text(encoding="utf-8"))
    there = {
        name
        for file in (PROJECT / "gads_assets_tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(named) > 40
    assert [name for name in named if name not in there] == []
