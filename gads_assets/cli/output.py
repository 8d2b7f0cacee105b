"""How facts are shown: tables for people, one JSON document for scripts."""

import json
import math
import os
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]

messages = Console(stderr=True, highlight=False)
"""Progress and remarks; standard output is for facts."""


def print_json(document: Any) -> None:
    typer.echo(json.dumps(_strict(document), ensure_ascii=False, default=str, allow_nan=False))


def print_table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(_shown(cell)) for cell in row))
    facts().print(table)


def facts() -> Console:
    """Tables on standard output; one that goes to a file or a pipe is not cut to a terminal's width."""
    console = Console(highlight=False)
    if console.is_terminal:
        return console
    columns = os.environ.get("COLUMNS", "")
    return Console(highlight=False, width=(int(columns) if columns.isdecimal() else 0) or 160)


def _strict(value: Any) -> Any:
    """JSON has no NaN and no infinity; Python would write them all the same, and most readers refuse them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _strict(inner) for name, inner in value.items()}
    return [_strict(inner) for inner in value] if isinstance(value, list) else value


def _shown(cell: object) -> str:
    return "" if cell is None else str(cell)
