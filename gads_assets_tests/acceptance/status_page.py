"""The status page in Chromium: how a test opens it and finds its way."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page

from gads_assets_tests.acceptance.written_status import LAST_DAY, Look, customers_of

CUSTOMERS = customers_of(12)
BAKERY, CYCLES, DENTAL, CAFE, GARDEN, MUELLER, *_ = CUSTOMERS
DAY, DAY_BEFORE = LAST_DAY, LAST_DAY - timedelta(days=1)
# Of the bakery, newest day first. Eight days may be missing before one is overdue.
EVERY_LOOK = {
    Look.FRESH: "materialized",
    Look.UPSTREAM_CHANGED: "stale: upstream changed",
    Look.CODE_CHANGED_CANCELLED: "stale: code changed, last attempt cancelled",
    Look.FAILED: "materialized, last attempt failed",
    Look.FAILED_AND_STALE: "materialized, last attempt failed, stale: upstream changed",
    Look.CANCELLED: "materialized, last attempt cancelled",
    Look.NEVER: "never materialized",
    Look.NEVER_FAILED: "never materialized, last attempt failed",
    Look.OVERDUE: "never materialized, overdue",
    Look.OVERDUE_FAILED: "never materialized, overdue, last attempt failed",
    Look.LATE: "stale: not renewed in time",
    Look.WITHDRAWN: "materialized, withdrawn",
}

OpenPage = Callable[..., AbstractContextManager[Page]]


@contextmanager
def open_status(
    browser: Browser,
    address: str,
    pictures: Path,
    path: str = "/",
    *,
    width: int = 1400,
    height: int = 900,
    **options: Any,
) -> Iterator[Page]:
    """The page with its matrix. Whatever its script or its policy complains about fails the test."""
    context = browser.new_context(
        **{"base_url": address, "viewport": {"width": width, "height": height}, "locale": "en-US", "timezone_id": "UTC"}
        | options
    )
    context.set_default_timeout(15_000)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"a dialog says {dialog.message}"))
    page.on("console", lambda said: complaints.append(said.text) if "Security Policy" in said.text else None)
    try:
        page.goto(path)
        page.locator("#empty, #problem, [role=gridcell]").locator("visible=true").first.wait_for()
        yield page
        assert not complaints
    except Exception as error:
        picture = pictures / "page.png"
        page.screenshot(path=picture)
        error.add_note(f"the page {page.url} then looked like {picture}; it complained of {complaints}")
        raise
    finally:
        context.close()


def cell(page: Page, name: str, day: object) -> Locator:
    return page.locator(f"[role=gridcell][aria-label^={json.dumps(f'{name}, {day}, ')}]")


def day_of(look: Look) -> date:
    """The bakery's day that has it."""
    return LAST_DAY - timedelta(days=list(EVERY_LOOK).index(look))


def status_box(page: Page, title: str) -> Locator:
    return page.get_by_role("checkbox", name=title)


def focused_name(page: Page) -> str:
    return str(page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.id"))


def customers_shown(page: Page) -> list[str]:
    return page.locator("[role=rowheader] .customer").all_inner_texts()
