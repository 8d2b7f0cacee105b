"""The quick look at a block clears nothing that parsing its lines would not."""

import json
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gads_assets.catalog.specification import Column, QuerySchema, Terms
from gads_assets.validate import written_rows
from gads_assets.validate.written_rows import written_otherwise
from gads_assets_tests.sealed_runs import as_line

COLUMNS = (
    Column(name="customer_id", field="customer.id", type="bigint"),
    Column(name="segments_date", field="segments.date", type="date"),
    Column(name="campaign_name", field="campaign.name", type="string"),
    Column(name="campaign_labels", field="campaign.labels", type="array<string>"),
    Column(name="metrics_conversions", field="metrics.conversions", type="double"),
)
SCHEMA = QuerySchema(
    query_name="campaign",
    version="1",
    columns=COLUMNS,
    natural_key=("customer_id", "segments_date"),
    terms=Terms(resource="campaign"),
)

texts = (
    st.none() | st.text(alphabet=st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["}", '":', "\\", '"'])
)
rows = st.fixed_dictionaries(
    {
        "customer_id": st.none() | st.integers(),
        "segments_date": st.dates(min_value=date(1000, 1, 1)).map(date.isoformat),
        "campaign_name": texts,
        "campaign_labels": st.none() | st.lists(texts, max_size=2),
        "metrics_conversions": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    }
)
lines = rows.map(as_line)


def block(*written: bytes) -> bytes:
    return b"".join(line + b"\n" for line in written)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines that the quick look left to be parsed."""
    seen: list[bytes] = []
    problem = written_rows._problem

    def noted(line: bytes, schema: QuerySchema) -> str | None:
        seen.append(line)
        return problem(line, schema)

    monkeypatch.setattr(written_rows, "_problem", noted)
    return seen


USUAL = {
    "customer_id": 1234567890,
    "segments_date": "2024-06-01",
    "campaign_name": "Kampagne № 1: 20% off, {today",
    "campaign_labels": [],
    "metrics_conversions": 0.5,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"campaign_name": None, "campaign_labels": None, "metrics_conversions": None},
        {"campaign_name": 'the "best" shoes'},
        {"campaign_name": 'they say "now":'},
        {"campaign_name": "back\\slash"},
        {"campaign_name": "line\nbreak\ttab"},
        {"campaign_name": "日本語"},
        {"customer_id": -5, "metrics_conversions": 1e-7},
    ],
)
def test_usual_rows_are_cleared_without_being_parsed(parsed: list[bytes], changes: dict[str, object]) -> None:
    written = block(*[as_line({**USUAL, **changes})] * 3)

    assert written_otherwise([written, written], SCHEMA) is None
    assert parsed == []


@pytest.mark.parametrize(
    "changes",
    [
        {"campaign_name": "{a}"},
        {"campaign_name": 'ends with \\"'},
        {"campaign_labels": ["a", 'b"'], "customer_id": None},
    ],
)
def test_unusual_rows_are_parsed_and_found_good(parsed: list[bytes], changes: dict[str, object]) -> None:
    line = as_line({**USUAL, **changes})

    assert written_otherwise([block(line)], SCHEMA) is None
    assert parsed == [line]


GOOD = as_line(USUAL)


def _replaced(old: str, new: str) -> bytes:
    changed = GOOD.decode().replace(old, new, 1)
    assert changed != GOOD.decode()
    return changed.encode()


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (_replaced('"campaign_labels":[],', ""), "without campaign_labels"),
        (_replaced('"campaign_labels":[]', '"campaign_label":[]'), "without campaign_labels"),
        (_replaced('{"customer_id"', '{"a":1,"customer_id"'), "unknown or repeated a"),
        (_replaced('"customer_id"', '"a" :1,"customer_id"'), "unknown or repeated a"),
        (_replaced('"customer_id"', '"a"\t:1,"customer_id"'), "unknown or repeated a"),
        (_replaced('"customer_id"', '"customer_id":1,"customer_id"'), "unknown or repeated customer_id"),
        (_replaced('"2024-06-01"', '"2024-6-001"'), "segments_date is no date"),
        (_replaced('"2024-06-01"', '"+024-06-01"'), "segments_date is no date"),
        (_replaced('"2024-06-01"', '"2024-06-01T00"'), "segments_date is no date"),
        (_replaced('"2024-06-01"', "20240601"), "segments_date is no date"),
        (_replaced('"campaign_labels":[]', '"campaign_labels":[1]'), "campaign_labels is no array"),
        (_replaced('"campaign_labels":[]', '"campaign_labels":{}'), "campaign_labels is no array"),
        (GOOD + b"}", "Extra data"),
        (b"\xef\xbb\xbf" + GOOD, "BOM"),
        (b"junk" + GOOD, "Expecting value"),
        (GOOD + b" more", "Extra data"),
        (GOOD + GOOD, "Extra data"),
        (GOOD[:-1] + b',"a":1}', "unknown or repeated a"),
        (GOOD[:-1] + b',"a":null}', "unknown or repeated a"),
        (GOOD.replace("№".encode(), b"\xff"), "not in UTF-8"),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 1000])
def test_a_row_that_is_written_otherwise_is_found_wherever_it_stands(bad: bytes, what: str, before: int) -> None:
    fault = written_otherwise([block(*[GOOD] * before, bad, GOOD)], SCHEMA)

    assert fault is not None
    assert (fault.rows, len(fault.samples)) == (1, 1)
    assert what in fault.what


def test_many_such_rows_are_counted_and_some_of_them_shown() -> None:
    bad = block(*[_replaced('"campaign_labels":[],', "")] * 30)

    fault = written_otherwise([bad, block(GOOD), bad], SCHEMA)

    assert fault is not None
    assert (fault.rows, len(fault.samples)) == (60, 20)
    assert "the first without campaign_labels" in fault.what


def test_a_last_line_without_a_break_and_blank_lines_are_lines_too() -> None:
    assert written_otherwise([block(GOOD) + GOOD], SCHEMA) is None
    assert written_otherwise([b"\n \n" + block(GOOD) + b"\n"], SCHEMA) is None
    assert written_otherwise([], SCHEMA) is None


def _begins_with_an_object(line: bytes) -> bool:
    """What Spark makes sure of, for every line."""
    try:
        found, _ = json.JSONDecoder().raw_decode(line.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict)


fragments = st.sampled_from(
    [
        b'"',
        b"\\",
        b":",
        b",",
        b"{",
        b"}",
        b"[",
        b"]",
        b" ",
        b"null",
        b'"a":1,',
        b'"a" :1,',
        b',"customer_id":1',
        b"\xff",
    ]
)


@settings(max_examples=1500, deadline=None)
@given(st.lists(lines, min_size=1, max_size=4), st.data())
def test_what_the_quick_look_clears_parsing_would_clear_too(written: list[bytes], data: st.DataObject) -> None:
    content = bytearray(block(*written))
    for _ in range(data.draw(st.integers(0, 4))):
        begin = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(begin, min(begin + 8, len(content))))
        content[begin:end] = data.draw(fragments | st.just(bytes(content[:end][-12:])) | st.just(b""))
    changed = [line for line in bytes(content).split(b"\n") if line.strip()]

    is_cleared = written_rows._shape(SCHEMA).fits(bytes(content))

    if is_cleared and all(map(_begins_with_an_object, changed)):
        assert [written_rows._problem(line, SCHEMA) for line in changed] == [None] * len(changed)
