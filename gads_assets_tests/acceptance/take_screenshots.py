"""Takes the README's pictures of Dagster's page and of the status page, into docs/images or the folder that is named.

    .venv/bin/python -m gads_assets_tests.acceptance.take_screenshots [FOLDER]

Runs the demo in a home of its own, launches one more partition whose extraction is bad, and cleans up: about two
minutes. Needs what `make test` needs.
"""

import shutil
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import yaml
from playwright.sync_api import Browser, FloatRect, Page

import gads_assets
from gads_assets.cli.demo import QUERIES, closed_days
from gads_assets_tests.acceptance.browser import environment_of, open_browser, open_tab, run_gads, serve_page

_PROJECT = Path(gads_assets.__file__).parent.parent
_GROUPS = "global@global:google_ads,global@global:google_ads_raw"
_CUSTOMER_ID = "3305550102"
_MARGIN = 24
_CHECK_PANEL: FloatRect = {"x": 362, "y": 104, "width": 1138, "height": 1136}


def take_screenshots(folder: Path) -> list[Path]:
    """The asset graph after the demo, the check of a partition that was rejected the day before its week, and the
    status of the partitions after both."""
    folder.mkdir(parents=True, exist_ok=True)
    day = closed_days(datetime.now(UTC).date())[0] - timedelta(days=1)
    with tempfile.TemporaryDirectory(prefix="gads-") as scratch:
        environment = environment_of(
            Path(scratch) / "home",
            GADS_CATALOG=str(_catalog_from(day, Path(scratch) / "config")),
            GADS_EMULATOR_FAULTS=f"duplicated_rows@{_CUSTOMER_ID}/campaign/{day}:3",
        )
        run_gads(environment, "demo")
        with serve_page(environment) as server, open_browser() as browser:
            return [
                _asset_graph(browser, server.address, folder / "asset-graph.png"),
                _partition_checks(browser, server.address, folder / "partition-checks.png", day.isoformat()),
                _status_page(browser, environment, folder / "status-page.png"),
            ]


def _catalog_from(day: date, folder: Path) -> Path:
    """The catalog inside, with that first day: years of empty days would make every bar in the pictures grey. Only the
    demo's queries: all of them would not fit."""
    shutil.copytree(Path(gads_assets.__file__).parent / "config", folder)
    catalog = folder / "google_apis.yaml"
    document = yaml.safe_load(catalog.read_text())
    document["queries"] = {name: {**document["queries"][name], "start_date": day} for name in QUERIES}
    catalog.write_text(yaml.safe_dump(document, sort_keys=False))
    return catalog


def _asset_graph(browser: Browser, address: str, picture: Path) -> Path:
    with open_tab(browser, address, picture.parent, width=1400, height=1240) as tab:
        page = tab.page
        page.goto(f"/asset-groups?expanded={quote(_GROUPS, safe='')}")
        _hide_navigation(page)
        page.get_by_text("Passed").nth(3).wait_for()
        page.wait_for_timeout(1_000)
        raw, table = (_group(page, name) for name in ("google_ads_raw", "google_ads"))
        page.screenshot(
            path=picture,
            clip={
                "x": raw["x"] - _MARGIN,
                "y": raw["y"] - _MARGIN,
                "width": table["x"] + table["width"] - raw["x"] + 2 * _MARGIN,
                "height": raw["height"] + 2 * _MARGIN,
            },
        )
    return picture


def _group(page: Page, name: str) -> FloatRect:
    box = page.get_by_text(name, exact=True).last.locator("xpath=ancestor::*[name()='foreignObject'][1]").bounding_box()
    assert box
    return box


def _partition_checks(browser: Browser, address: str, picture: Path, day: str) -> Path:
    with open_tab(browser, address, picture.parent, width=1500, height=1240) as tab:
        page = tab.page
        status = tab.watch(tab.launch("campaign", _CUSTOMER_ID, day))
        assert status == "Failure", status
        tab.show_verdict("google_ads/raw/campaign", f"{_CUSTOMER_ID}|{day}")
        _hide_navigation(page)
        for dimension in ("customer_id", "logical_date"):
            page.get_by_placeholder(f"Filter by {dimension}").fill("")
        page.get_by_text("state_version").last.wait_for()
        page.evaluate("document.activeElement.blur()")
        page.wait_for_timeout(1_000)
        page.screenshot(path=picture, clip=_CHECK_PANEL)
    return picture


def _status_page(browser: Browser, environment: Mapping[str, str], picture: Path) -> Path:
    with tempfile.TemporaryDirectory(prefix="gads-") as folder:
        file = Path(folder) / "status.html"
        run_gads(environment, "status", "--query", "campaign", "--html", str(file))
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.goto(file.as_uri())
        page.get_by_role("gridcell").first.wait_for()
        page.screenshot(path=picture, clip={"x": 0, "y": 0, "width": 1200, "height": 500})
        page.close()
    return picture


def _hide_navigation(page: Page) -> None:
    page.get_by_role("button", name="Hide navigation").click()


if __name__ == "__main__":
    for taken in take_screenshots(Path(sys.argv[1]) if sys.argv[1:] else _PROJECT / "docs" / "images"):
        sys.stdout.write(f"{taken}\n")
