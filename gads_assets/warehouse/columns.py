"""What a reader of a query gets: the key, the run each row came from, and the columns of every schema version."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gads_assets.catalog.specification import Catalog, Column, QuerySchema
from gads_assets.errors import ReadError

KEY: Final = (
    Column(name="customer_id", field="", type="string"),
    Column(name="logical_date", field="", type="date"),
    Column(name="run_id", field="", type="string"),
    Column(name="schema_version", field="", type="string"),
)

# A double has no room for every bigint, and what a date or a string says is lost in the other.
_LOSSLESS: Final = frozenset({("int", "bigint"), ("int", "double")})


def schema_versions(catalog: Catalog, query_name: str) -> list[QuerySchema]:
    """Every stored version of a query, the current one first: its columns lead."""
    current = catalog.query(query_name).schema
    older = [
        schema for (name, _), schema in sorted(catalog.schemas.items()) if name == query_name and schema != current
    ]
    return [current, *older]


def reader_columns(schemas: Sequence[QuerySchema], *, in_use: Sequence[QuerySchema]) -> tuple[Column, ...]:
    """The columns of all versions, each once and with a type that holds the values of every version.

    Where no type does, versions `in_use`, those that have rows to read, are refused; another one gives way.
    """
    types: dict[str, tuple[str, str]] = {}
    for schema in sorted(schemas, key=lambda schema: schema not in in_use):
        for column in schema.report_columns:
            known, version = types.setdefault(column.name, (column.type, schema.version))
            wider = wider_type(known, column.type)
            if wider and wider != known:
                types[column.name] = wider, schema.version
            elif not wider and schema in in_use:
                raise ReadError(
                    f"column {column.name} of {schema.query_name} is {known} in schema version {version} and "
                    f"{column.type} in version {schema.version}; read one version at a time, or publish its days again "
                    "under one of them"
                )
    columns: dict[str, Column] = {}
    for column in (column for schema in schemas for column in schema.report_columns):
        columns.setdefault(column.name, column)
    return (*KEY, *(replace(column, type=types[name][0]) for name, column in columns.items()))


def wider_type(one: str, other: str) -> str | None:
    """The one of two types that holds every value of both, if one of them does."""
    if one == other:
        return one
    if one.startswith("array<") and other.startswith("array<"):
        element = wider_type(
            one.removeprefix("array<").removesuffix(">"), other.removeprefix("array<").removesuffix(">")
        )
        return f"array<{element}>" if element else None
    return other if (one, other) in _LOSSLESS else one if (other, one) in _LOSSLESS else None
