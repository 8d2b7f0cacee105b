"""Sealed and never judged: which runs wait for a verdict that a crash has kept from them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.roles import Role
from gads_assets.domain.state import ExtractionOutcome
from gads_assets.state import run_records
from gads_assets.state.partition_states import StateStore
from gads_assets.state.rows import keys_json
from gads_assets.state.run_records import RunRecords
from gads_assets_tests.ledgers import (
    KEY,
    NEWER_RUN,
    NEWER_SEQ,
    OLDER_RUN,
    OLDER_SEQ,
    RUN,
    RUN_SEQ,
    demoted,
    extraction,
    judgement,
    neighbour,
    record,
    succeeded,
)

Unjudged = Callable[[], dict[PartitionKey, RunId]]


@pytest.fixture
def unjudged(acting: Callable[[Role], Engine]) -> Unjudged:
    """As the operator finds them for all of a query, and the validator for the partitions it was asked to judge."""
    operator, validator = RunRecords(acting(Role.OPERATOR)), RunRecords(acting(Role.VALIDATOR))

    def found() -> dict[PartitionKey, RunId]:
        runs = operator.unjudged(["campaign"])
        assert validator.unjudged_of([KEY, neighbour(1), neighbour(2)]) == runs
        return {key: run.run_id for key, run in runs.items()}

    return found


def seal(
    store: StateStore,
    run_id: RunId = RUN,
    run_seq: int = RUN_SEQ,
    *,
    key: PartitionKey = KEY,
    run: str | None = "dagster-run",
) -> None:
    store.record_extractions([replace(extraction(), key=key, run_id=run_id, run_seq=run_seq, dagster_run_id=run)])


def test_a_sealed_run_waits_from_its_record_to_its_verdict_whichever_that_is(
    store: StateStore, unjudged: Unjudged
) -> None:
    accepted, rejected, waiting = KEY, neighbour(1), neighbour(2)
    for key in (accepted, rejected, waiting):
        seal(store, key=key)
    assert unjudged() == {accepted: RUN, rejected: RUN, waiting: RUN}

    record(store, judgement(), accepted)
    record(store, judgement(accepted=False), rejected)
    assert unjudged() == {waiting: RUN}


def test_who_sealed_it_is_told_so_that_living_runs_can_be_left_out(store: StateStore) -> None:
    seal(store, run="the one that crashed")
    [run] = RunRecords(store._engine).unjudged(["campaign"]).values()
    assert (run.run_seq, run.dagster_run_id) == (RUN_SEQ, "the one that crashed")


def test_of_several_the_newest_by_number_waits_whatever_was_written_first(
    store: StateStore, unjudged: Unjudged
) -> None:
    seal(store, NEWER_RUN, NEWER_SEQ)
    seal(store, OLDER_RUN, OLDER_SEQ)
    assert unjudged() == {KEY: NEWER_RUN}


def test_when_the_newest_was_rejected_the_one_before_it_waits(store: StateStore, unjudged: Unjudged) -> None:
    seal(store)
    seal(store, NEWER_RUN, NEWER_SEQ)
    record(store, judgement(NEWER_RUN, NEWER_SEQ, accepted=False))
    assert unjudged() == {KEY: RUN}


@pytest.mark.parametrize("before", [succeeded, demoted])
def test_a_run_older_than_the_authority_waits_for_nothing(
    store: StateStore, unjudged: Unjudged, before: Callable[[StateStore], None]
) -> None:
    before(store)
    seal(store, RunId("01HZ0000000000000000000008"), RUN_SEQ - 2)
    assert unjudged() == {}
    seal(store, NEWER_RUN, NEWER_SEQ)
    assert unjudged() == {KEY: NEWER_RUN}


def test_failed_extractions_and_other_queries_and_sources_are_not_among_them(
    store: StateStore, unjudged: Unjudged
) -> None:
    store.record_extractions(
        [replace(extraction(), outcome=ExtractionOutcome.FAILED, error_class="quota", error_message="spent")]
    )
    seal(store, key=replace(KEY, query_name="gone"))
    seal(store, key=replace(KEY, source="another"))
    assert unjudged() == {}


MANY = 100_000
# Four runs a partition, all judged; only the ledger's shape matters, so the guards are off.
FILL = """
    SET LOCAL session_replication_role = replica;
    CREATE TEMPORARY TABLE made AS
        SELECT 'google_ads' AS source, lpad((n / 400)::text, 10, '0') AS customer_id, 'campaign' AS query_name,
            DATE '2024-01-01' + mod(n / 4, 100) AS logical_date, lpad(n::text, 26, '0') AS run_id, n + 1 AS run_seq
        FROM generate_series(0, 99999) AS n;
    INSERT INTO extraction_attempt
        SELECT source, customer_id, query_name, logical_date, run_id, run_seq, 'sealed', NULL, NULL, now(), now(), 'run'
        FROM made;
    INSERT INTO partition_attempt
        SELECT run_id, source, customer_id, query_name, logical_date, run_id, run_seq, 'accepted', run_seq, NULL, 'd',
            1, '1', '[]', 1, NULL, now(), NULL, NULL, repeat('5', 64)
        FROM made;
    INSERT INTO partition_state
        SELECT source, customer_id, query_name, logical_date, 'success', max(run_id), '1', 1, now(), NULL, 4, 4,
            max(run_seq)
        FROM made GROUP BY 1, 2, 3, 4
"""


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", []):
        yield from nodes(inner)


@pytest.mark.parametrize("is_analysed", [True, False])
def test_a_large_ledger_is_asked_without_reading_a_table_for_every_row(engine: Engine, is_analysed: bool) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(FILL)
        if is_analysed:
            connection.exec_driver_sql("ANALYZE extraction_attempt, partition_attempt, partition_state")
    few = [
        PartitionKey(
            source="google_ads",
            customer_id=CustomerId(f"{number:010d}"),
            query_name="campaign",
            logical_date=KEY.logical_date.replace(month=1),
        )
        for number in range(50)
    ]
    asked: list[tuple[Any, dict[str, object], int]] = [
        (run_records._UNJUDGED, {"source": "google_ads", "queries": ["campaign"]}, MANY),
        (run_records._UNJUDGED_OF_KEYS, {"keys": keys_json(few)}, 50 * 4),
    ]
    for statement, parameters, runs in asked:
        with engine.begin() as connection:
            compiled = statement.compile(engine)
            explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {compiled}"
            [[plan]] = connection.exec_driver_sql(explained, {**compiled.params, **parameters}).scalars()
        touched = sum(
            node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
            for node in nodes(plan["Plan"])
            if "Relation Name" in node
        )
        assert touched <= 10 * runs, plan
