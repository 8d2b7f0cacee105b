"""What the documents say about the tests is true."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("document", "at_least"), [("warehouse.md", 40), ("partition_status.md", 5)])
def test_every_test_that_a_document_names_exists(document: str, at_least: int) -> None:
    named = re.findall(r"`(test_\w+)`", (PROJECT / "docs" / document).read_text(encoding="utf-8"))
    there = {
        name
        for file in (PROJECT / "gads_assets_tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(named) >= at_least
    assert [name for name in named if name not in there] == []
