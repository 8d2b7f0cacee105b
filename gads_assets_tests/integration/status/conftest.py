"""A home with a database and a real Dagster log, without Spark and without an API."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from gads_assets.orchestration.customers import dagster_instance
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets_tests.status_desks import START, Desk


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Workplace]:
    with Workplace(read_settings({"GADS_HOME": str(tmp_path), "GADS_DATABASE_URL": database_url})) as here:
        yield here


@pytest.fixture
def instance(here: Workplace) -> Iterator[dg.DagsterInstance]:
    with dagster_instance(here) as instance:
        yield instance


@pytest.fixture
def desk(here: Workplace, instance: dg.DagsterInstance) -> Desk:
    return Desk(here, instance, now=START)
