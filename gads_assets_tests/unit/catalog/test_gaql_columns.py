"""Columns follow the API's own descriptors: no schema is written by hand."""

import pytest

from gads_assets.catalog.fields import columns_of, installed_api_versions, resolve_field
from gads_assets.catalog.gaql import parse_gaql
from gads_assets.catalog.loading import load_catalog
from gads_assets.errors import CatalogError, UnknownFieldError

TYPES = {
    "customer.id": "bigint",
    "customer.manager": "boolean",
    "customer.currency_code": "string",
    "campaign.status": "string",
    "campaign.labels": "array<string>",
    "campaign.network_settings": "string",
    "campaign.network_settings.target_search_network": "boolean",
    "campaign.optimization_score": "double",
    "campaign.start_date_time": "string",
    "change_event.change_date_time": "string",
    "experiment.start_date": "date",
    "asset.promotion_asset.redemption_end_date": "date",
    "hotel_reconciliation.check_in_date": "date",
    "metrics.conversion_last_conversion_date": "date",
    "segments.hotel_check_in_date": "date",
    "segments.hotel_date_selection_type": "string",
    "ad_group.type": "string",
    "ad_group_ad.ad.type": "string",
    "ad_group_ad.ad.final_urls": "array<string>",
    "ad_group_ad.ad.responsive_search_ad.headlines": "array<string>",
    "ad_group_criterion.quality_info.quality_score": "int",
    "asset.image_asset.data": "binary",
    "change_event.changed_fields": "string",
    "metrics.clicks": "bigint",
    "metrics.cost_micros": "bigint",
    "metrics.ctr": "double",
    "metrics.interaction_event_types": "array<string>",
    "segments.date": "date",
    "segments.week": "date",
    "segments.month": "date",
    "segments.quarter": "date",
    "segments.year": "int",
    "segments.hour": "int",
    "segments.day_of_week": "string",
}


@pytest.mark.parametrize(("field", "spark_type"), TYPES.items())
def test_a_field_gets_the_type_the_api_gives_it(field: str, spark_type: str) -> None:
    (column,) = columns_of(parse_gaql(f"SELECT {field} FROM campaign"), "v26")
    assert (column.name, column.field, column.type) == (field.replace(".", "_"), field, spark_type)


def test_every_stored_packaged_schema_is_what_the_api_gives() -> None:
    catalog = load_catalog()
    for query in catalog.queries.values():
        assert columns_of(query.gaql, catalog.api_version) == query.schema.columns


def test_columns_keep_the_order_of_the_query() -> None:
    columns = columns_of(parse_gaql("SELECT metrics.clicks, campaign.id, segments.date FROM campaign"), "v26")
    assert [column.name for column in columns] == ["metrics_clicks", "campaign_id", "segments_date"]


def test_a_name_taken_in_python_is_followed_by_its_attribute() -> None:
    assert [field.name for field in resolve_field("ad_group_ad.ad.type", "v26")] == ["ad_group_ad", "ad", "type_"]


@pytest.mark.parametrize(
    ("text", "field", "hint"),
    [
        ("SELECT campaign.nme FROM campaign", "campaign.nme", "did you mean campaign.name?"),
        ("SELECT campaign.ID FROM campaign", "campaign.ID", "did you mean campaign.id?"),
        ("SELECT campain.id FROM campaign", "campain.id", "did you mean campaign.id"),
        ("SELECT campaign.clicks FROM campaign", "campaign.clicks", "did you mean metrics.clicks?"),
        ("SELECT campaign.device FROM campaign", "campaign.device", "did you mean segments.device"),
        ("SELECT ad_group.type_ FROM ad_group", "ad_group.type_", "did you mean ad_group.type?"),
        ("SELECT zzz.qqq FROM campaign", "zzz.qqq", "field reference"),
        ("SELECT campaign FROM campaign", "campaign", "name its resource too"),
        ("SELECT campaign.id.value FROM campaign", "campaign.id.value", "campaign.id has no parts"),
        (
            "SELECT ad_group_ad.ad.responsive_search_ad.headlines.text FROM ad_group_ad",
            "ad_group_ad.ad.responsive_search_ad.headlines.text",
            "responsive_search_ad.headlines has no parts",
        ),
        ("SELECT campaign.id FROM campaigns", "campaigns", "did you mean campaign"),
        ("SELECT metrics.clicks FROM metrics", "metrics", "resource 'metrics' is not in API v26"),
        ("SELECT campaign.id FROM campaign WHERE campaign.nme = 'x'", "campaign.nme", "campaign.name"),
        ("SELECT campaign.id FROM campaign ORDER BY metrics.click", "metrics.click", "metrics.clicks"),
    ],
)
def test_what_the_api_does_not_have_is_refused_with_a_suggestion(text: str, field: str, hint: str) -> None:
    with pytest.raises(UnknownFieldError) as refused:
        columns_of(parse_gaql(text), "v26")
    assert refused.value.field == field
    assert hint in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT {'x' * 60_000}.y FROM campaign",
        f"SELECT {'x' * 60_000} FROM campaign",
        f"SELECT campaign.{'z' * 60_000} FROM campaign",
        f"SELECT campaign.id.{'z' * 60_000} FROM campaign",
        f"SELECT campaign.idd.{'z' * 60_000} FROM campaign",
        f"SELECT {'.'.join(['a'] * 20_000)} FROM campaign",
        f"SELECT campaign.id FROM {'x' * 60_000}",
        f"SELECT {'x' * 30_000}.y, {'x' * 30_000}.y FROM campaign",
    ],
    ids=range(8),
)
def test_a_very_long_name_is_cut_in_the_message(text: str) -> None:
    with pytest.raises(CatalogError) as refused:
        columns_of(parse_gaql(text), "v26")
    assert len(str(refused.value)) < 500
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("select", ["campaign.id, campaign.id", "ad_group.ad_id, ad_group_ad.id"])
def test_two_fields_never_share_a_column(select: str) -> None:
    with pytest.raises(CatalogError, match="is selected 2 times; select each field once"):
        columns_of(parse_gaql(f"SELECT {select} FROM campaign"), "v26")


@pytest.mark.parametrize("version", ["v1", "v999", "26", "", "v26.services", "../v26"])
def test_an_api_version_that_is_not_installed_is_refused_with_those_that_are(version: str) -> None:
    with pytest.raises(CatalogError, match="it has v23, v24, v25, v26"):
        columns_of(parse_gaql("SELECT campaign.id FROM campaign"), version)


def test_every_installed_api_version_gives_the_packaged_queries_their_columns() -> None:
    for version in installed_api_versions():
        for query in load_catalog().queries.values():
            assert columns_of(query.gaql, version) == query.schema.columns
