"""The status page in Chromium: how a test opens it and finds its way."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page

from gads_assets_tests.acceptance import made_up_status as made_up
from gads_assets_tests.acceptance.made_up_status import LAST_DAY, made_up_status

BAKERY, CYCLES, DENTAL, CAFE, GARDEN, HOSTILE_ID = list(made_up_status(6).customers)
DAY, DAY_BEFORE, TWO_BEFORE = (LAST_DAY - timedelta(days=days) for days in range(3))
EVERY_LOOK = {
    made_up.FRESH: "materialized",
    made_up.UPSTREAM_CHANGED: "stale: upstream changed",
    made_up.LATE: "stale: not renewed in time",
    made_up.CODE_CHANGED_CANCELLED: "stale: code changed, last attempt cancelled",
    made_up.FAILED: "materialized, last attempt failed",
    made_up.FAILED_AND_STALE: "materialized, last attempt failed, stale: upstream changed",
    made_up.CANCELLED: "materialized, last attempt cancelled",
    made_up.NEVER: "never materialized",
    made_up.NEVER_FAILED: "never materialized, last attempt failed",
    made_up.OVERDUE: "never materialized, overdue",
    made_up.OVERDUE_FAILED: "never materialized, overdue, last attempt failed",
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


def status_box(page: Page, title: str) -> Locator:
    return page.get_by_role("checkbox", name=title)


def focused_name(page: Page) -> str:
    return str(page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.id"))


def customers_shown(page: Page) -> list[str]:
    return page.locator("[role=rowheader] .customer").all_inner_texts()
