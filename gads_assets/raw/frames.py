"""Sealed rows as a Spark DataFrame. Spark is the caller's: nothing here imports it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gads_assets.catalog.specification import QuerySchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CUSTOMER: Final = "_customer_id"
DAY: Final = "_logical_date"
RUN: Final = "_run_id"
MALFORMED: Final = "_malformed"
LINE: Final = "_line"
FILE: Final = "_file"

# Python writes the payload, and reads no single quotes either.
_JSON: Final = {"allowSingleQuotes": "false"}
_PERMISSIVE: Final = {**_JSON, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}


def sealed_rows(
    spark: "SparkSession", uris: Sequence[str], schema: QuerySchema, *, strict: bool = False
) -> "DataFrame":
    """The schema's columns, then the customer, day and run of the directory each row lies in, its file's URI, and
    `_malformed`.

    `_malformed` holds the text of a row that does not fit the columns, and is null for one that does. `strict` is
    faster: the job fails at the first such row.
    """
    reader = spark.read
    if strict:
        rows = reader.schema(schema.ddl).options(**_JSON, mode="FAILFAST").json(list(uris))
    else:
        rows = reader.schema(_ddl(schema)).options(**_PERMISSIVE).json(list(uris))
    malformed = f"CAST(NULL AS STRING) AS {MALFORMED}" if strict else f"`{MALFORMED}`"
    return rows.selectExpr(*(f"`{name}`" for name in schema.column_names), *_PLACE, malformed)


def sealed_lines(spark: "SparkSession", uris: Sequence[str], schema: QuerySchema) -> "DataFrame":
    """The same as `sealed_rows`, slower, with `_line` beside: the row's own bytes, whether or not they are text."""
    options = ", ".join(f"'{name}', '{value}'" for name, value in _PERMISSIVE.items())
    lines = spark.read.text(list(uris)).where("trim(value) <> ''")  # the reader of JSON passes over blank lines too
    parsed = lines.selectExpr(
        f"value AS {LINE}", *_PLACE, f"from_json(value, '{_ddl(schema)}', map({options})) AS parsed"
    )
    return parsed.selectExpr("parsed.*", CUSTOMER, DAY, RUN, LINE)


def _ddl(schema: QuerySchema) -> str:
    return f"{schema.ddl}, `{MALFORMED}` STRING"


def _part(number: int) -> str:
    """A part of the path that the sink built, counted from its end; rows may lie about where they belong."""
    return f"substring_index(substring_index(_metadata.file_path, '/', -{number}), '/', 1)"


_PLACE: Final = (
    f"{_part(5)} AS {CUSTOMER}",
    f"CAST({_part(3)} AS DATE) AS {DAY}",
    f"{_part(2)} AS {RUN}",
    f"_metadata.file_path AS {FILE}",
)
