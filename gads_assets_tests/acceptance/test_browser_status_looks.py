"""The status page on every screen: many cells, a phone, darkness, other eyes, and a file without a server."""

import re
from datetime import timedelta
from itertools import combinations
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from gads_assets.domain.partition_status import Outcome
from gads_assets.status.deriving import Selection
from gads_assets.status.rendering import render_page
from gads_assets.status.snapshot import write_page
from gads_assets_tests.acceptance.browser import environment_of, run_gads
from gads_assets_tests.acceptance.status_page import BAKERY, CYCLES, DAY, OpenPage, cell, day_of, open_status
from gads_assets_tests.acceptance.written_status import (
    AD_GROUP,
    CAMPAIGN,
    FIRST_DAY,
    HOSTILE,
    LAST_DAY,
    NOW,
    Look,
    WrittenStatus,
    customers_of,
)
from gads_assets_tests.integration.conftest import wait_until
from gads_assets_tests.status_servers import serve_status

MANY_CUSTOMERS, MANY_DAYS = 200, 400
LATE_CUSTOMER = sorted(customers_of(MANY_CUSTOMERS).values())[-2]

# Size


@pytest.fixture
def many_statuses(bare_statuses: WrittenStatus) -> WrittenStatus:
    """Of every hundredth partition the last attempt failed, some are of other code, and one customer begins late."""
    customers = customers_of(MANY_CUSTOMERS)
    [late] = [customer_id for customer_id, name in customers.items() if name == LATE_CUSTOMER]
    bare_statuses.register(customers)
    days = [FIRST_DAY + timedelta(days=number) for number in range(MANY_DAYS)]
    made = [f"{customer_id}|{day}" for customer_id in customers for day in days[50 if customer_id == late else 0 :]]
    bare_statuses.log.materialize_many("filled", CAMPAIGN, made, at=NOW - timedelta(hours=2))
    bare_statuses.log.materialize_many("before", CAMPAIGN, made[7::150], at=NOW, code_version="schema-0")
    bare_statuses.log.plan_many("retried", CAMPAIGN, [*made[::100], f"{late}|{FIRST_DAY}"])
    bare_statuses.log.end("retried", Outcome.FAILED, at=NOW - timedelta(hours=1))
    bare_statuses.board.version()
    return bare_statuses


def test_eighty_thousand_cells_are_shown_by_a_few_thousand_elements(
    browser: Browser, many_statuses: WrittenStatus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last_name, first_day = LATE_CUSTOMER, FIRST_DAY
    with (
        serve_status(many_statuses.board) as server,
        open_status(browser, server.address, tmp_path, f"/#from={first_day}&to={LAST_DAY}") as page,
    ):
        grid = page.get_by_role("grid")
        expect(grid).to_have_attribute("aria-rowcount", str(MANY_CUSTOMERS + 1))
        expect(grid).to_have_attribute("aria-colcount", str(MANY_DAYS + 1))
        # Its policy lets nobody evaluate texts in the page, as waiting for a condition there would.
        wait_until(lambda: bool(page.evaluate("() => performance.getEntriesByName('matrix-shown').length")))
        shown = page.evaluate("performance.getEntriesByName('matrix-shown')[0].startTime")
        frames = page.evaluate(SCROLLING)
        with capsys.disabled():
            print(  # noqa: T201
                f"\n{MANY_CUSTOMERS} × {MANY_DAYS} cells shown {shown:.0f} ms after the navigation began; "
                f"frames while scrolling: median {frames[len(frames) // 2]:.0f} ms, longest {frames[-1]:.0f} ms"
            )
        page.locator("#scroller").evaluate("scroller => { scroller.scrollTop = 1e6; scroller.scrollLeft = 0; }")
        expect(cell(page, last_name, first_day)).to_be_in_viewport(ratio=0.9)
        expect(cell(page, last_name, first_day)).to_have_attribute(
            "aria-label", f"{last_name}, {first_day}, never materialized, overdue, last attempt failed"
        )
        assert page.locator("[role=gridcell]").count() < 3_000


SCROLLING = """async () => {
  const scroller = document.getElementById("scroller");
  const frames = [];
  let before = performance.now();
  for (let step = 0; step < 90; step += 1) {
    scroller.scrollLeft -= 83;
    scroller.scrollTop += 41;
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - before);
    before = now;
  }
  return frames.sort((a, b) => a - b);
}"""


# Looks


@pytest.mark.parametrize("width", [360, 768])
def test_a_narrow_screen_never_scrolls_sideways(status_page: OpenPage, width: int) -> None:
    with status_page(width=width, height=740, has_touch=True, is_mobile=True) as page:
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(overflow) == 0
        found = cell(page, "Alpine Cycle Works", DAY)
        found.scroll_into_view_if_needed()
        box = found.bounding_box()
        assert box
        assert min(box["width"], box["height"]) >= 32
        found.tap()
        drawer = page.get_by_role("dialog")
        expect(drawer.locator(".verdict")).to_be_visible()
        assert page.evaluate(overflow) == 0
        assert drawer.evaluate("drawer => drawer.scrollWidth - drawer.clientWidth") == 0
        if width < 700:
            assert drawer.evaluate("drawer => drawer.getBoundingClientRect().width") == width


CONTRASTS = """() => {
  const probe = document.createElement("div");
  document.body.append(probe);
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const luminance = (name) => {
    probe.style.color = `var(--${name})`;
    canvas.fillStyle = getComputedStyle(probe).color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return (ink, ground) => {
    const [dark, light] = [luminance(ink), luminance(ground)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
}"""
TEXTS = [
    *((ink, ground) for ink in ("text", "quiet", "link") for ground in ("page", "surface", "raised")),
    *(("failed-ink", "failed"), ("materialized-ink", "surface")),
]
GLYPHS = [
    ("materialized-ink", "materialized"),
    *((ink, "stale") for ink in ("stale-ink", "failed-mark", "text")),
    *((ink, "failed") for ink in ("failed-ink", "stale-on-failed")),
    *((ink, "surface") for ink in ("never-ink", "overdue-ink", "failed-mark", "failed", "edge", "focus")),
    *((ink, "materialized") for ink in ("text", "failed-mark", "stale-ink")),
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_glyphs_stand_out_in_both_schemes(status_page: OpenPage, scheme: str) -> None:
    with status_page(color_scheme=scheme) as page:
        red = page.evaluate("parseInt(getComputedStyle(document.documentElement).backgroundColor.slice(4))")
        assert (red > 200) is (scheme == "light")
        for pairs, least in ((TEXTS, 4.5), (GLYPHS, 3.0)):
            for ink, ground in pairs:
                contrast = page.evaluate(f"([ink, ground]) => ({CONTRASTS})()(ink, ground)", [ink, ground])
                assert contrast >= least, (ink, ground, contrast)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("deficiency", ["protanopia", "deuteranopia", "tritanopia", "achromatopsia"])
def test_fills_differ_for_every_kind_of_eye(status_page: OpenPage, scheme: str, deficiency: str) -> None:
    with status_page(color_scheme=scheme) as page:
        page.context.new_cdp_session(page).send("Emulation.setEmulatedVisionDeficiency", {"type": deficiency})
        fills = {
            look: _corner_colour(page, page.locator(f".legend .{look}").first)
            for look in ("s-materialized", "s-stale", "s-failed", "s-never")
        }
        for (look, colour), (other, other_colour) in combinations(fills.items(), 2):
            distance = sum((a - b) ** 2 for a, b in zip(colour, other_colour, strict=True)) ** 0.5
            assert distance > 25, (look, other, fills)


def _corner_colour(page: Page, sample: Locator) -> list[int]:
    """The fill, inside the left edge, where no glyph and no mark is, as the screen shows it."""
    box = sample.bounding_box()
    assert box
    picture = page.screenshot(clip={"x": box["x"] + 4, "y": box["y"] + box["height"] / 2, "width": 1, "height": 1})
    colour: list[int] = page.evaluate(
        """async (bytes) => {
          const image = await createImageBitmap(new Blob([new Uint8Array(bytes)], { type: "image/png" }));
          const canvas = new OffscreenCanvas(1, 1).getContext("2d");
          canvas.drawImage(image, 0, 0);
          return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
        }""",
        list(picture),
    )
    return colour


def test_nothing_moves_for_who_asked_for_stillness(status_page: OpenPage, statuses: WrittenStatus) -> None:
    with status_page(reduced_motion="reduce") as page:
        statuses.change(CYCLES, DAY, Look.FAILED)
        expect(page.locator(".is-changed")).to_have_count(1)
        assert page.locator(".is-changed").evaluate("cell => cell.getAnimations().length") == 0


def test_system_colours_keep_the_shapes(status_page: OpenPage) -> None:
    with status_page(forced_colors="active") as page:
        drawn = {
            look: page.locator(f".legend .{look}").first.evaluate("cell => getComputedStyle(cell).backgroundImage")
            for look in ("s-materialized", "s-stale", "s-failed", "s-never", "s-overdue")
        }
        assert len(set(drawn.values())) == len(drawn)
        assert not [look for look, images in drawn.items() if "gradient" not in images]


# The file


def test_a_file_shows_the_same_and_asks_nobody(browser: Browser, statuses: WrittenStatus, tmp_path: Path) -> None:
    file = tmp_path / "status.html"
    inside = [asset for asset in statuses.assets if asset.query_name == "campaign"]
    write_page(file, statuses.board, Selection(assets=inside))
    asked: list[str] = []
    with open_status(browser, "http://127.0.0.1:9", tmp_path, f"{file.as_uri()}#customer=bakery") as page:
        page.on("request", lambda request: asked.append(request.url))
        expect(page.locator("#live")).to_have_text("Saved file")
        expect(page.locator("[role=rowheader]")).to_have_count(2)
        cell(page, "Harbor Street Bakery", day_of(Look.LATE)).click()
        drawer = page.get_by_role("dialog")
        expect(drawer.locator(".verdict")).to_have_text("Shown data is good but stale")
        page.keyboard.press("Escape")
        cell(page, "Harbor Street Bakery", day_of(Look.OVERDUE_FAILED)).click()
        expect(drawer.locator(".verdict")).to_have_text("No data, and its deadline has passed; the last attempt failed")
        page.keyboard.press("Escape")
        cell(page, "Harbor Street Bakery", day_of(Look.OVERDUE)).click()
        expect(drawer.locator(".verdict")).to_have_text("Never materialized, overdue")
        expect(drawer).to_contain_text("on the served page")
        page.keyboard.press("Escape")
        page.get_by_label("First day").fill("2026-11-10")
        expect(page.get_by_role("grid")).to_have_attribute("aria-colcount", "9")
        expect(cell(page, "Harbor Street Bakery", day_of(Look.UPSTREAM_CHANGED))).to_have_attribute(
            "aria-label", re.compile("upstream changed$")
        )
        assert page.get_by_label("Query").locator("option").all_inner_texts() == ["campaign", "raw/campaign"]
        page.get_by_label("Query").select_option("raw/campaign")
        expect(page.get_by_role("grid", name="raw/campaign")).to_be_visible()
        assert asked == []


def test_a_link_to_a_query_that_is_not_in_the_file_shows_one_that_is(
    browser: Browser, statuses: WrittenStatus, tmp_path: Path
) -> None:
    file = tmp_path / "status.html"
    [campaign] = [asset for asset in statuses.assets if asset.asset_key == CAMPAIGN]
    write_page(file, statuses.board, Selection(assets=[campaign]))
    with open_status(browser, "http://127.0.0.1:9", tmp_path, f"{file.as_uri()}#asset={AD_GROUP}") as page:
        expect(page.get_by_role("grid", name="campaign")).to_be_visible()
        expect(page.get_by_role("alert")).to_be_hidden()


def test_an_address_that_is_a_script_is_no_link(browser: Browser, statuses: WrittenStatus, tmp_path: Path) -> None:
    """No backend of ours gives one; a file may have been through anybody's hands."""
    known = f"{BAKERY}|{DAY}"
    partition = statuses.board.partition(CAMPAIGN, known)
    [run] = partition["runs"]
    partition["runs"] = [run, {**run, "run_id": "00000000-hostile", "url": "javascript:alert(1)"}]
    document, _ = render_page(
        {
            "overview": {**statuses.board.overview(), "dagster_url": "javascript:alert(1)"},
            "matrices": {CAMPAIGN: statuses.board.matrix(CAMPAIGN)},
            "partitions": {CAMPAIGN: {known: partition}},
        }
    )
    file = tmp_path / "status.html"
    file.write_text(document, encoding="utf-8")
    with open_status(browser, "http://127.0.0.1:9", tmp_path, f"{file.as_uri()}#partition={known}") as page:
        runs = page.get_by_role("dialog").locator(".runs")
        expect(runs.get_by_role("listitem")).to_have_count(2)
        expect(runs.get_by_role("link")).to_have_count(1)
        expect(runs).to_contain_text("00000000")
        expect(page.locator("#dagster")).to_be_hidden()


def test_the_command_writes_a_file_with_the_drawer_of_what_failed(
    browser: Browser, statuses: WrittenStatus, tmp_path: Path
) -> None:
    file, day = tmp_path / "status.html", day_of(Look.FAILED)
    environment = environment_of(statuses.here.settings.home, GADS_DATABASE_URL=statuses.here.database_url)
    days = ("--from", "2026-11-01", "--to", str(LAST_DAY))
    run_gads(environment, "status", "--query", "campaign", "--customer-id", BAKERY, *days, "--html", str(file))
    with open_status(browser, "http://127.0.0.1:9", tmp_path, file.as_uri()) as page:
        expect(page.locator("[role=rowheader]")).to_have_count(1)
        cell(page, "Harbor Street Bakery", day).click()
        drawer = page.get_by_role("dialog", name=f"Harbor Street Bakery, {day}")
        expect(drawer.locator(".verdict")).to_contain_text("the last attempt failed")
        expect(drawer.locator(".attempts > li").first).to_contain_text(f"quota: the quota is exhausted for {HOSTILE}")
        expect(drawer.locator(".runs").get_by_role("link")).to_have_count(2)
