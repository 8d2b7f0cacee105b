"""The real google-ads client against the emulator, down to sealed runs."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Protocol

import pytest
from sqlalchemy import Engine, text
from ulid import ULID

from gads_assets.catalog.fields import columns_of
from gads_assets.catalog.gaql import parse_gaql
from gads_assets.catalog.loading import load_catalog
from gads_assets.catalog.specification import QuerySpecification
from gads_assets.domain.accounts import Account, day_opens_at
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.emulator.accounts import ACCOUNTS, MANAGER_CUSTOMER_ID
from gads_assets.emulator.answers import answer
from gads_assets.emulator.entities import is_dark
from gads_assets.emulator.faults import parse_faults
from gads_assets.emulator.plan import plan_answer
from gads_assets.emulator.server import RunningEmulator, serve_emulator
from gads_assets.errors import (
    AuthenticationError,
    CustomerUnavailableError,
    DayNotOpenError,
    ExtractionError,
    MissedSnapshotError,
    PartitionKeyError,
    QueryRefusedError,
    QuotaExhaustedError,
    TransientApiError,
)
from gads_assets.extract.client import GoogleAdsSource, connect_to_emulator
from gads_assets.extract.customer_days import extract_days
from gads_assets.extract.extraction import Extraction
from gads_assets.extract.pacing import Pacer
from gads_assets.extract.partitions import Extractor
from gads_assets.extract.rows import RowEncoder
from gads_assets.raw.sink import RawSink
from gads_assets.state.connection import transaction
from gads_assets.state.operations import OperationsBudget
from gads_assets.state.partition_states import StateStore
from gads_assets_tests.agencies import enabled_accounts

CATALOG = load_catalog(None)
NOW = datetime(2024, 7, 1, 12, tzinfo=UTC)
WEEK = [date(2024, 6, 3) + timedelta(days=offset) for offset in range(7)]
SUSPENDED = CustomerId("5925550104")


def connected(running: RunningEmulator) -> GoogleAdsSource:
    return connect_to_emulator(
        running.endpoint, running.ca_path, api_version=CATALOG.api_version, login_customer_id=MANAGER_CUSTOMER_ID
    )


class Serve(Protocol):
    def __call__(self, faults: str = "") -> AbstractContextManager[RunningEmulator]: ...


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Serve:
    home = tmp_path_factory.mktemp("emulator")
    return lambda faults="": serve_emulator(home=home, faults=parse_faults(faults))


@pytest.fixture(scope="module")
def emulator(serve: Serve) -> Iterator[RunningEmulator]:
    with serve() as running:
        yield running


@pytest.fixture(scope="module")
def source(emulator: RunningEmulator) -> GoogleAdsSource:
    return connected(emulator)


@pytest.fixture(scope="module")
def accounts(source: GoogleAdsSource) -> dict[str, Account]:
    return {account.customer_id: account for account in enabled_accounts(source)}


@pytest.fixture
def account(accounts: dict[str, Account]) -> Account:
    return accounts["2145550101"]


@pytest.fixture
def sink(tmp_path: Path) -> RawSink:
    return RawSink(str(tmp_path / "raw"))


def extract(
    source: GoogleAdsSource,
    sink: RawSink,
    account: Account,
    query: QuerySpecification | str = "campaign",
    *,
    days: list[date] = WEEK,
    now: datetime = NOW,
    run_seq: Callable[[], int] = lambda: 1,
) -> list[RunManifest]:
    return list(
        extract_days(
            source=source,
            sink=sink,
            specification=CATALOG.query(query) if isinstance(query, str) else query,
            account=account,
            days=days,
            run_seq=run_seq,
            new_run_id=lambda: RunId(str(ULID())),
            now=lambda: now,
            code_version="test",
        )
    )


def written_runs(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "raw").rglob("*") if path.is_file()]


def test_the_manager_knows_the_enabled_clients_with_their_zones_and_currencies(accounts: dict[str, Account]) -> None:
    assert {(a.customer_id, a.time_zone, a.currency) for a in accounts.values()} == {
        ("2145550101", "America/New_York", "USD"),
        ("3305550102", "Europe/Berlin", "EUR"),
        ("4815550103", "Asia/Tokyo", "JPY"),
    }
    assert accounts["3305550102"].name == "Müller & Söhne Fahrräder"
    assert {(a.login_customer_id, a.origin) for a in accounts.values()} == {(MANAGER_CUSTOMER_ID, "emulator")}


def as_written(value: object) -> object:
    """What the emulator made up, as a sealed run holds it: messages are JSON text, without what is the default."""
    if isinstance(value, dict):
        members = {name.removesuffix("_"): member for name, member in value.items() if member not in (None, [], "")}
        return json.dumps(members, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return [as_written(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", [*CATALOG.queries])
@pytest.mark.parametrize("customer", ["2145550101", "3305550102", "4815550103"])
def test_sealed_rows_equal_what_the_api_produced_field_by_field(
    source: GoogleAdsSource, sink: RawSink, accounts: dict[str, Account], customer: str, name: str
) -> None:
    query = CATALOG.query(name)
    days = WEEK[: query.shape.days_per_call or len(WEEK)]
    opens_at = day_opens_at(accounts[customer].time_zone, days[-1], query.settling_delay)
    manifests = extract(source, sink, accounts[customer], query, days=days, now=opens_at)
    emulated = next(account for account in ACCOUNTS if account.customer_id == customer)
    plan = plan_answer(manifests[0].gaql, emulated, CATALOG.api_version)
    produced = [
        {column: as_written(value) for column, value in zip(query.schema.column_names, values, strict=False)}
        for values in answer(plan, emulated, ACCOUNTS)
    ]
    assert produced or name == "asset_group", "only Performance Max has asset groups, and these accounts have none"
    for manifest in manifests:
        sink.verify(manifest)
        day = manifest.logical_date.isoformat()
        expected = [row for row in produced if row.get("segments_date", day) == day]
        assert list(sink.rows(manifest)) == expected
        assert manifest.record_count == len(expected)
    assert sum(manifest.record_count for manifest in manifests) == len(produced)


def test_a_window_of_seven_days_costs_one_operation_and_gives_seven_runs(
    emulator: RunningEmulator, source: GoogleAdsSource, sink: RawSink, account: Account
) -> None:
    before = emulator.operations
    manifests = extract(source, sink, account)
    assert emulator.operations == before + 1
    assert [manifest.logical_date for manifest in manifests] == WEEK
    assert len({manifest.run_id for manifest in manifests}) == 7
    assert {(manifest.window_start, manifest.window_end) for manifest in manifests} == {(WEEK[0], WEEK[-1])}


def test_the_seal_says_how_the_day_was_asked_for(source: GoogleAdsSource, sink: RawSink, account: Account) -> None:
    manifest = extract(source, sink, account, days=WEEK[:1])[0]
    assert sink.manifest(manifest.key, manifest.run_id) == manifest
    assert manifest.key == PartitionKey(
        source="google_ads", customer_id=account.customer_id, query_name="campaign", logical_date=WEEK[0]
    )
    assert manifest.gaql.endswith("FROM campaign WHERE segments.date BETWEEN '2024-06-03' AND '2024-06-03'")
    assert (manifest.api_version, manifest.api_origin) == (CATALOG.api_version, "emulator")
    assert (manifest.account_time_zone, manifest.account_currency) == ("America/New_York", "USD")
    assert manifest.schema_version == CATALOG.query("campaign").schema.version


def test_asking_twice_gives_new_runs_with_the_same_bytes(
    source: GoogleAdsSource, sink: RawSink, account: Account
) -> None:
    first, second = (extract(source, sink, account, "search_term_view", days=WEEK[:2]) for _ in range(2))
    assert [run.files for run in first] == [run.files for run in second]
    assert not {run.run_id for run in first} & {run.run_id for run in second}


def test_a_day_without_rows_is_sealed_empty(source: GoogleAdsSource, sink: RawSink, account: Account) -> None:
    emulated = next(known for known in ACCOUNTS if known.customer_id == account.customer_id)
    days = (date(2024, 1, 2) + timedelta(days=offset) for offset in range(170))
    dark = next(day for day in days if is_dark(emulated, day.isoformat()))
    window = [dark - timedelta(days=1), dark, dark + timedelta(days=1)]
    before, empty, after = extract(source, sink, account, days=window)
    sink.verify(empty)
    assert empty.record_count == 0
    assert list(sink.rows(empty)) == []
    assert before.record_count > 0
    assert after.record_count > 0


def test_the_sequence_number_is_taken_before_the_api_is_asked(
    emulator: RunningEmulator, source: GoogleAdsSource, sink: RawSink, account: Account
) -> None:
    before = emulator.operations
    asked: list[int] = []

    def run_seq() -> int:
        asked.append(emulator.operations)
        return 40 + len(asked)

    manifests = extract(source, sink, account, days=WEEK[:2], run_seq=run_seq)
    assert asked == [before, before]
    assert [manifest.run_seq for manifest in manifests] == [41, 42]


@pytest.mark.parametrize(
    ("fault", "leaf"),
    [
        ("transient@2145550101/campaign/*", TransientApiError),
        ("midstream_break@2145550101/campaign/2024-06-05", TransientApiError),
        ("quota@*/*/*:43200", QuotaExhaustedError),
        ("bad_auth@*/*/*", AuthenticationError),
    ],
)
def test_a_call_that_fails_seals_no_day_and_leaves_nothing_behind(
    *, serve: Serve, sink: RawSink, account: Account, tmp_path: Path, fault: str, leaf: type[ExtractionError]
) -> None:
    with serve(fault) as running:
        with pytest.raises(leaf) as raised:
            extract(connected(running), sink, account)
        assert type(raised.value) is leaf
        assert raised.value.customer_id == account.customer_id
        assert "\n" not in str(raised.value)
        assert written_runs(tmp_path) == []
        if isinstance(raised.value, QuotaExhaustedError):
            assert 43_190 < raised.value.retry_after <= 43_200


@pytest.mark.parametrize("fault", ["transient@*/campaign/*", "midstream_break@*/campaign/*", "quota@*/campaign/*:1"])
def test_trying_again_after_a_passing_failure_gives_the_undisturbed_rows(
    serve: Serve, source: GoogleAdsSource, sink: RawSink, account: Account, fault: str
) -> None:
    undisturbed = extract(source, sink, account)
    with serve(fault) as running:
        disturbed = connected(running)
        with pytest.raises(ExtractionError) as raised:
            extract(disturbed, sink, account)
        assert raised.value.retryable
        if isinstance(raised.value, QuotaExhaustedError):
            time.sleep(raised.value.retry_after)
        again = extract(disturbed, sink, account)
    assert [run.files for run in again] == [run.files for run in undisturbed]


def test_a_server_that_is_gone_is_a_transient_error(serve: Serve, sink: RawSink, account: Account) -> None:
    with serve() as running:
        source = connected(running)
    with pytest.raises(TransientApiError, match="UNAVAILABLE"):
        extract(source, sink, account)


def test_a_certificate_of_another_authority_is_not_trusted(
    emulator: RunningEmulator, tmp_path: Path, sink: RawSink, account: Account
) -> None:
    with serve_emulator(home=tmp_path / "other") as other:
        stranger = connect_to_emulator(
            emulator.endpoint, other.ca_path, api_version="v26", login_customer_id=MANAGER_CUSTOMER_ID
        )
        with pytest.raises(TransientApiError):
            extract(stranger, sink, account)
        # Both authorities work side by side in one process, whichever was used first.
        assert extract(connected(other), sink, account)
        assert extract(connected(emulator), sink, account)


def test_faulty_rows_reach_the_seal_for_the_validator_to_find(serve: Serve, sink: RawSink, account: Account) -> None:
    with serve("duplicated_rows@*/campaign/2024-06-04:2; wrong_customer_rows@*/campaign/2024-06-05") as running:
        manifests = {run.logical_date: run for run in extract(connected(running), sink, account)}
    lines = [json.dumps(row) for row in sink.rows(manifests[date(2024, 6, 4)])]
    assert len(lines) - len(set(lines)) == 2
    customers = [row["customer_id"] for row in sink.rows(manifests[date(2024, 6, 5)])]
    assert sum(str(customer) != account.customer_id for customer in customers) == 1
    for day in (WEEK[0], WEEK[3]):
        rows = list(sink.rows(manifests[day]))
        assert len({row["campaign_id"] for row in rows}) == len(rows)
        assert {str(row["customer_id"]) for row in rows} == {account.customer_id}


@pytest.mark.parametrize(
    ("customer", "login", "said"),
    [
        (SUSPENDED, MANAGER_CUSTOMER_ID, "CUSTOMER_NOT_ENABLED"),
        (MANAGER_CUSTOMER_ID, MANAGER_CUSTOMER_ID, "REQUESTED_METRICS_FOR_MANAGER"),
        (CustomerId("9999999999"), MANAGER_CUSTOMER_ID, "USER_PERMISSION_DENIED"),
        (CustomerId("2145550101"), CustomerId("3305550102"), "USER_PERMISSION_DENIED"),
    ],
)
def test_an_account_that_cannot_be_asked_is_that_accounts_problem_alone(
    *,
    emulator: RunningEmulator,
    sink: RawSink,
    account: Account,
    tmp_path: Path,
    customer: CustomerId,
    login: CustomerId,
    said: str,
) -> None:
    with pytest.raises(CustomerUnavailableError, match=said) as raised:
        extract(connected(emulator), sink, replace(account, customer_id=customer, login_customer_id=login))
    assert raised.value.customer_id == customer
    assert not raised.value.retryable
    assert written_runs(tmp_path) == []


def test_a_query_that_the_api_refuses_is_refused_by_name(source: GoogleAdsSource, account: Account) -> None:
    with pytest.raises(QueryRefusedError, match=r"UNRECOGNIZED_FIELD.*campaign\.nickname"):
        list(
            source.stream(
                account.customer_id, "SELECT campaign.nickname FROM campaign", login_customer_id=MANAGER_CUSTOMER_ID
            )
        )


@pytest.mark.parametrize(
    ("customer", "opens_at"),
    [
        ("4815550103", datetime(2024, 6, 9, 18, tzinfo=UTC)),
        ("3305550102", datetime(2024, 6, 10, 1, tzinfo=UTC)),
        ("2145550101", datetime(2024, 6, 10, 7, tzinfo=UTC)),
    ],
)
def test_a_day_is_not_asked_for_before_it_has_ended_and_settled_where_the_account_is(
    *,
    emulator: RunningEmulator,
    source: GoogleAdsSource,
    sink: RawSink,
    accounts: dict[str, Account],
    tmp_path: Path,
    customer: str,
    opens_at: datetime,
) -> None:
    before = emulator.operations
    with pytest.raises(DayNotOpenError, match="2024-06-09"):
        extract(source, sink, accounts[customer], now=opens_at - timedelta(minutes=1))
    assert emulator.operations == before
    assert written_runs(tmp_path) == []
    assert len(extract(source, sink, accounts[customer], now=opens_at)) == 7


def test_a_day_that_the_api_no_longer_tells_is_refused_before_anything_is_asked(
    emulator: RunningEmulator, source: GoogleAdsSource, sink: RawSink, account: Account, tmp_path: Path
) -> None:
    before = emulator.operations
    day = date(2024, 6, 29)
    with pytest.raises(MissedSnapshotError, match="was not taken for 2024-06-29 before 2024-07-01 07:00 UTC"):
        extract(source, sink, account, "conversion_action", days=[day])
    changes = replace(
        CATALOG.query("campaign"),
        gaql=parse_gaql("SELECT customer.id, change_event.change_date_time FROM change_event LIMIT 10000"),
    )
    with pytest.raises(ExtractionError, match="day 2024-05-31 of campaign is out of reach: Google keeps 30 days"):
        extract(source, sink, account, changes, days=[date(2024, 5, 31), date(2024, 6, 1)])
    assert emulator.operations == before
    assert written_runs(tmp_path) == []
    assert len(extract(source, sink, account, "conversion_action", days=[day + timedelta(days=1)])) == 1


def test_days_with_others_between_them_cost_one_operation_and_only_they_are_kept(
    emulator: RunningEmulator, source: GoogleAdsSource, sink: RawSink, account: Account
) -> None:
    whole_week = {run.logical_date: run.files for run in extract(source, sink, account)}
    before = emulator.operations
    days = [WEEK[0], WEEK[2], WEEK[6]]
    some = {run.logical_date: run.files for run in extract(source, sink, account, days=days)}
    assert emulator.operations == before + 1
    assert some == {day: whole_week[day] for day in days}


@pytest.mark.parametrize("days", [[], [WEEK[1], WEEK[0]], [WEEK[0], WEEK[0]]])
def test_days_out_of_order_are_refused(
    source: GoogleAdsSource, sink: RawSink, account: Account, days: list[date]
) -> None:
    with pytest.raises(PartitionKeyError):
        extract(source, sink, account, days=days)


def test_a_row_of_a_day_that_was_not_asked_for_is_never_lost_silently(
    serve: Serve, sink: RawSink, account: Account, tmp_path: Path
) -> None:
    with (
        serve("wrong_day_rows@*/campaign/2024-06-04") as running,
        pytest.raises(ExtractionError, match=r"asked for 2024-06-03 to 2024-06-09 .* day '2024-06-10'"),
    ):
        extract(connected(running), sink, account)
    assert written_runs(tmp_path) == []


def test_a_clock_that_steps_back_during_a_call_leaves_a_seal_that_can_be_read(
    source: GoogleAdsSource, sink: RawSink, account: Account
) -> None:
    times = iter([NOW, NOW - timedelta(seconds=30)])
    [run] = extract_days(
        source=source,
        sink=sink,
        specification=CATALOG.query("campaign"),
        account=account,
        days=WEEK[:1],
        run_seq=lambda: 1,
        new_run_id=lambda: RunId(str(ULID())),
        now=lambda: next(times),
        code_version="test",
    )
    assert sink.manifest(run.key, run.run_id) == run


def test_an_answer_as_long_as_its_limit_is_refused_also_where_most_of_it_was_not_asked_for(
    source: GoogleAdsSource, sink: RawSink, account: Account, tmp_path: Path
) -> None:
    query = CATALOG.query("campaign")
    limited = replace(query, gaql=replace(query.gaql, limit=20))
    with pytest.raises(ExtractionError, match="answered with 20 rows, the LIMIT"):
        extract(source, sink, account, limited, days=[WEEK[0], WEEK[6]])
    assert written_runs(tmp_path) == []


def test_an_account_of_one_api_is_never_asked_through_another(
    source: GoogleAdsSource, sink: RawSink, account: Account
) -> None:
    with pytest.raises(ExtractionError, match="found through google and cannot be asked through emulator"):
        extract(source, sink, replace(account, origin="google"))


def test_more_rows_than_one_batch_arrive_whole_and_in_order(source: GoogleAdsSource, account: Account) -> None:
    gaql = (
        "SELECT ad_group.id, segments.date, search_term_view.search_term FROM search_term_view "
        "WHERE segments.date BETWEEN '2024-05-01' AND '2024-05-31'"
    )
    batches = [list(batch) for batch in source.stream(account.customer_id, gaql, login_customer_id=MANAGER_CUSTOMER_ID)]
    assert len(batches) > 5
    assert {len(batch) for batch in batches[:-1]} == {1000}
    emulated = next(known for known in ACCOUNTS if known.customer_id == account.customer_id)
    produced = answer(plan_answer(gaql, emulated, "v26"), emulated, ACCOUNTS)
    encoder = RowEncoder(columns_of(parse_gaql(gaql), "v26"), "v26")
    received = [
        json.loads(line) for batch in batches for _, lines in encoder.lines(batch) for line in lines.splitlines()
    ]
    assert [tuple(row.values()) for row in received] == [values[:3] for values in produced]


Extract = Callable[..., Extraction]


def recorded(engine: Engine) -> dict[date, tuple[str, str | None]]:
    with transaction(engine) as connection:
        rows = connection.execute(text("SELECT logical_date, outcome, error_class FROM extraction_attempt"))
        return {day: (outcome, error_class) for day, outcome, error_class in rows}


@pytest.fixture
def extract_partitions(source: GoogleAdsSource, sink: RawSink, store: StateStore, engine: Engine) -> Extract:
    budget = OperationsBudget(engine, origin="emulator", allowed=None)

    def extract(
        keys: list[PartitionKey],
        *accounts: Account,
        new_run_id: Callable[[], RunId] = lambda: RunId(str(ULID())),
    ) -> Extraction:
        pacer = Pacer(budget=budget, now=lambda: NOW, sleep=time.sleep)
        extractor = Extractor(
            source=source,
            sink=sink,
            store=store,
            pacer=pacer,
            new_run_id=new_run_id,
            now=lambda: NOW,
            calls_at_once=8,
            estranged=lambda _: (),
        )
        return extractor.extract(
            CATALOG.query("campaign"),
            keys,
            {account.customer_id: account for account in accounts},
            code_version="test",
            dagster_run_id="run",
        )

    return extract


def keys_of(account: Account, *days: date) -> list[PartitionKey]:
    return [
        PartitionKey(source="google_ads", customer_id=account.customer_id, query_name="campaign", logical_date=day)
        for day in days
    ]


def test_a_day_that_has_not_opened_is_recorded_and_does_not_hold_back_its_neighbours(
    extract_partitions: Extract, engine: Engine, account: Account
) -> None:
    over, today = NOW.date() - timedelta(days=2), NOW.date()
    keys = keys_of(account, over, over + timedelta(days=1), today)
    extraction = extract_partitions(keys, account)
    assert (set(extraction.sealed), set(extraction.failed)) == (set(keys[:2]), set(keys[2:]))
    assert recorded(engine) == {
        over: ("sealed", None),
        over + timedelta(days=1): ("sealed", None),
        today: ("failed", "day_not_open"),
    }


def test_an_account_that_is_not_registered_is_recorded_as_a_failed_attempt(
    extract_partitions: Extract, engine: Engine, account: Account
) -> None:
    [key] = keys_of(account, WEEK[0])
    extraction = extract_partitions([key])
    assert "is not registered" in str(extraction.failed[key])
    assert recorded(engine) == {WEEK[0]: ("failed", "partition")}


def test_days_sealed_before_the_disk_failed_stay_sealed_and_are_recorded_so(
    extract_partitions: Extract, engine: Engine, account: Account, sink: RawSink, tmp_path: Path
) -> None:
    keys = keys_of(account, *WEEK[:3])
    chosen = [RunId(str(ULID())) for _ in keys]
    # Something lies where the second day's seal is drafted.
    day = tmp_path / "raw" / "google_ads" / account.customer_id / "campaign" / WEEK[1].isoformat()
    (day / f".{chosen[1]}.metadata.json").mkdir(parents=True)

    extraction = extract_partitions(keys, account, new_run_id=iter(chosen).__next__)

    assert (set(extraction.sealed), set(extraction.failed)) == (set(keys[:1]), set(keys[1:]))
    assert [sink.sealed_runs(key) for key in keys] == [chosen[:1], [], []]
    assert recorded(engine) == {
        WEEK[0]: ("sealed", None),
        WEEK[1]: ("failed", "raw_sink"),
        WEEK[2]: ("failed", "raw_sink"),
    }
