"""Marts as assets: made of what readers see by real Dagster runs, which a sensor asks for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from gads_assets.domain.keys import PartitionKey
from gads_assets.orchestration.requested_runs import carry_out
from gads_assets.warehouse.arrow import read_published
from gads_assets.warehouse.delta_tables import open_table
from gads_assets.warehouse.marts.reading import mart_rows
from gads_assets.warehouse.publishing import Withdrawal, current_state
from gads_assets_tests.worlds import BERLIN, NEW_YORK, RAW, TABLE, World, key, step_failure

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

SENSOR = "google_ads_marts"
ACCOUNT_DAY, FRESHNESS = (dg.AssetKey(["google_ads", "marts", name]) for name in ("account_day", "freshness"))
ACCOUNTS = [dg.AssetKey(["google_ads", "raw", "account"]), dg.AssetKey(["google_ads", "account"])]
START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
FIRST, LAST = f"{NEW_YORK}|2024-06-01", f"{BERLIN}|2024-06-02"
ALL = {f"{customer}|2024-06-0{day}" for customer in (NEW_YORK, BERLIN) for day in (1, 2)}
UP_TO_DATE = "the marts are made of what readers see"
SUMS = {
    "impressions": "metrics_impressions",
    "clicks": "metrics_clicks",
    "interactions": "metrics_interactions",
    "conversions": "metrics_conversions",
    "conversions_value": "metrics_conversions_value",
}


@dataclass
class Marts:
    world: World
    cursor: str | None = None

    def tick(self) -> tuple[list[dg.RunRequest], str | None]:
        """As the daemon does it, which keeps the cursor."""
        definitions = self.world.definitions
        context = dg.build_sensor_context(
            instance=self.world.instance,
            repository_def=definitions.get_repository_def(),
            sensor_name=SENSOR,
            cursor=self.cursor,
        )
        ticked = definitions.resolve_sensor_def(SENSOR).evaluate_tick(context)
        self.cursor = ticked.cursor
        return list(ticked.run_requests or []), ticked.skip_message

    def settle(self) -> list[tuple[dg.AssetKey, str, str, bool]]:
        """Ticks until nothing is left to do: the runs that were asked for, and whether each succeeded."""
        asked: list[tuple[dg.AssetKey, str, str, bool]] = []
        while True:
            requests, skipped = self.tick()
            if not requests:
                assert skipped == UP_TO_DATE
                return asked
            assert self.tick()[0] == requests  # Dagster makes one run of a key
            for request in requests:
                [mart] = request.asset_selection or []
                result = carry_out(self.world.definitions, self.world.instance, request)
                asked.append((mart, request.tags[START], request.tags[END], result.success))

    def table(self, name: str = "account_day") -> list[dict[str, object]]:
        rows: list[dict[str, object]] = open_table(self.world.here.layout.mart(name)).to_pyarrow_table().to_pylist()
        return rows

    def shown(self) -> set[tuple[str, str]]:
        here = self.world.here
        rows = mart_rows(here.session(), here.layout, here.catalog, "account_day").collect()
        return {(f"{row.customer_id}|{row.logical_date}", row.query_name) for row in rows}

    def inputs(self, label: str) -> Mapping[str, object]:
        """As the latest materialization names them."""
        told = self.world.materialization(ACCOUNT_DAY, label).metadata["inputs"].value
        assert isinstance(told, Mapping)
        return told


@pytest.fixture
def marts(make_world: Callable[..., World], spark: object) -> Marts:
    world = make_world()
    world.here._given_session = lambda: spark  # type: ignore[assignment]
    return Marts(world=world)


def test_the_sensor_keeps_the_marts_as_readers_see_the_tables(marts: Marts) -> None:
    """Published, replaced, partly withdrawn, and withdrawn altogether."""
    world = marts.world
    assert marts.tick() == ([], "nothing is published yet")
    assert world.run(FIRST, LAST, assets=[RAW, TABLE, *ACCOUNTS]).success

    asked = marts.settle()

    everyone = (FRESHNESS, NEW_YORK, world.instance.get_dynamic_partitions("google_ads_customers")[-1], True)
    assert asked == [everyone, (ACCOUNT_DAY, FIRST, LAST, True)]
    assert marts.tick() == ([], "nothing has changed since the marts were last found up to date")
    _require_sums_and_lineage(marts, ALL)

    assert world.run(FIRST, assets=[RAW, TABLE]).success
    assert marts.settle() == [everyone, (ACCOUNT_DAY, FIRST, FIRST, True)]
    _require_sums_and_lineage(marts, ALL)

    gap = world.run(f"{NEW_YORK}|2024-06-02", f"{BERLIN}|2024-06-03", assets=[ACCOUNT_DAY])
    assert not gap.success
    assert step_failure(gap, "google_ads__marts__account_day") == (
        f"2 of 4 partitions have no rows. {NEW_YORK}|2024-06-03, {BERLIN}|2024-06-03: nothing is published of it"
    )
    assert world.materialized(ACCOUNT_DAY) == ALL
    _require_sums_and_lineage(marts, ALL)

    _spoil(world, FIRST)
    world.check_alone(FIRST)
    for name in ("campaign", "account"):
        _withdraw(world, replace(key(LAST), query_name=name))
    kept = {(label, name) for label in ALL - {LAST} for name in ("campaign", "account")} - {(FIRST, "campaign")}
    assert marts.shown() == kept
    assert len(marts.table()) == 8
    assert marts.settle() == [everyone, (ACCOUNT_DAY, LAST, LAST, False), (ACCOUNT_DAY, FIRST, FIRST, True)]
    assert set(marts.inputs(FIRST)) == {"account"}
    assert len(marts.table()) == len(kept)


def test_the_marts_depend_on_what_they_are_made_of_partition_by_partition(make_world: Callable[..., World]) -> None:
    graph = make_world().definitions.resolve_asset_graph()
    tables = {dg.AssetKey(["google_ads", name]) for name in make_world().here.catalog.queries}
    assert graph.get(FRESHNESS).parent_keys == tables
    assert graph.get(ACCOUNT_DAY).parent_keys == tables - {dg.AssetKey(["google_ads", "conversion_action"])}
    assert graph.get(ACCOUNT_DAY).partitions_def == graph.get(TABLE).partitions_def
    mapping = graph.get_partition_mapping(FRESHNESS, TABLE)
    assert mapping == dg.MultiToSingleDimensionPartitionMapping("customer_id")


def _require_sums_and_lineage(marts: Marts, labels: set[str]) -> None:
    """Held against the other reader, without Spark."""
    here = marts.world.here
    rows = {(f"{row['customer_id']}|{row['logical_date']}", row["query_name"]): row for row in marts.table()}
    assert set(rows) == {(label, name) for label in labels for name in ("campaign", "account")}
    currencies = {
        row["customer_id"]: row["customer_currency_code"]
        for row in read_published(here.layout, here.catalog, "account").to_pylist()
    }
    assert len(set(currencies.values())) == 2
    for name in ("campaign", "account"):
        pointers = current_state(here.layout, name)
        published = _by_label(read_published(here.layout, here.catalog, name))
        for partition, pointer in pointers.items():
            row, inputs = rows[partition.label, name], published[partition.label]
            assert row["row_count"] == len(inputs)
            assert row["cost"] == sum(Decimal(each["metrics_cost_micros"]) for each in inputs) / 1_000_000
            for figure, column in SUMS.items():
                assert row[figure] == pytest.approx(sum(each[column] for each in inputs)), figure
            assert row["currency_code"] == currencies[partition.customer_id]
            made_of = {"run_id": pointer.run_id, "schema_version": pointer.schema_version}
            assert {column: row[column] for column in made_of} == made_of
            assert marts.inputs(partition.label)[name] == made_of


def _by_label(table: pa.Table) -> dict[str, list[dict[str, int]]]:
    rows: dict[str, list[dict[str, int]]] = {}
    for row in table.to_pylist():
        rows.setdefault(f"{row['customer_id']}|{row['logical_date']}", []).append(row)
    return rows


def _spoil(world: World, label: str) -> None:
    for run_id in world.here.sink.sealed_runs(key(label)):
        [payload] = world.here.sink.payload_uris(world.here.sink.manifest(key(label), run_id))
        Path(payload).write_bytes(b"")


def _withdraw(world: World, partition: PartitionKey) -> None:
    shown = current_state(world.here.layout, partition.query_name)[partition]
    gone = Withdrawal(key=partition, run_id=shown.run_id, schema_version="1", state_version=shown.state_version + 1)
    world.here.loader.publisher.withdraw(partition.query_name, [gone])
