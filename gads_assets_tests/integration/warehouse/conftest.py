from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gads_assets_tests.warehouses import Warehouse


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path: Path) -> Warehouse:
    return Warehouse(spark=spark, root=tmp_path)
