"""The status page with eighty thousand cells: from the navigation until they are on the screen, in Chromium."""

from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Final

from playwright.sync_api import Browser

from benchmarks.partition_status import FIRST_DAY, TABLE, open_desk
from benchmarks.results import Result
from gads_assets_tests.acceptance.browser import open_browser
from gads_assets_tests.status_servers import serve_status

ALLOWANCE_MILLISECONDS: Final = 2000.0
# The page marks the frame in which it has put the cells; that frame is on the screen when the next one begins.
_WATCH: Final = """
    window.painted = new Promise((resolve) => {
      new PerformanceObserver((list) => {
        if (!list.getEntriesByName("matrix-shown").length) return;
        requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now())));
      }).observe({ type: "mark", buffered: true });
    });
"""


def measure(folder: Path, *, customers: int = 200, days: int = 400, warm_up: int = 1, rounds: int = 5) -> list[Result]:
    """Each time in a browser window that has never seen the page; its server is warm."""
    with open_desk(folder) as desk:
        desk.fill_at_once(TABLE, customers=customers, days=days)
        desk.fold()
        last_day = FIRST_DAY + timedelta(days=days - 1)
        with serve_status(desk.board) as server, open_browser() as browser:
            address = f"{server.address}/#asset={TABLE}&from={FIRST_DAY}&to={last_day}"
            taken = [_painted(browser, address, customers=customers, days=days) for _ in range(warm_up + rounds)]
    return [
        Result(
            name="status_page",
            unit="ms",
            ours=median(taken[warm_up:]),
            peer=f"the two seconds it is allowed, with {customers * days} cells",
            peer_value=ALLOWANCE_MILLISECONDS,
            goal=1.0,
        )
    ]


def _painted(browser: Browser, address: str, *, customers: int, days: int) -> float:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    try:
        page = context.new_page()
        page.add_init_script(_WATCH)
        page.goto(address)
        painted = float(page.evaluate("() => window.painted"))
        grid = page.get_by_role("grid")
        assert (grid.get_attribute("aria-rowcount"), grid.get_attribute("aria-colcount")) == (
            str(customers + 1),
            str(days + 1),
        )
        return painted
    finally:
        context.close()
