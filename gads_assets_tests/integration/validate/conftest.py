from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gads_assets_tests.sites import Site, make_site


@pytest.fixture
def site(spark: SparkSession, database_url: str, tmp_path: Path) -> Iterator[Site]:
    made = make_site(tmp_path, database_url, lambda: spark)
    with made.here:
        yield made
