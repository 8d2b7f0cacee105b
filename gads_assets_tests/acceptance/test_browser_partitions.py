"""A person launches partitions on Dagster's page, watches them, and sees what became of them."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from dagster import DagsterRunStatus
from playwright.sync_api import Browser, expect

from gads_assets.catalog.loading import load_catalog
from gads_assets.domain.keys import parse_customer_id, parse_logical_date
from gads_assets.domain.roles import Role
from gads_assets.domain.verdict import Rule
from gads_assets.orchestration.customers import dagster_instance
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.warehouse.arrow import read_published
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.selection import Selection
from gads_assets_tests.acceptance.browser import (
    DagsterPage,
    PageServer,
    environment_of,
    free_port,
    open_browser,
    open_tab,
    processes_of,
    run_gads,
    serve_page,
)
from gads_assets_tests.ledgers import let_nothing_open

RAW, TABLE = "google_ads/raw/campaign", "google_ads/campaign"
GOOD, BAD, INTERRUPTED = "2145550101|2024-06-02", "3305550102|2024-06-03", "4815550103|2024-06-04"
RUN_ID = re.compile("[0-9A-Z]{26}")

OpenTab = Callable[[], AbstractContextManager[DagsterPage]]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A fresh home with its customers registered, whose Google Ads sends a row of the bad partition twice."""
    fault = f"duplicated_rows@{BAD.replace('|', '/campaign/')}"
    status_url = f"http://127.0.0.1:{free_port()}"
    environment = environment_of(
        tmp_path_factory.mktemp("home"), GADS_EMULATOR_FAULTS=fault, GADS_STATUS_URL=status_url
    )
    run_gads(environment, "customers", "sync")
    with Workplace(read_settings(environment)) as here:
        let_nothing_open(here.engine_as(Role.OPERATOR), here.catalog.queries)
    return environment


@pytest.fixture(scope="module")
def server(environment: Mapping[str, str]) -> Iterator[PageServer]:
    with serve_page(environment) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def runs(server: PageServer, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Both partitions, launched one after the other and watched to their end: each run's path and status."""
    with open_tab(browser, server.address, tmp_path_factory.mktemp("launching")) as page:
        paths = {label: page.launch("campaign", *label.split("|")) for label in (GOOD, BAD)}
        return {label: (path, page.watch(path)) for label, path in paths.items()}


@pytest.fixture
def tab(server: PageServer, browser: Browser, runs: object, tmp_path: Path) -> OpenTab:
    return partial(open_tab, browser, server.address, tmp_path)


def test_a_launched_partition_is_shown_as_published_with_where_its_rows_came_from(
    tab: OpenTab, runs: Mapping[str, tuple[str, str]], environment: Mapping[str, str]
) -> None:
    assert runs[GOOD][1] == "Success"
    rows = _published(environment, GOOD)
    [run_id] = set(rows["run_id"].to_pylist())
    with tab() as page:
        page.show_partition(TABLE, GOOD)
        expect(page.page.get_by_text("Materialized", exact=True)).to_be_visible()
        expect(page.row("run_id")).to_contain_text(run_id)
        expect(page.row("schema_version")).to_contain_text("1")
        expect(page.row("dagster/row_count")).to_contain_text(str(rows.num_rows))
        expect(page.row("pointer_version")).to_contain_text("0")
        expect(page.row("preview").get_by_role("row")).to_have_count(6)  # a heading and five rows
        expect(page.row("preview")).to_contain_text("campaign_name")
        page.show_partition(RAW, GOOD)
        expect(page.row("run_id")).to_contain_text(run_id)


def test_the_check_of_an_accepted_partition_is_shown_as_passed_rule_by_rule(tab: OpenTab) -> None:
    with tab() as page:
        page.show_verdict(RAW, GOOD)
        expect(page.verdict_icon).to_have_attribute("aria-label", "check_circle")
        expect(page.row("outcome")).to_contain_text("accepted")
        expect(page.row("run_id")).to_contain_text(RUN_ID)
        for rule in Rule:
            expect(page.row(rule.value)).to_contain_text("true")


def test_the_check_of_a_rejected_partition_is_shown_as_failed_with_its_reason(
    tab: OpenTab, runs: Mapping[str, tuple[str, str]]
) -> None:
    assert runs[BAD][1] == "Failure"
    with tab() as page:
        page.show_verdict(RAW, BAD)
        expect(page.verdict_icon).to_have_attribute("aria-label", "cancel")
        expect(page.page.get_by_text(re.compile("^natural_key: 1 row"))).to_be_visible()
        expect(page.row("natural_key")).to_contain_text("false")
        expect(page.row("outcome")).to_contain_text("rejected")
        page.page.goto(runs[BAD][0])
        expect(page.page.get_by_text(re.compile(f"{re.escape(BAD)}: natural_key: 1 row")).first).to_be_visible()


def test_the_page_of_checks_shows_which_rule_failed_and_the_rows_that_break_it(tab: OpenTab) -> None:
    broken = re.compile(f"^{re.escape(BAD)}: 1 row with the natural key of another")
    kept = re.compile(f"^{re.escape(BAD)}: .* rows within bounds")
    with tab() as page:
        page.show_check(RAW, "natural_key")
        expect(page.page.get_by_text(broken).first).to_be_visible()
        expect(page.row("sample_rows")).to_contain_text('"campaign_id":')
        page.show_check(RAW, "bounds")
        expect(page.page.get_by_text(kept).first).to_be_visible()


def test_the_table_of_a_rejected_partition_is_not_run(tab: OpenTab, runs: Mapping[str, tuple[str, str]]) -> None:
    with tab() as page:
        page.page.goto(runs[BAD][0])
        expect(page.page.get_by_text("Dependencies for step google_ads__campaign failed")).to_contain_text(
            "Not executing"
        )
        page.show_partition(TABLE, BAD)
        expect(page.page.get_by_text("failed, and did not materialize this asset")).to_be_visible()
        expect(page.page.get_by_role("button", name="View all historical events (0)")).to_be_visible()
        expect(page.page.get_by_text("No metadata entries")).to_be_visible()
        # The sealed extraction stays: it is what the reason is about.
        page.show_partition(RAW, BAD)
        expect(page.page.get_by_text("Materialized", exact=True)).to_be_visible()


def test_readers_get_every_row_of_the_accepted_partition_and_none_of_the_rejected_one(
    environment: Mapping[str, str], runs: object
) -> None:
    assert _published(environment, GOOD).num_rows > 0
    assert _published(environment, BAD).num_rows == 0


def test_the_terminal_says_where_the_page_is_and_leaves_dagsters_own_words_to_the_log(
    environment: Mapping[str, str], server: PageServer, runs: object
) -> None:
    log = read_settings(environment).home / "logs" / "ui.log"
    assert server.output.splitlines() == [
        f"Starting Dagster's page; what it says goes to {log}",
        f"Dagster's page is on {server.address}; stop it with Ctrl-C",
        f"The status page is on {environment['GADS_STATUS_URL']}",
    ]
    assert "RUN_SUCCESS" in log.read_text(encoding="utf-8")


def test_an_asset_of_dagsters_page_leads_to_its_status(environment: Mapping[str, str], tab: OpenTab) -> None:
    with tab() as dagster:
        dagster.page.goto(f"/assets/{RAW}?view=overview")
        link = dagster.page.get_by_role("link", name="Which partitions are current, and why not the others")
        address = link.first.get_attribute("href")
        assert address == f"{environment['GADS_STATUS_URL']}/#asset=google_ads%2Fraw%2Fcampaign"
        customer, day = GOOD.split("|")
        dagster.page.goto(f"{address}&from={day}&to={day}")
        cells = dagster.page.get_by_role("gridcell")
        expect(cells).to_have_count(3)
        shown = dagster.page.get_by_role("row").filter(has_text=f"{customer[:3]}-{customer[3:6]}-{customer[6:]}")
        expect(shown.get_by_role("gridcell")).to_have_attribute(
            "aria-label", re.compile(rf", {day}, (materialized|stale)")
        )


# Last, because it stops the server that the others share.
def test_stopping_the_page_ends_a_run_in_progress_and_leaves_no_process(
    environment: Mapping[str, str], server: PageServer, tab: OpenTab
) -> None:
    with tab() as page:
        page.launch("campaign", *INTERRUPTED.split("|"))
    deadline = time.monotonic() + 90
    while not any("java" in command for command in processes_of(environment).values()):
        assert time.monotonic() < deadline, "the run has started no Spark"
        time.sleep(0.5)
    assert server.stop() == 0
    assert processes_of(environment) == {}
    with Workplace(read_settings(environment)) as here, dagster_instance(here) as instance:
        by_itself = {"dagster/sensor_name", "dagster/schedule_name"}
        ends = [run.status for run in instance.get_runs() if not by_itself & run.tags.keys()]
    assert sorted(ends, key=str) == [DagsterRunStatus.FAILURE, DagsterRunStatus.FAILURE, DagsterRunStatus.SUCCESS]
    assert _published(environment, INTERRUPTED).num_rows == 0


def _published(environment: Mapping[str, str], label: str) -> pa.Table:
    """What any engine reads, without Spark and without Dagster."""
    settings = read_settings(environment)
    catalog = load_catalog(settings.catalog_path)
    customer_id, day = label.split("|")
    return read_published(
        WarehouseLayout(root=settings.warehouse_uri, source=catalog.source),
        catalog,
        "campaign",
        Selection(customers={parse_customer_id(customer_id)}, days={parse_logical_date(day)}),
    )
