"""The status of partitions after real runs, beside Dagster's own; and the asset that writes it down."""

import http.client
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import dagster as dg
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value
from dagster._core.storage.tags import PARTITION_NAME_TAG
from pyspark.sql import SparkSession

from gads_assets.domain.partition_status import DisplayStatus, Outcome
from gads_assets.domain.roles import Role
from gads_assets.orchestration.keys import status_key
from gads_assets.orchestration.partitions import customer_days
from gads_assets.orchestration.status import StatusDesk
from gads_assets.status.deriving import Selection
from gads_assets.status.exporting import SCHEMA
from gads_assets.status.telling import Document, told
from gads_assets_tests.integration.conftest import wait_until
from gads_assets_tests.status_servers import serve_status
from gads_assets_tests.worlds import BERLIN, NEW_YORK, RAW, STATUS_URL, TABLE, TOKYO, World

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

DAY = "2024-06-01"
MART = dg.AssetKey(["google_ads", "marts", "account_day"])


class Status:
    """What is told of the partitions that were ever tried in a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def of(self, key: dg.AssetKey, label: str) -> Document:
        return self.all(key)[label]

    def all(self, key: dg.AssetKey) -> dict[str, Document]:
        desk = StatusDesk(self._world.here, self._world.instance)
        desk.folder.fold(desk.log)
        assets = [asset for asset in desk.assets if asset.asset_key == key.to_user_string()]
        found = desk.statuses.partitions(Selection(assets=assets), now=datetime.now(UTC), limit=100_000)
        return {row["partition_key"]: told(row) for row in found if row["last_attempt_run_id"]}

    def attempted(self, key: dg.AssetKey, outcome: Outcome) -> set[str]:
        return {label for label, each in self.all(key).items() if each["last_attempt"]["outcome"] == outcome}

    def materialized(self, key: dg.AssetKey) -> set[str]:
        return {label for label, each in self.all(key).items() if each["last_materialization"]}


def dagsters_own(world: World, key: dg.AssetKey) -> tuple[set[str], set[str]]:
    """What Dagster's page calls materialized, and failed."""
    partitions_def = customer_days(world.here.catalog)
    cached = get_and_update_asset_status_cache_value(world.instance, key, partitions_def)
    assert cached is not None
    return (
        set(cached.deserialize_materialized_partition_subsets(partitions_def).get_partition_keys()),
        set(cached.deserialize_failed_partition_subsets(partitions_def).get_partition_keys()),
    )


def planned_run(world: World, label: str) -> dg.DagsterRun:
    """A run that Dagster was asked for and that did nothing yet."""
    customer, day = label.split("|")
    job = world.definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection=frozenset({RAW, TABLE}))
    tags = {
        PARTITION_NAME_TAG: label,
        "dagster/partition/customer_id": customer,
        "dagster/partition/logical_date": day,
    }
    return world.instance.create_run_for_job(
        job, tags=tags, asset_selection=frozenset({RAW, TABLE}), status=dg.DagsterRunStatus.STARTED
    )


def _spark_type(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return "map<string,string>" if pa.types.is_map(kind) else "string"


def test_good_data_stays_through_a_failed_a_cancelled_and_a_rejected_retry(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    status, label = Status(world), f"{BERLIN}|{DAY}"
    first = world.run(label)
    fresh = status.of(TABLE, label)
    made = fresh["last_materialization"]
    assert made["run_id"] == first.run_id
    assert made["code_version"] == "schema-1"
    assert fresh["last_attempt"]["outcome"] == "SUCCEEDED"

    monkeypatch.setenv("GADS_EMULATOR_FAULTS", f"transient@{BERLIN}/campaign/*:99")
    failed = world.run(label)
    told_failed = status.of(TABLE, label)
    assert told_failed["display"] == "MaterializedButLastAttemptFailed"
    assert (told_failed["last_materialization"], told_failed["last_attempt"]["run_id"]) == (made, failed.run_id)
    assert status.of(RAW, label)["display"] == "MaterializedButLastAttemptFailed"

    cancelled = planned_run(world, label)
    world.instance.report_run_canceled(cancelled)
    told_cancelled = status.of(TABLE, label)
    assert told_cancelled["last_attempt"]["outcome"] == "CANCELLED"
    assert "last_attempt_cancelled" in told_cancelled["flags"]
    assert told_cancelled["last_materialization"] == made

    monkeypatch.setenv("GADS_EMULATOR_FAULTS", f"duplicated_rows@{BERLIN}/campaign/{DAY}")
    rejected = world.run(label)
    raw, table = status.of(RAW, label), status.of(TABLE, label)
    assert raw["last_materialization"]["run_id"] == rejected.run_id
    assert (table["display"], table["last_materialization"]) == ("MaterializedButLastAttemptFailed", made)
    assert "UPSTREAM_CHANGED" in {reason["reason_code"] for reason in table["staleness"]}

    monkeypatch.setenv("GADS_EMULATOR_FAULTS", "")
    mended = world.run(label)
    again = status.of(TABLE, label)
    assert again["last_materialization"]["run_id"] == mended.run_id
    assert again["flags"] == (["stale"] if again["staleness"] else [])
    assert "UPSTREAM_CHANGED" not in {reason["reason_code"] for reason in again["staleness"]}


def test_what_dagster_calls_materialized_and_failed_is_the_same_here_and_the_differences_are_these(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster has no word for a cancelled attempt, and calls a partition failed whether or not it has good data."""
    world = make_world(f"duplicated_rows@{BERLIN}/campaign/2024-06-02;transient@{TOKYO}/campaign/*:99")
    status = Status(world)
    world.run(f"{NEW_YORK}|{DAY}", f"{TOKYO}|2024-06-03")
    for key in (RAW, TABLE):
        materialized, failed = dagsters_own(world, key)
        assert status.materialized(key) == materialized
        assert status.attempted(key, Outcome.FAILED) == failed
        assert materialized
        assert failed

    before = failed
    good, never, killed = f"{NEW_YORK}|{DAY}", f"{TOKYO}|{DAY}", f"{NEW_YORK}|2024-06-02"
    for label in (good, never):
        world.instance.report_run_canceled(planned_run(world, label))
    world.instance.report_run_failed(planned_run(world, killed))
    materialized, failed = dagsters_own(world, TABLE)
    assert status.materialized(TABLE) == materialized
    # A cancelled attempt leaves no trace there: what failed before it stays failed, what was good looks untouched.
    assert status.attempted(TABLE, Outcome.CANCELLED) == {good, never}
    assert failed == before | {killed}
    assert status.attempted(TABLE, Outcome.FAILED) == failed - {never}
    # A failure after a success is one more failed partition there; here the good data is told first.
    assert killed in failed & materialized
    told_killed = status.of(TABLE, killed)
    assert told_killed["display"] == DisplayStatus.LAST_ATTEMPT_FAILED
    assert told_killed["last_materialization"]


def test_a_reload_of_a_table_makes_its_mart_stale_until_that_is_refreshed(make_world: Callable[..., World]) -> None:
    world = make_world()
    status, label = Status(world), f"{TOKYO}|{DAY}"
    world.run(label)
    world.run(label, assets=[MART])
    assert status.of(MART, label)["display"] == "Materialized"
    reload = world.run(label)
    stale = status.of(MART, label)
    assert (stale["display"], stale["stale_reason_code"]) == ("Stale", "UPSTREAM_CHANGED")
    assert stale["stale_since"] == status.of(TABLE, label)["last_materialization"]["at"]
    assert reload.success
    world.run(label, assets=[MART])
    assert status.of(MART, label)["display"] == "Materialized"


def test_a_day_whose_rows_were_withdrawn_is_flagged_though_it_was_materialized(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    status, label = Status(world), f"{BERLIN}|{DAY}"
    world.run(label)
    assert "withdrawn" not in status.of(TABLE, label)["flags"]
    [sealed] = Path(world.here.settings.raw_uri).rglob("metadata.json")
    payload = next(path for path in sealed.parent.iterdir() if path.name != "metadata.json")
    payload.write_bytes(payload.read_bytes()[:-20])
    assert not world.check_alone(label).success
    assert world.published() == {}
    assert "withdrawn" in status.of(TABLE, label)["flags"]


def test_the_asset_writes_the_file_and_its_counts_over_time(
    make_world: Callable[..., World], spark: SparkSession
) -> None:
    world = make_world(f"transient@{TOKYO}/campaign/*:99")
    world.run(f"{NEW_YORK}|{DAY}", f"{TOKYO}|2024-06-02")
    key = status_key(world.here.catalog)
    for _ in range(2):
        job = world.definitions.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(instance=world.instance, asset_selection=[key])
        assert result.success
    first, second = world.instance.fetch_materializations(key, limit=2).records
    for record in (first, second):
        assert record.asset_materialization is not None
        shown = record.asset_materialization.metadata
        assert shown["Stale"].value + shown["Materialized"].value == 4  # type: ignore[operator]
        assert shown["last_attempt_failed"].value == 2
        assert shown["dagster/row_count"].value == 12
        assert shown["status_page"].value == STATUS_URL
    table_of_counts = shown["by_asset"]
    assert isinstance(table_of_counts, dg.TableMetadataValue)
    [by_asset] = [each.data for each in table_of_counts.records if each.data["asset"] == "google_ads/raw/campaign"]
    assert by_asset["last_attempt_failed"] == 2

    file = world.here.layout.partition_status
    table = pq.read_table(file)
    assert table.schema.equals(SCHEMA)
    assert table.schema.field("last_attempt_at").type == pa.timestamp("us", tz="UTC")
    assert {row["last_attempt_outcome"] for row in table.to_pylist()} == {"SUCCEEDED", "FAILED"}
    values = dict(
        table.filter(pa.compute.equal(table["asset_key"], "google_ads/campaign")).to_pylist()[0]["partition_values"]
    )
    assert values == {"customer_id": NEW_YORK, "logical_date": DAY}

    in_spark = spark.read.parquet(file)
    assert [(field.name, field.dataType.simpleString()) for field in in_spark.schema.fields] == [
        (field.name, _spark_type(field.type)) for field in SCHEMA
    ]
    counted = in_spark.groupBy("partition_values.logical_date").count().collect()
    assert {row["logical_date"]: row["count"] for row in counted} == {DAY: 6, "2024-06-02": 6}

    asked = "SELECT partition_values['customer_id'], count(*), max(last_attempt_at) FROM read_parquet(?) GROUP BY 1"
    with duckdb.connect() as connection:
        rows = connection.execute(asked, [file]).fetchall()
    assert {(customer, count) for customer, count, _ in rows} == {(NEW_YORK, 4), (BERLIN, 4), (TOKYO, 4)}
    assert all(at.tzinfo is not None and datetime.now(UTC) - at < timedelta(hours=1) for _, _, at in rows)


def test_every_partitioned_asset_links_to_its_view_and_says_so_in_its_description(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    graph = world.definitions.resolve_asset_graph()
    for asset in StatusDesk(world.here, world.instance).assets:
        node = graph.get(dg.AssetKey(asset.asset_key.split("/")))
        link = f"{STATUS_URL}/#asset={asset.asset_key.replace('/', '%2F')}"
        assert node.metadata["status_page"].url == link
        assert f"]({link})" in (node.description or "")
        assert node.code_version == asset.code_version
    assert STATUS_URL in (graph.get(status_key(world.here.catalog)).description or "")


def test_consumers_may_read_the_rows_and_nothing_behind_them(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.run(f"{NEW_YORK}|{DAY}")
    Status(world).all(TABLE)
    with world.here.engine_as(Role.CONSUMER).connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM partition_status").mappings().all()
        assert [*rows[0]] == SCHEMA.names
        assert len(rows) == 2
        with pytest.raises(Exception, match="permission denied"):
            connection.exec_driver_sql("SELECT * FROM folded_status")


def test_the_served_page_hears_of_a_run(make_world: Callable[..., World]) -> None:
    world = make_world()
    heard: list[str] = []
    with serve_status(StatusDesk(world.here, world.instance).board) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/api/live")
        stream = connection.getresponse()

        def listen() -> None:
            for line in stream:
                if line.startswith(b"data: "):
                    heard.append(json.loads(line[6:])["version"])

        listener = Thread(target=listen)
        listener.start()
        wait_until(lambda: len(heard) == 1)
        assert world.run(f"{NEW_YORK}|{DAY}", f"{TOKYO}|{DAY}").success
        wait_until(lambda: len(heard) >= 2)
    listener.join(30)
    connection.close()
    assert len(set(heard)) >= 2
