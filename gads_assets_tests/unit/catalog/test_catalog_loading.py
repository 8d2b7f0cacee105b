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
}

# Every version that was ever stored. A line is added with each new version; a changed digest means that runs which
# were extracted under that version would now be read differently.
STORED_VERSIONS = {
    "account/1.json": "aced14f00b897948c28350c3ce2b0e1ff1050016877fa45a6ceb6c940fce6f2b",
    "account_hourly/1.json": "3e8bd92ec728e3b514defb19731b5e70a77b70a52221419be0e3c18735ab030e",
    "ad/1.json": "5b3d352c31d641623dbecb0aba5b22fefdd39b7746ddddb283031023252ada3c",
    "ad_group/1.json": "c2f71babc21c282c0e91b4a0859cdfdd3796c901f07aaf4624cb5d4f9b657ae6",
    "asset_group/1.json": "81932431df2fa9a957aeed98e6b64d51b26dc5cd51ad5bee010468346c62a8cb",
    "campaign/1.json": "b962a7ac687aa6951c7d094ca824caa7e2ef94a389a6fcc28d3fce0bb7eb8b44",
    "campaign_search_term_view/1.json": "26304a7b785420e5221947a9764ff92df7ae88c2d9a5c32059b15c3b98077f8c",
    "conversion/1.json": "7bbacbb4d37181ec590076235c44e915b930ed0f0b223b0520a34be37a2dde6c",
    "conversion_action/1.json": "026ba6bd3141e91db5e6b3c0e76c3bad49db84f894ad83d39c997e70563f43b8",
    "geographic_view/1.json": "1878703df9f65c4757debc3cd6bfb75326b9aa87f93539011ee87808041c6f2b",
    "keyword_view/1.json": "d55b515b1c0138abfdb11799c0143da1160208457d96407374c867b3611d4ea7",
    "search_term_view/1.json": "5680ca61b1cf7663a4d204404599097b77df606a9129dc3d8b5974733abb192d",
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
    "delay in hexadecimal": (
        replaced("hours: 3", "hours: 0x10"),
        18,
        "queries.campaign.settling_delay_hours",
        "not 0x10",
    ),
    "not YAML": (replaced("  campaign:", "  campaign: [}"), 4, "", "is not YAML"),
    "tab indentation": (replaced("    gaql: |", "\tgaql: |"), 6, "", "is not YAML"),
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
    path.write_bytes(b"source: \x00\n")
    assert "is not YAML" in str(refusal(path))
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
    document["columns"] = [column for column in document["columns"] if column["name"] != "metrics_clicks"]
    stored.write_text(json.dumps(document))
    error = refusal(tmp_path / "google_apis.yaml")
    assert error.key == "queries.keyword_view.schema_version"
    assert "(columns +metrics_clicks)" in str(error)


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


@pytest.mark.parametrize("content", [b"{", b"", b"\xff", b"[" * 100_000])
def test_a_stored_version_that_is_not_json_is_refused_by_its_file(tmp_path: Path, content: bytes) -> None:
    path = write_catalog(tmp_path)
    stored = tmp_path / "schemas/campaign/1.json"
    stored.write_bytes(content)
    assert refusal(path).file == str(stored)
