"""The catalog against the API: do the fields exist, and are the stored types still theirs? Imports google-ads."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gads_assets.catalog.fields import columns_of, row_descriptor
from gads_assets.catalog.limits import require_numbers
from gads_assets.catalog.loading import CatalogDraft, QueryDraft, read_draft, resolve_draft, terms_of
from gads_assets.catalog.schema_store import read_stored_schemas, schemas_beside, store_schema
from gads_assets.catalog.specification import Column, QuerySchema
from gads_assets.errors import CatalogError, CatalogFileError, UnknownFieldError


@dataclass(frozen=True, kw_only=True)
class QueryCheck:
    """`problem` is None when the API's own columns are those of the stored version."""

    query_name: str
    schema_version: str
    columns: int
    problem: CatalogFileError | None


def check_catalog(path: Path | None = None) -> tuple[QueryCheck, ...]:
    """One result a query, in the file's order; raises CatalogError where the files already contradict themselves."""
    draft = read_draft(path)
    catalog = resolve_draft(draft)
    _require_api_version(draft)
    return tuple(_check_query(draft, query, catalog.query(query.name).schema) for query in draft.queries)


def store_missing_versions(path: Path | None = None) -> tuple[Path, ...]:
    """Derives and stores the versions that the catalog names and `schemas/` lacks; leaves those that are there.

    Nothing is stored unless every missing version can be derived.
    """
    draft = read_draft(path)
    _require_api_version(draft)
    directory = schemas_beside(draft.path)
    stored = read_stored_schemas(directory)
    schemas = [
        QuerySchema(
            query_name=query.name,
            version=query.schema_version,
            columns=_derive(draft, query),
            natural_key=query.natural_key,
            terms=terms_of(query),
        )
        for query in draft.queries
        if (query.name, query.schema_version) not in stored
    ]
    return tuple(store_schema(directory, schema) for schema in schemas)


def _require_api_version(draft: CatalogDraft) -> None:
    try:
        row_descriptor(draft.api_version)
    except CatalogError as error:
        raise draft.api_version_entry.problem(str(error)) from None


def _check_query(draft: CatalogDraft, query: QueryDraft, schema: QuerySchema) -> QueryCheck:
    problem: CatalogFileError | None
    try:
        derived = {column.name: column.type for column in _derive(draft, query)}
    except CatalogFileError as error:
        problem = error
    else:
        changes = _type_changes(schema, derived)
        problem = (
            query.version_entry.problem(
                f"in API {draft.api_version} {changes}; raise schema_version, then store the new version"
            )
            if changes
            else None
        )
    return QueryCheck(
        query_name=query.name,
        schema_version=query.schema_version,
        columns=len(schema.columns),
        problem=problem,
    )


def _derive(draft: CatalogDraft, query: QueryDraft) -> tuple[Column, ...]:
    try:
        columns = columns_of(query.gaql, draft.api_version)
    except UnknownFieldError as error:
        raise query.gaql_entry.problem_with_name(error.field, str(error)) from None
    require_numbers(query.entry, columns)
    return columns


def _type_changes(schema: QuerySchema, derived: Mapping[str, str]) -> str:
    return ", ".join(
        f"{column.name} is {derived[column.name]}, stored as {column.type}"
        for column in schema.columns
        if derived[column.name] != column.type
    )
