"""What a quota stopped is published by Dagster's daemon, with nobody there."""

import time
from datetime import timedelta
from pathlib import Path

from gads_assets.state.connection import open_engine
from gads_assets.state.server import running_database
from gads_assets_tests.acceptance.browser import serve_page
from gads_assets_tests.acceptance.commands import PATIENCE, Home, published_content
from gads_assets_tests.ledgers import let_pass

CUSTOMER, DAY = "3305550102", "2024-06-01"
HALF_A_DAY = timedelta(hours=12)


def half_a_day_later(home: Home) -> None:
    with running_database(home.settings.database_home, None) as url:
        engine = open_engine(url)
        let_pass(engine, HALF_A_DAY)
        engine.dispose()


def test_a_partition_that_half_a_days_quota_stopped_is_published_under_gads_ui_after_it(tmp_path: Path) -> None:
    home = Home(path=tmp_path / "home")
    synchronised = home.gads("customers", "sync")
    assert synchronised.returncode == 0, synchronised.stderr
    fault = f"quota@{CUSTOMER}/*/*:{HALF_A_DAY.total_seconds():.0f}"
    refused = home.materialize("campaign", f"{CUSTOMER}|{DAY}", GADS_EMULATOR_FAULTS=fault)
    assert refused.returncode != 0
    assert published_content(home) == {}
    half_a_day_later(home)
    home.stop()

    with serve_page(home.environment()):
        deadline = time.monotonic() + PATIENCE
        while not published_content(home):
            assert time.monotonic() < deadline, "it was not tried again"
            time.sleep(0.5)

    assert set(published_content(home)) == {("campaign", CUSTOMER, DAY)}
