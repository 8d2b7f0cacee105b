from hypothesis import given
from hypothesis import strategies as st

from gads_assets.emulator.traffic import Traffic, split, total

counts = st.integers(min_value=0, max_value=10**12)


@st.composite
def traffics(draw: st.DrawFn) -> Traffic:
    clicks = draw(st.integers(min_value=0, max_value=10**6))
    conversions = draw(st.integers(min_value=0, max_value=clicks * 11))
    return Traffic(
        clicks=clicks,
        unclicked=draw(counts),
        cost_micros=draw(counts) if clicks else 0,
        conversions=conversions,
        conversions_value=draw(counts) if conversions else 0,
        view_through=draw(counts),
    )


weights = st.lists(st.integers(min_value=0, max_value=9), min_size=1, max_size=12)


@given(traffics(), weights)
def test_shares_add_up_to_the_whole_exactly(whole: Traffic, parts: list[int]) -> None:
    assert total(split(whole, parts)) == whole


@given(traffics(), weights)
def test_no_share_has_more_clicks_than_impressions_or_cost_without_clicks(whole: Traffic, parts: list[int]) -> None:
    for share in split(whole, parts):
        assert 0 <= share.clicks <= share.impressions
        assert share.clicks or not share.cost_micros
        assert share.conversions <= 100 * share.clicks
        assert share.conversions or not share.conversions_value


def test_nothing_at_all_adds_up_to_nothing() -> None:
    assert total([]) == Traffic()
