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

# The key comes from the path that the sink built, not from the row, which may lie.
_PATH = r"/([0-9]{10})/[^/]+/([0-9]{4}-[0-9]{2}-[0-9]{2})/([0-9A-Z]{26})/[^/]+$"


def sealed_rows(spark: "SparkSession", uris: Sequence[str], schema: QuerySchema) -> "DataFrame":
    """The schema's columns, then the customer, day and run of the directory each row lies in, and `_malformed`.

    `_malformed` holds the text of a row that does not fit the columns, and is null for one that does.
    """
    rows = (
        spark.read.schema(f"{schema.ddl}, `{MALFORMED}` STRING")
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", MALFORMED)
        .option("dateFormat", "yyyy-MM-dd")
        .json(list(uris))
    )
    return rows.selectExpr(
        *(f"`{name}`" for name in schema.column_names),
        f"regexp_extract(_metadata.file_path, r'{_PATH}', 1) AS {CUSTOMER}",
        f"CAST(regexp_extract(_metadata.file_path, r'{_PATH}', 2) AS DATE) AS {DAY}",
        f"regexp_extract(_metadata.file_path, r'{_PATH}', 3) AS {RUN}",
        f"`{MALFORMED}`",
    )
