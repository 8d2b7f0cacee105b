import pytest
from hypothesis import given
from hypothesis import strategies as st

from gads_assets.domain.content import (
    ContentDigest,
    digest_from_aggregates,
    parse_content_digest,
    total,
)
from gads_assets.errors import WarehouseError

halves = st.integers(min_value=0, max_value=2**32 - 1)
digests = st.builds(
    digest_from_aggregates,
    rows=st.integers(min_value=0, max_value=10**9),
    first_low=halves,
    first_high=halves,
    second_low=halves,
    second_high=halves,
)


@given(digests)
def test_a_digest_reads_back_from_its_text(digest: ContentDigest) -> None:
    assert parse_content_digest(str(digest)) == digest


@given(st.lists(digests), st.lists(digests))
def test_the_digest_of_a_batch_is_the_sum_of_its_parts_in_any_grouping(
    left: list[ContentDigest], right: list[ContentDigest]
) -> None:
    assert total([*left, *right]) == total([total(right), total(left)])


@pytest.mark.parametrize("text", ["", "3", "3-xyz", "-1-" + "0" * 32, "3-" + "0" * 31])
def test_a_text_that_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(WarehouseError, match="not a content digest"):
        parse_content_digest(text)
