"""`gads query`: SQL over what is published."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gads_assets.cli.output import JsonOption, print_json, print_table
from gads_assets.cli.setup import require_spark
from gads_assets.domain.roles import Role
from gads_assets.errors import ReadError
from gads_assets.settings import read_settings

if TYPE_CHECKING:
    from pyspark.sql import Row

    from gads_assets.orchestration.workplace import Workplace

_TRIES = 5


def query(
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="One SELECT, for example: SELECT * FROM google_ads.campaign")
    ],
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="What was shown then, for example 2024-06-01T06:00Z, without what was retracted since."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a SELECT over the published tables, <source>.<query>, the marts, <source>_marts.account_day and
    <source>_marts.freshness, and load_records.

    load_records has a row for each run that was ever published: its partition, its size, its digest, and when.
    """
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    settings = read_settings(os.environ)
    moment = parse_moment(as_of) if as_of else None
    require_spark(settings)
    with Workplace(settings) as here:
        columns, rows = answer(here, sql, as_of=moment)
    if not as_json:
        print_table(None, columns, [[_in_utc(value) for value in row] for row in rows])
        return
    if len(set(columns)) < len(columns):
        raise ReadError("two columns of the answer have the same name; tell them apart with AS")
    print_json([{name: _in_utc(value) for name, value in row.asDict(recursive=True).items()} for row in rows])


def parse_moment(text: str) -> datetime:
    """A time without a zone is UTC, as the times in answers are; a day alone could mean its beginning or its end."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or len(text) <= len("YYYY-MM-DD"):
        raise ReadError(f"--as-of {text!r} is not a time; write it as 2024-06-01T06:00Z")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def answer(here: "Workplace", sql: str, *, as_of: datetime | None = None) -> "tuple[Sequence[str], Sequence[Row]]":
    """Raises ReadError for anything but one query, and for one that Spark cannot answer."""
    from pyspark.errors import ParseException  # noqa: PLC0415

    from gads_assets.warehouse.marts.reading import register_mart_views  # noqa: PLC0415
    from gads_assets.warehouse.marts.tables import MARTS  # noqa: PLC0415
    from gads_assets.warehouse.reading import (  # noqa: PLC0415
        are_registered,
        register_load_records,
        register_views,
        select_only,
    )
    from gads_assets.warehouse.session import SPARK_ERRORS, spark_reason  # noqa: PLC0415

    said = sql.casefold()
    # A statement that reads a view has its name in it, whatever else has it too.
    named = [name for name in here.catalog.queries if name in said]
    marts = [name for name in MARTS if name in said]
    records = here.store_as(Role.CONSUMER).load_records() if "load_records" in said else []
    session = here.session()
    source = here.catalog.source
    views = [*(f"{source}.{name}" for name in named), *(f"{source}_marts.{name}" for name in marts)]
    try:
        register_load_records(session, records)
        for _ in range(_TRIES):
            registration = register_views(session, here.layout, here.catalog, as_of=as_of, queries=named)
            register_mart_views(session, here.layout, here.catalog, marts, registration=registration, as_of=as_of)
            try:
                frame = select_only(session, sql.strip().removesuffix(";"))
                columns, rows = frame.columns, frame.collect()
            except SPARK_ERRORS:
                if are_registered(session, views, registration):
                    raise
                continue
            if are_registered(session, views, registration):
                return columns, rows
    except SPARK_ERRORS as error:
        fix = "; give one SELECT and nothing else" if isinstance(error, ParseException) else ""
        raise ReadError(f"the query cannot be answered: {spark_reason(error)}{fix}") from error
    raise ReadError("the query cannot be answered while others on this Spark Connect server query; run it again")


def _in_utc(value: Any) -> Any:
    """PySpark hands moments over as this machine's wall clock, without saying which."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value
