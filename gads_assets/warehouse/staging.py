"""Staging: a batch of sealed runs appended to its schema version's table, under a stage id that nothing names yet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce
from math import ceil
from typing import Final

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, Observation, SparkSession
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
from gads_assets.domain.keys import PartitionKey, StageId
from gads_assets.domain.pointer import Authority
from gads_assets.errors import StagedRowsError
from gads_assets.raw.frames import CUSTOMER, DAY, RUN, sealed_rows
from gads_assets.warehouse.delta_tables import find_table, open_table, readable_delta_errors, select, sql_name
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.marks import times_collected

ROWS_PER_FILE: Final = 150_000
_NOTHING: Final = str(total([]))


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A batch in its table, under `stage_id`, as of version `commit`; for readers it does not exist before a pointer
    names it. The rows of `differing` partitions are not what the validator saw in their runs."""

    table: DeltaTable
    stage_id: StageId
    commit: int
    rows: int
    collections: int
    sound: tuple[Authority, ...]
    differing: tuple[Authority, ...]


def stage_runs(
    spark: SparkSession,
    layout: WarehouseLayout,
    schema: QuerySchema,
    authorities: Sequence[Authority],
    *,
    uris: Mapping[PartitionKey, Sequence[str]],
    stage_id: StageId,
) -> Stage:
    """Appends the batch in one commit; `uris` are the files of each partition that has rows. What is written is counted
    and digested on its way to disk."""
    table = _table(spark, layout.stage(schema.query_name, schema.version), schema)
    collections = times_collected(table)
    expected = total(parse_content_digest(authority.content_digest) for authority in authorities)
    written, differing = total([]), set[PartitionKey]()
    if pieces := pieces_of(authorities, uris, rows_per_file=ROWS_PER_FILE):
        written = _append(spark, table.table_uri, schema, pieces, stage_id)
        table.update_incremental()
    if written != expected:
        found = _digests(spark, table, schema, stage_id)
        differing = {each.key for each in authorities if found.get(_place(each), _NOTHING) != each.content_digest}
    return Stage(
        table=table,
        stage_id=stage_id,
        commit=table.version(),
        rows=written.rows,
        collections=collections,
        sound=tuple(each for each in authorities if each.key not in differing),
        differing=tuple(each for each in authorities if each.key in differing),
    )


def require_kept(stage: Stage) -> None:
    """Raises StagedRowsError when housekeeping took the stage for abandoned, and its rows with it."""
    with readable_delta_errors(stage.table.table_uri):
        stage.table.update_incremental()
    if times_collected(stage.table) == stage.collections:
        return
    count = f"SELECT count(*) FROM this WHERE stage_id = '{stage.stage_id}'"  # noqa: S608 - our own id
    [kept] = select(stage.table, count)[0].to_pylist()
    if kept != stage.rows:
        raise StagedRowsError("this load took so long that its rows were collected as abandoned; run it again")


def _table(spark: SparkSession, uri: str, schema: QuerySchema) -> DeltaTable:
    if table := find_table(uri):
        return table
    # The key comes first: statistics are kept for the leading columns, and they are what readers prune by.
    columns = ", ".join(
        ["logical_date DATE", "customer_id STRING", "stage_id STRING", "run_id STRING"]
        + [f"`{column.name}` {column.type}" for column in schema.report_columns]
    )
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {sql_name(uri)} ({columns}) USING DELTA CLUSTER BY (logical_date, customer_id)"
    )
    return open_table(uri)


def pieces_of(
    authorities: Sequence[Authority], uris: Mapping[PartitionKey, Sequence[str]], *, rows_per_file: int
) -> list[list[str]]:
    """The files of a batch in pieces, one for each file that is written: of about as many rows each, and each a range
    of the key that the table is clustered by."""
    in_order = sorted((authority for authority in authorities if authority.key in uris), key=_place_in_table)
    rows = sum(authority.record_count for authority in in_order)
    number = ceil(rows / rows_per_file)
    pieces: list[list[str]] = [[] for _ in range(number)]
    before = 0
    for authority in in_order:
        pieces[before * number // rows].extend(uris[authority.key])
        before += authority.record_count
    return [piece for piece in pieces if piece]


def _append(
    spark: SparkSession, uri: str, schema: QuerySchema, pieces: Sequence[Sequence[str]], stage_id: StageId
) -> ContentDigest:
    # Each piece is a task of its own. One task for all would leave the other cores idle, and a repartition by range
    # reads everything twice.
    rows = reduce(DataFrame.unionAll, [_rows(spark, schema, piece, stage_id).coalesce(1) for piece in pieces])
    # One file is one partition, whose rows are in the key's order as they come.
    by_key = rows if len(pieces) == len(pieces[0]) == 1 else rows.sortWithinPartitions("logical_date", "customer_id")
    measured = Observation()
    observed = by_key.observe(measured, *_digest_columns(schema))
    observed.write.format("delta").mode("append").save(uri)
    return digest_from_aggregates(**measured.get)


def _rows(spark: SparkSession, schema: QuerySchema, uris: Sequence[str], stage_id: StageId) -> DataFrame:
    return sealed_rows(spark, uris, schema).selectExpr(
        f"{DAY} AS logical_date",
        f"{CUSTOMER} AS customer_id",
        f"'{stage_id}' AS stage_id",
        f"{RUN} AS run_id",
        *(f"`{column.name}`" for column in schema.report_columns),
    )


def _digests(
    spark: SparkSession, table: DeltaTable, schema: QuerySchema, stage_id: StageId
) -> dict[tuple[str, date], str]:
    """The digest of each partition that has rows in this stage."""
    staged = f"{sql_name(table.table_uri)} VERSION AS OF {table.version()} WHERE stage_id = '{stage_id}'"
    groups = spark.sql(f"SELECT * FROM {staged}").groupBy("customer_id", "logical_date")  # noqa: S608 - our own id
    return {
        (row.pop("customer_id"), row.pop("logical_date")): str(digest_from_aggregates(**row))
        for row in (found.asDict() for found in groups.agg(*_digest_columns(schema)).collect())
    }


def _digest_columns(schema: QuerySchema) -> list[Column]:
    report = [column.name for column in schema.report_columns]
    digest = digest_aggregates(*row_hashes(key=("customer_id", "logical_date"), columns=report))
    return [F.expr(expression).alias(name) for name, expression in digest.items()]


def _place_in_table(authority: Authority) -> tuple[date, str]:
    return authority.key.logical_date, authority.key.customer_id


def _place(authority: Authority) -> tuple[str, date]:
    return authority.key.customer_id, authority.key.logical_date
