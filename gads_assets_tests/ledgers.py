"""Ledgers in the conditions that a partition can be in, made the way the product makes them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import count

from sqlalchemy import Engine, text
from ulid import ULID

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId, StageId
from gads_assets.domain.state import (
    ExtractionAttempt,
    ExtractionOutcome,
    Judgement,
    LoadRecord,
    validation_id,
)
from gads_assets.state.judging import RecordedJudgement
from gads_assets.state.partition_states import StateStore

NOW = datetime(2024, 7, 1, 12, tzinfo=UTC)
SCHEMA_HEAD = "0009"
SEAL = "5" * 64
KEY = PartitionKey(
    source="google_ads", customer_id=CustomerId("1234567890"), query_name="campaign", logical_date=date(2024, 6, 1)
)
RUN, NEWER_RUN, OLDER_RUN = (RunId(f"01HZ000000000000000000000{number}") for number in (1, 2, 3))
RUN_SEQ, NEWER_SEQ, OLDER_SEQ = 10, 11, 9

_numbers = count(1)


def judgement(
    run_id: RunId = RUN, run_seq: int = RUN_SEQ, *, accepted: bool = True, root: str | None = None
) -> Judgement:
    return Judgement(
        run_id=run_id,
        run_seq=run_seq,
        schema_version="1",
        record_count=3,
        content_digest="digest" if accepted else None,
        seal_sha256=SEAL if accepted else None,
        accepted=accepted,
        error_message=None if accepted else "two rows share a key",
        validation_id=validation_id(run_id, root or f"dagster-run-{next(_numbers)}"),
    )


def record(store: StateStore, judged: Judgement, key: PartitionKey = KEY) -> RecordedJudgement:
    [recorded] = store.record_judgements([(key, judged)], now=NOW, dagster_run_id="dagster-run")
    return recorded


def new_override_id() -> str:
    return str(ULID())


def return_to_pending(store: StateStore, *keys: PartitionKey) -> None:
    store.return_to_pending(
        keys or [KEY], actor="somebody", reason="the API was mended", now=NOW, new_override_id=new_override_id
    )


def untouched(_: StateStore) -> None:
    """No row: pending."""


def extracted(store: StateStore) -> None:
    """No row either: the run waits to be judged."""
    store.record_extractions([extraction()])


def accepted(store: StateStore) -> None:
    """The first attempt was accepted, and nothing is loaded: version 1."""
    record(store, judgement())


def succeeded(store: StateStore) -> None:
    """The second attempt was accepted: version 2, with a failure, an extraction and a load on record."""
    record(store, judgement(OLDER_RUN, OLDER_SEQ, accepted=False))
    record(store, judgement())
    store.record_extractions([extraction()])
    store.record_loads([load()])


def failed(store: StateStore) -> None:
    """Rejected once, and no run was ever accepted: version 1."""
    record(store, judgement(accepted=False))


def demoting(store: StateStore) -> None:
    """The authority was rejected and its rows are not withdrawn yet: still success, version 3."""
    succeeded(store)
    record(store, judgement(accepted=False))


def demoted(store: StateStore) -> None:
    """Failed at version 4, with the authority that it had."""
    demoting(store)
    [intent] = store.open_demotions()
    store.finish_demotions([intent], now=NOW)


def returned(store: StateStore) -> None:
    """Pending at version 5, with the authority that it had, and the override on record."""
    demoted(store)
    return_to_pending(store)


Condition = Callable[[StateStore], None]


def extraction() -> ExtractionAttempt:
    return ExtractionAttempt(
        key=KEY,
        run_id=RUN,
        run_seq=RUN_SEQ,
        outcome=ExtractionOutcome.SEALED,
        error_class=None,
        error_message=None,
        started_at=NOW,
        finished_at=NOW,
        dagster_run_id="dagster-run",
    )


def load(key: PartitionKey = KEY) -> LoadRecord:
    return LoadRecord(
        key=key,
        run_id=RUN,
        schema_version="1",
        record_count=3,
        content_digest="digest",
        stage_id=StageId("stage"),
        pointer_version=4,
        loaded_at=NOW,
    )


def neighbour(days: int) -> PartitionKey:
    return replace(KEY, logical_date=date.fromordinal(KEY.logical_date.toordinal() + days))


def let_pass(engine: Engine, time: timedelta) -> None:
    """As if what is on record had happened so much earlier. The guards are off: history is nobody's to change."""
    moments = {
        "extraction_attempt": ("started_at", "finished_at", "retry_at"),
        "partition_attempt": ("judged_at",),
        "api_pause": ("paused_until",),
        "retry_schedule": ("next_run_at", "dispatched_at", "scheduled_at"),
        "control_cursor": ("reached_at",),
        "run_lease": ("lease_until", "taken_at"),
    }
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        for table, columns in moments.items():
            moved = ", ".join(f"{column} = {column} - :time" for column in columns)
            connection.execute(text(f"UPDATE {table} SET {moved}"), {"time": time})


def let_nothing_open(engine: Engine, queries: Iterable[str]) -> None:
    """As if every day of all registered customers, and of centuries to come, had been scheduled already: no daemon runs
    anything that a test did not ask for."""
    opened = text("""
        INSERT INTO opened_day SELECT 'google_ads', query_name, customer_id, DATE '2999-01-01'
        FROM customer CROSS JOIN unnest(CAST(:queries AS text[])) AS query_name
    """)
    with engine.begin() as connection:
        connection.execute(opened, {"queries": list(queries)})
