"""Schema versions on disk: `schemas/<query>/<version>.json` beside the catalog, each whole, written once.

A run is judged and read by the version it was extracted under, also when the query has moved on or is gone; so files
are only ever added.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final
from uuid import uuid4

from gads_assets.catalog.fields import column_name
from gads_assets.catalog.specification import NUMBER_TYPES, Column, QuerySchema, Terms
from gads_assets.errors import CatalogFileError

QUERY_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")
SCHEMA_VERSION: Final = re.compile(r"[1-9][0-9]{0,3}\Z")

_SCALAR_TYPE: Final = r"(?:bigint|int|double|boolean|string|date|binary)"
_TYPE: Final = re.compile(rf"(?:{_SCALAR_TYPE}|array<{_SCALAR_TYPE}>)\Z")
_RESOURCE: Final = re.compile(r"[a-z][A-Za-z0-9_]*\Z")
_FIELD: Final = re.compile(r"[a-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)+\Z")
_RESTORE: Final = "stored versions never change: restore the file from version control"


def schemas_beside(catalog_file: Path) -> Path:
    return catalog_file.parent / "schemas"


def read_stored_schemas(directory: Path) -> Mapping[tuple[str, str], QuerySchema]:
    """Every version, by (query, version); also those of queries that the catalog no longer has."""
    if not directory.is_dir():
        return {}
    try:
        schemas = [_read_schema(path) for path in sorted(directory.glob("*/*.json"))]
    except OSError as error:
        raise CatalogFileError(
            f"cannot be read ({error.strerror}); make it readable", file=error.filename or str(directory)
        ) from None
    return {(schema.query_name, schema.version): schema for schema in schemas}


def store_schema(directory: Path, schema: QuerySchema) -> Path:
    """Creates the version's file, complete or not at all; refuses to replace one."""
    target = directory / schema.query_name / f"{schema.version}.json"
    document = {
        "query": schema.query_name,
        "version": schema.version,
        "natural_key": schema.natural_key,
        "columns": [asdict(column) for column in schema.columns],
        "resource": schema.terms.resource,
        "conditions": schema.terms.conditions,
        "parameters": schema.terms.parameters,
        "rules": {"never_above": dict(schema.terms.never_above)},
    }
    part = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
            # A link, unlike a rename, fails when another process stored this version first.
            os.link(part, target)
        finally:
            part.unlink(missing_ok=True)
    except FileExistsError:
        raise CatalogFileError(f"is stored already; {_RESTORE}", file=str(target)) from None
    except OSError as error:
        raise CatalogFileError(
            f"cannot be written ({error.strerror}); check a copy of the catalog in a folder of yours", file=str(target)
        ) from None
    return target


def _read_schema(path: Path) -> QuerySchema:
    try:
        document = json.loads(path.read_bytes(), object_pairs_hook=_each_once)
    except ValueError as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise CatalogFileError(f"is not JSON, or has a member twice; {_RESTORE}", file=str(path), line=line) from None
    except RecursionError:
        raise CatalogFileError(f"nests too deeply; {_RESTORE}", file=str(path)) from None
    try:
        schema = _schema_from(document)
    except ValueError as error:
        raise CatalogFileError(f"is not a schema version ({error}); {_RESTORE}", file=str(path)) from None
    if (schema.query_name, schema.version) != (path.parent.name, path.stem):
        found = f"{schema.query_name}/{schema.version}"
        raise CatalogFileError(f"holds schema version {found}, unlike its path; {_RESTORE}", file=str(path))
    return schema


def _each_once(members: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(members)) != len(members):
        raise ValueError("a member is there twice")
    return dict(members)


def _schema_from(document: object) -> QuerySchema:
    members = _members(
        document, {"query", "version", "natural_key", "columns", "resource", "conditions", "parameters", "rules"}
    )
    columns = tuple(map(_column_from, _items(members, "columns")))
    names = [column.name for column in columns]
    natural_key = tuple(map(str, _items(members, "natural_key")))
    terms = _terms_from(members)
    if len(set(names)) != len(names):
        raise ValueError("columns repeat a name")
    if not set(natural_key) <= set(names):
        raise ValueError("natural_key is not among the columns")
    numbers = {column.name for column in columns if column.type in NUMBER_TYPES}
    if not {name for pair in terms.never_above for name in pair} <= numbers:
        raise ValueError("never_above is not among the columns that are numbers")
    return QuerySchema(
        query_name=_matching(members, "query", QUERY_NAME),
        version=_matching(members, "version", SCHEMA_VERSION),
        columns=columns,
        natural_key=natural_key,
        terms=terms,
    )


def _terms_from(members: dict[str, object]) -> Terms:
    rules = _members(members["rules"], {"never_above"})
    return Terms(
        resource=_matching(members, "resource", _RESOURCE),
        conditions=_texts(members["conditions"]),
        parameters=_texts(members["parameters"]),
        never_above=_pairs(rules["never_above"]),
    )


def _column_from(item: object) -> Column:
    members = _members(item, {"name", "field", "type"})
    field = _matching(members, "field", _FIELD)
    if members["name"] != column_name(field):
        raise ValueError(f"column {field} is not called {column_name(field)}")
    return Column(name=column_name(field), field=field, type=_matching(members, "type", _TYPE))


def _members(value: object, names: set[str]) -> dict[str, object]:
    if not isinstance(value, dict) or value.keys() != names:
        raise ValueError(f"expected an object with {', '.join(sorted(names))}")
    return value


def _items(members: dict[str, object], name: str) -> list[object]:
    items = members[name]
    if not isinstance(items, list) or not items:
        raise ValueError(f"{name} is not a list with items")
    return items


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("expected a list of texts")
    return tuple(value)


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or not all(isinstance(limit, str) for limit in value.values()):
        raise ValueError("expected an object of texts")
    return tuple(value.items())


def _matching(members: dict[str, object], name: str, pattern: re.Pattern[str]) -> str:
    value = members[name]
    if not isinstance(value, str) or not pattern.match(value):
        raise ValueError(f"{name} {str(value)[:80]!r} is not allowed")
    return value
