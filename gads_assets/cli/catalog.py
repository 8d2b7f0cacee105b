"""`gads catalog`: which queries there are, whether they are right, and what columns they give."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.text import Text

from gads_assets.catalog.checking import QueryCheck, check_catalog, store_missing_versions
from gads_assets.catalog.fields import columns_of
from gads_assets.catalog.gaql import describe_place, parse_gaql
from gads_assets.catalog.gaql_tokens import place_of
from gads_assets.catalog.loading import PACKAGED_CATALOG, load_catalog, read_draft
from gads_assets.catalog.specification import Column
from gads_assets.cli.output import JsonOption, print_json, print_table
from gads_assets.errors import CatalogError, CatalogFileError, GaqlError, UnknownFieldError
from gads_assets.settings import read_settings

_T = TypeVar("_T")

catalog_app = typer.Typer(
    name="catalog",
    help="The Google Ads queries: list them, check them, see their columns.",
    no_args_is_help=True,
)


@catalog_app.command("list")
def list_queries(as_json: JsonOption = False) -> None:
    """List the catalog's queries."""
    path = _catalog_path()
    catalog = _with_excerpt(lambda: load_catalog(path))
    if as_json:
        queries = [
            {
                "name": query.name,
                "description": query.description,
                "resource": query.resource,
                "shape": query.shape.value,
                "schema_version": query.schema.version,
                "stored_versions": sorted(
                    (version for name, version in catalog.schemas if name == query.name), key=int
                ),
                "natural_key": query.schema.natural_key,
                "columns": len(query.schema.columns),
                "start_date": query.start_date.isoformat(),
                "settling_delay_hours": query.settling_delay // timedelta(hours=1),
                "restatement": asdict(query.restatement) if query.restatement else None,
                "max_attempts": query.retry.max_attempts,
                "freshness_hours": query.freshness // timedelta(hours=1),
            }
            for query in catalog.queries.values()
        ]
        print_json(
            {"file": str(path), "source": catalog.source, "api_version": catalog.api_version, "queries": queries}
        )
        return
    print_table(
        None,
        ["query", "version", "columns", "since", "rows"],
        [
            (query.name, query.schema.version, len(query.schema.columns), query.start_date, query.description)
            for query in catalog.queries.values()
        ],
    )
    typer.echo(f"{path}, Google Ads API {catalog.api_version}")


@catalog_app.command("check")
def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A google_apis.yaml; default: the one in use.")
    ] = None,
    store: Annotated[
        bool, typer.Option("--store", help="First store the schema versions that are named but not stored.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check a catalog: its text, its stored schema versions, and both against the Google Ads API."""
    path = file or _catalog_path()
    stored: tuple[Path, ...] = ()
    try:
        if store:
            stored = store_missing_versions(path)
        checks = check_catalog(path)
    except CatalogError as error:
        if as_json:
            print_json(_check_document(path, stored, (), [error]))
        _print_excerpt(error)
        raise
    problems = [check.problem for check in checks if check.problem]
    if as_json:
        print_json(_check_document(path, stored, checks, problems))
    else:
        _print_checks(path, stored, checks)
    for problem in problems:
        if len(problems) > 1:
            typer.echo(str(problem), err=True)
        _print_excerpt(problem)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise CatalogError(f"{len(problems)} of {len(checks)} queries do not fit the API; mend the lines named above")


@catalog_app.command("schema")
def schema(
    query: Annotated[str | None, typer.Argument(metavar="QUERY", help="A query of the catalog.")] = None,
    gaql: Annotated[str | None, typer.Option("--gaql", help="Any GAQL text, in the catalog or not.")] = None,
    api_version: Annotated[
        str | None,
        typer.Option("--api-version", metavar="vNN", help="The types of this API version, instead of the stored ones."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the columns that a query gives."""
    if (query is None) == (gaql is None):
        raise typer.BadParameter("give the name of a query, or --gaql TEXT, and not both")
    path = _catalog_path()
    version: str | None = None
    natural_key: tuple[str, ...] = ()
    columns: tuple[Column, ...]
    if gaql is not None:
        if api_version is None:
            api_version = _with_excerpt(lambda: read_draft(path)).api_version
        asked = api_version
        columns = _with_excerpt(lambda: columns_of(parse_gaql(gaql), asked), gaql)
    else:
        catalog = _with_excerpt(lambda: load_catalog(path))
        specification = catalog.query(str(query))
        natural_key = specification.schema.natural_key
        if api_version is None:
            api_version, version = catalog.api_version, specification.schema.version
            columns = specification.schema.columns
        else:
            columns = columns_of(specification.gaql, api_version)
    if as_json:
        print_json(
            {
                "query": query,
                "schema_version": version,
                "api_version": api_version,
                "natural_key": natural_key,
                "columns": [asdict(column) for column in columns],
            }
        )
        return
    print_table(
        None,
        ["column", "type", "key", "field"],
        [(column.name, column.type, "key" if column.name in natural_key else "", column.field) for column in columns],
    )
    stored = f"{query}, schema version {version}" if version else f"not stored; types of Google Ads API {api_version}"
    typer.echo(stored)


def _catalog_path() -> Path:
    return read_settings(os.environ).catalog_path or PACKAGED_CATALOG


def _check_document(
    path: Path, stored: tuple[Path, ...], checks: tuple[QueryCheck, ...], problems: Sequence[CatalogError]
) -> dict[str, object]:
    return {
        "file": str(path),
        "ok": not problems,
        "stored": [str(schema_file) for schema_file in stored],
        "queries": [
            {
                "name": check.query_name,
                "schema_version": check.schema_version,
                "columns": check.columns,
                "ok": check.problem is None,
            }
            for check in checks
        ],
        "problems": [
            {
                "file": problem.file if isinstance(problem, CatalogFileError) else str(path),
                "line": problem.line if isinstance(problem, CatalogFileError) else None,
                "key": problem.key if isinstance(problem, CatalogFileError) else "",
                "message": str(problem),
            }
            for problem in problems
        ],
    }


def _print_checks(path: Path, stored: tuple[Path, ...], checks: tuple[QueryCheck, ...]) -> None:
    for schema_file in stored:
        typer.echo(f"stored {schema_file}")
    print_table(
        None,
        ["query", "version", "columns", "check"],
        [
            (
                result.query_name,
                result.schema_version,
                result.columns,
                Text("wrong", style="red") if result.problem else Text("ok", style="green"),
            )
            for result in checks
        ],
    )
    typer.echo(str(path))


def _with_excerpt(action: Callable[[], _T], text: str = "") -> _T:
    """Shows the offending line under its caret before the one-line error goes its way."""
    try:
        return action()
    except CatalogError as error:
        _print_excerpt(error, text)
        raise


def _print_excerpt(error: CatalogError, text: str = "") -> None:
    excerpt: str | None = None
    if isinstance(error, CatalogFileError):
        excerpt = error.excerpt
    elif isinstance(error, GaqlError):
        excerpt = describe_place(text, error.offset)
    elif isinstance(error, UnknownFieldError) and text:
        excerpt = describe_place(text, place_of(text, error.field))
    if excerpt:
        typer.echo(excerpt, err=True)
