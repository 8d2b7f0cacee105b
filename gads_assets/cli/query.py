"""`gads query`: SQL over what is published."""

import os
from typing import Annotated

import typer

from gads_assets.cli.output import JsonOption, print_json, print_table
from gads_assets.errors import ReadError
from gads_assets.settings import read_settings


def query(
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="One SELECT, for example: SELECT * FROM google_ads.campaign")
    ],
    as_json: JsonOption = False,
) -> None:
    """Run a SELECT over the published tables (<source>.<query>) and load_records."""
    from pyspark.errors import ParseException  # noqa: PLC0415

    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415
    from gads_assets.warehouse.reading import register_load_records, register_views, select_only  # noqa: PLC0415
    from gads_assets.warehouse.session import SPARK_ERRORS, spark_reason  # noqa: PLC0415

    with Workplace(read_settings(os.environ)) as here:
        records = here.store.load_records()
        session = here.session()
        try:
            register_views(session, here.layout, here.catalog)
            register_load_records(session, records)
            frame = select_only(session, sql.strip().removesuffix(";"))
            columns, rows = frame.columns, frame.collect()
        except SPARK_ERRORS as error:
            fix = "; give one SELECT and nothing else" if isinstance(error, ParseException) else ""
            raise ReadError(f"the query cannot be answered: {spark_reason(error)}{fix}") from error
    if as_json:
        print_json([row.asDict(recursive=True) for row in rows])
    else:
        print_table(None, columns, rows)
