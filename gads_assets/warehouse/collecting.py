"""What only Spark can do to a stage table: delete, compact, vacuum. delta-rs does not write to clustered tables."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from gads_assets.errors import WarehouseError
from gads_assets.warehouse.delta_tables import sql_name
from gads_assets.warehouse.frames import arrow_frame
from gads_assets.warehouse.marks import COLLECTED
from gads_assets.warehouse.session import SPARK_ERRORS, spark_reason

_DEAD = "gads_assets_dead_stages"


def set_properties(spark: SparkSession, uri: str, properties: Mapping[str, str]) -> None:
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    with _readable_errors(uri):
        spark.sql(f"ALTER TABLE {sql_name(uri)} SET TBLPROPERTIES ({pairs})").collect()


def delete_stages(spark: SparkSession, uri: str, dead: pa.Table, *, times_collected: int) -> None:
    """Deletes these (customer_id, logical_date, stage_id), in one commit that carries the mark `times_collected`."""
    days, stages = pc.min_max(dead["logical_date"]).as_py(), pc.min_max(dead["stage_id"]).as_py()
    # Delta's own idempotent writes: left set, they would make the next write of this session do nothing.
    mark = {
        "spark.databricks.delta.write.txnAppId": COLLECTED,
        "spark.databricks.delta.write.txnVersion": str(times_collected),
    }
    with _readable_errors(uri), _settings(spark, mark):
        arrow_frame(spark, dead).createOrReplaceTempView(_DEAD)
        # The bounds are what the statistics of a file can answer. DELETE takes no other table to look into.
        spark.sql(
            f"MERGE INTO {sql_name(uri)} AS stage USING {_DEAD} AS dead "
            "ON stage.customer_id = dead.customer_id AND stage.logical_date = dead.logical_date "
            "AND stage.stage_id = dead.stage_id "
            f"AND stage.logical_date BETWEEN DATE '{days['min']}' AND DATE '{days['max']}' "
            f"AND stage.stage_id BETWEEN '{stages['min']}' AND '{stages['max']}' "
            "WHEN MATCHED THEN DELETE"
        ).collect()
        spark.catalog.dropTempView(_DEAD)


def compact(spark: SparkSession, uri: str) -> None:
    """Brings small files together, in the order that the table is clustered by."""
    with _readable_errors(uri):
        spark.sql(f"OPTIMIZE {sql_name(uri)}").collect()


def vacuum(spark: SparkSession, uri: str, *, hours: int) -> None:
    """Removes files that no version younger than that needs."""
    # Delta refuses less than a week, and goes by the table's own property instead, unless told otherwise.
    by_hours = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    }
    with _readable_errors(uri), _settings(spark, by_hours):
        spark.sql(f"VACUUM {sql_name(uri)} RETAIN {hours} HOURS").collect()


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, given in before.items():
            if given is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, given)


@contextmanager
def _readable_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except SPARK_ERRORS as error:
        raise WarehouseError(
            f"the table at {uri} cannot be tidied ({spark_reason(error)}); run housekeeping again once that is mended"
        ) from error
