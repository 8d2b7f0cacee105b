"""What an agency asks for, against the default accounts and against made-up ones with Performance Max."""

from collections import Counter, defaultdict
from itertools import islice

import pytest

from gads_assets.emulator.accounts import ACCOUNTS, EmulatedAccount, made_up_accounts
from gads_assets.emulator.answers import answer, answer_facts
from gads_assets.emulator.faults import RowFaults
from gads_assets.emulator.messages import fill_row, messages_of
from gads_assets.emulator.plan import AnswerPlan, plan_answer
from gads_assets.emulator.rows import Value
from gads_assets.emulator.serializing import RowSerializer

AGENCY = made_up_accounts(30)
CLIENTS = (*ACCOUNTS[1:4], *AGENCY[3:9])
WEEK = " WHERE segments.date BETWEEN '2024-06-03' AND '2024-06-09'"
METRICS = "metrics.impressions, metrics.clicks, metrics.cost_micros, metrics.conversions"
# Name: fields of the natural key beside the customer's, other fields, resource and days.
QUERIES: dict[str, tuple[list[str], str]] = {
    "account_daily": (["segments.date"], f"customer.currency_code, {METRICS} FROM customer{WEEK}"),
    "account_hourly": (["segments.date", "segments.hour"], f"{METRICS} FROM customer{WEEK}"),
    "campaign": (["segments.date", "campaign.id"], f"campaign.name, {METRICS} FROM campaign{WEEK}"),
    "ad": (
        ["segments.date", "ad_group.id", "ad_group_ad.ad.id"],
        "campaign.id, ad_group_ad.ad.type, ad_group_ad.status, ad_group_ad.ad.final_urls, "
        f"ad_group_ad.ad.responsive_search_ad.headlines, {METRICS} FROM ad_group_ad{WEEK}",
    ),
    "campaign_search_term": (
        ["segments.date", "campaign.id", "campaign_search_term_view.search_term"],
        f"{METRICS} FROM campaign_search_term_view{WEEK}",
    ),
    "geographic": (
        [
            "segments.date",
            "campaign.id",
            "geographic_view.country_criterion_id",
            "geographic_view.location_type",
            "segments.geo_target_region",
        ],
        f"{METRICS} FROM geographic_view{WEEK}",
    ),
    "conversions_by_action": (
        ["segments.date", "campaign.id", "segments.conversion_action"],
        "segments.conversion_action_name, segments.conversion_action_category, metrics.conversions, "
        f"metrics.conversions_value, metrics.all_conversions FROM campaign{WEEK}",
    ),
    "asset_group": (
        ["segments.date", "asset_group.id"],
        f"campaign.id, asset_group.name, asset_group.status, asset_group.ad_strength, {METRICS} FROM asset_group{WEEK}",
    ),
    "landing_page": (
        ["segments.date", "landing_page_view.unexpanded_final_url"],
        f"{METRICS} FROM landing_page_view{WEEK}",
    ),
    "expanded_landing_page": (
        ["segments.date", "expanded_landing_page_view.expanded_final_url"],
        f"{METRICS} FROM expanded_landing_page_view{WEEK}",
    ),
    "placement": (
        ["segments.date", "ad_group.id", "detail_placement_view.placement"],
        f"detail_placement_view.display_name, {METRICS} FROM detail_placement_view{WEEK}",
    ),
    "user_location": (
        [
            "segments.date",
            "campaign.id",
            "user_location_view.country_criterion_id",
            "user_location_view.targeting_location",
        ],
        f"{METRICS} FROM user_location_view{WEEK}",
    ),
    "ad_asset": (
        [
            "segments.date",
            "ad_group_ad_asset_view.ad_group_ad",
            "ad_group_ad_asset_view.asset",
            "ad_group_ad_asset_view.field_type",
        ],
        f"{METRICS} FROM ad_group_ad_asset_view{WEEK}",
    ),
    "campaign_asset": (
        ["campaign_asset.campaign", "campaign_asset.asset", "campaign_asset.field_type"],
        "campaign_asset.status FROM campaign_asset",
    ),
    "click": (
        ["segments.date", "click_view.gclid"],
        "click_view.page_number, metrics.clicks FROM click_view WHERE segments.date = '2024-06-04'",
    ),
    "conversion_action": (
        ["conversion_action.id"],
        "conversion_action.name, conversion_action.category, conversion_action.tag_snippets FROM conversion_action",
    ),
}


def plan_of(name: str, account: EmulatedAccount) -> AnswerPlan:
    key, rest = QUERIES[name]
    return plan_answer(f"SELECT customer.id, {', '.join(key)}, {rest}", account, "v26")


def rows(name: str, account: EmulatedAccount, *, size: int | None = None) -> list[dict[str, Value]]:
    plan = plan_of(name, account)
    produced = answer(plan, account, AGENCY, row_faults=lambda _: RowFaults(size=size))
    return [dict(zip(plan.field_mask, values, strict=False)) for values in produced]


def spend(found: list[dict[str, Value]]) -> Counter[Value]:
    spent: Counter[Value] = Counter()
    for row in found:
        spent[row["campaign.id"]] += int(str(row["metrics.cost_micros"]))
    return spent


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("size", [None, 3_000])
def test_rows_are_unique_by_their_natural_key_and_no_key_is_missing(name: str, size: int | None) -> None:
    key = QUERIES[name][0]
    found = 0
    for account in CLIENTS[:1] + CLIENTS[-2:] if size else CLIENTS:
        keys = Counter(tuple(row[part] for part in key) for row in rows(name, account, size=size))
        assert set(keys.values()) <= {1}
        assert not any(None in values or "" in values for values in keys)
        found += len(keys)
    assert found > 10


@pytest.mark.parametrize("name", QUERIES)
def test_bytes_put_together_are_those_of_messages_filled_field_by_field(name: str) -> None:
    messages = messages_of("v26")
    assert messages
    account = AGENCY[3]
    plan = plan_of(name, account)
    serialize = RowSerializer(plan, messages.row)
    facts = answer_facts(plan, account, AGENCY, row_faults=lambda _: RowFaults(size=2_000))
    produced = answer(plan, account, AGENCY, row_faults=lambda _: RowFaults(size=2_000))
    for values, content in islice(zip(produced, map(serialize, facts), strict=True), 3_000):
        row = messages.row()
        fill_row(row, plan.fields, values)
        assert messages.row.FromString(content) == row


def test_performance_max_has_asset_groups_and_no_ads_and_spends_at_campaign_level() -> None:
    account = AGENCY[3]
    channels = {
        row[0]: row[1]
        for row in answer(
            plan_answer("SELECT campaign.id, campaign.advertising_channel_type FROM campaign", account, "v26"),
            account,
            AGENCY,
        )
    }
    assert set(channels.values()) == {"SEARCH", "PERFORMANCE_MAX"}
    campaigns, ads, asset_groups = (spend(rows(name, account)) for name in ("campaign", "ad", "asset_group"))
    assert ads == {campaign: cost for campaign, cost in campaigns.items() if channels[campaign] == "SEARCH"}
    assert asset_groups == {campaign: cost for campaign, cost in campaigns.items() if campaign not in ads}
    for finer in ("campaign_search_term", "geographic"):
        assert spend(rows(finer, account)) == campaigns


def test_hours_and_campaigns_add_up_to_the_account() -> None:
    for account in CLIENTS:
        totals = {
            name: sum(int(str(row["metrics.cost_micros"])) for row in rows(name, account))
            for name in ("account_daily", "account_hourly", "campaign")
        }
        assert len(set(totals.values())) == 1
    assert {row["segments.hour"] for row in rows("account_hourly", CLIENTS[0])} == set(range(24))


def test_an_account_has_3_to_8_conversion_actions_each_with_one_name_wherever_it_is_named() -> None:
    for account in CLIENTS:
        known = {
            f"customers/{account.customer_id}/conversionActions/{row['conversion_action.id']!r}": (
                row["conversion_action.name"],
                row["conversion_action.category"],
            )
            for row in rows("conversion_action", account)
        }
        assert 3 <= len(known) <= 8
        assert len({name for name, _ in known.values()}) == len(known)
        happened = defaultdict(set)
        for row in rows("conversions_by_action", account):
            happened[row["segments.conversion_action"]].add(
                (row["segments.conversion_action_name"], row["segments.conversion_action_category"])
            )
        assert happened
        assert all(names == {known[str(action)]} for action, names in happened.items())


def test_a_search_ad_has_headlines_as_messages_some_pinned() -> None:
    found = [row["ad_group_ad.ad.responsive_search_ad.headlines"] for row in rows("ad", CLIENTS[0])]
    assert all(isinstance(headlines, list) and 3 <= len(headlines) <= 15 for headlines in found)
    texts = [headline for headlines in found if isinstance(headlines, list) for headline in headlines]
    assert {"text"} in [set(text) for text in texts if isinstance(text, dict)]
    assert {"text", "pinned_field"} in [set(text) for text in texts if isinstance(text, dict)]
    assert "🚲" in repr(texts)
    assert "עונה" in repr(texts)


def test_some_amounts_are_beyond_what_a_floating_point_number_can_hold() -> None:
    gaql = "SELECT campaign_budget.amount_micros FROM campaign_budget"
    amounts = {
        int(str(row[0]))
        for account in CLIENTS
        for row in answer(plan_answer(gaql, account, "v26"), account, AGENCY)
        if row[0]
    }
    assert any(2**63 - 2_000 < amount < 2**63 for amount in amounts)
    assert min(amounts) < 10**10
