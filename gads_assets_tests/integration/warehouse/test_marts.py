"""The marts as tables: what they say is what is published, and nothing that was withdrawn."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from gads_assets.catalog.gaql import parse_gaql
from gads_assets.catalog.specification import Catalog, Column, QuerySchema, QuerySpecification, Terms
from gads_assets.cli.query import answer
from gads_assets.domain import retention
from gads_assets.domain.keys import PartitionKey, RunId, StageId
from gads_assets.domain.pointer import PointerStatus
from gads_assets.domain.roles import Role
from gads_assets.errors import ReadError
from gads_assets.warehouse.delta_tables import open_table
from gads_assets.warehouse.marts.differences import is_freshness_stale, pointer_versions, stale_account_days
from gads_assets.warehouse.marts.reading import mart_rows
from gads_assets.warehouse.marts.tables import ACCOUNT_DAY, refreshing_scope
from gads_assets.warehouse.pointers import append_pointers
from gads_assets.warehouse.publishing import Withdrawal, current_state
from gads_assets_tests.integration.conftest import wait_until, waiting_for_locks
from gads_assets_tests.sealed_runs import COLUMNS, catalog, key, row, schema
from gads_assets_tests.sites import Site, make_site
from gads_assets_tests.warehouses import let_pass

ANNA, BERT = "1234567890", "2345678901"
COST = Column(name="metrics_cost_micros", field="metrics.cost_micros", type="bigint")
ACCOUNT = QuerySchema(
    query_name="account",
    version="1",
    columns=(
        *COLUMNS[:2],
        Column(name="customer_currency_code", field="customer.currency_code", type="string"),
        Column(name="metrics_impressions", field="metrics.impressions", type="bigint"),
    ),
    natural_key=("segments_date",),
    terms=Terms(resource="customer"),
)

Row = dict[str, object]


def two_queries() -> Catalog:
    """Campaigns, whose first version had no cost, and accounts, which have the currency and no clicks."""
    campaigns = catalog(schema("2", [*COLUMNS, COST]), schema("1"))
    accounts = QuerySpecification(
        name="account",
        description="accounts by day",
        gaql=parse_gaql("SELECT customer.id, segments.date, customer.currency_code, metrics.impressions FROM customer"),
        schema=ACCOUNT,
        start_date=date(2024, 1, 1),
        settling_delay=timedelta(hours=3),
    )
    return replace(
        campaigns,
        queries={**campaigns.queries, "account": accounts},
        schemas={**campaigns.schemas, ("account", "1"): ACCOUNT},
    )


@pytest.fixture
def site(spark: SparkSession, database_url: str, tmp_path: Path) -> Iterator[Site]:
    made = make_site(tmp_path, database_url, lambda: spark)
    made.here.catalog = two_queries()
    with made.here:
        yield made


def campaigns(customer: str, day: int) -> PartitionKey:
    return key(customer, f"2024-06-0{day}")


def accounts(customer: str, day: int) -> PartitionKey:
    return replace(campaigns(customer, day), query_name="account")


def account_day(customer: str, day: int) -> PartitionKey:
    return replace(campaigns(customer, day), query_name="account_day")


def publish(site: Site, contents: Mapping[PartitionKey, Sequence[Mapping[str, object]]], *, version: str = "2") -> None:
    for partition, rows in contents.items():
        site.extract(partition, rows, schema_version=version)
    site.judge(*contents, run="dagster-run")
    assert not site.here.loader.load(list(contents)).refused


def spent(partition: PartitionKey, *micros: int) -> list[Row]:
    return [row(partition, number, metrics_cost_micros=each) for number, each in enumerate(micros, start=1)]


def euros(partition: PartitionKey) -> list[Row]:
    shown = {"customer_currency_code": "EUR", "metrics_impressions": 7}
    return [{"customer_id": int(partition.customer_id), "segments_date": str(partition.logical_date), **shown}]


def in_table(site: Site, mart: str = "account_day") -> list[Row]:
    """Without Spark, and without anything of ours."""
    return _sorted(open_table(site.here.layout.mart(mart)).to_pyarrow_table().to_pylist())


def shown(site: Site, mart: str = "account_day", *, as_of: datetime | None = None) -> list[Row]:
    rows = mart_rows(site.here.session(), site.here.layout, site.here.catalog, mart, as_of=as_of)
    return _sorted([{name: _in_utc(value) for name, value in each.asDict().items()} for each in rows.collect()])


def figures(rows: Sequence[Row], *names: str) -> dict[tuple[object, int, object], tuple[object, ...]]:
    return {
        (each["customer_id"], each["logical_date"].day, each["query_name"]): tuple(each[name] for name in names)  # type: ignore[attr-defined]
        for each in rows
    }


def test_account_days_are_what_is_published_of_them_and_nothing_else(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = site.here
    query = "SELECT customer_id, query_name, clicks, cost FROM google_ads_marts.account_day"
    columns, rows = answer(here, query)
    assert (list(columns), rows) == (["customer_id", "query_name", "clicks", "cost"], [])

    first, second, third = campaigns(ANNA, 1), campaigns(ANNA, 2), campaigns(ANNA, 3)
    other = campaigns(BERT, 1)
    publish(site, {first: spent(first, 1_000_001, 2_999_998), second: [], other: spent(other, 5)})
    publish(site, {third: [row(third, 4)]}, version="1")
    asked = [account_day(ANNA, day) for day in range(1, 5)]

    lineage = here.marts.refresh_account_days([*asked, account_day(BERT, 1)])

    expected: dict[tuple[object, int, object], tuple[object, ...]] = {
        (ANNA, 1, "campaign"): (2, None, 30, Decimal("3.999999"), 0.75, None),
        (ANNA, 2, "campaign"): (0, None, 0, Decimal("0.000000"), 0.0, None),  # published, and nothing happened
        (ANNA, 3, "campaign"): (1, None, 40, None, 1.0, None),  # its version has no cost
        (BERT, 1, "campaign"): (1, None, 10, Decimal("0.000005"), 0.25, None),
    }
    names = ("row_count", "impressions", "clicks", "cost", "conversions", "currency_code")
    assert figures(in_table(site), *names) == expected  # the fourth day is not published
    pointers = current_state(here.layout, "campaign")
    assert figures(lineage.to_pylist(), "run_id", "schema_version") == {
        (each.customer_id, each.logical_date.day, "campaign"): (pointer.run_id, pointer.schema_version)
        for each, pointer in pointers.items()
    }
    assert stale_account_days(here.layout, here.catalog) == {}
    then, shown_then = datetime.now(UTC), shown(site)
    assert shown_then == in_table(site)

    publish(site, {accounts(ANNA, 1): euros(accounts(ANNA, 1))}, version="1")  # the currency becomes known

    stale = stale_account_days(here.layout, here.catalog)
    assert set(stale) == set(asked[:3])
    here.marts.refresh_account_days(list(stale))
    expected = {place: (*told[:-1], "EUR" if place[0] == ANNA else None) for place, told in expected.items()}
    expected[ANNA, 1, "account"] = (1, 7, None, None, None, "EUR")
    assert figures(in_table(site), *names) == expected

    publish(site, {first: spent(first, 1)})  # replaced

    assert set(stale_account_days(here.layout, here.catalog)) == {account_day(ANNA, 1)}
    here.marts.refresh_account_days([account_day(ANNA, 1)])
    expected[ANNA, 1, "campaign"] = (1, None, 10, Decimal("0.000001"), 0.25, "EUR")
    assert figures(in_table(site), *names) == expected
    assert len(in_table(site)) == len(expected)

    assert shown(site, as_of=then) == shown_then
    assert shown(site, as_of=then - timedelta(days=1)) == []
    _columns, rows = answer(here, f"{query} WHERE query_name = 'campaign' AND customer_id = '{BERT}'")
    assert [tuple(each) for each in rows] == [(BERT, "campaign", 10, Decimal("0.000005"))]
    with pytest.raises(ReadError, match="there is no mart profit; there are account_day, freshness"):
        mart_rows(here.session(), here.layout, here.catalog, "profit")
    _housekeeping_changes_no_row(site, monkeypatch)


def _housekeeping_changes_no_row(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    before, uri = in_table(site), site.here.layout.mart("account_day")
    monkeypatch.setattr(retention, "_SMALL_FILES", 2)
    let_pass(Path(uri), hours=9 * 24)
    would = site.here.housekeeper.tidy_mart(ACCOUNT_DAY, dry_run=True)
    files = len(list(Path(uri).glob("*.parquet")))

    did = site.here.housekeeper.tidy_mart(ACCOUNT_DAY)

    assert did == would
    assert did is not None
    assert (did.query_name, did.small_files > 1, did.files > 0) == ("google_ads_marts.account_day", True, True)
    assert len(list(Path(uri).glob("*.parquet"))) == files - did.files + 1
    assert in_table(site) == before
    site.here.marts.refresh_account_days([account_day(ANNA, 1)])
    assert in_table(site) == before


def test_what_is_withdrawn_is_gone_for_readers_at_once_and_from_the_table_after_a_refresh(site: Site) -> None:
    """Withdrawn; withdrawn and followed by another run; and followed by another run that was withdrawn."""
    here = site.here
    days = [campaigns(ANNA, day) for day in range(1, 5)]
    publish(site, {day: spent(day, 1) for day in days})
    asked = [account_day(ANNA, day) for day in range(1, 5)]
    here.marts.refresh_account_days(asked)
    assert len(shown(site)) == 4
    pointers = current_state(here.layout, "campaign")
    newer = {
        day: replace(
            pointers[day], run_id=RunId("01ARZ3NDEKTSV4RRFFQ69G5FAV"), state_version=8, record_count=0,
            stage_id=StageId("7" * 26),
        )
        for day in days
    }  # fmt: skip

    def withdraw(day: PartitionKey, run_id: RunId, state_version: int) -> None:
        gone = Withdrawal(key=day, run_id=run_id, schema_version="2", state_version=state_version)
        here.loader.publisher.withdraw("campaign", [gone])

    withdraw(days[0], pointers[days[0]].run_id, 7)
    withdraw(days[1], pointers[days[1]].run_id, 7)
    append_pointers(here.layout, "campaign", [newer[days[1]], newer[days[2]]])
    withdraw(days[2], newer[days[2]].run_id, 9)

    assert [each["logical_date"].day for each in shown(site)] == [4]  # type: ignore[attr-defined]
    assert len(in_table(site)) == 4
    assert set(stale_account_days(here.layout, here.catalog)) == set(asked[:3])

    lineage = here.marts.refresh_account_days(asked[:3])

    assert lineage["logical_date"].to_pylist() == [days[1].logical_date]
    assert figures(in_table(site), "row_count", "clicks") == {
        (ANNA, 2, "campaign"): (0, 0),
        (ANNA, 4, "campaign"): (1, 10),
    }
    assert in_table(site) == shown(site)
    assert stale_account_days(here.layout, here.catalog) == {}
    assert {each.status for each in current_state(here.layout, "campaign").values()} == set(PointerStatus)


def test_freshness_tells_gaps_and_what_was_loaded_when_for_every_customer_and_query(site: Site) -> None:
    here = site.here
    publish(site, {day: spent(day, 1, 2) for day in (campaigns(ANNA, 1), campaigns(ANNA, 2), campaigns(ANNA, 5))})
    first = campaigns(ANNA, 1)
    publish(site, {first: spent(first, 3)})  # the newest load is not that of the newest day
    versions = pointer_versions(here.layout, here.catalog)
    both = [account_day(customer, 1).customer_id for customer in (ANNA, BERT)]
    assert is_freshness_stale(here.layout, both, versions)

    inputs = here.marts.refresh_freshness(both)

    assert inputs.versions == versions == {"campaign": 1, "account": -1}
    assert not is_freshness_stale(here.layout, both, versions)
    assert is_freshness_stale(here.layout, both, {**versions, "campaign": 2})
    rows = in_table(site, "freshness")
    assert rows == shown(site, "freshness")
    told = {(each["customer_id"], each["query_name"]): each for each in rows}
    assert set(told) == {(customer, name) for customer in both for name in here.catalog.queries}
    loads = {(each.key, each.run_id): each.loaded_at for each in here.store_as(Role.CONSUMER).load_records()}
    pointers = current_state(here.layout, "campaign")
    fifth = campaigns(ANNA, 5)
    assert {name: told[ANNA, "campaign"][name] for name in list(rows[0])[2:-1]} == {
        "first_day": date(2024, 6, 1),
        "last_day": date(2024, 6, 5),
        "days_published": 3,
        "days_missing": 2,
        "rows_published": 5,
        "last_loaded_at": loads[first, pointers[first].run_id],
        "last_day_loaded_at": loads[fifth, pointers[fifth].run_id],
        "last_day_run_id": pointers[fifth].run_id,
        "last_day_schema_version": "2",
        "pointer_version": 1,
    }
    assert loads[first, pointers[first].run_id] > loads[fifth, pointers[fifth].run_id]
    nothing = told[BERT, "account"]
    assert (nothing["days_published"], nothing["days_missing"], nothing["last_day"]) == (0, 0, None)


def test_of_two_refreshes_at_once_the_later_look_at_the_inputs_stays(
    site: Site, acting: Callable[[Role], Engine]
) -> None:
    here, day = site.here, campaigns(ANNA, 1)
    others = campaigns(BERT, 1)
    publish(site, {day: spent(day, 1), others: spent(others, 1)})
    engine = acting(Role.CONSUMER)
    with ThreadPoolExecutor() as pool:
        with here.records_as(Role.LOADER).exclusive(refreshing_scope("google_ads", ACCOUNT_DAY)):
            waiting = pool.submit(here.marts.refresh_account_days, [account_day(ANNA, 1)])
            wait_until(lambda: waiting_for_locks(engine, "advisory") == 1)
            publish(site, {day: spent(day, 2, 2)})
        waiting.result()
        assert figures(in_table(site), "cost") == {(ANNA, 1, "campaign"): (Decimal("0.000004"),)}
        asked = [[account_day(ANNA, 1), account_day(BERT, 1)], [account_day(BERT, 1)]]
        assert [each.num_rows for each in pool.map(here.marts.refresh_account_days, asked)] == [2, 1]
    assert figures(in_table(site), "cost") == {
        (ANNA, 1, "campaign"): (Decimal("0.000004"),),
        (BERT, 1, "campaign"): (Decimal("0.000001"),),
    }


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(
        rows, key=lambda each: [str(each.get(name)) for name in ("customer_id", "logical_date", "query_name")]
    )


def _in_utc(value: object) -> object:
    return value.astimezone(UTC) if hasattr(value, "astimezone") else value
