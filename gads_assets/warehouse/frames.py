"""Arrow tables as Spark sees them."""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema


def arrow_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """All of the table's rows, also where there are none: a Spark Connect session would then ask for the columns.

    In one chunk: of a table with an empty one among others, which a filter or a concatenation leaves behind, Spark
    silently takes the rows before it and no others.
    """
    if not table.num_rows:
        return spark.createDataFrame([], from_arrow_schema(table.schema))
    return spark.createDataFrame(table.combine_chunks())
