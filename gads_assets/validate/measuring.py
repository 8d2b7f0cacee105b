"""One pass over the rows of many sealed runs, counting what the rules ask about."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from gads_assets.catalog.specification import QuerySchema
from gads_assets.domain.content import ContentDigest, digest_aggregates, digest_from_aggregates
from gads_assets.domain.keys import RunId
from gads_assets.domain.verdict import RunMeasurement
from gads_assets.raw.frames import CUSTOMER, DAY, MALFORMED, RUN, sealed_rows

_NUMBERS = frozenset({"bigint", "int", "double", "float"})

EMPTY = RunMeasurement(
    content=ContentDigest(rows=0, first=0, second=0),
    malformed_rows=0,
    foreign_customer_rows=0,
    foreign_day_rows=0,
    keyless_rows=0,
    repeated_key_rows=0,
    out_of_bounds_rows=0,
)


def measure_runs(spark: SparkSession, uris: Sequence[str], schema: QuerySchema) -> dict[RunId, RunMeasurement]:
    """Measurements by run; a run without rows has none, which is what `EMPTY` is for."""
    counted = _count(sealed_rows(spark, uris, schema), schema)
    return {RunId(row[RUN]): _measurement(row) for row in counted.collect()}


def _count(rows: DataFrame, schema: QuerySchema) -> DataFrame:
    """First by natural key, to see repetitions, then by run: every count is a sum, so both steps are one job."""
    keyless = " OR ".join(f"`{name}` IS NULL" for name in schema.natural_key)
    conditions = {
        "malformed": f"`{MALFORMED}` IS NOT NULL",
        "foreign_customer": _differs(schema, "customer.id", "CAST(`{}` AS STRING)", CUSTOMER),
        "foreign_day": _differs(schema, "segments.date", "`{}`", DAY),
        "keyless": keyless,
        "out_of_bounds": _out_of_bounds(schema),
    }
    digest = digest_aggregates(key=(CUSTOMER, DAY), columns=[column.name for column in schema.report_columns])
    by_key = rows.groupBy(RUN, *schema.natural_key).agg(
        *(F.expr(f"count_if({condition})").alias(name) for name, condition in conditions.items()),
        *(F.expr(expression).alias(name) for name, expression in digest.items()),
    )
    return by_key.groupBy(RUN).agg(
        *(F.sum(name).alias(name) for name in (*conditions, *digest)),
        F.expr(f"sum(CASE WHEN {keyless} THEN 0 ELSE rows - 1 END)").alias("repeated"),
    )


def _differs(schema: QuerySchema, field: str, as_text: str, expected: str) -> str:
    column = next((column.name for column in schema.columns if column.field == field), None)
    return f"NOT ({as_text.format(column)} <=> `{expected}`)" if column else "false"


def _out_of_bounds(schema: QuerySchema) -> str:
    metrics = [
        column.name for column in schema.columns if column.field.startswith("metrics.") and column.type in _NUMBERS
    ]
    return " OR ".join(f"`{name}` < 0 OR isnan(`{name}`)" for name in metrics) or "false"


def _measurement(row: Row) -> RunMeasurement:
    return RunMeasurement(
        content=digest_from_aggregates(
            rows=row["rows"],
            first_low=row["first_low"],
            first_high=row["first_high"],
            second_low=row["second_low"],
            second_high=row["second_high"],
        ),
        malformed_rows=row["malformed"],
        foreign_customer_rows=row["foreign_customer"],
        foreign_day_rows=row["foreign_day"],
        keyless_rows=row["keyless"],
        repeated_key_rows=row["repeated"],
        out_of_bounds_rows=row["out_of_bounds"],
    )
