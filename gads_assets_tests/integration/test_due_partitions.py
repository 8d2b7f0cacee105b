"""Which failed extractions are tried again: by the database's clock, as far as anybody should try without looking."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, text
from ulid import ULID

from gads_assets.domain.accounts import Account, AccountStatus
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.rescheduling import DuePartition, RetryPolicy
from gads_assets.domain.roles import Role
from gads_assets.domain.state import ExtractionOutcome
from gads_assets.emulator.accounts import MANAGER_CUSTOMER_ID
from gads_assets.extract.client import EMULATOR
from gads_assets.state.customers import CustomerRegister
from gads_assets.state.partition_states import StateStore
from gads_assets_tests.ledgers import KEY, extraction, neighbour

PAST = datetime(2024, 7, 1, 12, tzinfo=UTC)
FAR_OFF = datetime(9999, 1, 1, tzinfo=UTC)
MOST = 3
POLICY = RetryPolicy(max_attempts=MOST, start_date=KEY.logical_date)
ACCOUNT = Account(
    customer_id=KEY.customer_id,
    name="an account",
    time_zone="UTC",
    currency="EUR",
    login_customer_id=MANAGER_CUSTOMER_ID,
    origin=EMULATOR,
)

Try = Callable[..., None]


@pytest.fixture(autouse=True)
def _registered(engine: Engine) -> None:
    CustomerRegister(engine).register_customers([ACCOUNT], now=PAST)


@pytest.fixture
def fail(store: StateStore) -> Try:
    def fail(
        *errors: str,
        key: PartitionKey = KEY,
        retry_at: datetime | None = PAST,
        finished_at: datetime = PAST,
        run: str | None = None,
    ) -> None:
        """Each in a Dagster run of its own, unless one is named."""
        for error in errors:
            attempt = replace(
                extraction(),
                started_at=finished_at,
                finished_at=finished_at,
                dagster_run_id=run or str(ULID()),
                key=key,
                run_id=RunId(str(ULID())),
                run_seq=store.allocate_run_seqs(1)[0],
                outcome=ExtractionOutcome.FAILED,
                error_class=error,
                error_message="in vain",
                retry_at=retry_at,
            )
            store.record_extractions([attempt])

    return fail


@pytest.fixture
def seal(store: StateStore) -> Try:
    def seal(key: PartitionKey = KEY) -> None:
        run_seq = store.allocate_run_seqs(1)[0]
        store.record_extractions([replace(extraction(), key=key, run_id=RunId(str(ULID())), run_seq=run_seq)])

    return seal


@pytest.fixture
def due(acting: Callable[[Role], Engine]) -> Callable[[], list[DuePartition]]:
    """As the operator, whose rights suffice."""
    store = StateStore(acting(Role.OPERATOR))
    return lambda: store.due_partitions({"campaign": POLICY})


Due = Callable[[], list[DuePartition]]


def moments(due: list[DuePartition]) -> list[tuple[PartitionKey, datetime]]:
    return [(each.key, each.retry_at) for each in due]


@pytest.fixture
def now(engine: Engine) -> datetime:
    """By the database's clock."""
    with engine.begin() as connection:
        clock: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    return clock


@pytest.mark.parametrize("error", ["quota", "transient"])
def test_a_failed_extraction_is_due_from_its_moment_on(fail: Try, due: Due, error: str) -> None:
    fail(error)
    fail(error, key=neighbour(1), retry_at=FAR_OFF)
    fail("customer", key=neighbour(2), retry_at=None)
    assert moments(due()) == [(KEY, PAST)]


def test_the_clock_is_the_databases(fail: Try, due: Due, now: datetime) -> None:
    fail("quota", retry_at=now)
    fail("quota", key=neighbour(1), retry_at=now + timedelta(hours=1))
    assert [each.key for each in due()] == [KEY]


def test_only_the_newest_extraction_of_a_partition_counts(fail: Try, seal: Try, due: Due) -> None:
    sealed, not_worth_another, not_yet = KEY, neighbour(1), neighbour(2)
    for key in (sealed, not_worth_another, not_yet):
        fail("quota", key=key)
    seal(sealed)
    fail("customer", key=not_worth_another, retry_at=None)
    fail("transient", key=not_yet, retry_at=FAR_OFF)
    assert due() == []

    fail("quota", key=sealed, retry_at=PAST + timedelta(hours=1))
    assert moments(due()) == [(sealed, PAST + timedelta(hours=1))]


def test_newer_means_a_higher_number_whatever_was_written_first(store: StateStore, fail: Try, due: Due) -> None:
    [early] = store.allocate_run_seqs(1)
    fail("quota")
    store.record_extractions([replace(extraction(), run_seq=early)])
    assert [each.key for each in due()] == [KEY]


def test_a_partition_out_of_attempts_is_left_to_somebody(fail: Try, seal: Try, due: Due) -> None:
    fail(*["transient"] * (MOST - 1))
    assert [each.key for each in due()] == [KEY]
    fail("transient")
    assert due() == []

    seal()
    fail(*["transient"] * (MOST - 1))
    assert [each.key for each in due()] == [KEY]


def test_the_calls_of_one_run_are_one_attempt(fail: Try, due: Due) -> None:
    fail(*["transient"] * 3, run="the only one")
    [each] = due()
    assert (each.key, each.dagster_run_id) == (KEY, "the only one")


@pytest.mark.parametrize("error", ["quota", "transient"])
def test_every_further_run_that_failed_makes_the_next_wait_twice_as_long(
    fail: Try, due: Due, now: datetime, error: str
) -> None:
    once, thrice, often = KEY, neighbour(1), neighbour(2)
    fail(error, key=once, finished_at=now - timedelta(minutes=2))
    fail(*["quota"] * 2, error, key=thrice, finished_at=now - timedelta(minutes=2))
    fail(*["quota"] * 40, error, key=often, finished_at=now - timedelta(hours=5))
    assert [each.key for each in due()] == [once]

    fail("quota", key=thrice, finished_at=now - timedelta(minutes=9))
    fail("quota", key=often, finished_at=now - timedelta(hours=7))
    assert {each.key for each in due()} == {once, thrice, often}


def test_an_exhausted_quota_uses_up_no_attempt(fail: Try, due: Due) -> None:
    fail(*["transient"] * (MOST - 1), *["quota"] * 10)
    assert [each.key for each in due()] == [KEY]


def test_a_closed_account_is_not_tried_until_it_is_open_again(fail: Try, due: Due, engine: Engine) -> None:
    fail("quota")
    register = CustomerRegister(engine)
    closed = replace(ACCOUNT, status=AccountStatus.INACTIVE, closed_at=PAST, closed_reason="cancelled")
    register.register_customers([closed], now=PAST)
    assert due() == []

    register.register_customers([ACCOUNT], now=PAST)
    assert [each.key for each in due()] == [KEY]


def test_what_is_not_asked_for_is_not_due(fail: Try, due: Due) -> None:
    """A query that has left the catalog, a day before its first, another source, an account never registered."""
    fail("quota", key=neighbour(-1))
    fail("quota", key=replace(KEY, query_name="gone"))
    fail("quota", key=replace(KEY, source="another"))
    fail("quota", key=replace(KEY, customer_id=CustomerId("5555555555")))
    assert due() == []
