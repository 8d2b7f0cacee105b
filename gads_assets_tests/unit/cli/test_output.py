"""How facts are shown."""

import pytest

from gads_assets.cli.output import print_table


@pytest.mark.parametrize(("columns", "lines"), [("", 1), ("wide", 1), ("0", 1), ("40", 3)])
def test_a_table_in_a_pipe_is_as_wide_as_columns_says_if_that_is_a_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str, lines: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    print_table(None, ["fact"], [["word " * 20]])
    assert sum("word" in line for line in capsys.readouterr().out.splitlines()) == lines
