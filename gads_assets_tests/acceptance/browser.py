"""Dagster's page on a home of its own, and a person's hands on it: Debian's Chromium, driven by Playwright."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from gads_assets.settings import read_settings

GADS: Final = Path(sys.executable).with_name("gads")
_START_SECONDS = 180.0
_STOP_SECONDS = 60.0
_RUN_SECONDS = 400.0
_CLICK_MILLISECONDS = 30_000
_CHROMIUM_ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def environment_of(home: Path, **variables: str) -> dict[str, str]:
    """What a shell would have for this home and nothing else of ours, but for the JARs that the tests use."""
    settings = read_settings(os.environ)
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("GADS_", "DAGSTER_"))},
        "GADS_HOME": str(home),
        "GADS_SPARK_JARS": str(settings.spark_jars or settings.spark_home / "jars"),
        **variables,
    }


def run_gads(environment: Mapping[str, str], *arguments: str) -> str:
    answer = subprocess.run(
        [GADS, *arguments], env=environment, capture_output=True, text=True, timeout=_START_SECONDS, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def processes_of(environment: Mapping[str, str]) -> dict[int, str]:
    """Everything that works on this home: it shows in their environment, whoever started them and in whatever group."""
    mark = f"GADS_HOME={environment['GADS_HOME']}".encode()
    found: dict[int, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")[:200]
        except OSError:  # gone, or another account's
            continue
    return found


@dataclass(frozen=True, kw_only=True)
class PageServer:
    """`gads ui`, ready. `output` is what it printed so far."""

    port: int
    process: subprocess.Popen[bytes]
    terminal: Path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def output(self) -> str:
        return self.terminal.read_text(encoding="utf-8")

    def stop(self) -> int:
        """Asks it to end, as a service manager does, and waits; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_STOP_SECONDS)


@contextmanager
def serve_page(environment: Mapping[str, str]) -> Iterator[PageServer]:
    """Ready when the block starts. Afterwards nothing of this home runs; if something had to be killed, it raises."""
    port = free_port()
    terminal = Path(environment["GADS_HOME"]) / "terminal.txt"
    terminal.parent.mkdir(parents=True, exist_ok=True)
    with terminal.open("wb") as output:
        process = subprocess.Popen(
            [GADS, "ui", "--port", str(port)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    server = PageServer(port=port, process=process, terminal=terminal)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while f"is on {server.address};" not in server.output:
            assert process.poll() is None, server.output
            assert time.monotonic() < deadline, f"not ready in time: {server.output}"
            time.sleep(0.25)
        yield server
    finally:
        try:
            if process.poll() is None:
                server.stop()
        finally:
            left = processes_of(environment)
            for number in left:
                os.kill(number, signal.SIGKILL)
    assert not left, f"gads ui left behind: {left}"


@contextmanager
def open_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=[*_CHROMIUM_ARGUMENTS], timeout=60_000
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_tab(
    browser: Browser, address: str, pictures: Path, *, width: int = 1400, height: int = 1000
) -> Iterator["DagsterPage"]:
    """A fresh tab. If the block fails, the error says where the picture of the tab is."""
    context = browser.new_context(
        base_url=address,
        viewport={"width": width, "height": height},
        color_scheme="light",
        locale="en-US",
        timezone_id="UTC",
    )
    context.set_default_timeout(_CLICK_MILLISECONDS)
    page = context.new_page()
    try:
        yield DagsterPage(page=page)
    except Exception as error:
        picture = pictures / "page.png"
        page.screenshot(path=picture)
        error.add_note(f"the page {page.url} then looked like {picture}")
        raise
    finally:
        context.close()


@dataclass(frozen=True, kw_only=True)
class DagsterPage:
    """What a person does on Dagster's page, and what they then see there."""

    page: Page

    def launch(self, query: str, customer_id: str, day: str) -> str:
        """Picks one partition of a query's two assets in the launcher; returns the run's path."""
        page = self.page
        table_and_upstream = f'+key:"google_ads/{query}"'  # as typed into the graph's search box
        page.goto(f"/asset-groups~{quote(table_and_upstream, safe='')}/")
        page.get_by_role("button", name="Materialize all").click()
        dialog = page.get_by_role("dialog").filter(has_text="Launch runs to materialize 2 assets")
        dialog.get_by_placeholder(re.compile("^ex: ")).fill(day)
        page.keyboard.press("Enter")
        dialog.get_by_text("Select a partition or create one").click()
        page.get_by_placeholder("Filter partitions").fill(customer_id)
        page.get_by_role("menuitem").filter(has_text=customer_id).click()
        page.keyboard.press("Escape")
        expect(dialog).to_contain_text("1 partition")
        dialog.get_by_role("button", name="Launch 1 run").click()
        launched = page.get_by_role("link").and_(page.locator("a[href*='/runs/']")).filter(has_text="View")
        path = launched.first.get_attribute("href")
        assert path
        return path

    def watch(self, run_path: str) -> str:
        """Follows the run on its own page until it is over; returns the status shown there."""
        self.page.goto(run_path)
        ended = self.page.get_by_text(re.compile("^(Success|Failure|Canceled)$")).locator("visible=true").first
        ended.wait_for(timeout=_RUN_SECONDS * 1000)
        return ended.inner_text()

    def show_partition(self, asset: str, label: str) -> None:
        self.page.goto(f"/assets/{asset}?view=partitions&partition={quote(label, safe='')}")
        self._heading(label).wait_for()

    def show_verdict(self, asset: str, label: str) -> None:
        """The partition's view of the check, with its latest evaluation."""
        page = self.page
        customer_id, day = label.split("|")
        page.goto(f"/assets/{asset}?view=checks&checkDetail=verdict")
        page.get_by_role("tab", name="Execution history").wait_for()
        page.get_by_role("tab", name="Partitions").last.click()
        for dimension, value in (("customer_id", customer_id), ("logical_date", day)):
            page.get_by_placeholder(f"Filter by {dimension}").fill(value)
            # The last, since a day may also stand under the bar of all days.
            page.get_by_text(value, exact=True).locator("visible=true").last.click()
        self._heading(label).wait_for()
        page.get_by_text("Latest execution").wait_for()

    def show_check(self, asset: str, check: str) -> None:
        """The page of a rule, with its latest evaluation."""
        self.page.goto(f"/assets/{asset}?view=checks&checkDetail={check}")
        self.page.get_by_text("Latest execution").wait_for()

    @property
    def verdict_icon(self) -> Locator:
        """Its name says what the check came to: `cancel` for failed."""
        return self.page.get_by_text("Latest execution").locator("xpath=..").get_by_role("img")

    def row(self, name: str) -> Locator:
        """A line of a metadata table, by its first cell."""
        return self.page.get_by_role("row").filter(has=self.page.get_by_role("cell", name=name, exact=True)).last

    def _heading(self, label: str) -> Locator:
        return self.page.get_by_text(label, exact=True).locator("visible=true").first
