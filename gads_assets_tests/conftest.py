"""One Spark session and one PostgreSQL server a test process; everything else is made fresh for each test that asks."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from gads_assets.settings import read_settings
from gads_assets.state.migration import migrate
from gads_assets.state.server import running_database
from gads_assets.warehouse.java import find_jars, find_java
from gads_assets.warehouse.session import LocalSpark, open_local_session
from gads_assets_tests.databases import copied_database, make_template

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


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running server; its own database is left alone, so that tests can copy the template beside it."""
    with running_database(tmp_path_factory.mktemp("server") / "postgres", None) as url:
        yield url


@pytest.fixture(scope="session")
def migrated(postgres_url: str) -> str:
    """A template with this code's schema, and nothing in it."""
    return make_template(postgres_url, "migrated", migrate)


@pytest.fixture
def database_url(postgres_url: str, migrated: str) -> Iterator[str]:
    """A database of the test's own, migrated and empty."""
    with copied_database(postgres_url, migrated) as url:
        yield url
