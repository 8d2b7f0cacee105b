"""Worlds in which real Dagster runs happen, each with a home and a database of its own."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from gads_assets.catalog.loading import load_catalog
from gads_assets.orchestration.code_location import code_location
from gads_assets.orchestration.customers import dagster_instance, register_accounts
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets_tests.agencies import enabled_accounts
from gads_assets_tests.integration.orchestration.run_processes import Agency, opened_agency
from gads_assets_tests.worlds import RAW, STATUS_URL, VERDICT, SharedSpark, World


@pytest.fixture
def make_world(
    spark: SparkSession, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., World]]:
    opened: list[Workplace] = []

    def make(faults: str = "", extra_assets: Sequence[dg.AssetsDefinition] = ()) -> World:
        monkeypatch.setenv("GADS_HOME", str(tmp_path))
        monkeypatch.setenv("GADS_DATABASE_URL", database_url)
        monkeypatch.setenv("GADS_EMULATOR_FAULTS", faults)
        here = Workplace(read_settings({"GADS_HOME": str(tmp_path), "GADS_DATABASE_URL": database_url}))
        opened.append(here)
        register_accounts(here, enabled_accounts(here.source), now=datetime.now(UTC))
        instance = here._open.enter_context(dagster_instance(here))
        alone = [
            dg.define_asset_job("all_checks", selection=dg.AssetSelection.checks_for_assets(RAW)),
            dg.define_asset_job("verdict_alone", selection=dg.AssetSelection.checks(VERDICT)),
            dg.define_asset_job("bounds_alone", selection=dg.AssetSelection.checks(dg.AssetCheckKey(RAW, "bounds"))),
        ]
        definitions = dg.Definitions.merge(
            code_location(load_catalog(), SharedSpark(), status_url=STATUS_URL),
            dg.Definitions(assets=list(extra_assets), jobs=alone),
        )
        return World(here=here, instance=instance, definitions=definitions)

    yield make
    for here in opened:
        here.__exit__()


@pytest.fixture
def agency(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agency]:
    with opened_agency(tmp_path, database_url, monkeypatch) as made:
        yield made
