from datetime import date

import pytest

from gads_assets.domain.keys import (
    parse_customer_id,
    parse_logical_date,
    parse_run_id,
    partition_key_from_label,
)
from gads_assets.errors import PartitionKeyError


@pytest.mark.parametrize("text", ["1234567890", "123-456-7890", " 123-456-7890 "])
def test_a_customer_id_is_its_ten_digits_however_people_write_it(text: str) -> None:
    assert parse_customer_id(text) == "1234567890"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "123456789",
        "12345678901",
        "12345-67890",
        "1-234567890",
        "-123-456-7890",
        "123-456-789-0",
        "123--456-7890",
        "12345678x0",
        "\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18\uff19\uff10",
        "1234567890\n1",
        "'; DROP TABLE x",
    ],
)
def test_anything_but_ten_digits_is_refused_naming_the_input(text: str) -> None:
    with pytest.raises(PartitionKeyError, match="is not ten digits") as refused:
        parse_customer_id(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    "text", ["2024-6-1", "2024-06-31", "20240601", "2024-06-01T00:00", "2024-06-01\n", "yesterday"]
)
def test_a_day_that_is_not_a_plain_date_is_refused(text: str) -> None:
    with pytest.raises(PartitionKeyError, match="YYYY-MM-DD"):
        parse_logical_date(text)


@pytest.mark.parametrize(
    "text", ["", "01ARZ3NDEKTSV4RRFFQ69G5FA", "01arz3ndektsv4rrffq69g5fav", "../../../../etc/passwd0000"]
)
def test_a_run_id_that_could_leave_its_folder_or_is_no_ulid_is_refused(text: str) -> None:
    with pytest.raises(PartitionKeyError, match="ULID"):
        parse_run_id(text)


def test_a_partition_reads_back_from_the_label_that_dagster_shows() -> None:
    key = partition_key_from_label("1234567890|2024-06-01", source="google_ads", query_name="campaign")
    assert (key.customer_id, key.logical_date, key.label) == ("1234567890", date(2024, 6, 1), "1234567890|2024-06-01")


def test_a_label_without_its_separator_is_refused_with_the_form_to_use() -> None:
    with pytest.raises(PartitionKeyError, match=r"<customer id>\|<YYYY-MM-DD>"):
        partition_key_from_label("1234567890 2024-06-01", source="google_ads", query_name="campaign")


def test_what_was_given_is_quoted_no_longer_than_it_takes_to_recognize_it() -> None:
    for parse in (parse_customer_id, parse_logical_date, parse_run_id):
        with pytest.raises(PartitionKeyError) as refused:
            parse("x" * 5000)
        assert len(str(refused.value)) < 200
