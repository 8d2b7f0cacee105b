"""The status page on every screen: many cells, a phone, darkness, other eyes, and a file without a server."""

import re
from datetime import timedelta
from itertools import combinations
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from gads_assets.status.rendering import render_page
from gads_assets_tests.acceptance import made_up_status as made_up
from gads_assets_tests.acceptance.made_up_status import LAST_DAY, MadeUpStatus, made_up_status
from gads_assets_tests.acceptance.status_page import (
    BAKERY,
    CYCLES,
    DAY,
    DAY_BEFORE,
    TWO_BEFORE,
    OpenPage,
    cell,
    open_status,
)
from gads_assets_tests.status_servers import serve_status

MANY_CUSTOMERS, MANY_DAYS = 200, 400

# Size


def test_eighty_thousand_cells_are_shown_by_a_few_thousand_elements(
    browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses = made_up_status(MANY_CUSTOMERS)
    last_name = list(statuses.customers.values())[-1]
    first_day = LAST_DAY - timedelta(days=MANY_DAYS - 1)
    statuses.change(list(statuses.customers)[-1], first_day, made_up.OVERDUE_FAILED)
    with (
        serve_status(statuses) as server,
        open_status(browser, server.address, tmp_path, f"/#from={first_day}&to={LAST_DAY}") as page,
    ):
        grid = page.get_by_role("grid")
        expect(grid).to_have_attribute("aria-rowcount", str(MANY_CUSTOMERS + 1))
        expect(grid).to_have_attribute("aria-colcount", str(MANY_DAYS + 1))
        page.wait_for_function("performance.getEntriesByName('matrix-shown').length")
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


def test_nothing_moves_for_who_asked_for_stillness(status_page: OpenPage, statuses: MadeUpStatus) -> None:
    with status_page(reduced_motion="reduce") as page:
        statuses.change(CYCLES, DAY, made_up.FAILED)
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


def test_a_file_shows_the_same_and_asks_nobody(browser: Browser, statuses: MadeUpStatus, tmp_path: Path) -> None:
    asset = "google_ads/campaign"
    known = f"{BAKERY}|{DAY_BEFORE}"
    document, _ = render_page(
        {
            "overview": statuses.overview(),
            "matrices": {asset: statuses.matrix(asset, None, None)},
            "partitions": {asset: {known: statuses.partition(asset, known)}},
        }
    )
    file = tmp_path / "status.html"
    file.write_text(document, encoding="utf-8")
    asked: list[str] = []
    with open_status(browser, "http://127.0.0.1:9", tmp_path, f"{file.as_uri()}#customer=bakery") as page:
        page.on("request", lambda request: asked.append(request.url))
        expect(page.locator("#live")).to_have_text("Saved file")
        expect(page.locator("[role=rowheader]")).to_have_count(2)
        cell(page, "Harbor Street Bakery", DAY_BEFORE).click()
        drawer = page.get_by_role("dialog")
        expect(drawer.locator(".verdict")).to_have_text("Shown data is good but stale")
        page.keyboard.press("Escape")
        cell(page, "Harbor Street Bakery", TWO_BEFORE).click()
        expect(drawer.locator(".verdict")).to_have_text("Stale: not renewed in time")
        expect(drawer).to_contain_text("on the served page")
        page.keyboard.press("Escape")
        page.get_by_label("First day").fill("2026-11-10")
        expect(page.get_by_role("grid")).to_have_attribute("aria-colcount", "9")
        expect(cell(page, "Harbor Street Bakery", TWO_BEFORE)).to_have_attribute(
            "aria-label", re.compile("not renewed")
        )
        page.get_by_label("Query").select_option("ad_group")
        expect(page.get_by_role("alert")).to_contain_text("This file holds no days of google_ads/ad_group")
        assert asked == []
