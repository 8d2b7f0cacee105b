"""One Spark session a test process; everything else is made fresh under a test's own folder."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from gads_assets.settings import read_settings
from gads_assets.warehouse.java import find_jars, find_java
from gads_assets.warehouse.session import LocalSpark, open_local_session

# gRPC reads it when a test first imports it. Its handling of forks would now and then break the JVM's start.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# pytest-xdist gives its workers the width of a terminal, which commands would take for their user's.
os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = read_settings(os.environ)
    scratch = tmp_path_factory.mktemp("spark")
    session = open_local_session(
        LocalSpark(
            java=find_java(os.environ),
            jars=find_jars(given=settings.spark_jars, kept=settings.spark_home / "jars"),
            conf_dir=settings.spark_conf_dir,
            scratch=scratch,
            log=scratch / "spark.log",
        )
    )
    yield session
    session.stop()
