"""How facts are shown."""

import json
from datetime import date

import pytest

from gads_assets.cli.output import (
    Column,
    number_of,
    print_json,
    print_listing,
    print_table,
    printable,
    span_of,
)


@pytest.mark.parametrize(("columns", "lines"), [("", 1), ("wide", 1), ("0", 1), ("40", 3)])
def test_a_table_in_a_pipe_is_as_wide_as_columns_says_if_that_is_a_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str, lines: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    print_table(None, ["fact"], [["word " * 20]])
    assert sum("word" in line for line in capsys.readouterr().out.splitlines()) == lines


def test_numbers_and_headers_of_a_table_stay_in_one_piece(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table(None, ["customers", "day", "partitions"], [["word " * 20, date(2024, 6, 1), 7], ["", None, 123456]])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 40
    for words in ("customers", "partitions", "2024-06-01", " 123456"):
        assert words in out
    assert any(line.rstrip().endswith("         7") for line in out.splitlines())


LISTED = [
    Column(name="id"),
    Column(name="number", is_number=True),
    Column(name="prose", room=20),
    Column(name="also told", room=10, can_be_left_out=True),
]


@pytest.mark.parametrize(
    ("width", "first_line"),
    [(80, " id "), (53, " id "), (52, " id "), (40, " id "), (39, "id      "), (30, "id      ")],
)
def test_prose_goes_below_its_row_where_it_has_no_room_beside_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, first_line: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_listing("a title", LISTED, [["abcdef", 12, "some words, and some more of them", "more"], ["g", 3, None, ""]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].rstrip() == "a title"
    assert next(line for line in lines if "number" in line).startswith(first_line)
    assert ("also told" in "".join(lines)) is (width >= 53)
    assert any("abcdef" in line and "12" in line for line in lines)
    assert any("more" in line.split() for line in lines)
    assert max(map(len, lines)) <= width
    if width < 40:
        assert lines[3].startswith("  prose  some words, and")
        assert lines[-1].split() == ["g", "3"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain → text", "plain → text"),
        ("\u65e5\u672c\u3000\u8a9e\xa0", "\u65e5\u672c\u3000\u8a9e\xa0"),
        ("red\x1b[31m", "red\\x1b[31m"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\x9b\u202e\udcff", "\\x9b\\u202e\\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_document_has_nothing_that_a_terminal_would_obey_and_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    told = {"text": "\x1b\x7f\x9b\u202e\udcff → \u65e5", "number": float("nan")}
    print_json(told)
    out = capsys.readouterr().out
    assert out.rstrip("\n").isprintable()
    assert json.loads(out) == {**told, "number": None}


def test_days_and_numbers_are_as_short_as_they_are_understood() -> None:
    assert span_of(date(2024, 6, 1), date(2024, 6, 1)) == "2024-06-01"
    assert span_of(date(2024, 6, 1), date(2024, 7, 2)) == "2024-06-01 to 07-02"
    assert span_of(date(2024, 6, 1), date(2025, 6, 2)) == "2024-06-01 to 2025-06-02"
    assert [number_of(1, "row"), number_of(0, "row"), number_of(2, "is", "are")] == ["1 row", "0 rows", "2 are"]
