"""The packaged catalog loads fast and without google-ads; a wrong one is refused with file, line, key and fix."""

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest

from gads_assets.catalog.gaql import parse_gaql, print_gaql
from gads_assets.catalog.loading import PACKAGED_CATALOG, load_catalog
from gads_assets.catalog.shapes import Shape, for_days
from gads_assets.errors import CatalogError, CatalogFileError

CATALOG = """\
source: google_ads
api_version: v26
queries:
  campaign:
    description: Campaigns by day.
    gaql: |
      SELECT
        customer.id,
        segments.date,
        campaign.id
      FROM campaign
    schema_version: "1"
    natural_key:
      - customer.id
      - segments.date
      - campaign.id
    start_date: 2024-01-01
    settling_delay_hours: 3
"""
STORED = {
    "query": "campaign",
    "version": "1",
    "natural_key": ["customer_id", "segments_date", "campaign_id"],
    "columns": [
        {"name": "customer_id", "field": "customer.id", "type": "bigint"},
        {"name": "segments_date", "field": "segments.date", "type": "date"},
        {"name": "campaign_id", "field": "campaign.id", "type": "bigint"},
    ],
    "resource": "campaign",
    "conditions": [],
    "parameters": [],
    "rules": {"never_above": {}},
}

# Every version that was ever stored. A line is added with each new version; a changed digest means that runs which
# were extracted under that version would now be read differently.
STORED_VERSIONS = {
    "account/1.json": "4627747812f8abac6df87cb95b729f7b9b39667a7f4359db6e3bfa5a9fe003e7",
    "account_hourly/1.json": "2522c0b5f60d9a91f1834a8deb260c86fb16c7757a90d163ce280e4c9a115fa7",
    "ad/1.json": "db0782f06313c7e9da73c432d1f4acd79d47c7b76bdea3569f3aea045bd4df83",
    "ad_group/1.json": "cccef15190d9b5fc8404564448f4c02bfab1ac456c858f2016441c5e5a99c4df",
    "asset_group/1.json": "df25e3f7414dccf89c74561803eb51f2257ea4a06f4fb63a73e980070098fdf6",
    "campaign/1.json": "9983d047f36f865046d9df42def3cc8aa6dce018e1a1b519fb7b99fbc1a0f0db",
    "campaign_search_term_view/1.json": "5483c395f5740dcd742fd561164c5ebd2572f347106219fe95e4cf04d81df308",
    "conversion/1.json": "131fc52661eeca2d65f15ec7083b591f278c698d2b96f62aaa4a5081f78592d3",
    "conversion_action/1.json": "049509611c64de7e6d6d35193f1bf41ceab7f2b015cf54843a336cf916e5ca71",
    "geographic_view/1.json": "ad6e2aac65daed0325df27e237ee2290806da6351d1d9fa61d214794320226ab",
    "keyword_view/1.json": "57836c383cfb3bb13776d21de7c94e28dcecb6bb1e501576b5378944de3f8bf8",
    "search_term_view/1.json": "70f40221bfa83236639caade06b646af5fc5d734a125f062290283b9b453caba",
}


def write_catalog(folder: Path, text: str = CATALOG, stored: object = STORED) -> Path:
    path = folder / "google_apis.yaml"
    path.write_text(text, encoding="utf-8")
    schema = folder / "schemas" / "campaign" / "1.json"
    schema.parent.mkdir(parents=True, exist_ok=True)
    schema.write_text(json.dumps(stored), encoding="utf-8")
    return path


def refusal(path: Path) -> CatalogFileError:
    with pytest.raises(CatalogFileError) as refused:
        load_catalog(path)
    assert str(refused.value).isprintable(), "one line"
    return refused.value


def test_the_packaged_catalog_has_the_twelve_queries_of_an_agency() -> None:
    catalog = load_catalog()
    assert (catalog.source, catalog.api_version) == ("google_ads", "v26")
    assert list(catalog.queries) == [
        "campaign",
        "ad_group",
        "keyword_view",
        "search_term_view",
        "account",
        "account_hourly",
        "ad",
        "campaign_search_term_view",
        "geographic_view",
        "conversion",
        "asset_group",
        "conversion_action",
    ]
    for query in catalog.queries.values():
        types = {column.name: column.type for column in query.schema.columns}
        assert types["customer_id"] == "bigint"
        assert types.get("segments_date", "date") == "date"
        assert {types[name] for name in types if name.endswith("_micros")} <= {"bigint"}
        assert set(query.schema.natural_key) <= types.keys()
        assert "customer_id" in query.schema.natural_key
        assert query.start_date == date(2024, 1, 1)
        assert query.settling_delay == timedelta(hours=3)
        assert catalog.schema(query.name, query.schema.version) == query.schema
    snapshots = [query.name for query in catalog.queries.values() if "segments_date" not in query.schema.column_names]
    assert snapshots == ["conversion_action"]
    assert catalog.query("ad_group").schema.ddl == (
        "`customer_id` bigint, `segments_date` date, `campaign_id` bigint, `ad_group_id` bigint, "
        "`ad_group_name` string, `ad_group_status` string, `ad_group_type` string, "
        "`metrics_impressions` bigint, `metrics_clicks` bigint, `metrics_interactions` bigint, "
        "`metrics_cost_micros` bigint, `metrics_conversions` double, `metrics_conversions_value` double"
    )


def test_every_packaged_query_can_be_asked_for_a_day() -> None:
    for query in load_catalog().queries.values():
        asked = print_gaql(for_days(query.gaql, query.shape, date(2024, 6, 1), date(2024, 6, 1)))
        asks_for_days = "segments.date BETWEEN '2024-06-01' AND '2024-06-01'" in asked
        assert asks_for_days == (query.shape is Shape.DATED)
        assert parse_gaql(asked).resource == query.resource


def test_stored_versions_never_change() -> None:
    directory = PACKAGED_CATALOG.parent / "schemas"
    digests = {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*.json")
    }
    assert digests == STORED_VERSIONS


def test_loading_takes_under_50_milliseconds() -> None:
    load_catalog()
    started = time.perf_counter()
    for _ in range(5):
        load_catalog()
    assert (time.perf_counter() - started) / 5 < 0.05


def test_loading_imports_neither_google_ads_nor_spark_nor_dagster() -> None:
    program = (
        "import sys; from gads_assets.catalog.loading import load_catalog; load_catalog(); "
        "print(sorted({'google', 'grpc', 'pyspark', 'dagster'} & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_query_is_answered_with_the_known_ones() -> None:
    with pytest.raises(CatalogError, match="'campain' is not in the catalog; it has account, account_hourly, ad,"):
        load_catalog().query("campain")
    with pytest.raises(CatalogError) as refused:
        load_catalog().query("x" * 5_000)
    assert len(str(refused.value)) < 1_000


def replaced(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert text.count(old) == 1, old
        return text.replace(old, new)

    return change


def whole(content: str) -> Callable[[str], str]:
    return lambda _: content


WRONG = {
    "unknown top key": (replaced("source:", "sauce:"), 1, "sauce", "did you mean source?"),
    "missing top key": (replaced("api_version: v26\n", ""), 1, "", "lacks api_version; add it"),
    "no queries": (lambda text: text[: text.index("  campaign:")], 3, "queries", "must be a mapping"),
    "empty queries": (
        lambda text: text[: text.index("queries:")] + "queries: {}\n",
        3,
        "queries",
        "has no query; add one",
    ),
    "bad source": (replaced("google_ads", "../etc"), 1, "source", "'../etc' is not a name; use lower-case"),
    "bad API version": (replaced("v26", "26x"), 2, "api_version", "write it as v26"),
    "API version as number": (replaced("v26", "26"), 2, "api_version", "must be text; write it in quotes"),
    "query name with capitals": (replaced("  campaign:", "  Campaign:"), 4, "queries.Campaign", "is not a name"),
    "query name that leaves the folder": (
        replaced("  campaign:", "  ../x:"),
        4,
        "queries.../x",
        "'../x' is not a name",
    ),
    "query name too long": (replaced("  campaign:", f"  {'a' * 64}:"), 4, f"queries.{'a' * 64}", "at most 63"),
    "query name as number": (replaced("  campaign:", "  5:"), 4, "queries", "a key that is not text"),
    "query that is a text": (
        lambda text: text[: text.index("    description")].replace("campaign:", "campaign: x"),
        4,
        "queries.campaign",
        "must be a mapping",
    ),
    "duplicate query": (
        lambda text: text + text[text.index("  campaign:") :],
        19,
        "queries.campaign",
        "is written twice, first on line 4; keep one",
    ),
    "duplicate key": (
        lambda text: text + "    start_date: 2024-02-01\n",
        19,
        "queries.campaign.start_date",
        "is written twice, first on line 17; keep one",
    ),
    "unknown key": (
        lambda text: text + "    setling_delay_hours: 3\n",
        19,
        "queries.campaign.setling_delay_hours",
        "did you mean settling_delay_hours?",
    ),
    "unknown key, unlike any": (
        lambda text: text + "    zzz: 3\n",
        19,
        "queries.campaign.zzz",
        "the keys are description, gaql,",
    ),
    "merge key": (lambda text: text + "    <<: {}\n", 19, "queries.campaign", "a key that is not text"),
    "missing key": (
        replaced("    start_date: 2024-01-01\n", ""),
        4,
        "queries.campaign",
        "lacks start_date; add it",
    ),
    "missing keys": (
        lambda text: text[: text.index("    natural_key")],
        4,
        "queries.campaign",
        "lacks natural_key, start_date, settling_delay_hours; add them",
    ),
    "empty description": (
        replaced("Campaigns by day.", '" "'),
        5,
        "queries.campaign.description",
        "must not be empty",
    ),
    "description that recolours a terminal": (
        replaced("Campaigns by day.", '"\\e[31mCampaigns"'),
        5,
        "queries.campaign.description",
        "holds U+001B, which would not be shown; remove it",
    ),
    "description of nothing": (
        replaced("Campaigns by day.", ""),
        5,
        "queries.campaign.description",
        "must be text",
    ),
    "object tag": (
        replaced("Campaigns by day.", "!!python/object/apply:os.getcwd []"),
        5,
        "queries.campaign.description",
        "must be text",
    ),
    "GAQL error in a block": (
        replaced("      FROM campaign", "      FORM campaign"),
        11,
        "queries.campaign.gaql",
        "expected ',' or FROM, found 'FORM'",
    ),
    "GAQL that ends early": (
        replaced("      FROM campaign\n", ""),
        10,
        "queries.campaign.gaql",
        "found the end of the query",
    ),
    "customer not selected": (
        replaced("        customer.id,\n", ""),
        6,
        "queries.campaign.gaql",
        "does not select customer.id",
    ),
    "day not selected": (
        replaced("        segments.date,\n", "        metrics.clicks,\n"),
        6,
        "queries.campaign.gaql",
        "does not select segments.date",
    ),
    "column selected twice": (
        replaced("        campaign.id\n", "        campaign.id, campaign.id\n"),
        6,
        "queries.campaign.gaql",
        "'campaign_id' is selected 2 times",
    ),
    "own date condition": (
        replaced("FROM campaign", "FROM campaign WHERE segments.date DURING TODAY"),
        6,
        "queries.campaign.gaql",
        "partitions choose the days; remove the condition",
    ),
    "own week condition": (
        replaced("FROM campaign", "FROM campaign WHERE segments.week = '2024-01-01'"),
        6,
        "queries.campaign.gaql",
        "segments.week = '2024-01-01'",
    ),
    "LIMIT": (replaced("FROM campaign", "FROM campaign LIMIT 5"), 6, "queries.campaign.gaql", "LIMIT 5"),
    "version as number": (
        replaced('"1"', "1"),
        12,
        "queries.campaign.schema_version",
        'must be text; write it in quotes: "…"',
    ),
    "version that is no number": (
        replaced('"1"', "v1"),
        12,
        "queries.campaign.schema_version",
        "'v1' is not a version",
    ),
    "version with a leading zero": (replaced('"1"', '"01"'), 12, "queries.campaign.schema_version", "'01' is not"),
    "version not stored": (
        replaced('"1"', '"2"'),
        12,
        "queries.campaign.schema_version",
        "version '2' is not stored; store it with `gads catalog check ",
    ),
    "key not selected": (
        replaced("      - campaign.id", "      - campaign.name"),
        16,
        "queries.campaign.natural_key[2]",
        "'campaign.name' is not selected by the query",
    ),
    "key repeated": (
        replaced("      - campaign.id", "      - customer.id"),
        16,
        "queries.campaign.natural_key[2]",
        "'customer.id' is in the key twice",
    ),
    "key as text": (
        lambda text: text.replace("    natural_key:\n", "    natural_key: customer.id\n").replace("      - ", "#"),
        13,
        "queries.campaign.natural_key",
        "must be a list",
    ),
    "date of another form": (replaced("2024-01-01", "01/02/2024"), 17, "queries.campaign.start_date", "YYYY-MM-DD"),
    "date with a time": (
        replaced("2024-01-01", "2024-01-01T00:00:00Z"),
        17,
        "queries.campaign.start_date",
        "YYYY-MM-DD",
    ),
    "date outside the calendar": (
        replaced("2024-01-01", "2024-02-30"),
        17,
        "queries.campaign.start_date",
        "not in the calendar",
    ),
    "date before there was data": (
        replaced("2024-01-01", "1999-12-31"),
        17,
        "queries.campaign.start_date",
        "is before 2000-01-01",
    ),
    "date as number": (replaced("2024-01-01", "20240101"), 17, "queries.campaign.start_date", "must be a date"),
    "negative delay": (
        replaced("hours: 3", "hours: -3"),
        18,
        "queries.campaign.settling_delay_hours",
        "from 0 to 168, not -3",
    ),
    "fractional delay": (
        replaced("hours: 3", "hours: 1.5"),
        18,
        "queries.campaign.settling_delay_hours",
        "must be a whole number",
    ),
    "delay that YAML reads as octal": (
        replaced("hours: 3", "hours: 010"),
        18,
        "queries.campaign.settling_delay_hours",
        "from 0 to 168, not 010",
    ),
    "delay in hexadecimal": (
        replaced("hours: 3", "hours: 0x10"),
        18,
        "queries.campaign.settling_delay_hours",
        "not 0x10",
    ),
    "not YAML": (replaced("  campaign:", "  campaign: [}"), 4, "", "is not YAML"),
    "tab indentation": (replaced("    gaql: |", "\tgaql: |"), 6, "", "indent with spaces"),
    "a colon in text": (replaced("by day.", "by: day."), 5, "", "quote text that has special characters"),
    "a line break of YAML's own": (
        replaced("by day.", "by day.\u2028"),
        5,
        "",
        "holds U+2028, which a catalog cannot; remove it",
    ),
    "a list": (whole("- a\n- b\n"), 1, "", "must be a mapping"),
    "an empty file": (whole("\n"), 1, "", "is empty; write source, api_version and queries"),
    "two documents": (lambda text: text + "---\nsource: x\n", 19, "", "is not YAML"),
    "deep nesting": (whole("source: " + "[" * 200_000), 1, "", "nests deeper than 20 levels"),
    "an alias of itself": (whole("source: &a [*a]\napi_version: v26\nqueries: {}\n"), 3, "queries", "no query"),
    "an undefined alias": (replaced("google_ads", "*nobody"), 1, "", "is not YAML"),
}


@pytest.mark.parametrize(("change", "line", "key", "fix"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_catalog_is_refused_with_file_line_key_and_fix(
    tmp_path: Path, change: Callable[[str], str], line: int, key: str, fix: str
) -> None:
    path = write_catalog(tmp_path, change(CATALOG))
    error = refusal(path)
    assert (error.line, error.key) == (line, key), str(error)
    assert str(error).startswith(f"{path}:{line}: {key}: " if key else f"{path}:{line}: ")
    assert fix in str(error)


def test_a_gaql_error_shows_the_file_s_own_line_under_a_caret(tmp_path: Path) -> None:
    error = refusal(write_catalog(tmp_path, CATALOG.replace("        segments.date,", "        segments.date;")))
    assert error.line == 9
    assert error.excerpt == "        segments.date;\n                     ^"


@pytest.mark.parametrize("line_break", ["\r\n", "\r"])
def test_a_file_of_another_system_is_read_alike_and_its_errors_name_the_same_line(
    tmp_path: Path, line_break: str
) -> None:
    path = write_catalog(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + CATALOG.replace("\n", line_break).encode())
    assert load_catalog(path).query("campaign").gaql == load_catalog(write_catalog(tmp_path)).query("campaign").gaql
    path.write_bytes(CATALOG.replace("FROM", "FORM").replace("\n", line_break).encode())
    assert (refusal(path).line, refusal(path).excerpt) == (11, "      FORM campaign\n      ^")


@pytest.mark.parametrize(
    "gaql",
    [
        'gaql: "SELECT customer.id FORM campaign"',
        "gaql: SELECT customer.id FORM campaign",
        "gaql: >-\n      SELECT customer.id\n      FORM campaign",
    ],
)
def test_a_gaql_error_in_another_style_of_yaml_names_the_key_and_shows_the_word(tmp_path: Path, gaql: str) -> None:
    start, end = CATALOG.index("gaql: |"), CATALOG.index("    schema_version")
    error = refusal(write_catalog(tmp_path, CATALOG[:start] + gaql + "\n" + CATALOG[end:]))
    assert error.line == 6
    assert error.excerpt is not None
    line, caret = error.excerpt.split("\n")
    assert line[caret.index("^") :].startswith("FORM")


def test_a_file_that_is_missing_is_named_with_the_way_to_give_another(tmp_path: Path) -> None:
    error = refusal(tmp_path / "nowhere.yaml")
    assert "cannot be read" in str(error)
    assert "GADS_CATALOG" in str(error)
    assert "cannot be read" in str(refusal(tmp_path))


def test_bytes_that_are_not_text_are_named_with_their_line(tmp_path: Path) -> None:
    path = write_catalog(tmp_path)
    path.write_bytes(b"source: google_ads\napi_version: \xff\n")
    assert (refusal(path).line, "is not UTF-8" in str(refusal(path))) == (2, True)
    path.write_bytes("# é\nsource: \x00\n".encode())
    assert (refusal(path).line, "holds U+0000, which a catalog cannot" in str(refusal(path))) == (2, True)
    path.write_bytes(b"#" * 2_000_000)
    assert "is larger than" in str(refusal(path))


def test_the_order_of_columns_and_of_the_key_is_no_difference(tmp_path: Path) -> None:
    text = CATALOG.replace("customer.id,\n        segments.date,", "segments.date,\n        customer.id,")
    text = text.replace("- customer.id\n      - segments.date", "- segments.date\n      - customer.id")
    schema = load_catalog(write_catalog(tmp_path, text)).query("campaign").schema
    assert schema.column_names == ("customer_id", "segments_date", "campaign_id")
    assert schema.natural_key == ("customer_id", "segments_date", "campaign_id")


def test_a_query_changed_under_its_version_is_refused_with_the_difference(tmp_path: Path) -> None:
    text = CATALOG.replace("        campaign.id\n", "        campaign.name,\n        metrics.clicks\n")
    text = text.replace("      - campaign.id\n", "      - campaign.name\n")
    error = refusal(write_catalog(tmp_path, text))
    assert error.line == 13
    assert "(columns +campaign_name +metrics_clicks -campaign_id; natural key +campaign_name -campaign_id)" in str(
        error
    )
    assert 'raise schema_version to "2", then store it with `gads catalog check' in str(error)


def test_the_next_free_version_is_proposed_also_after_a_step_back(tmp_path: Path) -> None:
    path = write_catalog(tmp_path, CATALOG.replace("        campaign.id\n", "        campaign.id, campaign.name\n"))
    (tmp_path / "schemas/campaign/7.json").write_text(json.dumps(STORED | {"version": "7"}))
    assert 'raise schema_version to "8"' in str(refusal(path))


def test_a_mutated_stored_version_is_refused_with_the_difference(tmp_path: Path) -> None:
    shutil.copytree(PACKAGED_CATALOG.parent, tmp_path, dirs_exist_ok=True)
    stored = tmp_path / "schemas/keyword_view/1.json"
    document = json.loads(stored.read_text())
    document["columns"] = [column for column in document["columns"] if column["name"] != "metrics_conversions"]
    stored.write_text(json.dumps(document))
    error = refusal(tmp_path / "google_apis.yaml")
    assert error.key == "queries.keyword_view.schema_version"
    assert "(columns +metrics_conversions)" in str(error)


def test_versions_of_a_query_that_left_the_catalog_can_still_be_read(tmp_path: Path) -> None:
    path = write_catalog(tmp_path)
    old = tmp_path / "schemas/account/3.json"
    old.parent.mkdir()
    old.write_text(json.dumps(STORED | {"query": "account", "version": "3"}))
    catalog = load_catalog(path)
    assert list(catalog.queries) == ["campaign"]
    assert catalog.schema("account", "3").column_names == ("customer_id", "segments_date", "campaign_id")
    with pytest.raises(CatalogError, match="version '4' of query 'account' is not stored"):
        catalog.schema("account", "4")


COLUMN = {"name": "customer_id", "field": "customer.id", "type": "bigint"}


@pytest.mark.parametrize(
    "stored",
    [
        [],
        STORED | {"extra": 1},
        {name: value for name, value in STORED.items() if name != "natural_key"},
        STORED | {"version": 1},
        STORED | {"version": "2"},
        STORED | {"query": "ad_group"},
        STORED | {"query": "../x"},
        STORED | {"natural_key": []},
        STORED | {"natural_key": ["nobody"]},
        STORED | {"natural_key": [5]},
        STORED | {"columns": []},
        STORED | {"columns": "customer_id"},
        STORED | {"columns": [COLUMN, COLUMN]},
        STORED | {"columns": [COLUMN | {"type": "struct<a:int>"}]},
        STORED | {"columns": [COLUMN | {"type": "bigint, evil"}]},
        STORED | {"columns": [COLUMN | {"name": "id"}]},
        STORED | {"columns": [COLUMN | {"field": "customer"}]},
        STORED | {"columns": [None]},
    ],
)
def test_a_stored_version_that_is_not_whole_is_refused_by_its_file(tmp_path: Path, stored: object) -> None:
    error = refusal(write_catalog(tmp_path, stored=stored))
    assert error.file == str(tmp_path / "schemas/campaign/1.json")
    assert "restore the file from version control" in str(error)


@pytest.mark.parametrize("content", [b"{", b"", b"\xff", b"[" * 100_000, b'{"version": "1", "version": "1"}'])
def test_a_stored_version_that_is_not_json_is_refused_by_its_file(tmp_path: Path, content: bytes) -> None:
    path = write_catalog(tmp_path)
    stored = tmp_path / "schemas/campaign/1.json"
    stored.write_bytes(content)
    assert refusal(path).file == str(stored)
