"""Runs whose bytes are as sealed and whose rows are wrong: what was done, and what the rejection must say."""

import gzip
from dataclasses import replace
from datetime import timedelta

from gads_assets_tests.integration.validate.spoiling import COLUMNS, Run, Spoil, full_row, lines, row, text
from gads_assets_tests.sealed_runs import as_line

NOT_HELD = r"schema: .*1 row that the columns of schema version 1 cannot hold"
NO_OBJECT = r"schema: .*1 row other than a JSON object"
NOT_UTF8 = r"schema: (1 row|3 rows) .*not in UTF-8 \(.* at byte \d+\)"
NOT_ONE = r"schema: (1 row|. rows written otherwise .*\(the first) other than one JSON object \({}"
NO_DAY = r"schema: (1 row|. rows written otherwise .*\(the first) whose segments_date is no date"
TYPE_OF = {column.name: column.type for column in COLUMNS}
LONG = 21_000_000  # beyond what Spark's parser takes for a text
DEEP = 50_000


def _unnamed(run: Run) -> None:
    run.seal(as_line({name: value for name, value in full_row(run.key, 1).items() if name != "campaign_name"}))


def _day(written: str) -> Spoil:
    return lambda run: row(segments_date=written.format(run.key.logical_date))(run)


def _of_day(days: int) -> Spoil:
    def spoil(run: Run) -> None:
        other = replace(run.key, logical_date=run.key.logical_date + timedelta(days=days))
        run.seal(*replace(run, key=other).lines())

    return spoil


def _first(line: bytes) -> Spoil:
    return lines(lambda good: [line, *good[1:]])


def _last(line: bytes) -> Spoil:
    return lines(lambda good: [*good[:-1], line])


def _reencoded(encoding: str) -> Spoil:
    return lines(lambda good: [line.decode().encode(encoding) for line in good])


MEMBERS: dict[str, tuple[Spoil, str]] = {
    "a member is missing": (
        _unnamed,
        r"schema: 1 row without campaign_name, 1 row with other members than the 12 of schema version 1",
    ),
    "a member too many": (
        row({"surprise": 1}),
        r"schema: 1 row with an unknown or repeated surprise, 1 row with other members",
    ),
    "a member too many in every row": (
        row(surprise=1),
        r"schema: 3 rows written otherwise .*\(the first with an unknown or repeated surprise\), 3 rows with other",
    ),
    "a member renamed": (text("campaign_name", "campaign_title"), r"schema: 1 row without campaign_name"),
    "a member in capitals": (
        text("campaign_name", "CAMPAIGN_NAME"),
        r"schema: 1 row without campaign_name",
    ),
    "a member twice": (
        text('"campaign_id":1', '"campaign_id":9,"campaign_id":1'),
        r"schema: 1 row with an unknown or repeated campaign_id",
    ),
    "an empty object": (
        _first(b"{}"),
        r"schema: 1 row without campaign_advertising_channel_type, campaign_id",
    ),
}

# The column of the first row, and what stands in it.
WRONG_VALUES: dict[str, tuple[str, object]] = {
    "text for bigint": ("metrics_clicks", "many"),
    "digits in quotes for bigint": ("metrics_clicks", "10"),
    "a fraction for bigint": ("metrics_clicks", 1.5),
    "a whole fraction for bigint": ("metrics_clicks", 1.0),
    "true for bigint": ("metrics_clicks", True),
    "a list for bigint": ("metrics_clicks", [1]),
    "an object for bigint": ("metrics_clicks", {"value": 1}),
    "2^63 for bigint": ("metrics_clicks", 2**63),
    "2^70 for bigint": ("metrics_clicks", 2**70),
    "a thousand digits for bigint": ("metrics_clicks", 10**999),
    "2^31 for int": ("metrics_phone_calls", 2**31),
    "text for int": ("metrics_phone_calls", "few"),
    "a fraction for int": ("metrics_phone_calls", 0.5),
    "text for double": ("metrics_conversions", "some"),
    "true for double": ("metrics_conversions", True),
    "a list for double": ("metrics_conversions", [0.5]),
    "a number for boolean": ("customer_test_account", 1),
    "text for boolean": ("customer_test_account", "false"),
    "text for a list": ("campaign_labels", "spring"),
    "an object for a list": ("campaign_labels", {"spring": True}),
    "a list of numbers for one of texts": ("campaign_labels", [1]),
    "a list of objects for one of texts": ("campaign_labels", [{"a": 1}]),
    "a number for text": ("campaign_name", 5),
    "true for text": ("campaign_name", True),
    "an object for text": ("campaign_name", {"de": "Kampagne"}),
    "a list for text": ("campaign_name", ["Kampagne"]),
    "garbage for a date": ("segments_date", "yesterday"),
    "a day that is not in the calendar": ("segments_date", "2020-02-31"),
    "an empty date": ("segments_date", ""),
    "a number for a date": ("segments_date", 20200101),
    "the customer as text": ("customer_id", "1234567890"),
}

TYPES: dict[str, tuple[Spoil, str]] = {
    kind: (row({column: value}), rf"schema: .*1 row .*whose {column} is no {TYPE_OF[column]}")
    for kind, (column, value) in WRONG_VALUES.items()
} | {
    "a time for a date": (_day("{}T00:00:00"), NO_DAY),
    "a date with words": (_day("{} about"), NO_DAY),
    "a date with a blank": (_day(" {}"), NO_DAY),
    "more digits than any parser takes": (
        text('"metrics_clicks":10', '"metrics_clicks":' + "1" * 5_000),
        NOT_ONE.format(".*5000 digits"),
    ),
    "text for bigint in a later row": (
        row({}, {"metrics_clicks": "many"}),
        r"schema: 1 row whose metrics_clicks is no bigint",
    ),
}

LINES: dict[str, tuple[Spoil, str]] = {
    "an array for a row": (_first(b"[1, 2]"), NO_OBJECT),
    "an array of rows": (lines(lambda good: [b"[" + b",".join(good) + b"]"]), NO_OBJECT),
    "a text for a row": (_first(b'"row"'), NO_OBJECT),
    "a number for a row": (_first(b"7"), NO_OBJECT),
    "null for a row": (_first(b"null"), NO_OBJECT),
    "null for a later row": (_last(b"null"), NO_OBJECT),
    "a text for a later row": (_last(b'"row"'), NO_OBJECT),
    "words": (_first(b"internal server error"), NOT_ONE.format("Expecting value")),
    "half a row": (lines(lambda good: [good[0][:60], *good[1:]]), NOT_ONE.format("Unterminated string .*char")),
    "half a row at the end": (lines(lambda good: [*good[:-1], good[-1][:70]]), NOT_HELD),
    "a row in single quotes": (
        lines(lambda good: [good[0].replace(b'"', b"'"), *good[1:]]),
        NOT_ONE.format("Expecting property name enclosed in double quotes"),
    ),
    "a later row in single quotes": (lines(lambda good: [*good[:-1], good[-1].replace(b'"', b"'")]), NOT_HELD),
    "a row over two lines": (
        lines(lambda good: [good[0].replace(b",", b",\n", 1), *good[1:]]),
        NOT_ONE.format("Expecting property name"),
    ),
    "a blank line": (lines(lambda good: [*good, b""]), r"record_count: 3 rows found where the seal says 4"),
    "a line of blanks": (lines(lambda good: [b"  \t", *good]), r"record_count: 3 rows found where the seal says 4"),
    "two rows in a line": (lines(lambda good: [good[0] + good[1], *good[2:]]), NOT_ONE.format("Extra data")),
    "words after a row": (lines(lambda good: [good[0] + b" and so on", *good[1:]]), NOT_ONE.format("Extra data")),
    "invalid UTF-8 in a text": (text("Kampagne", b"Kampagn\xe9"), NOT_UTF8),
    "invalid UTF-8 in a name": (text("campaign_name", b"campaign_nam\xe9"), NOT_UTF8),
    "invalid UTF-8 alone": (_first(b"\xff\xfe\xfd"), NOT_UTF8),
    "half a surrogate pair as bytes": (text("Kampagne", b"\xed\xa0\x80"), NOT_UTF8),
    "Latin-1": (lines(lambda good: [line.replace("№".encode(), b"\xfc") for line in good]), NOT_UTF8),
    "a byte order mark": (lines(lambda good: [b"\xef\xbb\xbf" + good[0], *good[1:]]), NOT_ONE.format(".*BOM")),
    "UTF-16": (_reencoded("utf-16"), NOT_UTF8),
    "UTF-16 without a mark": (_reencoded("utf-16-le"), NOT_ONE.format("Expecting property name")),
    "UTF-16 the other way round": (_reencoded("utf-16-be"), NOT_ONE.format("Expecting value")),
    "UTF-32": (_reencoded("utf-32"), NOT_UTF8),
    "a NUL in a text": (text("Kampagne", b"Kamp\x00gne"), NOT_ONE.format("Invalid control character")),
    "a NUL in a later text": (
        lines(lambda good: [*good[:-1], good[-1].replace(b"Kampagne", b"Kamp\x00gne")]),
        NOT_HELD,
    ),
    "a NUL alone": (_first(b"\x00"), NO_OBJECT),
    "a very long text": (row({"campaign_name": "x" * LONG}), NOT_HELD),
    "a very long line of words": (_first(b"x" * LONG), NO_OBJECT),
    "a very long later line": (_last(b'{"a": "' + b"x" * LONG), NOT_HELD),
    "deep lists": (text('"Kampagne №1"', "[" * DEEP + "]" * DEEP), NOT_ONE.format(".*recursion")),
    "deep objects": (text('"Kampagne №1"', '{"a":' * DEEP + "1" + "}" * DEEP), NOT_ONE.format(".*recursion")),
    "deep lists never closed": (text('"Kampagne №1"', "[" * DEEP), NOT_ONE.format(".*recursion")),
    "deep lists in an unknown member": (text("{", '{"x": ' + "[" * DEEP + "]" * DEEP + ","), NOT_HELD),
    "deep lists for a later row": (_last(b"[" * DEEP + b"]" * DEEP), NO_OBJECT),
    "deep lists in a later row": (
        lines(lambda good: [*good[:-1], good[-1].replace(b'"SEARCH"', b"[" * DEEP + b"]" * DEEP)]),
        NOT_HELD,
    ),
}


def _in_last(old: str, new: str) -> Spoil:
    def change(good: list[bytes]) -> list[bytes]:
        changed = good[-1].decode().replace(old, new, 1)
        assert changed != good[-1].decode(), old
        return [*good[:-1], changed.encode()]

    return lines(change)


# Where Spark alone finds nothing to complain of.
LATER: dict[str, tuple[Spoil, str]] = {
    "a member is missing from a later row": (
        _in_last('"campaign_name":"Kampagne №3",', ""),
        r"schema: 1 row without campaign_name",
    ),
    "a member too many in a later row": (
        _in_last('"campaign_id"', '"surprise":1,"campaign_id"'),
        r"schema: 1 row with an unknown or repeated surprise",
    ),
    "a member too many in a later row, with blanks": (
        _in_last('"campaign_id":', '"surprise" :1,"campaign_id":'),
        r"schema: 1 row with an unknown or repeated surprise",
    ),
    "a member with a null too many in a later row": (
        _in_last('"campaign_id"', '"surprise":null,"campaign_id"'),
        r"schema: 1 row with an unknown or repeated surprise",
    ),
    "a member renamed in a later row": (
        _in_last("campaign_name", "campaign_nome"),
        r"schema: 1 row without campaign_name",
    ),
    "a member twice in a later row": (
        _in_last('"campaign_id":3', '"campaign_id":3,"campaign_id":3'),
        r"schema: 1 row with an unknown or repeated campaign_id",
    ),
    "one member for another in a later row": (
        _in_last('"campaign_name":"Kampagne №3"', '"campaign_id":3'),
        r"schema: 1 row without campaign_name",
    ),
    "a number for text in a later row": (
        _in_last('"Kampagne №3"', "3"),
        r"schema: 1 row whose campaign_name is no string",
    ),
    "an object for text in a later row": (
        _in_last('"Kampagne №3"', '{"de":"Kampagne"}'),
        r"schema: 1 row whose campaign_name is no string",
    ),
    "words after a later row": (
        lines(lambda good: [*good[:-1], good[-1] + b" and so on"]),
        NOT_ONE.format("Extra data"),
    ),
    "a brace after a later row": (lines(lambda good: [*good[:-1], good[-1] + b"}"]), NOT_ONE.format("Extra data")),
    "two later rows in a line": (
        lines(lambda good: [*good[:-1], good[-1] + good[0].replace(b'"campaign_id":1', b'"campaign_id":4')]),
        NOT_ONE.format("Extra data"),
    ),
    "invalid UTF-8 in a later row": (
        lines(lambda good: [*good[:-1], good[-1].replace(b"Kampagne", b"Kampagn\xe9")]),
        r"schema: 1 row not in UTF-8 \(.* at byte \d+\)",
    ),
}

BELONGING: dict[str, tuple[Spoil, str]] = {
    "another customer in a row": (row({"customer_id": 1111111111}), r"customer: 1 row of another customer"),
    "another customer in every row": (row(customer_id=1111111111), r"customer: 3 rows of another customer"),
    "no customer": (row({"customer_id": None}), r"customer: 1 row of no customer"),
    "another day in a row": (row({"segments_date": "1999-12-31"}), r"day: 1 row of another day"),
    "another day in every row": (row(segments_date="1999-12-31"), r"day: 3 rows of another day"),
    "no day": (row({"segments_date": None}), r"day: 1 row of no day"),
    "swapped with the next day": (_of_day(1), r"day: 3 rows of another day"),
    "swapped with the day before": (_of_day(-1), r"day: 3 rows of another day"),
    "a day of the year 10000": (row({"segments_date": "+10000-01-01"}), NO_DAY),
}


def _in_two_files(run: Run) -> None:
    run.seal(*run.lines())
    second = run.payload.with_name("part-00001.jsonl.gz")
    second.write_bytes(run.payload.read_bytes())
    entry = run.document()["files"][0]
    run.payload.write_bytes(gzip.compress(run.lines()[0] + b"\n"))
    run.reseal(record_count=4, files=[run.entry(), {**entry, "name": second.name}])


KEYS: dict[str, tuple[Spoil, str]] = {
    "a key twice": (row({"campaign_id": 2}), r"natural_key: 1 row with the natural key of another"),
    "a key many times": (
        lambda run: run.seal(*[as_line(full_row(run.key, 1))] * 50),
        r"natural_key: 49 rows with the natural key of another",
    ),
    "a key twice, in two files": (_in_two_files, r"natural_key: 1 row with the natural key of another"),
    "no key": (row({"campaign_id": None}), r"natural_key: 1 row without a natural key \(.*campaign_id\)"),
    "no key anywhere": (row(campaign_id=None), r"natural_key: 3 rows without a natural key"),
}

BOUNDS: dict[str, tuple[Spoil, str]] = {
    "a negative bigint": (row({"metrics_clicks": -1}), r"bounds: 1 row with a negative metric"),
    "a negative int": (row({"metrics_phone_calls": -1}), r"bounds: 1 row with a negative metric"),
    "a negative double": (row({"metrics_conversions": -0.5}), r"bounds: 1 row with a negative metric"),
    "a negative cost": (row({"metrics_cost_micros": -(10**9)}), r"bounds: 1 row with a negative metric"),
    "the least bigint": (row({"metrics_clicks": -(2**63)}), r"bounds: 1 row with a negative metric"),
    "a negative cost that a larger one hides": (
        row(
            {"metrics_cost_micros": 10**9, "campaign_advertising_channel_type": "PERFORMANCE_MAX"},
            {"metrics_cost_micros": -(10**8)},
        ),
        r"bounds: 1 row with a negative metric",
    ),
    "NaN": (row({"metrics_conversions": float("nan")}), r"bounds: 1 row with a metric above 1e\+18 or not a number"),
    "NaN in quotes": (row({"metrics_conversions": "NaN"}), r"bounds: 1 row .*not a number"),
    "Infinity": (row({"metrics_conversions": float("inf")}), r"bounds: 1 row with a metric above 1e\+18"),
    "-Infinity": (row({"metrics_conversions": float("-inf")}), r"bounds: 1 row with a negative metric"),
    "a double beyond doubles": (
        text('"metrics_conversions":0.25', '"metrics_conversions":1e999'),
        r"bounds: 1 row with a metric above",
    ),
    "an absurd bigint": (
        row({"metrics_clicks": 10**18 + 1, "metrics_impressions": 10**18 + 1}),
        r"bounds: 1 row with a metric above 1e\+18",
    ),
    "absurd costs that would overflow together": (row(metrics_cost_micros=2**63 - 1), r"bounds: 3 rows with a metric"),
    "more clicks than impressions": (
        row({"metrics_clicks": 101}),
        r"bounds: 1 row with more metrics_clicks than metrics_impressions",
    ),
    "everything at once": (
        row({"customer_id": 5, "segments_date": "1999-12-31", "campaign_id": None, "metrics_clicks": -1}),
        r"customer: 1 row .*day: 1 row .*natural_key: 1 row .*bounds: 1 row",
    ),
}

BAD_ROWS = MEMBERS | TYPES | LINES | LATER | BELONGING | KEYS | BOUNDS
