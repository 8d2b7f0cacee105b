"""Accounts as the API's hierarchy shows them, brought into the register and into Dagster by real parts."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from gads_assets.domain.accounts import Account, SyncPlan
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.roles import Role
from gads_assets.emulator.accounts import ACCOUNTS, MANAGER_CUSTOMER_ID, EmulatedAccount, made_up_accounts
from gads_assets.emulator.faults import parse_faults
from gads_assets.emulator.server import RunningEmulator, serve_emulator
from gads_assets.errors import CustomerUnavailableError, QuotaExhaustedError, SettingsError, TransientApiError
from gads_assets.extract.accounts import find_accounts
from gads_assets.extract.pacing import Pacer
from gads_assets.orchestration.customers import dagster_instance, sync_accounts
from gads_assets.orchestration.partitions import CUSTOMERS
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.state.connection import transaction
from gads_assets.state.operations import OperationsBudget
from gads_assets_tests.agencies import registered
from gads_assets_tests.integration.conftest import wait_until, waiting_for_locks

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

    def has(self, *accounts: EmulatedAccount, faults: str = "", **settings: str) -> None:
        self.close()
        self._emulator = self._held.enter_context(self.serving(*accounts, faults=faults))
        self.environment = {
            **self._environment,
            "GADS_GOOGLE_ADS_ENDPOINT": self._emulator.endpoint,
            **settings,
        }
        self.here = self._held.enter_context(Workplace(read_settings(self.environment)))

    def serving(self, *accounts: EmulatedAccount, faults: str = "") -> AbstractContextManager[RunningEmulator]:
        home = self._home / "emulator"
        return serve_emulator(home=home, accounts=accounts or ACCOUNTS, faults=parse_faults(faults))

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

    def start(self, *arguments: str, endpoint: str | None = None) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GADS_", "DAGSTER_", "PG"))}
        other = {"GADS_GOOGLE_ADS_ENDPOINT": endpoint} if endpoint else {}
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("gads")), *arguments],
            env=kept | self.environment | other,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def gads(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return ended(self.start(*arguments))


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    try:
        output, errors = process.communicate(timeout=PROCESS_SECONDS)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


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


def extract(agency: Agency, customer_id: str, accounts: Iterable[Account] | None = None) -> tuple[PartitionKey, object]:
    query = agency.here.catalog.query("campaign")
    key = PartitionKey(
        source=agency.here.catalog.source,
        customer_id=CustomerId(customer_id),
        query_name=query.name,
        logical_date=DAY,
    )
    known = accounts or agency.here.customers_as(Role.EXTRACTOR).customers(with_closed=True)
    extraction = agency.here.extractor.extract(
        query, [key], {each.customer_id: each for each in known}, code_version="test", dagster_run_id="run"
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
        QuotaExhaustedError, match=r"was not asked: .* used up or paused until 20\d\d-.* UTC; `gads quota` says why"
    ):
        agency.sync()
    assert agency.calls() == 0
    assert agency.known() == {}


def test_a_short_quota_delay_is_waited_out(agency: Agency) -> None:
    agency.has(faults="quota@*/customer_client/*:1")
    assert [each.customer_id for each in agency.sync().new] == OPEN
    status = agency.here.operations_as(Role.CONSUMER).status()
    assert status.used == agency.calls() == 2
    assert status.paused_until is None


def test_a_quota_that_is_gone_for_long_stops_every_process_and_the_refusal_says_until_when(agency: Agency) -> None:
    agency.has(faults="quota@*/customer_client/*:43200")
    said = refused(agency.gads("customers", "sync"))
    assert re.search(r"quota of all our calls is used up.*; try again in \d+ seconds, after 20\d\d-.* UTC\n$", said)
    assert "used up or paused until" in refused(agency.gads("customers", "add", NEW_YORK))
    _, not_extracted = extract(agency, NEW_YORK, registered(ACCOUNTS).values())
    assert isinstance(not_extracted, QuotaExhaustedError)
    assert agency.calls() == 1
    assert agency.known() == {}


class Sleeps:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def pacer(self, budget: OperationsBudget) -> Pacer:
        return Pacer(budget=budget, now=lambda: datetime.now(UTC), sleep=self.seconds.append)


@pytest.mark.parametrize("fault", ["midstream_break", "transient", "internal"])
def test_a_call_that_breaks_is_made_again_whole(agency: Agency, fault: str) -> None:
    agency.has(*made_up_accounts(120), faults=f"{fault}@*/customer_client/*:2")
    here, slept = agency.here, Sleeps()
    pacer = slept.pacer(here.operations_as(Role.EXTRACTOR))
    found = find_accounts(here.source, MANAGER_CUSTOMER_ID, pacer=pacer)
    clients = [account for account in made_up_accounts(120) if not account.manager]
    assert [each.account.customer_id for each in found] == sorted(each.customer_id for each in clients)
    managers = {manager for each in found for manager in each.account.login_path}
    assert len(managers) > 1
    assert here.operations_as(Role.CONSUMER).status().used == agency.calls() == 3 * len(managers)
    assert len(slept.seconds) == 2 * len(managers)


def test_a_call_that_goes_on_breaking_ends_the_walk_after_the_third(agency: Agency) -> None:
    agency.has(faults="midstream_break@*/customer_client/*:3")
    slept = Sleeps()
    with pytest.raises(TransientApiError, match=f"the call for account {MANAGER_CUSTOMER_ID} broke off"):
        find_accounts(
            agency.here.source, MANAGER_CUSTOMER_ID, pacer=slept.pacer(agency.here.operations_as(Role.EXTRACTOR))
        )
    assert (agency.calls(), len(slept.seconds)) == (3, 2)


@contextmanager
def walks_held_back(engine: Engine) -> Iterator[None]:
    """No walk gets an operation before the block is left, however far it had come."""
    with engine.begin() as connection:
        connection.execute(text("LOCK TABLE api_operations IN ACCESS EXCLUSIVE MODE"))
        yield


@pytest.mark.parametrize(
    ("older", "older_sees", "newer", "newer_sees", "ends"),
    [
        (("sync",), "ENABLED", ("sync",), "SUSPENDED", "inactive"),
        (("add", BERLIN), "ENABLED", ("sync",), "SUSPENDED", "inactive"),
        (("sync",), "SUSPENDED", ("add", BERLIN), "ENABLED", "active"),
    ],
)
def test_of_two_walks_at_once_the_one_that_began_later_has_the_last_word(
    agency: Agency,
    engine: Engine,
    *,
    older: tuple[str, ...],
    older_sees: str,
    newer: tuple[str, ...],
    newer_sees: str,
    ends: str,
) -> None:
    agency.sync()
    with (
        agency.serving(*with_status(BERLIN, older_sees)) as before,
        agency.serving(*with_status(BERLIN, newer_sees)) as after,
    ):
        with walks_held_back(engine):
            first = agency.start("customers", *older, endpoint=before.endpoint)
            wait_until(lambda: waiting_for_locks(engine, "relation") == 1)
            second = agency.start("customers", *newer, endpoint=after.endpoint)
            wait_until(lambda: waiting_for_locks(engine, "advisory") == 1)
        assert [ended(process).returncode for process in (first, second)] == [0, 0]
        assert (before.operations, after.operations) == (1, 1)
    assert agency.known()[BERLIN].status == ends


def test_a_walk_that_lost_its_turn_with_the_connection_writes_nothing_and_says_so(
    agency: Agency, engine: Engine
) -> None:
    agency.sync()
    agency.has(*with_status(BERLIN, "SUSPENDED"))
    with walks_held_back(engine):
        process = agency.start("customers", "sync")
        wait_until(lambda: waiting_for_locks(engine, "relation") == 1)
        with engine.begin() as connection:
            connection.execute(
                text("""
                    SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
                    WHERE locktype = 'advisory' AND datname = current_database()
                """)
            )
    said = refused(ended(process))
    assert "the lock to register customers was lost with its connection; nothing was changed, run again" in said
    assert agency.known()[BERLIN].is_active


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
