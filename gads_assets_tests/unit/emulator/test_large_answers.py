import tracemalloc
from collections import Counter
from collections.abc import Iterator
from datetime import date
from itertools import islice
from typing import Any

import pytest

from gads_assets.catalog.fields import row_descriptor
from gads_assets.catalog.gaql_query import CHANGE_TIME_FIELDS
from gads_assets.catalog.loading import load_catalog
from gads_assets.emulator import answers
from gads_assets.emulator.accounts import ACCOUNTS, made_up_accounts
from gads_assets.emulator.answers import answer, answer_facts
from gads_assets.emulator.compatibility import OFFERS
from gads_assets.emulator.entities import is_dark
from gads_assets.emulator.failures import RefusedCallError
from gads_assets.emulator.faults import RowFaults
from gads_assets.emulator.messages import fill_row, messages_of
from gads_assets.emulator.plan import AnswerPlan, plan_answer
from gads_assets.emulator.serializing import RowSerializer, framed, varint

BAKERY = ACCOUNTS[1]
AGENCY = made_up_accounts(30)
QUERIES = ("campaign", "ad_group", "keyword_view", "search_term_view")
WIDE = {name: ", ".join(load_catalog(None).query(name).gaql.select) for name in QUERIES}
MESSAGES = messages_of("v26")
assert MESSAGES


def plan_of(name: str, when: str = "= '2024-06-04'") -> AnswerPlan:
    return plan_answer(f"SELECT {WIDE[name]} FROM {name} WHERE segments.date {when}", BAKERY, "v26")


def serialized(plan: AnswerPlan, faults: RowFaults) -> Iterator[bytes]:
    assert MESSAGES
    facts = answer_facts(plan, BAKERY, ACCOUNTS, row_faults=lambda _: faults)
    return map(RowSerializer(plan, MESSAGES.row), facts)


def filled(plan: AnswerPlan, faults: RowFaults) -> Iterator[Any]:
    assert MESSAGES
    for values in answer(plan, BAKERY, ACCOUNTS, row_faults=lambda _: faults):
        row = MESSAGES.row()
        fill_row(row, plan.fields, values)
        yield row


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize(
    "faults",
    [RowFaults(), RowFaults(size=5_000), RowFaults(wrong_customer=2, wrong_day=3, sent_twice=4, size=2_000)],
    ids=["ordinary", "large", "faulty"],
)
def test_bytes_put_together_are_those_of_messages_filled_field_by_field(name: str, faults: RowFaults) -> None:
    plan = plan_of(name, "BETWEEN '2024-06-03' AND '2024-06-05'")
    expected = [row.SerializeToString() for row in filled(plan, faults)]
    assert list(serialized(plan, faults)) == expected
    assert len(expected) > 10


@pytest.mark.parametrize(
    "gaql",
    [
        "SELECT campaign.id, campaign.labels, campaign.network_settings.target_google_search, metrics.clicks, "
        "metrics.historical_quality_score, metrics.search_impression_share, segments.device FROM campaign "
        "WHERE segments.date = '2024-06-04'",
        "SELECT segments.keyword.info.text, segments.keyword.ad_group_criterion, metrics.average_cpc, segments.date "
        "FROM keyword_view WHERE segments.date BETWEEN '2024-06-03' AND '2024-06-04'",
        "SELECT user_list.id, user_list.name FROM user_list",
        "SELECT customer.id, customer.descriptive_name, metrics.ctr FROM customer",
    ],
)
def test_any_other_query_is_put_together_rightly_too(gaql: str) -> None:
    plan = plan_answer(gaql, BAKERY, "v26")
    for faults in (RowFaults(), RowFaults(size=1_000)):
        rows = list(filled(plan, faults))
        assert [
            type(row).FromString(content) for row, content in zip(rows, serialized(plan, faults), strict=True)
        ] == rows


# What the API wants beside the fields.
TERMS = {
    "click_view": " WHERE segments.date = '2024-06-04'",
    **{
        resource: f" WHERE {field} BETWEEN '2019-01-01' AND '2024-01-01' LIMIT 10000"
        for resource, field in CHANGE_TIME_FIELDS.items()
    },
}


def test_every_resource_answers_with_its_plain_fields() -> None:
    asked = 0
    for group in row_descriptor("v26").fields:
        message = group.message_type
        if message is None or group.name in ("metrics", "segments"):
            continue
        plain = [field.name.removesuffix("_") for field in message.fields if field.message_type is None]
        gaql = f"SELECT {', '.join(f'{group.name}.{name}' for name in plain)} FROM {group.name}"
        plan = plan_answer(gaql + TERMS.get(group.name, ""), BAKERY, "v26")
        rows = list(islice(filled(plan, RowFaults(size=40)), 40))
        contents = islice(serialized(plan, RowFaults(size=40)), 40)
        assert [type(row).FromString(content) for row, content in zip(rows, contents, strict=True)] == rows
        asked += bool(rows)
    assert asked > 100


@pytest.mark.parametrize("segments", ["", "segments.date", "segments.date, segments.device"])
def test_no_two_rows_of_any_resource_have_the_same_resource_name_and_segments(segments: str) -> None:
    asked = 0
    for group in row_descriptor("v26").fields:
        offered = OFFERS.get(group.name)
        if group.name in ("metrics", "segments") or (segments and offered and "device" not in offered.segments):
            continue
        select = ", ".join(filter(None, (f"{group.name}.resource_name", segments)))
        days = " WHERE segments.date BETWEEN '2024-06-03' AND '2024-06-05'" if segments else ""
        gaql = f"SELECT {select} FROM {group.name}{TERMS.get(group.name, days)}"
        for account in (BAKERY, AGENCY[3]):
            plan = plan_answer(gaql, account, "v26")
            rows = Counter(answer(plan, account, AGENCY, row_faults=lambda _: RowFaults(size=500)))
            assert set(rows.values()) <= {1}, gaql
            asked += bool(rows)
    assert asked > 200


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("size", [0, 1, 7, 20_000])
def test_a_day_has_as_many_rows_as_were_asked_for_each_with_a_key_of_its_own(name: str, size: int) -> None:
    schema = load_catalog(None).query(name).schema
    plan = plan_of(name)
    places = [schema.column_names.index(part) for part in schema.natural_key]
    rows = list(answer(plan, BAKERY, ACCOUNTS, row_faults=lambda _: RowFaults(size=size)))
    assert len(rows) == size
    assert set(Counter(tuple(row[place] for place in places) for row in rows).values()) <= {1}


def test_a_large_day_spends_what_the_ordinary_one_does_and_its_copies_have_ids_near_the_largest_there_is() -> None:
    plan = plan_of("keyword_view")
    cost, keyword = (plan.field_mask.index(path) for path in ("metrics.cost_micros", "ad_group_criterion.criterion_id"))
    ordinary = list(answer(plan, BAKERY, ACCOUNTS))
    large = list(answer(plan, BAKERY, ACCOUNTS, row_faults=lambda _: RowFaults(size=3_000)))
    assert large[: len(ordinary)] == ordinary
    assert sum(int(str(row[cost])) for row in large) == sum(int(str(row[cost])) for row in ordinary)
    assert all(2**62 < int(str(row[keyword])) < 2**63 for row in large[len(ordinary) :])


def test_a_day_on_which_nothing_was_shown_has_the_rows_that_were_asked_for_too() -> None:
    days = (date.fromordinal(date(2024, 1, 1).toordinal() + offset) for offset in range(200))
    dark = next(day for day in days if is_dark(BAKERY, day.isoformat()))
    plan = plan_of("campaign", f"= '{dark}'")
    assert list(answer(plan, BAKERY, ACCOUNTS)) == []
    assert len(list(answer(plan, BAKERY, ACCOUNTS, row_faults=lambda _: RowFaults(size=100)))) == 100


def test_two_million_rows_are_made_in_little_memory() -> None:
    plan = plan_of("campaign")
    rows = serialized(plan, RowFaults(size=2_000_000))
    framed(list(islice(rows, 1_000)))
    tracemalloc.start()
    for _ in range(30):
        assert framed(list(islice(rows, 1_000)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000
    assert sum(1 for _ in islice(serialized(plan, RowFaults(size=2_000_000)), 300_000)) == 300_000


def test_the_first_rows_by_an_order_are_found_among_many_without_holding_them(monkeypatch: pytest.MonkeyPatch) -> None:
    select = "SELECT campaign.id, campaign.name, metrics.impressions FROM campaign WHERE segments.date = '2024-06-04'"

    def rows(clauses: str) -> list[tuple[object, ...]]:
        plan = plan_answer(f"{select} {clauses}", BAKERY, "v26")
        return list(answer(plan, BAKERY, ACCOUNTS, row_faults=lambda _: RowFaults(size=3_000)))

    everything = rows("ORDER BY campaign.name DESC, metrics.impressions, campaign.id DESC")
    assert everything != rows("")
    assert sorted(map(repr, everything)) == sorted(map(repr, rows("")))
    by_name = sorted(rows(""), key=lambda row: int(str(row[0])), reverse=True)
    by_name.sort(key=lambda row: int(str(row[2])))
    by_name.sort(key=lambda row: str(row[1]), reverse=True)
    assert everything == by_name
    monkeypatch.setattr(answers, "MOST_ORDERED", 50)
    assert rows("ORDER BY campaign.name DESC, metrics.impressions, campaign.id DESC LIMIT 40") == everything[:40]
    for too_many in ("", "LIMIT 51"):
        with pytest.raises(RefusedCallError, match="orders no more than 50 rows: add a LIMIT"):
            rows(f"ORDER BY campaign.name {too_many}")


def test_the_same_question_has_the_same_bytes() -> None:
    first, second = (list(serialized(plan_of("search_term_view"), RowFaults(size=4_000))) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("number", "content"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (2**63 - 1, b"\xff" * 8 + b"\x7f"), (-1, b"\xff" * 9 + b"\x01")],
)
def test_whole_numbers_have_protobufs_own_form(number: int, content: bytes) -> None:
    assert varint(number) == content


@pytest.mark.parametrize(("percent", "size", "left"), [(50, 1_000, 500), (1, 10, 9), (100, 10, 0), (30, 1, 0)])
def test_a_truncated_day_lacks_its_last_rows_and_at_least_one(percent: int, size: int, left: int) -> None:
    whole = list(serialized(plan_of("campaign"), RowFaults(size=size)))
    assert list(serialized(plan_of("campaign"), RowFaults(size=size, missing_percent=percent))) == whole[:left]
