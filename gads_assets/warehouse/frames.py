"""Arrow tables as Spark sees them."""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def arrow_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """All of the table's rows.

    In one chunk: of a table with an empty one among others, which a filter or a concatenation leaves behind, Spark
    silently takes the rows before it and no others.
    """
    return spark.createDataFrame(table.combine_chunks())
