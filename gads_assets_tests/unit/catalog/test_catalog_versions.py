"""Every version is kept whole: what it asked for, and by which rules its runs are judged."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gads_assets.catalog.checking import check_catalog, store_missing_versions
from gads_assets.catalog.loading import load_catalog
from gads_assets.catalog.specification import Limits, Terms
from gads_assets.domain.expectations import VolumePolicy
from gads_assets.errors import CatalogFileError
from gads_assets_tests.unit.catalog.test_catalog_loading import refusal, replaced

CATALOG = """\
source: google_ads
api_version: v26
queries:
  campaign:
    description: Campaigns by day.
    gaql: |
      SELECT customer.id, segments.date, campaign.id, metrics.clicks, metrics.impressions, metrics.interactions
      FROM campaign
      WHERE campaign.status = 'ENABLED' AND campaign.name LIKE '%東京%'
      PARAMETERS include_drafts=true
    schema_version: "1"
    natural_key: [customer.id, segments.date, campaign.id]
    start_date: 2024-01-01
    settling_delay_hours: 3
    limits:
      never_above: {metrics.clicks: metrics.impressions}
      volume: {days: 14, lowest: 0.5, highest: 2}
"""
CHANGES = """\
source: google_ads
api_version: v26
queries:
  changes:
    description: Changes.
    gaql: SELECT customer.id, change_event.change_date_time, change_event.resource_name FROM change_event LIMIT 500
    schema_version: "1"
    natural_key: [change_event.resource_name]
    start_date: 2024-01-01
    settling_delay_hours: 3
"""
STORED = Terms(
    resource="campaign",
    conditions=("campaign.status = 'ENABLED'", "campaign.name LIKE '%東京%'"),
    parameters=("include_drafts=true",),
    never_above=(("metrics_clicks", "metrics_impressions"),),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "google_apis.yaml"
    path.write_text(CATALOG)
    store_missing_versions(path)
    return path


def change(path: Path, *changes: Callable[[str], str]) -> None:
    text = path.read_text()
    for each in changes:
        text = each(text)
    path.write_text(text)


def test_a_version_is_stored_with_all_of_its_terms(path: Path) -> None:
    document = json.loads((path.parent / "schemas/campaign/1.json").read_text())
    assert list(document) == [
        "query",
        "version",
        "natural_key",
        "columns",
        "resource",
        "conditions",
        "parameters",
        "rules",
    ]
    assert document["resource"] == "campaign"
    assert document["conditions"] == list(STORED.conditions)
    assert document["parameters"] == ["include_drafts=true"]
    assert document["rules"] == {"never_above": {"metrics_clicks": "metrics_impressions"}}
    assert load_catalog(path).schema("campaign", "1").terms == STORED
    assert [check.problem for check in check_catalog(path)] == [None]


DIFFERENCES = {
    "another resource": (replaced("FROM campaign", "FROM ad_group"), "(FROM +ad_group -campaign)"),
    "another value": (
        replaced("'ENABLED'", "'PAUSED'"),
        "(WHERE +\"campaign.status = 'PAUSED'\" -\"campaign.status = 'ENABLED'\")",
    ),
    "one condition fewer": (
        replaced(" AND campaign.name LIKE '%東京%'", ""),
        "(WHERE -\"campaign.name LIKE '%東京%'\")",
    ),
    "no condition": (
        replaced("      WHERE campaign.status = 'ENABLED' AND campaign.name LIKE '%東京%'\n", ""),
        "(WHERE -\"campaign.name LIKE '%東京%'\" -\"campaign.status = 'ENABLED'\")",
    ),
    "another value of a parameter": (
        replaced("include_drafts=true", "include_drafts=false"),
        "(PARAMETERS +'include_drafts=false' -'include_drafts=true')",
    ),
    "one parameter more": (
        replaced("include_drafts=true", "omit_unselected_resource_names = true, include_drafts = true"),
        "(PARAMETERS +'omit_unselected_resource_names=true')",
    ),
    "no parameter": (replaced("      PARAMETERS include_drafts=true\n", ""), "(PARAMETERS -'include_drafts=true')"),
    "another rule": (
        replaced("{metrics.clicks: metrics.impressions}", "{metrics.interactions: metrics.impressions}"),
        "(never_above +metrics_interactions:metrics_impressions -metrics_clicks:metrics_impressions)",
    ),
    "no rule": (
        replaced("      never_above: {metrics.clicks: metrics.impressions}\n", ""),
        "(never_above -metrics_clicks:metrics_impressions)",
    ),
}


@pytest.mark.parametrize(("edit", "difference"), DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_a_version_whose_terms_changed_is_refused_with_the_difference(
    path: Path, edit: Callable[[str], str], difference: str
) -> None:
    change(path, edit)
    error = refusal(path)
    assert error.key == "queries.campaign.schema_version"
    assert f"differs from stored version 1 {difference}; raise schema_version to" in str(error)
    change(path, replaced('schema_version: "1"', 'schema_version: "2"'))
    store_missing_versions(path)
    assert load_catalog(path).schema("campaign", "1").terms == STORED


def test_a_very_long_condition_is_cut_where_the_difference_is_shown(path: Path) -> None:
    change(path, replaced("'ENABLED'", "'" + "x" * 20_000 + "'"))
    assert len(str(refusal(path))) < 1_000


def test_conditions_that_differ_only_far_behind_are_a_difference(path: Path) -> None:
    change(path, replaced("'ENABLED'", "'" + "x" * 400 + "'"), replaced('schema_version: "1"', 'schema_version: "2"'))
    store_missing_versions(path)
    change(path, replaced("xx'", "xy'"))
    assert "(WHERE +" in str(refusal(path))


def test_the_order_of_conditions_and_how_they_are_spaced_are_no_difference(path: Path) -> None:
    change(
        path,
        replaced(
            "campaign.status = 'ENABLED' AND campaign.name LIKE '%東京%'",
            "campaign.name  like '%東京%'  AND campaign.status='ENABLED'",
        ),
    )
    assert load_catalog(path).schema("campaign", "1").terms == STORED


def test_how_parameters_are_ordered_and_spaced_is_no_difference(path: Path) -> None:
    change(
        path,
        replaced("include_drafts=true", "include_drafts=true, omit_unselected_resource_names=true"),
        replaced('schema_version: "1"', 'schema_version: "2"'),
    )
    store_missing_versions(path)
    change(
        path,
        replaced(
            "include_drafts=true, omit_unselected_resource_names=true",
            "omit_unselected_resource_names = true , include_drafts = true",
        ),
    )
    assert load_catalog(path).query("campaign").schema.version == "2"


def test_an_order_and_another_limit_are_no_difference_as_no_sealed_run_was_cut_by_them(tmp_path: Path) -> None:
    path = tmp_path / "google_apis.yaml"
    path.write_text(CHANGES)
    store_missing_versions(path)
    change(path, replaced("LIMIT 500", "ORDER BY change_event.resource_name DESC LIMIT 10000"))
    assert load_catalog(path).query("changes").gaql.limit == 10_000


def test_another_field_behind_the_same_column_is_a_difference(path: Path) -> None:
    change(
        path, replaced("metrics.clicks, metrics.impressions", "ad_group.ad_name, metrics.clicks, metrics.impressions")
    )
    stored = path.parent / "schemas/campaign/1.json"
    document = json.loads(stored.read_text())
    document["columns"].append({"name": "ad_group_ad_name", "field": "ad_group_ad.name", "type": "string"})
    stored.write_text(json.dumps(document))
    assert "(fields +ad_group.ad_name -ad_group_ad.name)" in str(refusal(path))


def test_a_run_is_judged_by_the_rules_of_its_own_version(path: Path) -> None:
    change(
        path,
        replaced("{metrics.clicks: metrics.impressions}", "{metrics.interactions: metrics.impressions}"),
        replaced('schema_version: "1"', 'schema_version: "2"'),
        replaced("days: 14", "days: 28"),
    )
    store_missing_versions(path)
    catalog = load_catalog(path)
    assert catalog.schema("campaign", "1").terms == STORED
    assert catalog.schema("campaign", "2").terms.never_above == (("metrics_interactions", "metrics_impressions"),)
    assert catalog.limits("campaign") == Limits(volume=VolumePolicy(days=28, lowest=0.5, highest=2.0))


def test_a_version_that_had_no_rule_gets_none_later(path: Path) -> None:
    change(
        path,
        replaced("      never_above: {metrics.clicks: metrics.impressions}\n", ""),
        replaced('schema_version: "1"', 'schema_version: "2"'),
    )
    store_missing_versions(path)
    assert load_catalog(path).schema("campaign", "2").terms.never_above == ()
    assert load_catalog(path).schema("campaign", "1").terms.never_above == STORED.never_above


def test_the_runs_of_a_query_that_left_the_catalog_keep_the_rules_of_their_version(path: Path) -> None:
    gone = replace(load_catalog(path), queries={})
    assert gone.schema("campaign", "1").terms == STORED
    assert gone.limits("campaign") == Limits()


def test_a_rule_about_what_is_no_number_is_refused_before_it_is_stored(path: Path) -> None:
    change(
        path,
        replaced("metrics.interactions\n", "metrics.interactions, metrics.historical_creative_quality_score\n"),
        replaced("metrics.clicks: metrics.impressions", "metrics.clicks: metrics.historical_creative_quality_score"),
        replaced('schema_version: "1"', 'schema_version: "2"'),
    )
    with pytest.raises(CatalogFileError, match="is not a number but string; name two metrics that are") as refused:
        store_missing_versions(path)
    assert refused.value.line == 16
    assert refused.value.key == "queries.campaign.limits.never_above.metrics.clicks"
    assert not (path.parent / "schemas/campaign/2.json").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource": None},
        {"resource": "campaign; x"},
        {"conditions": None},
        {"conditions": "campaign.id = 1"},
        {"conditions": [1]},
        {"parameters": None},
        {"parameters": {"include_drafts": "true"}},
        {"parameters": [True]},
        {"rules": None},
        {"rules": {}},
        {"rules": {"never_above": []}},
        {"rules": {"never_above": {"metrics_clicks": 5}}},
        {"rules": {"never_above": {"metrics_clicks": "nobody"}}},
        {"rules": {"never_above": {"metrics_clicks": "segments_date"}}},
        {"rules": {"never_above": {}, "more": 1}},
    ],
)
def test_terms_that_are_not_whole_are_refused_by_their_file(path: Path, wrong: dict[str, object]) -> None:
    stored = path.parent / "schemas/campaign/1.json"
    stored.write_text(json.dumps(json.loads(stored.read_text()) | wrong))
    error = refusal(path)
    assert error.file == str(stored)
    assert "restore the file from version control" in str(error)


@pytest.mark.parametrize("missing", ["resource", "conditions", "parameters", "rules"])
def test_a_version_that_lacks_a_term_is_refused_by_its_file(path: Path, missing: str) -> None:
    stored = path.parent / "schemas/campaign/1.json"
    document = json.loads(stored.read_text())
    del document[missing]
    stored.write_text(json.dumps(document))
    assert refusal(path).file == str(stored)
