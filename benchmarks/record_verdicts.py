"""Three thousand first verdicts recorded in one call (states, attempts, every guard) beside a plain COPY of as many
rows into a table that promises nothing."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import count
from json import dumps
from pathlib import Path
from statistics import median
from typing import Final

import psycopg
from ulid import ULID

from benchmarks.results import Result
from benchmarks.timing import side_by_side
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.roles import Role
from gads_assets.domain.state import Judgement, validation_id
from gads_assets.state.connection import open_engine, parse_database_url
from gads_assets.state.migration import migrate
from gads_assets.state.partition_states import StateStore
from gads_assets.state.server import running_database

ALLOWANCE_MILLISECONDS: Final = 1000.0
_DAYS: Final = 30
_FINDINGS: Final = [
    {"rule": f"rule_{number}", "passed": True, "detail": "412 rows, none of which breaks it"} for number in range(11)
]
_PEER_TABLE: Final = "CREATE TABLE plain_attempt (LIKE partition_attempt, PRIMARY KEY (validation_id))"
_PEER_COPY: Final = """
    COPY plain_attempt (validation_id, source, customer_id, query_name, logical_date, run_id, run_seq, outcome,
        attempt_number, content_digest, record_count, schema_version, rule_results, state_version, dagster_run_id,
        judged_at, seal_sha256)
    FROM STDIN
"""

Verdict = tuple[PartitionKey, Judgement]


def measure(folder: Path, *, verdicts: int = 3000, warm_up: int = 2, rounds: int = 9) -> list[Result]:
    numbers = count()
    batches = [[_verdict(next(numbers)) for _ in range(verdicts)] for _ in range(warm_up + rounds)]
    rows = [[_row(key, judgement) for key, judgement in batch] for batch in batches]
    with running_database(folder, None) as url:
        migrate(url)
        engine = open_engine(url, Role.VALIDATOR)
        with psycopg.connect(_address(url)) as peer:
            peer.execute(_PEER_TABLE)
            peer.commit()
            taken = side_by_side(
                lambda number: _record(StateStore(engine), batches[number]),
                lambda number: _copy(peer, rows[number]),
                warm_up=warm_up,
                rounds=rounds,
            )
        engine.dispose()
    return [
        Result(
            name="record_verdicts",
            unit="ms",
            ours=median(taken.ours),
            peer=f"plain COPY of {verdicts} rows into a table with a primary key",
            peer_value=median(taken.peer),
            goal=10.0,
        ),
        Result(
            name="record_verdicts_total",
            unit="ms",
            ours=median(taken.ours),
            peer="the second it is allowed",
            peer_value=ALLOWANCE_MILLISECONDS,
            goal=1.0,
        ),
    ]


def _record(store: StateStore, batch: Sequence[Verdict]) -> None:
    store.record_judgements(
        batch,
        now=datetime.now(UTC),
        dagster_run_id="4f0c2f4e-6d0a-4c56-9d6c-2f1f3b6f7a10",
        rule_results={judgement.validation_id: _FINDINGS for _, judgement in batch},
    )


def _copy(peer: psycopg.Connection, rows: Sequence[tuple[object, ...]]) -> None:
    with peer.cursor() as cursor, cursor.copy(_PEER_COPY) as copy:
        for row in rows:
            copy.write_row(row)
    peer.commit()


def _verdict(number: int) -> Verdict:
    key = PartitionKey(
        source="google_ads",
        customer_id=CustomerId(f"{1_000_000_000 + number // _DAYS}"),
        query_name="campaign",
        logical_date=date(2024, 1, 1) + timedelta(days=number % _DAYS),
    )
    run_id = RunId(str(ULID()))
    judgement = Judgement(
        run_id=run_id,
        run_seq=number + 1,
        schema_version="1",
        record_count=412,
        content_digest=f"412-{number:064x}",
        seal_sha256="5" * 64,
        accepted=True,
        error_message=None,
        validation_id=validation_id(run_id, "4f0c2f4e-6d0a-4c56-9d6c-2f1f3b6f7a10"),
    )
    return key, judgement


def _row(key: PartitionKey, judgement: Judgement) -> tuple[object, ...]:
    return (
        *(judgement.validation_id, key.source, key.customer_id, key.query_name, key.logical_date),
        *(judgement.run_id, judgement.run_seq, "accepted", 1, judgement.content_digest, judgement.record_count),
        *(judgement.schema_version, dumps(_FINDINGS), 1, "4f0c2f4e-6d0a-4c56-9d6c-2f1f3b6f7a10", datetime.now(UTC)),
        judgement.seal_sha256,
    )


def _address(url: str) -> str:
    return parse_database_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
