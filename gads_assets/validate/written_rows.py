"""How rows are written, told from their bytes.

Spark passes over members that no column asks for, takes a missing one for null, reads as text whatever stands where a
text should, and stops at the end of a line's first object. So every line is looked at here. Nearly all are as the
extractor writes them, which the places of a block's quotes prove at once; only the lines of other blocks are parsed.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from gads_assets.catalog.specification import QuerySchema
from gads_assets.domain.verdict import SAMPLE_CHARACTERS, SAMPLES_PER_RULE, RowFault, Rule

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_NAMES_CHARACTERS: Final = 200

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.intp]
_QUOTE, _COLON, _BACKSLASH, _HYPHEN, _ZERO, _NULL, _OPENING, _CLOSING, _BRACE, _BREAK = b'":\\-0n[]}\n'
_WORD: Final = 8
# In "2024-06-01", from its opening quote.
_DIGITS: Final = np.array([1, 2, 3, 4, 6, 7, 9, 10])
_HYPHENS: Final = np.array([5, 8])
_DAY_ENDS: Final = 11


def written_otherwise(blocks: Iterable[bytes], schema: QuerySchema) -> RowFault | None:
    """Of blocks of whole lines, the rows that are not one JSON object each, with the schema's members and types."""
    rows, first = 0, ""
    samples: list[str] = []
    for line in _unproven_lines(blocks, _shape(schema)):
        problem = _problem(line, schema)
        if problem is None:
            continue
        rows += 1
        first = first or problem
        if len(samples) < SAMPLES_PER_RULE:
            samples.append(line.decode(errors="replace")[:SAMPLE_CHARACTERS])
    if not rows:
        return None
    what = first if rows == 1 else f"written otherwise than their schema version says (the first {first})"
    return RowFault(rule=Rule.SCHEMA, rows=rows, what=what, samples=tuple(samples))


def _unproven_lines(blocks: Iterable[bytes], shape: "_Shape") -> Iterator[bytes]:
    for block in blocks:
        if not shape.fits(block):
            # Spark passes over blank lines, and so does the count of rows.
            yield from (line for line in block.split(b"\n") if line.strip())


class _Shape:
    """What the lines of one schema version look like: `{"customer_id":1,"segments_date":"2024-06-01",…}`."""

    def __init__(self, schema: QuerySchema) -> None:
        types = [column.type for column in schema.columns]
        self._columns = len(types)
        self._texts = _where(types, "string", "date")
        self._dates = _where(types, "date")
        self._arrays = _where(types, "array<string>")
        # Each name with what stands around it, in words of eight bytes, so that few comparisons do; a name's last word
        # overlaps the one before it.
        names = [f'{"," if number else "{"}"{name}":'.encode() for number, name in enumerate(schema.column_names)]
        words = [
            (number, begin - len(name) + len('":'), name[begin : begin + _WORD])
            for number, name in enumerate(names)
            for begin in (*range(0, len(name) - _WORD, _WORD), max(len(name) - _WORD, 0))
        ]
        self._first_name = len(names[0]) - len('":')
        self._has_short_names = any(len(word) < _WORD for _, _, word in words)
        self._word_columns = np.array([number for number, _, _ in words])
        self._word_places = np.array([place for _, place, _ in words])  # from the quote that ends the name
        self._words = np.frombuffer(b"".join(word.ljust(_WORD) for _, _, word in words), dtype=np.uint64)

    def fits(self, block: bytes) -> bool:
        """True only if every line is one object with exactly the schema's members, in its order, and texts where texts
        should be. That each line holds an object, in double quotes, whose numbers are numbers is for Spark to say."""
        content = np.frombuffer(block, dtype=np.uint8)
        rows = np.count_nonzero(content == _BREAK)
        braces = np.flatnonzero(content == _BRACE)
        # One brace a line, at its end: nothing follows the object, and nothing is nested in it.
        if not block.endswith(b"}\n") or braces.size != rows or (content[braces + 1] != _BREAK).any():
            return False
        if not _is_utf8(block):
            return False
        quotes = _unescaped_quotes(content) if b"\\" in block else np.flatnonzero(content == _QUOTE)
        ends = quotes[content[quotes + 1] == _COLON]
        if ends.size != rows * self._columns:
            return False
        by_row = ends.reshape(rows, self._columns)
        begins = by_row[:, 0] - self._first_name
        if begins[0] != 0 or (content[begins[1:] - 1] != _BREAK).any():
            return False
        begun = content[by_row + 2]
        # Two quotes a name and two a text: there is no member beside those that were counted.
        has_no_others = quotes.size == 2 * (ends.size + np.count_nonzero(begun == _QUOTE))
        return has_no_others and self._has_names(block, by_row) and self._has_types(content, by_row, begun)

    def _has_names(self, block: bytes, ends: _Places) -> bool:
        if self._has_short_names:
            return False
        every_word = np.ndarray(shape=(len(block) - _WORD + 1,), dtype=np.uint64, buffer=block, strides=(1,))
        places = ends[:, self._word_columns] + self._word_places
        return bool(places.min() >= 0 and (every_word[places] == self._words).all())

    def _has_types(self, content: _Bytes, ends: _Places, begun: _Bytes) -> bool:
        texts, arrays = begun[:, self._texts], begun[:, self._arrays]
        are_empty = content[ends[:, self._arrays] + 3] == _CLOSING
        dates = ends[:, self._dates, np.newaxis] + 2
        return bool(
            ((texts == _QUOTE) | (texts == _NULL)).all()
            and ((arrays == _NULL) | ((arrays == _OPENING) & are_empty)).all()
            and dates.max(initial=0) + _DAY_ENDS < content.size
            and (content[dates + _DIGITS] - _ZERO < 10).all()  # below zero is far above it: bytes have no sign
            and (content[dates + _HYPHENS] == _HYPHEN).all()
            and (content[dates + _DAY_ENDS] == _QUOTE).all()
        )


@lru_cache(maxsize=64)
def _shape(schema: QuerySchema) -> _Shape:
    return _Shape(schema)


def _where(types: list[str], *wanted: str) -> _Places:
    return np.flatnonzero(np.isin(types, wanted))


def _is_utf8(block: bytes) -> bool:
    try:
        return block.isascii() or bool(block.decode())
    except UnicodeDecodeError:
        return False


def _unescaped_quotes(content: _Bytes) -> _Places:
    """None at all where a backslash before a quote may itself be escaped: only parsing tells."""
    quotes = np.flatnonzero(content == _QUOTE)
    escaped = content[quotes - 1] == _BACKSLASH
    if (content[quotes[escaped] - 2] == _BACKSLASH).any():
        return np.empty(0, dtype=np.intp)
    unescaped: _Places = quotes[~escaped]
    return unescaped


def _problem(line: bytes, schema: QuerySchema) -> str | None:
    try:
        # Pairs, since a dictionary would keep one of two members with the same name.
        row = json.loads(line.decode(), object_pairs_hook=tuple)
    except UnicodeDecodeError as error:
        return f"not in UTF-8 ({error.reason} at byte {error.start})"
    except (ValueError, RecursionError) as error:
        return f"other than one JSON object ({error})"
    if not isinstance(row, tuple):
        return "other than a JSON object"
    return _other_members([name for name, _ in row], schema) or _other_types(dict(row), schema)


def _other_members(names: list[str], schema: QuerySchema) -> str | None:
    if tuple(names) == schema.column_names:
        return None
    found, expected = Counter(names), Counter(schema.column_names)
    for what, different in (("without", expected - found), ("with an unknown or repeated", found - expected)):
        if different:
            return f"{what} {', '.join(sorted(different))[:_NAMES_CHARACTERS]}"
    return None


def _other_types(row: Mapping[str, object], schema: QuerySchema) -> str | None:
    for column in schema.columns:
        fits, value = _TAKEN_FOR_MORE.get(column.type), row[column.name]
        if fits and value is not None and not fits(value):
            return f"whose {column.name} is no {column.type}"
    return None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_day(value: object) -> bool:
    return isinstance(value, str) and bool(_DAY.match(value))


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(item is None or isinstance(item, str) for item in value)


_TAKEN_FOR_MORE: Final[Mapping[str, Callable[[object], bool]]] = {
    "string": _is_text,
    "array<string>": _are_texts,
    "date": _is_day,
}
"""The types for which Spark also takes something else."""
