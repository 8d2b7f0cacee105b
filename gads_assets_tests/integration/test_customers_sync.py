"""Accounts as the API's hierarchy shows them, brought into the register and into Dagster by real parts."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from gads_assets.domain.accounts import Account, SyncPlan
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.roles import Role
from gads_assets.emulator.accounts import ACCOUNTS, MANAGER_CUSTOMER_ID, EmulatedAccount
from gads_assets.emulator.server import RunningEmulator, serve_emulator
from gads_assets.errors import CustomerUnavailableError, QuotaExhaustedError, SettingsError
from gads_assets.orchestration.customers import dagster_instance, sync_accounts
from gads_assets.orchestration.partitions import CUSTOMERS
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.state.connection import transaction

NEW_YORK, BERLIN, TOKYO, CLOSED = "2145550101", "3305550102", "4815550103", "5925550104"
OPEN = [NEW_YORK, BERLIN, TOKYO]
NOW = datetime(2024, 7, 1, 12, tzinfo=UTC)
DAY = date(2024, 6, 1)
PROCESS_SECONDS = 120


class Agency:
    """A home whose emulated accounts can be changed; every change is a new emulator and a new workplace."""

    def __init__(self, home: Path, database_url: str) -> None:
        self._environment = {"GADS_HOME": str(home), "GADS_DATABASE_URL": database_url}
        self._home = home
        self._held = ExitStack()
        self.has()

    def has(self, *accounts: EmulatedAccount, **settings: str) -> None:
        self.close()
        self._emulator: RunningEmulator = self._held.enter_context(
            serve_emulator(home=self._home / "emulator", accounts=accounts or ACCOUNTS)
        )
        self.environment = {
            **self._environment,
            "GADS_GOOGLE_ADS_ENDPOINT": self._emulator.endpoint,
            **settings,
        }
        self.here = self._held.enter_context(Workplace(read_settings(self.environment)))

    def close(self) -> None:
        self._held.close()

    def sync(self, *, now: datetime = NOW, closes_most: bool = False) -> SyncPlan:
        return sync_accounts(self.here, now=now, closes_most=closes_most)

    def known(self) -> dict[str, Account]:
        return {each.customer_id: each for each in self.here.customers_as(Role.CONSUMER).customers(with_closed=True)}

    def launchable(self) -> list[str]:
        with dagster_instance(self.here) as instance:
            return sorted(instance.get_dynamic_partitions(CUSTOMERS))

    def calls(self) -> int:
        return self._emulator.operations

    def gads(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GADS_", "DAGSTER_", "PG"))}
        return subprocess.run(
            [str(Path(sys.executable).with_name("gads")), *arguments],
            env=kept | self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PROCESS_SECONDS,
        )


@pytest.fixture
def agency(database_url: str, tmp_path: Path) -> Iterator[Agency]:
    agency = Agency(tmp_path, database_url)
    yield agency
    agency.close()


def with_status(customer_id: str, status: str) -> Sequence[EmulatedAccount]:
    return [replace(each, status=status) if each.customer_id == customer_id else each for each in ACCOUNTS]


def without(*customer_ids: str) -> Sequence[EmulatedAccount]:
    return [each for each in ACCOUNTS if each.customer_id not in customer_ids]


def test_enabled_accounts_are_registered_with_their_facts_and_launchable_and_the_walk_is_counted(
    agency: Agency,
) -> None:
    plan = agency.sync()
    assert [each.customer_id for each in plan.new] == OPEN
    known = agency.known()
    assert list(known) == OPEN
    assert known[TOKYO] == Account(
        customer_id=CustomerId(TOKYO),
        name="ことり文具店",
        time_zone="Asia/Tokyo",
        currency="JPY",
        login_customer_id=MANAGER_CUSTOMER_ID,
        origin="emulator",
        login_path=(MANAGER_CUSTOMER_ID,),
    )
    assert agency.launchable() == OPEN
    used = agency.here.operations_as(Role.CONSUMER).status().used
    assert used == agency.calls() == 1
    again = agency.sync(now=NOW + timedelta(days=1))
    assert (again.to_write, len(again.unchanged)) == ((), 3)


def extract(agency: Agency, customer_id: str) -> tuple[PartitionKey, object]:
    query = agency.here.catalog.query("campaign")
    key = PartitionKey(
        source=agency.here.catalog.source,
        customer_id=CustomerId(customer_id),
        query_name=query.name,
        logical_date=DAY,
    )
    accounts = agency.here.customers_as(Role.EXTRACTOR).customers(with_closed=True)
    extraction = agency.here.extractor.extract(
        query, [key], {each.customer_id: each for each in accounts}, code_version="test", dagster_run_id="run"
    )
    return key, extraction.failed.get(key) or extraction.sealed[key]


def test_a_suspended_account_is_closed_keeps_its_history_and_is_reopened(agency: Agency) -> None:
    agency.sync()
    key, _ = extract(agency, BERLIN)
    sealed = agency.here.sink.sealed_runs(key)

    agency.has(*with_status(BERLIN, "SUSPENDED"))
    plan = agency.sync(now=NOW + timedelta(days=1))
    assert [each.customer_id for each in plan.closed] == [BERLIN]
    berlin = agency.known()[BERLIN]
    assert (berlin.status, berlin.closed_at, berlin.closed_reason) == (
        *("inactive", NOW + timedelta(days=1)),
        "suspended in Google Ads",
    )
    assert [each.customer_id for each in agency.here.customers_as(Role.CONSUMER).customers()] == [NEW_YORK, TOKYO]
    assert agency.launchable() == OPEN
    assert agency.here.sink.sealed_runs(key) == sealed

    asked = agency.calls()
    _, refusal = extract(agency, BERLIN)
    assert isinstance(refusal, CustomerUnavailableError)
    assert f"account {BERLIN} is closed since 2024-07-02 (suspended in Google Ads)" in str(refusal)
    assert agency.calls() == asked
    with transaction(agency.here.engine_as(Role.OPERATOR)) as connection:
        attempts = connection.execute(text("SELECT outcome, error_class FROM extraction_attempt ORDER BY run_seq"))
        assert [tuple(row) for row in attempts] == [("sealed", None), ("failed", "customer")]
        assert connection.execute(text("SELECT count(*) FROM partition_state")).scalar_one() == 0

    agency.has()
    assert [each.customer_id for each in agency.sync().reopened] == [BERLIN]
    assert agency.known()[BERLIN].closed_at is None
    extract(agency, BERLIN)
    assert len(agency.here.sink.sealed_runs(key)) == 2


def test_an_account_that_vanished_is_closed_and_stays_so(agency: Agency) -> None:
    agency.sync()
    agency.has(*without(TOKYO))
    agency.sync(now=NOW + timedelta(days=1))
    agency.sync(now=NOW + timedelta(days=2))
    tokyo = agency.known()[TOKYO]
    assert (tokyo.closed_at, tokyo.closed_reason) == (
        NOW + timedelta(days=1),
        f"no longer below manager {MANAGER_CUSTOMER_ID}",
    )
    assert agency.launchable() == OPEN


def test_a_walk_that_would_close_most_accounts_changes_nothing_unless_it_is_meant(agency: Agency) -> None:
    agency.sync()
    before = agency.known()
    newcomer = replace(ACCOUNTS[1], customer_id=CustomerId("6000000000"))
    agency.has(*without(BERLIN, TOKYO), newcomer)
    with pytest.raises(
        SettingsError, match=rf"GADS_GOOGLE_ADS_LOGIN {MANAGER_CUSTOMER_ID} .* 2 accounts, .* --yes if they are closed"
    ):
        agency.sync()
    assert agency.known() == before
    assert agency.launchable() == OPEN
    plan = agency.sync(closes_most=True)
    assert [each.customer_id for each in plan.closed] == [BERLIN, TOKYO]
    assert [each.customer_id for each in plan.new] == [newcomer.customer_id]


@pytest.mark.parametrize("spend", ["all operations", "a pause"])
def test_when_the_operations_are_spent_or_paused_the_api_is_not_asked_and_the_refusal_says_until_when(
    agency: Agency, spend: str
) -> None:
    agency.has(GADS_API_DAILY_OPERATIONS="1")
    budget = agency.here.operations_as(Role.EXTRACTOR)
    if spend == "a pause":
        budget.pause(seconds=86400, reason="the API said so")
    else:
        assert budget.take(1, now=datetime.now(UTC)) is None
    with pytest.raises(
        QuotaExhaustedError, match=r"not asked for accounts before 20\d\d-.* UTC; `gads quota` says why"
    ):
        agency.sync()
    assert agency.calls() == 0
    assert agency.known() == {}


def refused(finished: subprocess.CompletedProcess[str]) -> str:
    assert (finished.returncode, finished.stdout) == (1, "")
    assert finished.stderr.count("\n") == 1
    return finished.stderr


def test_the_commands_register_close_list_and_refuse(agency: Agency) -> None:
    added = agency.gads("customers", "add", "214-555-0101")
    assert (added.returncode, added.stderr) == (0, "1 accounts registered, 0 were there already\n")
    reason = f"customer {CLOSED} is suspended in Google Ads, so its days cannot be asked for"
    assert reason in refused(agency.gads("customers", "add", CLOSED, NEW_YORK))
    assert "customer 9999999999 is not a client of manager" in refused(agency.gads("customers", "add", "9999999999"))
    synced = agency.gads("customers", "sync")
    assert synced.stderr == "2 accounts registered, 0 changed, 0 closed, 0 reopened, 1 as they were\n"

    agency.has(*with_status(BERLIN, "CANCELED"))
    synced = agency.gads("customers", "sync")
    assert synced.stderr == "0 accounts registered, 0 changed, 1 closed, 0 reopened, 2 as they were\n"
    since = f"{datetime.now(UTC):%Y-%m}"
    [line] = [line for line in synced.stdout.splitlines() if BERLIN in line]
    assert "inactive" in line
    assert since in line
    assert "canceled in Google Ads" in line

    def listed(*options: str) -> list[dict[str, object]]:
        answer = json.loads(agency.gads("customers", "list", *options, "--json").stdout)
        assert isinstance(answer, list)
        return answer

    assert [each["customer_id"] for each in listed()] == [NEW_YORK, TOKYO]
    assert [(each["customer_id"], each["status"], each["closed_reason"]) for each in listed("--all")] == [
        (NEW_YORK, "active", None),
        (BERLIN, "inactive", "canceled in Google Ads"),
        (TOKYO, "active", None),
    ]

    agency.has(*without(NEW_YORK, TOKYO))
    assert "--yes" in refused(agency.gads("customers", "sync"))
    assert agency.gads("customers", "sync", "--yes").returncode == 0
    assert [each["customer_id"] for each in listed()] == [BERLIN]
