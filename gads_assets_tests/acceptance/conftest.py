"""The status page on statuses of its own, for the tests that look at it in Chromium."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from gads_assets_tests.acceptance import made_up_status as made_up
from gads_assets_tests.acceptance.browser import open_browser
from gads_assets_tests.acceptance.made_up_status import LAST_DAY, MadeUpStatus, made_up_status
from gads_assets_tests.acceptance.status_page import BAKERY, EVERY_LOOK, OpenPage, open_status
from gads_assets_tests.status_servers import ServedStatus, serve_status


@pytest.fixture
def statuses() -> MadeUpStatus:
    """Twelve customers. The first has every look there is, newest day first; the rest of the newest days is fresh."""
    source = made_up_status(12)
    for customer_id in source.customers:
        for age in range(40):
            source.change(customer_id, LAST_DAY - timedelta(days=age), made_up.FRESH)
    for age, look in enumerate(EVERY_LOOK):
        source.change(BAKERY, LAST_DAY - timedelta(days=age), look)
    return source


@pytest.fixture
def status_server(statuses: MadeUpStatus) -> Iterator[ServedStatus]:
    with serve_status(statuses) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture
def status_page(browser: Browser, status_server: ServedStatus, tmp_path: Path) -> OpenPage:
    return partial(open_status, browser, status_server.address, tmp_path)
