"""A person looks at the status page: finds a partition, asks why, and sees it change under their eyes."""

import re
from datetime import timedelta
from itertools import combinations
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from gads_assets.errors import DatabaseUnavailableError
from gads_assets_tests.acceptance.status_page import (
    BAKERY,
    CYCLES,
    DAY,
    DAY_BEFORE,
    DENTAL,
    EVERY_LOOK,
    GARDEN,
    OpenPage,
    cell,
    customers_shown,
    day_of,
    focused_name,
    open_status,
    status_box,
)
from gads_assets_tests.acceptance.written_status import (
    AD_GROUP,
    CAMPAIGN,
    HOSTILE,
    LAST_DAY,
    FaultyBoard,
    Look,
    WrittenStatus,
    keys_of,
)
from gads_assets_tests.status_servers import ServedStatus, serve_status

# The matrix


def test_each_cell_says_its_customer_its_day_and_how_it_stands(status_page: OpenPage) -> None:
    with status_page() as page:
        grid = page.get_by_role("grid", name="campaign")
        expect(grid).to_have_attribute("aria-rowcount", "13")
        expect(grid).to_have_attribute("aria-colcount", "91")
        row = customers_shown(page).index("Harbor Street Bakery") + 2
        for age, words in enumerate(EVERY_LOOK.values()):
            day = LAST_DAY - timedelta(days=age)
            found = cell(page, "Harbor Street Bakery", day)
            expect(found).to_have_attribute("aria-label", f"Harbor Street Bakery, {day}, {words}")
            expect(found).to_have_attribute("aria-colindex", str(90 - age))
            expect(found.locator("xpath=..")).to_have_attribute("aria-rowindex", str(row))
        not_open = cell(page, "Harbor Street Bakery", LAST_DAY + timedelta(days=1))
        expect(not_open).to_have_attribute("aria-label", re.compile("no partition$"))


def test_cells_are_read_in_the_order_of_the_days_after_any_scrolling(status_page: OpenPage) -> None:
    with status_page() as page:
        for left in (0, 700, 650, 2000, 300):
            page.locator("#scroller").evaluate("(scroller, left) => { scroller.scrollLeft = left; }", left)
            page.wait_for_timeout(100)
            columns = (
                page.locator("[role=row]")
                .nth(2)
                .locator("[role=gridcell]")
                .evaluate_all("cells => cells.map(cell => Number(cell.getAttribute('aria-colindex')))")
            )
            assert columns == list(range(columns[0], columns[0] + len(columns)))
            assert columns[0] <= left / 24 + 2 <= columns[-1]


def test_every_look_has_a_drawing_of_its_own(status_page: OpenPage) -> None:
    drawing = """cell => {
      const { backgroundColor, backgroundImage, boxShadow } = getComputedStyle(cell);
      return [backgroundColor, backgroundImage, boxShadow].join(" / ");
    }"""
    words_alike = {Look.LATE, Look.UPSTREAM_CHANGED}  # both stale: the words say why
    with status_page() as page:
        drawings = {
            look: cell(page, "Harbor Street Bakery", LAST_DAY - timedelta(days=age)).evaluate(drawing)
            for age, look in enumerate(EVERY_LOOK)
        }
        for (look, drawn), (other, also_drawn) in combinations(drawings.items(), 2):
            assert (drawn == also_drawn) is ({look, other} == words_alike), (look, other)
        legend = page.get_by_role("list").filter(has_text="the data is there and up to date")
        expect(legend.get_by_role("listitem")).to_have_count(9)
        expect(legend).to_contain_text("its rows were withdrawn from readers")


def test_the_page_opens_at_the_newest_days_and_keeps_names_and_days_in_sight(status_page: OpenPage) -> None:
    with status_page(height=700) as page:
        expect(cell(page, "Harbor Street Bakery", DAY)).to_be_in_viewport()
        page.locator("#scroller").evaluate("scroller => { scroller.scrollLeft = 0; scroller.scrollTop = 60; }")
        expect(page.get_by_role("columnheader", name=str(LAST_DAY + timedelta(days=1 - 89)))).to_be_in_viewport()
        expect(page.get_by_role("rowheader", name="Blue Fern Garden Centre").first).to_be_in_viewport()
        expect(page.locator(".month span").first).to_have_text("August 2026")


def test_the_counts_are_those_of_the_whole_query(status_page: OpenPage, board: FaultyBoard) -> None:
    [campaign] = [asset for asset in board.overview()["assets"] if asset["asset_key"] == CAMPAIGN]
    with status_page() as page:
        for status, number in campaign["counts"].items():
            tile = page.locator(".tile").filter(has=page.locator(f"input[value={status}]"))
            expect(tile.locator(".count")).to_have_text(f"{number:,}")
        flags = page.locator("#flags")
        expect(flags).to_contain_text(f"{campaign['flags']['overdue']:,} overdue, 1 withdrawn from readers.")
        expect(flags).to_contain_text("4 stale (1 not renewed in time, 2 upstream changed, 1 code changed)")
        expect(page.locator("#whole")).to_contain_text("marts/freshness")
        expect(page.locator("#whole")).to_contain_text("11 materialized")


def test_queries_are_offered_tables_first_and_only_those_with_days(status_page: OpenPage) -> None:
    with status_page() as page:
        offered = page.get_by_label("Query").locator("option").all_inner_texts()
        assert offered == ["campaign", "ad_group", "raw/campaign", "raw/ad_group", "marts/account_day"]


def test_names_are_shown_as_text_whatever_they_are(status_page: OpenPage) -> None:
    with status_page() as page:
        assert HOSTILE in customers_shown(page)
        page.locator(f"[role=gridcell][aria-label*='onerror=alert(1)'][aria-label*=' {DAY}, ']").click()
        expect(page.get_by_role("dialog")).to_contain_text("<img src=x onerror=alert(1)>")
        assert page.locator("img").count() == 0


# The drawer


def test_the_drawer_says_what_it_means_first_and_then_why(status_page: OpenPage) -> None:
    day = day_of(Look.FAILED_AND_STALE)
    with status_page() as page:
        cell(page, "Harbor Street Bakery", day).click()
        drawer = page.get_by_role("dialog", name=f"Harbor Street Bakery, {day}")
        expect(drawer.locator(".verdict")).to_have_text("Shown data is good but stale; the last attempt failed")
        expect(drawer).to_contain_text("Upstream changed since")
        expect(drawer).to_contain_text("What it is made of was materialized again, and this was not")
        expect(drawer.locator("dd").filter(has_text="quota").locator("time")).to_have_count(1)
        runs = drawer.get_by_role("row", name="Run").locator("code").all_inner_texts()
        assert len(runs) == 3
        expect(drawer).to_contain_text("All three name the same run.")
        expect(drawer.locator(".attempts > li")).to_have_count(4)
        expect(drawer.locator(".attempts > li").first).to_contain_text(f"quota: the quota is exhausted for {HOSTILE}")


@pytest.mark.parametrize(
    ("look", "verdict"),
    [
        (Look.FRESH, "Shown data is good and up to date"),
        (Look.CODE_CHANGED_CANCELLED, "Shown data is good but stale; the last attempt was cancelled"),
        (Look.FAILED, "Shown data is good; the last attempt failed"),
        (Look.NEVER, "No data yet"),
        (Look.WITHDRAWN, "Its rows were withdrawn from readers"),
        (Look.OVERDUE_FAILED, "No data, and its deadline has passed; the last attempt failed"),
    ],
)
def test_the_drawer_has_a_sentence_for_every_status(status_page: OpenPage, look: Look, verdict: str) -> None:
    day = day_of(look)
    with status_page(f"/#partition={BAKERY}|{day}") as page:
        expect(page.get_by_role("dialog").locator(".verdict")).to_have_text(verdict)


def test_runs_lead_to_dagster(status_page: OpenPage, statuses: WrittenStatus) -> None:
    run_id = statuses.publish(keys_of(CAMPAIGN, BAKERY, [DAY]))
    with status_page(f"/#partition={BAKERY}|{DAY}") as page:
        runs = page.get_by_role("dialog").locator(".runs")
        expect(runs.get_by_role("link")).to_have_count(2)
        newest = runs.get_by_role("link").first
        expect(newest).to_have_attribute("href", f"http://127.0.0.1:3000/runs/{run_id}")
        expect(newest).to_have_attribute("rel", "noopener noreferrer")
        expect(runs.get_by_role("listitem").first).to_contain_text("20 min")


def test_the_drawer_takes_the_keyboard_and_gives_it_back(status_page: OpenPage) -> None:
    with status_page() as page:
        cell(page, "Alpine Cycle Works", DAY_BEFORE).click()
        drawer = page.get_by_role("dialog")
        expect(drawer.get_by_role("heading", level=2)).to_be_focused()
        expect(page).to_have_url(re.compile(f"partition={CYCLES}%7C{DAY_BEFORE}"))
        page.keyboard.press("Tab")
        expect(drawer.get_by_role("button", name="Close")).to_be_focused()
        page.keyboard.press("Escape")
        expect(drawer).to_be_hidden()
        expect(cell(page, "Alpine Cycle Works", DAY_BEFORE)).to_be_focused()
        expect(page).not_to_have_url(re.compile("partition"))


def test_times_are_the_readers_with_utc_beside_them(status_page: OpenPage) -> None:
    with status_page(f"/#partition={BAKERY}|{DAY}", timezone_id="America/New_York") as page:
        made = page.get_by_role("dialog").locator("dd time").first
        expect(made).to_have_text("Nov 17, 2026, 12:00 AM EST")
        expect(made).to_have_attribute("title", "2026-11-17 05:00:00 UTC")
        expect(page.get_by_role("columnheader", name=str(DAY))).to_be_attached()


def test_a_partition_that_cannot_be_read_says_why_and_can_be_tried_again(
    status_page: OpenPage, board: FaultyBoard
) -> None:
    with status_page() as page:
        board.trouble = DatabaseUnavailableError("no server answers on port 5432; start it with gads db start")
        cell(page, "Alpine Cycle Works", DAY).click()
        drawer = page.get_by_role("dialog")
        expect(drawer.get_by_role("alert")).to_contain_text("start it with gads db start")
        board.trouble = None
        drawer.get_by_role("button", name="Try again").click()
        expect(drawer.locator(".verdict")).to_have_text("Shown data is good and up to date")


# Filters


def test_another_query_is_chosen_and_survives_a_reload(status_page: OpenPage, statuses: WrittenStatus) -> None:
    statuses.change(BAKERY, DAY, Look.NEVER_FAILED, AD_GROUP)
    with status_page() as page:
        page.get_by_label("Query").select_option("ad_group")
        expect(page.get_by_role("grid", name="ad_group")).to_be_visible()
        expect(cell(page, "Harbor Street Bakery", DAY)).to_have_attribute(
            "aria-label", re.compile("last attempt failed$")
        )
        page.reload()
        expect(page.get_by_label("Query")).to_have_value("google_ads/ad_group")
        expect(page.get_by_role("grid", name="ad_group")).to_be_visible()


@pytest.mark.parametrize(
    ("typed", "found"),
    [("bakery", 2), ("CAFE ZUR", 2), ("214-555-0101", 1), ("2145550101", 1), ("<img", 1), ("nobody", 0)],
)
def test_customers_are_found_by_name_or_id(status_page: OpenPage, typed: str, found: int) -> None:
    with status_page() as page:
        page.get_by_role("searchbox").fill(typed)
        if found:
            expect(page.locator("[role=rowheader]")).to_have_count(found)
        else:
            page.locator("#empty").get_by_role("button", name="Clear filters").click()
            expect(page.locator("[role=rowheader]")).to_have_count(12)
            expect(page).not_to_have_url(re.compile("customer"))


def test_first_and_last_day_bound_the_matrix(status_page: OpenPage) -> None:
    with status_page() as page:
        page.get_by_label("First day").fill("2026-11-01")
        expect(page.get_by_role("grid")).to_have_attribute("aria-colcount", "18")
        page.get_by_label("Last day").fill("2026-11-10")
        expect(page.get_by_role("grid")).to_have_attribute("aria-colcount", "11")
        expect(page).to_have_url(re.compile("from=2026-11-01&to=2026-11-10"))
        page.reload()
        expect(page.get_by_role("grid")).to_have_attribute("aria-colcount", "11")
        page.get_by_label("Last day").fill("2026-10-01")
        expect(page.locator("#empty")).to_contain_text("The first day, 2026-11-01, is after the last day, 2026-10-01.")
        page.get_by_role("button", name="All", exact=True).click()
        expect(page.get_by_role("grid")).to_have_attribute("aria-colcount", "402")


def test_a_status_keeps_the_customers_that_have_it_and_dims_the_rest_of_their_days(status_page: OpenPage) -> None:
    with status_page("/#from=2026-11-01") as page:
        status_box(page, "Last attempt failed").check()
        expect(page.locator("[role=rowheader]")).to_have_count(1)
        expect(page.locator("#shown")).to_have_text("1 of 12 customers × 17 days")
        bright = page.locator("[role=gridcell]:not(.is-dimmed)")
        expect(bright).to_have_count(2)
        status_box(page, "Never materialized").check()
        expect(bright).to_have_count(6)
        expect(page).to_have_url(re.compile("status=MaterializedButLastAttemptFailed%2CNeverMaterialized"))
        page.reload()
        expect(status_box(page, "Never materialized")).to_be_checked()
        expect(bright).to_have_count(6)
        page.get_by_role("button", name="Clear filters").click()
        expect(page.locator("[role=rowheader]")).to_have_count(12)
        expect(status_box(page, "Never materialized")).not_to_be_checked()
        expect(page.locator(".is-dimmed")).to_have_count(0)
        expect(page.get_by_role("button", name="Clear filters")).to_be_disabled()


def test_a_link_shows_the_view_of_its_sender(status_page: OpenPage) -> None:
    filters = "asset=google_ads%2Fcampaign&customer=bakery&from=2026-11-01&to=2026-11-16&status=Stale"
    link = f"/#{filters}&partition={BAKERY}|{DAY_BEFORE}"
    with status_page(link) as page:
        expect(page.get_by_role("dialog")).to_contain_text("Shown data is good but stale")
        page.keyboard.press("Escape")
        assert customers_shown(page) == ["Harbor Street Bakery"]
        expect(cell(page, "Harbor Street Bakery", DAY_BEFORE)).to_be_focused()


# The keyboard


def test_the_matrix_is_walked_with_the_keyboard_alone(status_page: OpenPage) -> None:
    first_day = LAST_DAY + timedelta(days=1 - 89)
    last_day = LAST_DAY + timedelta(days=1)
    top, below, bottom = "Alpine Cycle Works", "Alpine Cycle Works 2", HOSTILE
    steps = [
        ("ArrowLeft", top, DAY),
        ("ArrowDown", below, DAY),
        ("ArrowRight", below, last_day),
        ("ArrowRight", below, last_day),
        ("Home", below, first_day),
        ("ArrowLeft", below, first_day),
        ("ArrowUp", top, first_day),
        ("Control+End", bottom, last_day),
        ("Control+Home", top, first_day),
        ("PageDown", bottom, first_day),
        ("PageUp", top, first_day),
        ("End", top, last_day),
    ]
    with status_page() as page:
        cell(page, top, last_day).focus()
        for key, name, day in steps:
            page.keyboard.press(key)
            assert focused_name(page).startswith(f"{name}, {day}, "), key
            expect(page.locator("[role=gridcell][tabindex='0']")).to_have_count(1)
            expect(page.locator(":focus")).to_be_in_viewport(ratio=0.9)
            expect(page.locator("#readout")).to_contain_text(f"{name}, {day}, ")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_hidden()  # that day is not open yet
        for key in ("Enter", " "):
            page.keyboard.press("ArrowLeft")
            page.keyboard.press(key)
            expect(page.get_by_role("dialog")).to_be_visible()
            page.keyboard.press("Escape")


def test_tab_reaches_the_matrix_once_and_slash_the_search(status_page: OpenPage) -> None:
    with status_page() as page:
        status_box(page, "Never materialized").focus()
        page.keyboard.press("Tab")
        assert focused_name(page).startswith("Alpine Cycle Works, ")
        page.keyboard.press("/")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.keyboard.type("a/b")
        expect(page.get_by_role("searchbox")).to_have_value("a/b")


def test_scrolling_away_does_not_lose_the_readers_place(status_page: OpenPage) -> None:
    with status_page() as page:
        cell(page, "Alpine Cycle Works", DAY).focus()
        page.locator("#scroller").evaluate("scroller => { scroller.scrollLeft = 0; }")
        expect(page.locator("#grid")).to_be_focused()
        page.keyboard.press("ArrowLeft")
        assert focused_name(page).startswith(f"Alpine Cycle Works, {DAY_BEFORE}, ")
        expect(page.locator(":focus")).to_be_in_viewport()


# Live


def test_a_change_arrives_without_taking_the_readers_place(status_page: OpenPage, statuses: WrittenStatus) -> None:
    changed_day = LAST_DAY - timedelta(days=65)
    with status_page() as page:
        expect(page.locator("#live")).to_have_text("Live")
        place = "() => [scroller.scrollLeft, scroller.scrollTop]"
        page.locator("#scroller").evaluate("scroller => { scroller.scrollLeft = 400; }")
        page.wait_for_timeout(100)
        cell(page, "Meridian Dental Group", changed_day).focus()
        before = page.evaluate(place)
        statuses.change(DENTAL, changed_day, Look.FAILED)
        statuses.change(GARDEN, changed_day, Look.UPSTREAM_CHANGED)
        expect(page.get_by_role("status")).to_contain_text("2 cells changed")
        expect(cell(page, "Meridian Dental Group", changed_day)).to_have_attribute(
            "aria-label", re.compile("last attempt failed$")
        )
        expect(cell(page, "Meridian Dental Group", changed_day)).to_be_focused()
        assert page.evaluate(place) == before
        expect(page.locator(".is-changed")).to_have_count(2)
        expect(page.locator(".is-changed")).to_have_count(0)


def test_an_open_drawer_follows_the_change(status_page: OpenPage, statuses: WrittenStatus) -> None:
    with status_page(f"/#partition={CYCLES}|{DAY}") as page:
        verdict = page.get_by_role("dialog").locator(".verdict")
        expect(verdict).to_have_text("Shown data is good and up to date")
        runs = page.get_by_role("dialog").locator(".runs").get_by_role("link")
        first_run = runs.get_attribute("href")
        runs.focus()
        statuses.change(CYCLES, DAY, Look.UPSTREAM_CHANGED)
        expect(verdict).to_have_text("Shown data is good but stale")
        expect(runs).to_have_count(2)
        expect(runs.last).to_have_attribute("href", str(first_run))
        expect(runs.last).to_be_focused()


def test_a_server_that_went_away_is_noticed_and_found_again(
    status_page: OpenPage, status_server: ServedStatus, statuses: WrittenStatus
) -> None:
    with status_page() as page:
        expect(page.locator("#live")).to_have_text("Live")
        status_server.stop()
        expect(page.locator("#live")).to_have_text("Reconnecting")
        expect(cell(page, "Alpine Cycle Works", DAY)).to_be_visible()
        statuses.change(CYCLES, DAY, Look.FAILED)
        status_server.start()
        expect(page.locator("#live")).to_have_text("Live")
        expect(cell(page, "Alpine Cycle Works", DAY)).to_have_attribute(
            "aria-label", re.compile("last attempt failed$")
        )


def test_trouble_with_the_database_is_told_and_what_was_read_stays(status_page: OpenPage, board: FaultyBoard) -> None:
    with status_page() as page:
        board.trouble = DatabaseUnavailableError("no server answers on port 5432")
        expect(page.locator("#live")).to_have_text("No news: the database does not answer")
        expect(page.locator("#live")).to_have_attribute("title", "no server answers on port 5432")
        expect(cell(page, "Alpine Cycle Works", DAY)).to_be_visible()
        board.trouble = None
        expect(page.locator("#live")).to_have_text("Live")


def test_a_page_opened_in_trouble_says_so_and_recovers_by_itself(status_page: OpenPage, board: FaultyBoard) -> None:
    board.trouble = DatabaseUnavailableError("no server answers on port 5432; start it with gads db start")
    with status_page() as page:
        problem = page.get_by_role("alert")
        expect(problem).to_contain_text("The status could not be read.")
        expect(problem).to_contain_text("start it with gads db start")
        board.trouble = None
        expect(cell(page, "Alpine Cycle Works", DAY)).to_be_visible()
        expect(problem).to_be_hidden()


def test_a_query_that_cannot_be_read_is_not_replaced_by_another(status_page: OpenPage, board: FaultyBoard) -> None:
    with status_page() as page:
        board.troubled = frozenset({"matrix"})
        board.trouble = DatabaseUnavailableError("no server answers on port 5432")
        page.get_by_label("Query").select_option("ad_group")
        problem = page.get_by_role("alert")
        expect(problem).to_contain_text("no server answers on port 5432")
        expect(page.get_by_role("grid")).to_be_hidden()
        try_again = problem.get_by_role("button", name="Try again")
        try_again.click()
        expect(problem).to_contain_text("no server answers on port 5432")
        button = try_again.element_handle()
        board.trouble = None
        button.dispatch_event("click")  # also if the page has noticed by itself, and the button is gone
        expect(page.get_by_role("grid", name="ad_group")).to_be_visible()
        expect(problem).to_be_hidden()


def test_without_customers_the_page_says_how_to_get_them(
    browser: Browser, bare_statuses: WrittenStatus, tmp_path: Path
) -> None:
    with serve_status(bare_statuses.board) as server, open_status(browser, server.address, tmp_path) as page:
        expect(page.locator("#empty")).to_contain_text("No customer is registered yet.")
        expect(page.locator("#empty")).to_contain_text("gads customers sync")


def test_a_customer_that_nobody_registered_is_shown_by_its_id(
    browser: Browser, bare_statuses: WrittenStatus, tmp_path: Path
) -> None:
    """Somebody launched a partition by hand: its days are there all the same."""
    bare_statuses.publish(keys_of(CAMPAIGN, BAKERY, [DAY]))
    with serve_status(bare_statuses.board) as server, open_status(browser, server.address, tmp_path) as page:
        assert customers_shown(page) == [BAKERY]
        page.get_by_role("searchbox").fill("555")
        expect(cell(page, BAKERY, DAY)).to_have_attribute("aria-label", re.compile("materialized$"))
