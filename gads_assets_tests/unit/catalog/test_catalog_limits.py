"""The `limits` of a query: each part is optional, and a wrong one is refused with file, line, key and fix."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gads_assets.catalog.checking import store_missing_versions
from gads_assets.catalog.loading import load_catalog
from gads_assets.catalog.specification import Catalog, Limits
from gads_assets.domain.expectations import SpendPolicy, VolumePolicy
from gads_assets.errors import CatalogFileError

HEAD = """\
source: google_ads
api_version: v26
queries:
"""
COARSE = """\
  campaign:
    description: Campaigns by day.
    gaql: SELECT customer.id, segments.date, campaign.id, metrics.cost_micros FROM campaign
    schema_version: "1"
    natural_key: [customer.id, segments.date, campaign.id]
    start_date: 2024-01-01
    settling_delay_hours: 3
"""
FINE = """\
  search_term_view:
    description: Search terms by day.
    gaql: SELECT customer.id, segments.date, metrics.clicks, metrics.impressions, metrics.cost_micros FROM campaign
    schema_version: "1"
    natural_key: [customer.id, segments.date]
    start_date: 2024-01-01
    settling_delay_hours: 3
"""
LIMITS = """\
    limits:
      never_above:
        metrics.clicks: metrics.impressions
      volume:
        days: 14
        lowest: 0.5
        highest: 2
      spend:
        against: campaign
        lowest: 0.9
        highest: 1.02
"""
CATALOG = HEAD + COARSE + FINE + LIMITS
KEY = "queries.search_term_view.limits"


def _write_catalog(folder: Path, text: str) -> Path:
    path = folder / "google_apis.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def _catalog(folder: Path, text: str = CATALOG) -> Catalog:
    path = _write_catalog(folder, text)
    store_missing_versions(path)
    return load_catalog(path)


def _limits(folder: Path, text: str) -> Limits:
    return _catalog(folder, text).limits("search_term_view")


def test_limits_are_read_by_column_and_by_share(tmp_path: Path) -> None:
    catalog = _catalog(tmp_path)
    spend = SpendPolicy(against="campaign", lowest=0.9, highest=1.02)
    assert catalog.limits("search_term_view") == Limits(
        volume=VolumePolicy(days=14, lowest=0.5, highest=2.0), spend=spend
    )
    assert catalog.query("search_term_view").schema.terms.never_above == (("metrics_clicks", "metrics_impressions"),)
    assert catalog.spend_policies == {"search_term_view": spend}
    assert catalog.volume_days == {"search_term_view": 14}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("", Limits()),
        ("    limits: {}\n", Limits()),
        ("    limits: {never_above: {}}\n", Limits()),
        (
            "    limits: {volume: {days: 3, lowest: 0, highest: 1}}\n",
            Limits(volume=VolumePolicy(days=3, lowest=0.0, highest=1.0)),
        ),
        (
            "    limits: {volume: {days: 90, lowest: 1, highest: 1000}}\n",
            Limits(volume=VolumePolicy(days=90, lowest=1.0, highest=1000.0)),
        ),
        (
            "    limits: {spend: {against: campaign, highest: 1}}\n",
            Limits(spend=SpendPolicy(against="campaign", lowest=None, highest=1.0)),
        ),
    ],
)
def test_every_part_of_the_limits_may_be_left_out(tmp_path: Path, limits: str, expected: Limits) -> None:
    assert _limits(tmp_path, HEAD + COARSE + FINE + limits) == expected


def test_a_query_without_limits_or_without_a_place_in_the_catalog_has_none(tmp_path: Path) -> None:
    catalog = _catalog(tmp_path)
    assert catalog.limits("campaign") == Limits()
    gone = replace(catalog, queries={})
    assert gone.limits("search_term_view") == Limits()


def test_spend_may_be_compared_with_a_query_further_down_in_the_file(tmp_path: Path) -> None:
    spend = _limits(tmp_path, HEAD + FINE + LIMITS + COARSE).spend
    assert spend is not None
    assert spend.against == "campaign"


def replaced(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert text.count(old) == 1, old
        return text.replace(old, new)

    return change


def _written(limits: str) -> Callable[[str], str]:
    return lambda text: text.replace(LIMITS, limits)


# What is changed, then the line, the key and the fix that the refusal names.
WRONG = {
    "limits of nothing": (_written("    limits:\n"), 18, KEY, "must be a mapping"),
    "limits as text": (_written("    limits: none\n"), 18, KEY, "must be a mapping"),
    "limits as a list": (_written("    limits: [volume]\n"), 18, KEY, "must be a mapping"),
    "an unknown part": (replaced("      volume:", "      volumes:"), 21, f"{KEY}.volumes", "did you mean volume?"),
    "an unknown part, unlike any": (
        _written("    limits: {zzz: 1}\n"),
        18,
        f"{KEY}.zzz",
        "the keys are never_above, volume, spend",
    ),
    "limits twice": (lambda text: text + LIMITS, 29, KEY, "is written twice, first on line 18; keep one"),
    "never_above as text": (
        _written("    limits: {never_above: metrics.clicks}\n"),
        18,
        f"{KEY}.never_above",
        "must be a mapping",
    ),
    "a metric that is not selected": (
        replaced("        metrics.clicks: ", "        metrics.interactions: "),
        20,
        f"{KEY}.never_above.metrics.interactions",
        "'metrics.interactions' is not a metric that the query selects; name two that it does",
    ),
    "a limit that is not selected": (
        replaced(": metrics.impressions\n", ": metrics.views\n"),
        20,
        f"{KEY}.never_above.metrics.clicks",
        "'metrics.views' is not a metric that the query selects; name two that it does",
    ),
    "a limit that is no metric": (
        replaced(": metrics.impressions\n", ": customer.id\n"),
        20,
        f"{KEY}.never_above.metrics.clicks",
        "'customer.id' is not a metric",
    ),
    "a column's name for a metric's": (
        replaced(": metrics.impressions\n", ": metrics_impressions\n"),
        20,
        f"{KEY}.never_above.metrics.clicks",
        "'metrics_impressions' is not a metric",
    ),
    "a number for a limit": (
        replaced(": metrics.impressions\n", ": 5\n"),
        20,
        f"{KEY}.never_above.metrics.clicks",
        "must be text",
    ),
    "a metric with two limits": (
        replaced("      volume:", "        metrics.clicks: metrics.cost_micros\n      volume:"),
        21,
        f"{KEY}.never_above.metrics.clicks",
        "is written twice, first on line 20; keep one",
    ),
    "volume without its days": (replaced("        days: 14\n", ""), 21, f"{KEY}.volume", "lacks days; add it"),
    "volume with something else": (
        replaced("        days: 14\n", "        days: 14\n        hours: 1\n"),
        23,
        f"{KEY}.volume.hours",
        "is not a key of the catalog",
    ),
    "too few days": (
        replaced("days: 14", "days: 2"),
        22,
        f"{KEY}.volume.days",
        "must be a whole number from 3 to 90, not 2",
    ),
    "too many days": (replaced("days: 14", "days: 91"), 22, f"{KEY}.volume.days", "from 3 to 90, not 91"),
    "a fraction of a day": (replaced("days: 14", "days: 7.5"), 22, f"{KEY}.volume.days", "must be a whole number"),
    "a lowest share above the whole": (
        replaced("lowest: 0.5", "lowest: 1.5"),
        23,
        f"{KEY}.volume.lowest",
        "must be a number from 0 to 1, not 1.5",
    ),
    "a negative lowest share": (replaced("lowest: 0.5", "lowest: -0.5"), 23, f"{KEY}.volume.lowest", "not -0.5"),
    "a lowest share that is no number": (
        replaced("lowest: 0.5", "lowest: .nan"),
        23,
        f"{KEY}.volume.lowest",
        "must be a number from 0 to 1, not .nan",
    ),
    "a highest share below the whole": (
        replaced("highest: 2\n", "highest: 0.9\n"),
        24,
        f"{KEY}.volume.highest",
        "must be a number from 1 to 1000, not 0.9",
    ),
    "a highest share without an end": (
        replaced("highest: 2\n", "highest: .inf\n"),
        24,
        f"{KEY}.volume.highest",
        "from 1 to 1000, not .inf",
    ),
    "a highest share in quotes": (
        replaced("highest: 2\n", 'highest: "2"\n'),
        24,
        f"{KEY}.volume.highest",
        "must be a number from 1 to 1000",
    ),
    "spend without a query": (replaced("        against: campaign\n", ""), 25, f"{KEY}.spend", "lacks against; add it"),
    "spend without its highest share": (
        replaced("        highest: 1.02\n", ""),
        25,
        f"{KEY}.spend",
        "lacks highest; add it",
    ),
    "spend against itself": (
        replaced("against: campaign", "against: search_term_view"),
        26,
        f"{KEY}.spend.against",
        "is the query itself; name the coarser one",
    ),
    "spend against nobody": (
        replaced("against: campaign", "against: campagne"),
        25,
        f"{KEY}.spend",
        "against names 'campagne', which is not a query; name one of this file",
    ),
    "spend against a query without a cost": (
        replaced("campaign.id, metrics.cost_micros FROM", "campaign.id FROM"),
        25,
        f"{KEY}.spend",
        "campaign does not select metrics.cost_micros; add it, or drop the limit",
    ),
    "spend of a query without a cost": (
        replaced("metrics.impressions, metrics.cost_micros FROM", "metrics.impressions FROM"),
        25,
        f"{KEY}.spend",
        "this query does not select metrics.cost_micros; add it, or drop the limit",
    ),
    "a lowest spend above the whole": (
        replaced("lowest: 0.9", "lowest: 1.1"),
        27,
        f"{KEY}.spend.lowest",
        "must be a number from 0 to 1, not 1.1",
    ),
    "a highest spend below the whole": (
        replaced("highest: 1.02", "highest: 0.98"),
        28,
        f"{KEY}.spend.highest",
        "must be a number from 1 to 1000, not 0.98",
    ),
}


@pytest.mark.parametrize(("change", "line", "key", "fix"), WRONG.values(), ids=WRONG.keys())
def test_wrong_limits_are_refused_with_file_line_key_and_fix(
    tmp_path: Path, change: Callable[[str], str], line: int, key: str, fix: str
) -> None:
    path = _write_catalog(tmp_path, change(CATALOG))
    with pytest.raises(CatalogFileError) as refused:
        load_catalog(path)
    assert (refused.value.line, refused.value.key) == (line, key), str(refused.value)
    assert str(refused.value).startswith(f"{path}:{line}: {key}: ")
    assert fix in str(refused.value)
    assert str(refused.value).isprintable(), "one line"
