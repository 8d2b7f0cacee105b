"""What consumers are told: only a success is ready, and every gap has its reason."""

from dataclasses import replace
from datetime import date, timedelta

import pytest
from sqlalchemy import Engine

from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.readiness import Readiness
from gads_assets.domain.roles import Role
from gads_assets.domain.state import DayRange, PartitionStatus
from gads_assets.errors import StateStoreError
from gads_assets.state.connection import open_engine
from gads_assets.state.partition_states import StateStore
from gads_assets_tests.ledgers import KEY, NEWER_RUN, NEWER_SEQ, NOW, RUN, judgement, record, return_to_pending

DAYS = DayRange(first=date(2024, 6, 1), last=date(2024, 6, 6))
CUSTOMERS = [CustomerId("1234567890"), CustomerId("2222222222")]


def day(number: int, customer: str = KEY.customer_id, query: str = KEY.query_name) -> PartitionKey:
    logical_date = DAYS.first + timedelta(days=number - 1)
    return replace(KEY, logical_date=logical_date, customer_id=CustomerId(customer), query_name=query)


@pytest.fixture
def ledger(store: StateStore) -> StateStore:
    """Days 1 to 5: accepted; rejected; tried again after a rejection; being withdrawn; replaced. Day 6: nothing."""
    record(store, judgement(), day(1))
    record(store, judgement(accepted=False), day(2))
    record(store, judgement(accepted=False), day(3))
    return_to_pending(store, day(3))
    record(store, judgement(), day(4))
    record(store, judgement(accepted=False), day(4))
    record(store, judgement(), day(5))
    record(store, judgement(NEWER_RUN, NEWER_SEQ), day(5))
    record(store, judgement(), day(1, query="ad_group"))
    record(store, judgement(), day(-30))
    return store


def read(store: StateStore) -> Readiness:
    return store.readiness("campaign", CUSTOMERS, DAYS)


def test_only_accepted_days_are_ready_and_name_the_run_to_read(ledger: StateStore) -> None:
    ready = ledger.ready_partitions("campaign", CUSTOMERS, DAYS)
    assert [(partition.key, partition.run_id, partition.record_count) for partition in ready] == [
        (day(1), RUN, 3),
        (day(5), NEWER_RUN, 3),
    ]
    assert [(partition.schema_version, partition.state_version, partition.updated_at) for partition in ready] == [
        ("1", 1, NOW),
        ("1", 2, NOW),
    ]


def test_every_other_day_is_not_ready_and_says_why(ledger: StateStore) -> None:
    waiting = {partition.key: (partition.status, partition.reason) for partition in read(ledger).waiting}
    assert waiting[day(2)] == (PartitionStatus.FAILED, "two rows share a key")
    assert waiting[day(3)] == (PartitionStatus.PENDING, "waits to be tried again")
    assert waiting[day(4)][0] is PartitionStatus.SUCCESS
    assert "being withdrawn" in waiting[day(4)][1]
    gaps = {day(6), *(day(number, "2222222222") for number in range(1, 7))}
    assert {key for key, (status, _) in waiting.items() if status is PartitionStatus.PENDING} - {day(3)} == gaps
    assert len(read(ledger).ready) + len(waiting) == len(CUSTOMERS) * 6


def test_asking_writes_nothing(ledger: StateStore) -> None:
    read(ledger)
    assert ledger.states(day(number, "2222222222") for number in range(1, 7)) == {}


def test_a_consumer_may_ask_and_nothing_more(ledger: StateStore, engine: Engine, database_url: str) -> None:
    consumer = open_engine(database_url, Role.CONSUMER)
    try:
        store = StateStore(consumer)
        assert read(store) == read(ledger)
        with pytest.raises(StateStoreError, match="permission denied"):
            record(store, judgement(), day(6))
    finally:
        consumer.dispose()
