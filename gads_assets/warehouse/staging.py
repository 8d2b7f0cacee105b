"""Staging: a batch of sealed runs appended to its schema version's table, under a stage id that nothing names yet."""

from collections.abc import Sequence

from deltalake import DeltaTable
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from gads_assets.catalog.specification import QuerySchema
from gads_assets.domain.content import (
    ContentDigest,
    digest_aggregates,
    digest_from_aggregates,
    parse_content_digest,
    row_hashes,
    total,
)
from gads_assets.domain.keys import StageId
from gads_assets.domain.pointer import Authority
from gads_assets.errors import StagedRowsError
from gads_assets.raw.frames import CUSTOMER, DAY, RUN, sealed_rows
from gads_assets.warehouse.delta_tables import open_table, sql_name
from gads_assets.warehouse.layout import WarehouseLayout

_ROWS_PER_FILE = 1_000_000


def stage_runs(
    spark: SparkSession,
    layout: WarehouseLayout,
    schema: QuerySchema,
    authorities: Sequence[Authority],
    *,
    uris: Sequence[str],
    stage_id: StageId,
) -> int:
    """Appends the batch in one commit and returns a version of the table that holds it.

    What was written is counted and digested on its way to disk; if that is not what the validator saw in these runs,
    StagedRowsError is raised and the stage stays unnamed, which for readers means that it does not exist.
    """
    uri = layout.stage(schema.query_name, schema.version)
    _create_table(spark, uri, schema)
    expected = total(parse_content_digest(authority.content_digest) for authority in authorities)
    if expected.rows or uris:
        written = _append(spark, uri, schema, uris, stage_id, files=1 + expected.rows // _ROWS_PER_FILE)
        if written != expected:
            raise StagedRowsError(
                f"staging {len(authorities)} partitions of {schema.query_name} wrote content {written}, "
                f"the validator saw {expected}; nothing was published: revalidate these runs"
            )
    return open_table(uri).version()


def _create_table(spark: SparkSession, uri: str, schema: QuerySchema) -> None:
    if DeltaTable.is_deltatable(uri):
        return
    # The key comes first: statistics are kept for the leading columns, and they are what readers prune by.
    columns = ", ".join(
        ["logical_date DATE", "customer_id STRING", "stage_id STRING", "run_id STRING"]
        + [f"`{column.name}` {column.type}" for column in schema.report_columns]
    )
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {sql_name(uri)} ({columns}) USING DELTA CLUSTER BY (logical_date, customer_id)"
    )


def _append(
    spark: SparkSession, uri: str, schema: QuerySchema, uris: Sequence[str], stage_id: StageId, *, files: int
) -> ContentDigest:
    report = [column.name for column in schema.report_columns]
    rows = sealed_rows(spark, uris, schema).selectExpr(
        f"{DAY} AS logical_date",
        f"{CUSTOMER} AS customer_id",
        f"'{stage_id}' AS stage_id",
        f"{RUN} AS run_id",
        *(f"`{name}`" for name in report),
    )
    placed = rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, "logical_date", "customer_id")
    # One file is one partition, whose rows are in the key's order as they come.
    by_key = placed if len(uris) == 1 else placed.sortWithinPartitions("logical_date", "customer_id")
    measured = Observation()
    digest = digest_aggregates(*row_hashes(key=("customer_id", "logical_date"), columns=report))
    observed = by_key.observe(measured, *(F.expr(expression).alias(name) for name, expression in digest.items()))
    observed.write.format("delta").mode("append").save(uri)
    return digest_from_aggregates(**measured.get)
