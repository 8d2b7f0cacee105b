"""The status page on a home in which things have happened, for the tests that look at it in Chromium."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser

from gads_assets.orchestration.customers import dagster_instance
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets_tests.acceptance.browser import open_browser
from gads_assets_tests.acceptance.status_page import (
    BAKERY,
    CUSTOMERS,
    EVERY_LOOK,
    GARDEN,
    OpenPage,
    day_of,
    open_status,
)
from gads_assets_tests.acceptance.written_status import (
    AD_GROUP,
    CAMPAIGN,
    FILLED_DAYS,
    MADE_AT,
    FaultyBoard,
    Look,
    WrittenStatus,
    keys_of,
    newest_days,
)
from gads_assets_tests.databases import copied_database, execute, make_template
from gads_assets_tests.status_servers import ServedStatus, serve_status


class History(NamedTuple):
    """A database to copy, and what goes with it in the home."""

    template: str
    home: Path


@contextmanager
def written_status(home: Path, database_url: str, *, start: datetime) -> Iterator[WrittenStatus]:
    settings = read_settings({"GADS_HOME": str(home), "GADS_DATABASE_URL": database_url})
    with Workplace(settings) as here, dagster_instance(here) as instance:
        yield WrittenStatus(here, instance, start=start)


def write_history(home: Path, database_url: str) -> None:
    """Of twelve customers, one of them closed, the newest days were filled. Then the bakery came to every look."""
    days = {each: newest_days(FILLED_DAYS, customer_id=each, closed=[GARDEN]) for each in CUSTOMERS}
    with written_status(home, database_url, start=MADE_AT + timedelta(hours=1)) as statuses:
        statuses.register(CUSTOMERS, closed=[GARDEN])
        own = {day_of(look) for look in EVERY_LOOK if look is not Look.FRESH}
        for customer_id, filled in days.items():
            wanted = [day for day in filled if customer_id != BAKERY or day not in own]
            statuses.publish(keys_of(CAMPAIGN, customer_id, wanted), at=MADE_AT)
            statuses.publish(keys_of(AD_GROUP, customer_id, filled[8:]), at=MADE_AT)
        statuses.make_marts(days, at=MADE_AT)
        for look in EVERY_LOOK:
            if look is not Look.FRESH:
                statuses.change(BAKERY, day_of(look), look)
        statuses.board.version()
    # As autovacuum would by and by; every copy of the database is read with what is known here.
    execute(database_url, "ANALYZE")


@pytest.fixture(scope="session")
def history(postgres_url: str, migrated: str, tmp_path_factory: pytest.TempPathFactory) -> History:
    home = tmp_path_factory.mktemp("history")
    template = make_template(postgres_url, "history", partial(write_history, home), of=migrated)
    return History(template, home)


@pytest.fixture
def statuses(history: History, postgres_url: str, tmp_path: Path) -> Iterator[WrittenStatus]:
    """A copy of the history; what a test adds to it comes later than all that is there."""
    home = tmp_path / "home"
    shutil.copytree(history.home, home)
    with (
        copied_database(postgres_url, history.template) as url,
        written_status(home, url, start=MADE_AT + timedelta(hours=6)) as statuses,
    ):
        yield statuses


@pytest.fixture
def bare_statuses(database_url: str, tmp_path: Path) -> Iterator[WrittenStatus]:
    """Of a home in which nothing has happened yet."""
    with written_status(tmp_path / "home", database_url, start=MADE_AT) as statuses:
        yield statuses


@pytest.fixture
def board(statuses: WrittenStatus) -> FaultyBoard:
    return FaultyBoard(statuses.board)


@pytest.fixture
def status_server(board: FaultyBoard) -> Iterator[ServedStatus]:
    with serve_status(board) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture
def status_page(browser: Browser, status_server: ServedStatus, tmp_path: Path) -> OpenPage:
    return partial(open_status, browser, status_server.address, tmp_path)
