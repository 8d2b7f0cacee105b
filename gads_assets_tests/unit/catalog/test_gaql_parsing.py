"""GAQL of the kind that Google's documentation shows is read, printed and read again as the same query."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gads_assets.catalog.gaql import (
    Condition,
    GaqlQuery,
    Literal,
    LiteralKind,
    Operand,
    Operator,
    Ordering,
    Parameter,
    parse_gaql,
    print_gaql,
    quoted,
)

VALID = [
    "SELECT campaign.id FROM campaign",
    "SELECT campaign.id, campaign.name FROM campaign ORDER BY campaign.id",
    "select campaign.id from campaign where campaign.status = 'ENABLED' order by campaign.id desc limit 5",
    "SELECT campaign.id\nFROM campaign\n\tWHERE campaign.id = 123456789\r\n",
    "SELECT campaign.name, metrics.clicks FROM campaign WHERE segments.date DURING LAST_30_DAYS",
    "SELECT campaign.name FROM campaign WHERE segments.date during last_week_mon_sun",
    "SELECT campaign.name FROM campaign WHERE segments.date BETWEEN '2024-01-01' AND '2024-01-31'",
    "SELECT campaign.name FROM campaign WHERE segments.date >= '2024-01-01' AND segments.date <= '2024-01-31'",
    "SELECT campaign.id FROM campaign WHERE campaign.status IN ('ENABLED', 'PAUSED')",
    "SELECT campaign.id FROM campaign WHERE campaign.status NOT IN (REMOVED)",
    "SELECT campaign.id FROM campaign WHERE campaign.id IN (1, 2, 3)",
    "SELECT campaign.id FROM campaign WHERE campaign.name LIKE '[[]Earth[_]to[_]Mars[]]%'",
    "SELECT campaign.id FROM campaign WHERE campaign.name NOT LIKE '%test%'",
    'SELECT campaign.id FROM campaign WHERE campaign.name REGEXP_MATCH ".*[Ss]ale.*"',
    r"SELECT campaign.id FROM campaign WHERE campaign.name NOT REGEXP_MATCH '^\\d{4}\w+$'",
    "SELECT campaign.id FROM campaign WHERE campaign.labels CONTAINS ANY ('customers/1/labels/2')",
    "SELECT campaign.id FROM campaign WHERE campaign.labels CONTAINS ALL ('customers/1/labels/2', \"x\")",
    "SELECT campaign.id FROM campaign WHERE campaign.labels CONTAINS NONE ('customers/1/labels/2')",
    "SELECT campaign.id FROM campaign WHERE campaign.bidding_strategy IS NULL",
    "SELECT campaign.id FROM campaign WHERE campaign.bidding_strategy is not null",
    'SELECT campaign.id FROM campaign WHERE campaign.name != "Bob\'s"',
    r"SELECT campaign.id FROM campaign WHERE campaign.name = 'Bob\'s \\ \"shop\"'",
    "SELECT campaign.id FROM campaign WHERE campaign.name = ''",
    "SELECT campaign.id FROM campaign WHERE campaign.name = 'Zürich 東京 🛒'",
    "SELECT campaign.id FROM campaign WHERE campaign.name = 'SELECT x FROM y -- ; WHERE'",
    "SELECT metrics.ctr FROM campaign WHERE metrics.ctr > 0.05 AND metrics.cost_micros < 1000000",
    "SELECT metrics.ctr FROM campaign WHERE campaign_criterion.bid_modifier >= -0.9",
    "SELECT campaign.id FROM campaign WHERE campaign_criterion.negative = TRUE",
    "SELECT ad_group_ad.ad.type, ad_group_ad.ad.responsive_search_ad.headlines FROM ad_group_ad",
    "SELECT ad_group_ad.ad.id FROM ad_group_ad WHERE ad_group_ad.policy_summary.approval_status = DISAPPROVED",
    "SELECT metrics.clicks, segments.device FROM customer ORDER BY metrics.clicks DESC, segments.device ASC",
    "SELECT campaign.id FROM campaign PARAMETERS include_drafts=true",
    "SELECT campaign.id FROM campaign LIMIT 50 PARAMETERS include_drafts = true, omit_unselected_resource_names = true",
    "SELECT change_event.resource_name FROM change_event "
    "WHERE change_event.change_date_time >= '2024-01-01' AND change_event.change_date_time <= '2024-01-14' "
    "ORDER BY change_event.change_date_time DESC LIMIT 10000",
    "SELECT click_view.gclid, segments.date FROM click_view WHERE segments.date = '2024-06-01'",
    "SELECT customer_client.id, customer_client.manager FROM customer_client WHERE customer_client.level <= 1",
    "SELECT segments.product_item_id, segments.product_custom_attribute0 FROM shopping_performance_view",
    "SELECT geo_target_constant.id FROM geo_target_constant WHERE geo_target_constant.country_code='FR'",
    "SELECT keyword_view.resource_name,ad_group_criterion.keyword.text FROM keyword_view WHERE metrics.impressions>0",
    "SELECT asset_group.id FROM asset_group WHERE campaign.advertising_channel_type = 'PERFORMANCE_MAX'",
    "SELECT search_term_view.search_term FROM search_term_view WHERE segments.week BETWEEN 20240101 AND 20240201",
    "SELECT in_market.id FROM limited",
]


@pytest.mark.parametrize("text", VALID)
def test_documented_gaql_survives_reading_and_printing(text: str) -> None:
    query = parse_gaql(text)
    printed = print_gaql(query)
    assert parse_gaql(printed) == query
    assert "\n" not in printed
    assert print_gaql(parse_gaql(printed)) == printed


def test_every_clause_arrives_as_a_value() -> None:
    query = parse_gaql(
        "SELECT campaign.id, metrics.clicks FROM campaign "
        "WHERE campaign.status IN ('ENABLED', 'PAUSED') AND segments.date BETWEEN '2024-01-01' AND '2024-01-02' "
        "AND campaign.name IS NOT NULL ORDER BY metrics.clicks DESC, campaign.id LIMIT 10 "
        "PARAMETERS include_drafts=true"
    )
    assert query == GaqlQuery(
        select=("campaign.id", "metrics.clicks"),
        resource="campaign",
        conditions=(
            Condition(field="campaign.status", operator=Operator.IN, values=(quoted("ENABLED"), quoted("PAUSED"))),
            Condition(
                field="segments.date",
                operator=Operator.BETWEEN,
                values=(quoted("2024-01-01"), quoted("2024-01-02")),
            ),
            Condition(field="campaign.name", operator=Operator.IS_NOT_NULL, values=()),
        ),
        order_by=(
            Ordering(field="metrics.clicks", descending=True),
            Ordering(field="campaign.id", descending=False),
        ),
        limit=10,
        parameters=(Parameter(name="include_drafts", value=Literal(kind=LiteralKind.WORD, source="true")),),
    )


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (r"'Bob\'s'", "Bob's"),
        (r'"say \"hi\""', 'say "hi"'),
        (r"'a\\b'", r"a\b"),
        (r"'\d+'", r"\d+"),
        ("-12", -12),
        ("0.5", 0.5),
        ("9223372036854775807", 9223372036854775807),
        ("ENABLED", "ENABLED"),
    ],
)
def test_a_literal_means_what_it_says_and_is_printed_as_written(source: str, value: object) -> None:
    text = f"SELECT a.b FROM c WHERE a.b = {source}"
    query = parse_gaql(text)
    assert query.conditions[0].values[0].value == value
    assert print_gaql(query) == text


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])))
def test_any_printable_text_can_be_quoted_and_is_read_back(value: str) -> None:
    condition = Condition(field="a.b", operator=Operator.EQUALS, values=(quoted(value),))
    printed = print_gaql(GaqlQuery(select=("a.b",), resource="c", conditions=(condition,)))
    assert parse_gaql(printed).conditions[0].values[0].value == value


_fields = st.from_regex(r"[a-z][a-z0-9_]{0,8}(\.[a-z0-9_]{1,8}){1,3}", fullmatch=True)
_texts = st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=12).map(quoted)
_numbers = st.integers(-(2**70), 2**70).map(lambda n: Literal(kind=LiteralKind.NUMBER, source=str(n)))
_words = st.sampled_from(["ENABLED", "TRUE", "SOME_2"]).map(lambda w: Literal(kind=LiteralKind.WORD, source=w))
_same_kind_lists = st.one_of(*(st.lists(kind, min_size=1, max_size=4) for kind in (_texts, _numbers, _words)))


@st.composite
def _conditions(draw: st.DrawFn) -> Condition:
    operator = draw(st.sampled_from(Operator))
    match operator.operand:
        case Operand.NOTHING:
            values: list[Literal] = []
        case Operand.LIST:
            values = draw(_same_kind_lists)
        case Operand.BOUNDS:
            values = draw(st.lists(_texts, min_size=2, max_size=2))
        case Operand.TEXT:
            values = [draw(_texts)]
        case Operand.DATE_RANGE:
            values = [Literal(kind=LiteralKind.WORD, source="YESTERDAY")]
        case Operand.ONE:
            values = [draw(st.one_of(_texts, _numbers, _words))]
    return Condition(field=draw(_fields), operator=operator, values=tuple(values))


_queries = st.builds(
    GaqlQuery,
    select=st.lists(_fields, min_size=1, max_size=4).map(tuple),
    resource=st.sampled_from(["campaign", "ad_group", "keyword_view"]),
    conditions=st.lists(_conditions(), max_size=4).map(tuple),
    order_by=st.lists(st.builds(Ordering, field=_fields, descending=st.booleans()), max_size=3).map(tuple),
    limit=st.none() | st.integers(1, 2**63 - 1),
    parameters=st.lists(
        st.builds(Parameter, name=st.sampled_from(["include_drafts", "p2"]), value=_words),
        max_size=2,
        unique_by=lambda parameter: parameter.name,
    ).map(tuple),
)


@given(_queries)
def test_whatever_can_be_expressed_is_printed_so_that_it_reads_the_same(query: GaqlQuery) -> None:
    assert parse_gaql(print_gaql(query)) == query
