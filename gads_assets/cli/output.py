"""How facts are shown: tables for people, one JSON document for scripts."""

import errno
import json
import math
import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Annotated, Any, Final

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gads_assets.errors import SetupError

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]

messages = Console(stderr=True, highlight=False)
"""Progress and remarks; standard output is for facts."""

_BETWEEN_COLUMNS: Final = 3
_AROUND_A_TABLE: Final = 2
_INDENT: Final = "  "
_NARROWEST_PROSE: Final = 20
_LONGEST_NAME: Final = 40
# What json.dumps leaves as it is: a terminal obeys some of it, and no encoding has the last of it.
_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Column:
    """Without `room` what it holds stays in one piece. Otherwise it is prose, which wraps; where a terminal has not so
    much room for it beside the other columns, it goes below its row."""

    name: str
    room: int | None = None
    narrowest: int = 0
    is_number: bool = False
    can_be_left_out: bool = False
    """Where there is no room for it; for what another column says too."""


def print_json(document: Any) -> None:
    strict = _strict(document)
    printed = json.dumps(strict, ensure_ascii=False, default=str, allow_nan=False)
    printed = _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", printed)
    if not _can_be_encoded(printed):
        printed = json.dumps(strict, default=str, allow_nan=False)
    with writing():
        typer.echo(printed)


def say(message: str) -> None:
    """A remark in one line, whatever is in it."""
    messages.print(printable(message), soft_wrap=True, markup=False)


def print_table(
    title: str | None,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    console: Console | None = None,
) -> None:
    """On standard output, unless another console is given. Numbers and days stay in one piece, and so do the words of
    headers; all else wraps."""
    described = [
        _describe(name, [cell for row in rows if (cell := row[number]) not in (None, "")])
        for number, name in enumerate(columns)
    ]
    (console or facts()).print(_table(title, described, rows))


def print_listing(
    title: str | None, columns: Sequence[Column], rows: Sequence[Sequence[object]], *, console: Console | None = None
) -> None:
    """A table where everything has room, and otherwise a row with its prose below it."""
    console = console or facts()
    columns = [_with_room_for_words(each, [row[number] for row in rows]) for number, each in enumerate(columns)]
    for kept in ([*range(len(columns))], [number for number, each in enumerate(columns) if not each.can_be_left_out]):
        shown, cells = [columns[number] for number in kept], [[row[number] for number in kept] for row in rows]
        if _width(shown, cells) <= console.width:
            console.print(_table(title, shown, cells))
            return
    if title:
        console.print(Text(printable(title), style="italic"), soft_wrap=True)
    _print_below(console, shown, cells)


@contextmanager
def writing() -> Iterator[None]:
    """What goes to standard output. That nobody reads it any more is no error, and left to Typer."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise SetupError(f"standard output cannot be written: {error.strerror}; send it elsewhere") from None


class _Facts(Console):
    def print(self, *objects: Any, **more: Any) -> None:
        with writing():
            super().print(*objects, **more)


def facts() -> Console:
    """Tables on standard output; one that goes to a file or a pipe is not cut to a terminal's width."""
    console = _Facts(highlight=False)
    if console.is_terminal:
        return console
    columns = os.environ.get("COLUMNS", "")
    return _Facts(highlight=False, width=(int(columns) if columns.isdecimal() else 0) or 160)


def printable(text: str) -> str:
    """What a terminal would obey, or could not show, is spelled out: error messages come from elsewhere."""
    if text.isprintable():
        return text
    return "".join(each if _is_shown(each) else each.encode("unicode_escape").decode() for each in text)


def isoformat(moment: datetime | None) -> str | None:
    """In UTC, whatever zone it came in."""
    return moment.astimezone(UTC).isoformat() if moment else None


def to_the_minute(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}" if moment else ""


def span_of(first: date, last: date) -> str:
    """Days, as short as they are understood: the year of the last is told if it is another."""
    if first == last:
        return f"{first}"
    return f"{first} to {last:%m-%d}" if first.year == last.year else f"{first} to {last}"


def number_of(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def _table(title: str | None, columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(
            printable(column.name),
            overflow="fold",
            no_wrap=column.room is None,
            justify="right" if column.is_number else "left",
            min_width=max(_longest_word(column.name), column.narrowest),
        )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text | ProgressBar) else Text(_shown(cell)) for cell in row))
    return table


def _print_below(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    heads = [number for number, each in enumerate(columns) if each.room is None]
    prose = [number for number, each in enumerate(columns) if each.room is not None]
    widths = {number: _widest(columns, rows, number) for number in heads}
    label_width = max((cell_len(columns[number].name) for number in prose), default=0)
    beside = max(console.width - label_width - 2 * len(_INDENT), _NARROWEST_PROSE)

    def head(row: Sequence[object]) -> str:
        cells = (_padded(_shown(row[number]), widths[number], right=columns[number].is_number) for number in heads)
        return _INDENT.join(cells).rstrip()

    console.print(Text(head([each.name for each in columns]), style="bold"), soft_wrap=True)
    for row in rows:
        console.print(Text(head(row)), soft_wrap=True)
        for number in prose:
            label = columns[number].name
            for line in Text(_shown(row[number])).wrap(console, beside):
                if line.plain:
                    below = f"{_INDENT}{_padded(label, label_width)}{_INDENT}{line.plain.rstrip()}"
                    console.print(Text(below), soft_wrap=True)
                label = ""


def _padded(text: str, width: int, *, right: bool = False) -> str:
    missing = " " * (width - cell_len(text))
    return f"{missing}{text}" if right else f"{text}{missing}"


def _with_room_for_words(column: Column, cells: Sequence[object]) -> Column:
    """Ids are in prose, too, and are copied from there."""
    if column.room is None or column.can_be_left_out:
        return column
    longest = min(max((_longest_word(_shown(cell)) for cell in cells), default=0), _LONGEST_NAME)
    return replace(column, room=max(column.room, longest), narrowest=longest)


def _width(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> int:
    """Of a table in which nothing has less room than it wants."""
    taken = sum(
        _widest(columns, rows, number) if each.room is None else max(each.room, _longest_word(each.name))
        for number, each in enumerate(columns)
    )
    return taken + _BETWEEN_COLUMNS * (len(columns) - 1) + _AROUND_A_TABLE


def _widest(columns: Sequence[Column], rows: Sequence[Sequence[object]], number: int) -> int:
    """Of one column, its name included."""
    return max(cell_len(_shown(each)) for each in (columns[number].name, *(row[number] for row in rows)))


def _describe(name: str, told: Sequence[object]) -> Column:
    is_number = bool(told) and all(_is_number(cell) for cell in told)
    is_day = bool(told) and all(isinstance(cell, date) for cell in told)
    return Column(name=name, room=None if is_number or is_day else 1, is_number=is_number)


def _is_number(cell: object) -> bool:
    if isinstance(cell, Text):
        return cell.plain.isdecimal()
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _longest_word(text: str) -> int:
    return max((cell_len(word) for word in text.split()), default=0)


def _is_shown(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _can_be_encoded(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _strict(value: Any) -> Any:
    """JSON has no NaN and no infinity; Python would write them all the same, and most readers refuse them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _strict(inner) for name, inner in value.items()}
    return [_strict(inner) for inner in value] if isinstance(value, list) else value


def _shown(cell: object) -> str:
    return "" if cell is None else printable(str(cell))
