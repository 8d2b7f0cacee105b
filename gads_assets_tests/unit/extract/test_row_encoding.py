import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from google.ads.googleads.v26.services.types.google_ads_service import GoogleAdsRow
from google.protobuf.descriptor import Descriptor

from gads_assets.catalog.fields import columns_of, row_descriptor
from gads_assets.catalog.gaql import parse_gaql
from gads_assets.emulator.accounts import ACCOUNTS
from gads_assets.emulator.answers import answer
from gads_assets.emulator.messages import fill_row
from gads_assets.emulator.plan import plan_answer
from gads_assets.errors import CatalogError
from gads_assets.extract.rows import RowEncoder


def encoder(*fields: str) -> RowEncoder:
    query = parse_gaql(f"SELECT {', '.join((*fields, 'segments.date'))} FROM campaign")
    return RowEncoder(columns_of(query, "v26"), "v26")


def encoded(row: GoogleAdsRow, *fields: str) -> dict[str, Any]:
    [(_, line)] = encoder(*fields).lines([GoogleAdsRow.pb(row)])
    assert line.count(b"\n") == 1
    document: dict[str, Any] = json.loads(line, parse_constant=pytest.fail)
    return document


def test_a_row_gives_its_day_and_one_json_document_keyed_by_column() -> None:
    row = GoogleAdsRow(
        campaign={"id": 2**62 + 1, "name": 'Größe\u2028"L"\\\n🚲', "status": "PAUSED"},
        metrics={"clicks": 0, "conversions": 0.1},
        segments={"date": "2024-06-01"},
    )
    fields = ("campaign.id", "campaign.name", "campaign.status", "metrics.clicks", "metrics.conversions")
    [(day, line)] = encoder(*fields).lines([GoogleAdsRow.pb(row)])
    assert day == "2024-06-01"
    assert json.loads(line) == {
        "campaign_id": 2**62 + 1,
        "campaign_name": 'Größe\u2028"L"\\\n🚲',
        "campaign_status": "PAUSED",
        "metrics_clicks": 0,
        "metrics_conversions": 0.1,
        "segments_date": "2024-06-01",
    }
    assert "Größe".encode() in line


def test_what_the_api_left_out_is_null_and_zero_stays_zero() -> None:
    row = GoogleAdsRow(metrics={"clicks": 0}, ad_group_criterion={"criterion_id": 7})
    document = encoded(
        row,
        "metrics.clicks",
        "metrics.impressions",
        "campaign.id",
        "campaign.status",
        "ad_group_criterion.criterion_id",
        "ad_group_criterion.quality_info.quality_score",
    )
    assert document == {
        "metrics_clicks": 0,
        "metrics_impressions": None,
        "campaign_id": None,
        "campaign_status": None,
        "ad_group_criterion_criterion_id": 7,
        "ad_group_criterion_quality_info_quality_score": None,
        "segments_date": None,
    }


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_cannot_hold_is_null(number: float) -> None:
    assert encoded(GoogleAdsRow(metrics={"ctr": number}), "metrics.ctr")["metrics_ctr"] is None


def test_a_date_that_is_not_there_is_null() -> None:
    query = parse_gaql("SELECT asset.callout_asset.start_date, asset.callout_asset.end_date, segments.date FROM asset")
    row = GoogleAdsRow(asset={"callout_asset": {"end_date": "2024-06-30"}})
    [(_, line)] = RowEncoder(columns_of(query, "v26"), "v26").lines([GoogleAdsRow.pb(row)])
    assert json.loads(line) == {
        "asset_callout_asset_start_date": None,
        "asset_callout_asset_end_date": "2024-06-30",
        "segments_date": None,
    }


def test_lists_are_arrays_and_messages_are_json_text() -> None:
    row = GoogleAdsRow(
        campaign={
            "labels": ["customers/1/labels/2", "ü"],
            "frequency_caps": [{"cap": 3, "key": {"level": "CAMPAIGN"}}],
            "network_settings": {"target_google_search": True},
            "optimization_goal_setting": {"optimization_goal_types": ["CALL_CLICKS", "DRIVING_DIRECTIONS"]},
        }
    )
    document = encoded(
        row,
        "campaign.labels",
        "campaign.frequency_caps",
        "campaign.network_settings",
        "campaign.optimization_goal_setting.optimization_goal_types",
    )
    assert document["campaign_labels"] == ["customers/1/labels/2", "ü"]
    assert [json.loads(item) for item in document["campaign_frequency_caps"]] == [
        {"cap": 3, "key": {"level": "CAMPAIGN"}}
    ]
    assert json.loads(document["campaign_network_settings"]) == {"target_google_search": True}
    assert document["campaign_optimization_goal_setting_optimization_goal_types"] == [
        "CALL_CLICKS",
        "DRIVING_DIRECTIONS",
    ]


def test_a_message_is_written_as_the_api_documents_it() -> None:
    row = GoogleAdsRow(
        ad_group_ad={"ad": {"id": 2**60 + 1, "responsive_search_ad": {"headlines": [{"text": "Größe"}]}}},
        change_event={
            "changed_fields": {"paths": ["campaign.name", "campaign.start_date_time"]},
            "new_resource": {"campaign": {"status": "PAUSED", "target_cpa": {"target_cpa_micros": 2**53 + 1}}},
        },
        conversion_action={"tag_snippets": [{"type_": "WEBPAGE", "page_format": "HTML"}]},
    )
    document = encoded(
        row,
        "ad_group_ad.ad.responsive_search_ad.headlines",
        "change_event.changed_fields",
        "change_event.new_resource",
        "conversion_action.tag_snippets",
    )
    assert [json.loads(item) for item in document["ad_group_ad_ad_responsive_search_ad_headlines"]] == [
        {"text": "Größe"}
    ]
    assert json.loads(document["change_event_changed_fields"]) == "campaign.name,campaign.start_date_time"
    assert json.loads(document["change_event_new_resource"]) == {
        "campaign": {"status": "PAUSED", "target_cpa": {"target_cpa_micros": 2**53 + 1}}
    }
    assert [json.loads(item) for item in document["conversion_action_tag_snippets"]] == [
        {"page_format": "HTML", "type": "WEBPAGE"}
    ]


def test_an_enum_member_newer_than_our_descriptors_is_kept_by_its_number() -> None:
    row = GoogleAdsRow.pb(GoogleAdsRow())
    row.campaign.status = 9999
    [(_, line)] = encoder("campaign.status").lines([row])
    assert json.loads(line)["campaign_status"] == "9999"


def test_a_word_taken_in_python_is_still_the_api_s_field() -> None:
    assert encoded(GoogleAdsRow(ad_group={"type_": "SEARCH_STANDARD"}), "ad_group.type") == {
        "ad_group_type": "SEARCH_STANDARD",
        "segments_date": None,
    }


def test_rows_come_some_at_a_time_each_time_of_one_day_and_in_their_order() -> None:
    days = ["2024-06-01"] * 3 + ["2024-06-02"] * 200 + ["2024-06-01"]
    rows = [
        GoogleAdsRow.pb(GoogleAdsRow(campaign={"id": number}, segments={"date": day}))
        for number, day in enumerate(days)
    ]
    parts = list(encoder("campaign.id").lines(rows))
    assert max(lines.count(b"\n") for _, lines in parts) < 100
    read = [(day, json.loads(line)) for day, lines in parts for line in lines.splitlines()]
    assert [day for day, _ in read] == [document["segments_date"] for _, document in read] == days
    assert [document["campaign_id"] for _, document in read] == list(range(len(rows)))


def test_no_rows_give_no_lines() -> None:
    assert list(encoder("campaign.id").lines([])) == []


def test_a_query_whose_rows_have_no_day_is_refused() -> None:
    columns = columns_of(parse_gaql("SELECT campaign.id FROM campaign"), "v26")
    with pytest.raises(CatalogError, match=r"does not select segments\.date"):
        RowEncoder(columns, "v26")


def _selectable(message: Descriptor, prefix: str) -> Iterator[str]:
    for field in message.fields:
        path = f"{prefix}.{field.name.removesuffix('_')}"
        inner = field.message_type
        if inner is not None and not field.is_repeated and inner.fields:
            if path.count(".") < 3:
                yield from _selectable(inner, path)
        else:
            yield path


DEFAULTS: tuple[object, ...] = (None, [], "", 0, False, "UNSPECIFIED")


def _agrees(stored: Any, value: Any) -> bool:
    """Inside a message, what is the default may be left out."""
    if isinstance(value, dict):
        members = {name.removesuffix("_"): member for name, member in value.items()}
        return stored.keys() <= members.keys() and all(
            _agrees(stored[name], member) if name in stored else member in DEFAULTS for name, member in members.items()
        )
    if isinstance(value, list):
        return len(stored) == len(value) and all(map(_agrees, stored, value))
    return bool(stored == value)


@pytest.mark.parametrize(
    "resource", ["campaign", "ad_group_criterion", "ad_group_ad", "customer", "segments", "metrics"]
)
def test_every_field_survives_from_generator_through_protobuf_to_json(resource: str) -> None:
    """The widest check that emulator and extractor agree with the descriptors: hundreds of fields, three rows each."""
    from_resource = {"segments": "keyword_view", "metrics": "campaign"}.get(resource, resource)
    group = row_descriptor("v26").fields_by_name[resource].message_type
    assert group is not None
    paths = [path for path in _selectable(group, resource) if path != "segments.date"]
    assert len(paths) > 20
    seen_values = 0
    # A few at a time: every further segment multiplies rows.
    size = 2 if resource == "segments" else 40
    while chunk := [paths.pop() for _ in range(min(size, len(paths)))]:
        gaql = f"SELECT {', '.join(chunk)}, segments.date FROM {from_resource}"
        plan = plan_answer(f"{gaql} WHERE segments.date = '2024-06-04'", ACCOUNTS[1], "v26")
        rows = RowEncoder(columns_of(parse_gaql(gaql), "v26"), "v26")
        values_of_rows = list(islice(answer(plan, ACCOUNTS[1], ACCOUNTS), 3))
        assert values_of_rows
        for values in values_of_rows:
            row = GoogleAdsRow.pb(GoogleAdsRow())
            fill_row(row, plan.fields, values)
            [(day, line)] = rows.lines([row])
            document = json.loads(line)
            assert day == "2024-06-04"
            for field, value in zip(plan.fields, values, strict=True):
                if field.path not in (*chunk, "segments.date"):
                    continue
                stored = document[field.path.replace(".", "_")]
                seen_values += value is not None
                if isinstance(value, dict):
                    assert _agrees(json.loads(stored), value), field.path
                elif isinstance(value, list) and value and isinstance(value[0], dict):
                    assert _agrees([json.loads(item) for item in stored], value), field.path
                elif value in (None, []):
                    # Without presence of its own, a field that was left out looks like its default.
                    assert stored in DEFAULTS, field.path
                else:
                    assert stored == value, field.path
    assert seen_values > 30
