"""`gads query`: SQL over what is published."""

import os
from typing import Annotated, Any

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
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415
    from gads_assets.warehouse.reading import register_load_records, register_views, select_only  # noqa: PLC0415

    with Workplace(read_settings(os.environ)) as here:
        records = here.store.load_records()
        session = here.session()
        register_views(session, here.layout, here.catalog)
        register_load_records(session, records)
        try:
            frame = select_only(session, sql)
            columns, rows = frame.columns, frame.collect()
        except PySparkException as error:
            raise ReadError(f"the query cannot be answered: {_first_sentence(error)}") from error
    if as_json:
        print_json([row.asDict(recursive=True) for row in rows])
    else:
        print_table(None, columns, rows)


def _first_sentence(error: Any) -> str:
    """Spark's message without its plan and its SQLSTATE."""
    return str(error).split("\n", maxsplit=1)[0].split(" SQLSTATE", maxsplit=1)[0]
