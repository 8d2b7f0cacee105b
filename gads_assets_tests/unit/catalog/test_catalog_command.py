"""`gads catalog`: tables for people, one JSON document with stable keys for scripts."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gads_assets.catalog.loading import PACKAGED_CATALOG
from gads_assets.cli.catalog import catalog_app
from gads_assets.errors import CatalogError, CatalogFileError, GaqlError, UnknownFieldError


@pytest.fixture(autouse=True)
def packaged_catalog_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GADS_CATALOG", raising=False)


@pytest.fixture
def catalog_file(tmp_path: Path) -> Path:
    shutil.copytree(PACKAGED_CATALOG.parent, tmp_path / "config")
    return tmp_path / "config" / PACKAGED_CATALOG.name


def run(*arguments: str) -> Result:
    return CliRunner().invoke(catalog_app, list(arguments))


def test_list_shows_every_query_with_its_description() -> None:
    result = run("list")
    assert result.exit_code == 0
    for text in ("campaign", "ad_group", "keyword_view", "search_term_view", "2024-01-01", "Ad groups by day.", "v26"):
        assert text in result.stdout


def test_list_as_json_has_stable_keys() -> None:
    document = json.loads(run("list", "--json").stdout)
    assert document.keys() == {"file", "source", "api_version", "queries"}
    assert document["queries"][0] == {
        "name": "campaign",
        "description": "Campaigns by day, every channel: the only level at which Performance Max spend is complete.",
        "resource": "campaign",
        "shape": "dated",
        "schema_version": "1",
        "stored_versions": ["1"],
        "natural_key": ["customer_id", "segments_date", "campaign_id"],
        "columns": 13,
        "start_date": "2024-01-01",
        "settling_delay_hours": 3,
        "restatement": {"window_days": 90, "repull_days_ago": [1, 2, 3, 7, 14, 30, 60, 90]},
        "max_attempts": 5,
        "freshness_hours": 24,
    }


def test_the_catalog_in_use_is_the_one_the_environment_names(
    catalog_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog_file.write_text(catalog_file.read_text().replace("source: google_ads", "source: other_ads"))
    monkeypatch.setenv("GADS_CATALOG", str(catalog_file))
    document = json.loads(run("list", "--json").stdout)
    assert (document["file"], document["source"]) == (str(catalog_file), "other_ads")


def test_check_says_ok_for_each_query() -> None:
    result = run("check")
    assert result.exit_code == 0
    assert result.stdout.count(" ok ") == 12
    document = json.loads(run("check", "--json").stdout)
    assert document.keys() == {"file", "ok", "stored", "queries", "problems"}
    assert document["ok"] is True
    assert document["queries"][1] == {"name": "ad_group", "schema_version": "1", "columns": 13, "ok": True}


def test_check_shows_the_line_and_word_of_a_gaql_error(catalog_file: Path) -> None:
    catalog_file.write_text(catalog_file.read_text().replace("FROM campaign", "FORM campaign"))
    result = run("check", str(catalog_file))
    assert isinstance(result.exception, CatalogFileError)
    assert "queries.campaign.gaql: expected ',' or FROM, found 'FORM'" in str(result.exception)
    assert result.stderr == "      FORM campaign\n      ^\n"
    assert result.stdout == ""


def test_check_as_json_stays_one_document_when_the_catalog_is_wrong(catalog_file: Path) -> None:
    catalog_file.write_text(catalog_file.read_text().replace("FROM campaign", "FORM campaign"))
    result = run("check", str(catalog_file), "--json")
    assert isinstance(result.exception, CatalogFileError)
    document = json.loads(result.stdout)
    assert document["ok"] is False
    (problem,) = document["problems"]
    assert problem == {
        "file": str(catalog_file),
        "line": result.exception.line,
        "key": "queries.campaign.gaql",
        "message": str(result.exception),
    }


def test_check_names_every_query_that_does_not_fit_the_api(catalog_file: Path) -> None:
    for query in ("campaign", "ad_group"):
        stored = catalog_file.parent / f"schemas/{query}/1.json"
        stored.write_text(stored.read_text().replace('"date"', '"string"'))
    result = run("check", str(catalog_file))
    assert isinstance(result.exception, CatalogError)
    assert "2 of 12 queries do not fit the API" in str(result.exception)
    assert result.stdout.count(" wrong") == 2
    assert "queries.campaign.schema_version" in result.stderr
    assert "queries.ad_group.schema_version" in result.stderr


def test_check_stores_missing_versions_only_when_asked(catalog_file: Path) -> None:
    shutil.rmtree(catalog_file.parent / "schemas")
    refused = run("check", str(catalog_file))
    assert isinstance(refused.exception, CatalogFileError)
    assert "--store" in str(refused.exception)
    stored = run("check", str(catalog_file), "--store")
    assert stored.exit_code == 0
    assert stored.stdout.count("stored ") == 12
    assert json.loads(run("check", str(catalog_file), "--store", "--json").stdout)["stored"] == []


def test_schema_shows_the_stored_columns_of_a_query() -> None:
    result = run("schema", "keyword_view")
    assert "ad_group_criterion_quality_info_quality_score" in result.stdout
    document = json.loads(run("schema", "keyword_view", "--json").stdout)
    assert document.keys() == {"query", "schema_version", "api_version", "natural_key", "columns"}
    assert (document["query"], document["schema_version"]) == ("keyword_view", "1")
    assert document["columns"][1] == {"name": "segments_date", "field": "segments.date", "type": "date"}


def test_schema_derives_the_columns_of_any_gaql() -> None:
    gaql = "SELECT campaign.labels, metrics.ctr FROM campaign WHERE segments.date DURING TODAY LIMIT 5"
    document = json.loads(run("schema", "--gaql", gaql, "--json").stdout)
    assert (document["query"], document["schema_version"], document["natural_key"]) == (None, None, [])
    assert [column["type"] for column in document["columns"]] == ["array<string>", "double"]
    assert "array<string>" in run("schema", "--gaql", gaql).stdout


def test_schema_points_at_the_offending_word() -> None:
    result = run("schema", "--gaql", "SELECT campaign.id, FROM campaign")
    assert isinstance(result.exception, GaqlError)
    assert result.stderr == "SELECT campaign.id, FROM campaign\n                    ^\n"
    result = run("schema", "--gaql", "SELECT campaign.id, campaign.idd FROM campaign")
    assert isinstance(result.exception, UnknownFieldError)
    assert result.stderr == "SELECT campaign.id, campaign.idd FROM campaign\n                    ^\n"
    result = run("schema", "--gaql", "SELECT campaign.id FROM campaigns WHERE campaign.name = 'campaigns'")
    assert result.stderr.split("\n")[1] == " " * len("SELECT campaign.id FROM ") + "^"
    assert "it has account, account_hourly, ad, ad_group" in str(run("schema", "nobody").exception)


def test_an_empty_api_version_is_refused_and_not_taken_for_none() -> None:
    result = run("schema", "--gaql", "SELECT campaign.id FROM campaign", "--api-version", "")
    assert isinstance(result.exception, CatalogError)
    assert "API version '' is not in the installed google-ads client" in str(result.exception)


def test_schema_shows_the_types_of_another_api_version() -> None:
    gaql = "SELECT campaign.id FROM campaign"
    document = json.loads(run("schema", "--gaql", gaql, "--api-version", "v24", "--json").stdout)
    assert (document["api_version"], document["columns"][0]["type"]) == ("v24", "bigint")
    result = run("schema", "campaign", "--api-version", "v23")
    assert "not stored; types of Google Ads API v23" in result.stdout
    document = json.loads(run("schema", "campaign", "--api-version", "v23", "--json").stdout)
    assert (document["query"], document["schema_version"], document["api_version"]) == ("campaign", None, "v23")
    assert document["natural_key"] == ["customer_id", "segments_date", "campaign_id"]
    refused = run("schema", "campaign", "--api-version", "v9")
    assert "API version 'v9' is not in the installed google-ads client; it has v23" in str(refused.exception)


@pytest.mark.parametrize("arguments", [(), ("campaign", "--gaql", "SELECT campaign.id FROM campaign")])
def test_schema_wants_a_query_or_a_gaql_text_and_not_both(arguments: tuple[str, ...]) -> None:
    assert run("schema", *arguments).exit_code == 2
