"""`gads query`, and the promise behind it: whoever reads the published tables reads the same rows."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gads_assets.catalog.loading import load_catalog
from gads_assets.cli.demo import QUERIES
from gads_assets.cli.query import answer
from gads_assets.domain.roles import Role
from gads_assets.errors import ReadError
from gads_assets.orchestration.workplace import Workplace
from gads_assets.warehouse.arrow import read_published
from gads_assets.warehouse.pointers import pointer_table
from gads_assets.warehouse.reading import published_rows
from gads_assets.warehouse.selection import Selection
from gads_assets_tests.acceptance.commands import Home, assert_refused, demonstrated_home, finish, published_content
from gads_assets_tests.integration.warehouse import independent_reader

# Reads every published row with delta-rs, and tells which processes were started on the way.
WITHOUT_JAVA = """
import json, os, sys
started = []
sys.addaudithook(lambda event, args: started.append(str(args[0])) if event == "subprocess.Popen" else None)
from gads_assets.catalog.loading import load_catalog
from gads_assets.settings import read_settings
from gads_assets.warehouse.arrow import read_published
from gads_assets.warehouse.layout import WarehouseLayout
catalog = load_catalog(None)
layout = WarehouseLayout(root=read_settings(os.environ).warehouse_uri, source=catalog.source)
rows = {query: read_published(layout, catalog, query).to_pylist() for query in catalog.queries}
print(json.dumps({"started": started, "rows": rows}, default=str))
"""

REFUSED = [
    "INSERT INTO google_ads.campaign SELECT * FROM google_ads.campaign",
    "INSERT OVERWRITE DIRECTORY '{folder}' USING json SELECT 1",
    "FROM google_ads.campaign INSERT OVERWRITE DIRECTORY '{folder}' USING json SELECT *",
    "DELETE FROM google_ads.campaign",
    "DELETE FROM delta.`{pointers}`",
    "UPDATE google_ads.campaign SET customer_id = '0'",
    "MERGE INTO delta.`{pointers}` AS a USING delta.`{pointers}` AS b ON true WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE delta.`{pointers}`",
    "VACUUM delta.`{pointers}`",
    "DROP VIEW google_ads.campaign",
    "DROP TABLE delta.`{pointers}`",
    "CREATE TABLE delta.`{folder}` USING delta AS SELECT 1",
    "CREATE OR REPLACE VIEW google_ads.campaign AS SELECT 1",
    "ALTER TABLE delta.`{pointers}` SET TBLPROPERTIES ('a' = 'b')",
    "SET spark.sql.ansi.enabled = false",
    "CACHE TABLE kept AS SELECT 1",
    "EXECUTE IMMEDIATE 'DROP VIEW google_ads.campaign'",
    "BEGIN DROP VIEW google_ads.campaign; END",
    "SELECT 1; DROP VIEW google_ads.campaign",
    "SELECT 1); DROP VIEW google_ads.campaign; SELECT (1",
    "SELECT 1) -- DROP VIEW google_ads.campaign",
    "SELECT 1 /* DROP VIEW google_ads.campaign",
    "/* SELECT */ DROP VIEW google_ads.campaign",
    "-- SELECT\nDROP VIEW google_ads.campaign",
    "",
    ";",
    "SELEC 1",
    "SELECT nothing FROM google_ads.campaign",
    "SELECT * FROM google_ads.nowhere",
    "SELECT 1 / 0",
    "SELECT cast('many' AS INT)",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return demonstrated_home(tmp_path_factory.getbasetemp() / "demonstrated")


@pytest.fixture(scope="module")
def here(home: Home, spark: SparkSession) -> Iterator[Workplace]:
    """The parts behind `gads query`, on this process's Spark: a JVM for each statement would take minutes."""
    with Workplace(home.settings, session=lambda: spark) as here:
        yield here


def in_order(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(({name: _plain(value) for name, value in sorted(row.items())} for row in rows), key=repr)


def _plain(value: object) -> object:
    """As JSON has it."""
    return value if isinstance(value, str | int | float | bool | list | None) else str(value)


def test_spark_gads_query_and_delta_rs_without_java_read_the_same_rows(
    home: Home, here: Workplace, spark: SparkSession, tmp_path: Path
) -> None:
    # Neither a PATH nor a JAVA_HOME in which a Java could be found.
    plain = finish(home.start([sys.executable, "-c", WITHOUT_JAVA], PATH=str(tmp_path), JAVA_HOME=str(tmp_path)))
    assert plain.returncode == 0, plain.stderr
    document = json.loads(plain.stdout)
    assert document["started"] == []
    catalog = load_catalog(None)
    for query in QUERIES:
        by_spark = [row.asDict() for row in published_rows(spark, home.layout, catalog, query).collect()]
        queried = [row.asDict() for row in answer(here, f"SELECT * FROM google_ads.{query}")[1]]
        assert in_order(by_spark) == in_order(queried) == in_order(document["rows"][query])
        assert len(by_spark) > 100
    asked = home.gads("query", "SELECT * FROM google_ads.search_term_view", "--json")
    assert asked.returncode == 0, asked.stderr
    assert in_order(json.loads(asked.stdout, parse_constant=pytest.fail)) == in_order(
        document["rows"]["search_term_view"]
    )


def test_the_published_rows_can_be_read_without_any_of_our_code(home: Home, tmp_path: Path) -> None:
    catalog = load_catalog(None)
    folder = Path(home.layout.pointers("campaign")).parent.parent
    foreign = subprocess.run(
        [sys.executable, "-I", independent_reader.__file__, folder],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert foreign.returncode == 0, foreign.stderr
    document = json.loads(foreign.stdout)
    assert document["ours"] == []
    assert document["rows"].keys() == set(QUERIES)
    for query, rows in document["rows"].items():
        assert in_order(rows) == in_order(read_published(home.layout, catalog, query).to_pylist())


def test_a_statement_that_writes_is_one_line_and_exit_1(home: Home) -> None:
    refused = home.gads("query", "DROP VIEW google_ads.campaign", "--json")
    assert_refused(refused, "the query cannot be answered", "give one SELECT and nothing else")
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1


def test_only_a_query_is_answered_and_the_reason_for_anything_else_is_one_line(
    home: Home, here: Workplace, tmp_path: Path
) -> None:
    before = published_content(home)
    for statement in REFUSED:
        sql = statement.format(folder=tmp_path / "written", pointers=home.layout.pointers("campaign"))
        with pytest.raises(ReadError) as refused:
            answer(here, sql)
        assert len(str(refused.value).removeprefix("the query cannot be answered: ")) > 20, statement
        assert "\n" not in str(refused.value)
        assert "org.apache" not in str(refused.value)
    assert published_content(home) == before
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT 1 AS one", 1),
        (" SELECT 1 AS one ; ", 1),
        ("SELECT 'a;b -- c' AS text -- the end", 1),
        ("/* first */ SELECT 1 AS one /* last */", 1),
        ("WITH three AS (SELECT * FROM range(3)) SELECT * FROM three", 3),
        ("VALUES (1), (2)", 2),
        ("SELECT DISTINCT query_name FROM load_records", 4),
        ("SELECT DISTINCT customer_id, logical_date FROM google_ads.campaign WHERE logical_date IS NULL", 0),
    ],
)
def test_any_query_is_answered_however_it_is_written(here: Workplace, sql: str, rows: int) -> None:
    assert len(answer(here, sql)[1]) == rows


def test_the_past_is_queried_by_time(home: Home, here: Workplace) -> None:
    table = pointer_table(home.layout, "campaign")
    assert table is not None
    moments = [datetime.fromtimestamp(commit["timestamp"] / 1000, UTC) for commit in table.history()]
    count = "SELECT count(*) AS rows FROM google_ads.campaign"
    before = home.gads("query", count, "--as-of", "2024-06-01T06:00Z", "--json")
    assert before.returncode == 0, before.stderr
    assert json.loads(before.stdout) == [{"rows": 0}]
    for moment in moments:
        then = read_published(home.layout, load_catalog(None), "campaign", Selection(as_of=moment))
        assert answer(here, count, as_of=moment)[1][0].rows == then.num_rows > 0
    refused = home.gads("query", count, "--as-of", "2024-06-01")
    assert_refused(refused, "--as-of '2024-06-01' is not a time; write it as 2024-06-01T06:00Z")
    assert_refused(home.gads("query", count, "--as-of", "2999-01-01T00:00Z"), "is in the future; give one up to now")


def test_how_fresh_a_partition_is_can_be_told_by_sql(here: Workplace) -> None:
    newest = """
        SELECT loads.run_id, loads.schema_version, loads.loaded_at
        FROM load_records AS loads
        JOIN (SELECT DISTINCT customer_id, logical_date, run_id FROM google_ads.campaign) AS shown
        USING (customer_id, logical_date, run_id)
        WHERE loads.query_name = 'campaign' AND customer_id = '2145550101' AND logical_date = {day}
    """
    day = "(SELECT max(logical_date) FROM google_ads.campaign)"
    [fresh] = answer(here, newest.format(day=day))[1]
    records = here.store_as(Role.CONSUMER).load_records()
    [record] = [each for each in records if each.run_id == fresh.run_id]
    assert (record.key.query_name, record.schema_version) == ("campaign", fresh.schema_version)
    assert record.loaded_at == fresh.loaded_at.astimezone(UTC)
