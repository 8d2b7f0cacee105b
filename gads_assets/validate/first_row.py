"""A run's first row, looked at without Spark.

Spark passes over members that no column asks for, takes a missing one for null, and reads as text whatever stands where
a text should. A run's rows are written by one encoder, so one row tells; that saves a second parsing of all the others.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from gads_assets.catalog.specification import QuerySchema
from gads_assets.domain.verdict import SAMPLE_CHARACTERS, RowFault, Rule

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_NAMES_CHARACTERS: Final = 200


def first_row_fault(line: bytes, schema: QuerySchema) -> RowFault | None:
    problem = _problem(line, schema)
    if problem is None:
        return None
    sample = line.decode(errors="replace")[:SAMPLE_CHARACTERS]
    return RowFault(rule=Rule.SCHEMA, rows=1, what=f"(the first) {problem}", samples=(sample,))


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
