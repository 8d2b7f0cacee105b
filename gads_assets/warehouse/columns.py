"""What a reader of a query gets: the key, the run each row came from, and the columns of every schema version."""

from collections.abc import Sequence
from typing import Final

from gads_assets.catalog.specification import Catalog, Column, QuerySchema
from gads_assets.errors import ReadError

KEY: Final = (
    Column(name="customer_id", field="", type="string"),
    Column(name="logical_date", field="", type="date"),
    Column(name="run_id", field="", type="string"),
    Column(name="schema_version", field="", type="string"),
)


def schema_versions(catalog: Catalog, query_name: str) -> list[QuerySchema]:
    """Every stored version of a query, the current one first: its columns lead."""
    current = catalog.query(query_name).schema
    older = [
        schema for (name, _), schema in sorted(catalog.schemas.items()) if name == query_name and schema != current
    ]
    return [current, *older]


def reader_columns(schemas: Sequence[QuerySchema]) -> list[Column]:
    """The columns of all versions, each once; a column whose type differs between versions is refused."""
    merged: dict[str, Column] = {column.name: column for column in KEY}
    for schema in schemas:
        for column in schema.report_columns:
            known = merged.setdefault(column.name, column)
            if known.type != column.type:
                raise ReadError(
                    f"column {column.name} of {schema.query_name} is {known.type} in one schema version and "
                    f"{column.type} in version {schema.version}; publish its days again under one of them"
                )
    return list(merged.values())
