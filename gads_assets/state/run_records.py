"""What one Dagster run did to its partitions, and the lock that keeps two of them from publishing at once."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, bindparam, text
from sqlalchemy.exc import SQLAlchemyError

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.state import AttemptOutcome, ExtractionOutcome
from gads_assets.errors import StateStoreError
from gads_assets.state.connection import session, transaction
from gads_assets.state.rows import key_from_row, keys_json, run_of_row, select_by_keys
from gads_assets.state.tables import extraction_attempt, partition_attempt

_EXTRACTIONS = (
    select_by_keys(extraction_attempt)
    .where(extraction_attempt.c.dagster_run_id == bindparam("dagster_run_id"))
    .order_by(extraction_attempt.c.run_seq)
)

_RUN_SEQS = [select_by_keys(table, "run_id", "run_seq") for table in (extraction_attempt, partition_attempt)]

_JUDGEMENTS = (
    select_by_keys(partition_attempt, "run_id", "outcome", "error_message")
    .where(partition_attempt.c.dagster_run_id == bindparam("dagster_run_id"))
    .order_by(partition_attempt.c.attempt_number)
)

_PROGRESS = text("""
    SELECT
        (SELECT count(DISTINCT (customer_id, query_name, logical_date)) FROM extraction_attempt
            WHERE outcome = 'sealed' AND started_at >= :since) AS extracted,
        (SELECT count(DISTINCT (customer_id, query_name, logical_date)) FROM partition_attempt
            WHERE judged_at >= :since) AS judged,
        (SELECT count(DISTINCT (customer_id, query_name, logical_date)) FROM load_record
            WHERE loaded_at >= :since) AS published
""")

_LOCK = text("SELECT pg_backend_pid() FROM pg_advisory_lock(hashtextextended(:scope, 0))")

_HOLDER = text("SELECT pg_backend_pid()")

_FREE = text("SELECT pg_try_advisory_xact_lock(hashtextextended(:scope, 0))")


@dataclass(frozen=True, kw_only=True)
class RunExtraction:
    run_id: RunId
    run_seq: int
    outcome: ExtractionOutcome
    error_message: str | None


@dataclass(frozen=True, kw_only=True)
class RunJudgement:
    run_id: RunId
    outcome: AttemptOutcome
    error_message: str | None


class RunRecords:
    """Read by the root of a chain of re-executions, so that a repeated step finds what the first try did."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def extractions(self, dagster_run_id: str, keys: Iterable[PartitionKey]) -> dict[PartitionKey, RunExtraction]:
        """The newest extraction of each partition in that run."""
        with transaction(self._engine) as connection:
            rows = connection.execute(_EXTRACTIONS, {"keys": keys_json(keys), "dagster_run_id": dagster_run_id})
            return {
                key_from_row(row): RunExtraction(
                    run_id=RunId(row["run_id"]),
                    run_seq=row["run_seq"],
                    outcome=ExtractionOutcome(row["outcome"]),
                    error_message=row["error_message"],
                )
                for row in rows.mappings()
            }

    def judgements(self, dagster_run_id: str, keys: Iterable[PartitionKey]) -> dict[PartitionKey, RunJudgement]:
        """The newest judgement of each partition in that run."""
        with transaction(self._engine) as connection:
            rows = connection.execute(_JUDGEMENTS, {"keys": keys_json(keys), "dagster_run_id": dagster_run_id})
            return {
                key_from_row(row): RunJudgement(
                    run_id=RunId(row["run_id"]),
                    outcome=AttemptOutcome(row["outcome"]),
                    error_message=row["error_message"],
                )
                for row in rows.mappings()
            }

    def run_seqs(self, keys: Iterable[PartitionKey]) -> dict[tuple[PartitionKey, RunId], int]:
        """The number of each run of these partitions that is on record, extracted or judged, whenever."""
        asked = {"keys": keys_json(keys)}
        with transaction(self._engine) as connection:
            rows = [row for statement in _RUN_SEQS for row in connection.execute(statement, asked).mappings()]
        return {run_of_row(row): row["run_seq"] for row in rows}

    def progress(self, *, since: datetime) -> dict[str, int]:
        """How many partitions were extracted, judged and published since then."""
        with transaction(self._engine) as connection:
            return dict(connection.execute(_PROGRESS, {"since": since}).mappings().one())

    @contextmanager
    def exclusive(self, scope: str) -> Iterator[Callable[[], None]]:
        """Waits until nobody else holds this scope. A process that dies lets go of it with its connection.

        Yields what raises StateStoreError when the connection was lost in between, and the scope with it.
        """
        with session(self._engine) as connection:
            holder = connection.execute(_LOCK, {"scope": scope}).scalar_one()

            def require_held() -> None:
                with suppress(SQLAlchemyError):
                    if connection.execute(_HOLDER).scalar_one() == holder:
                        return
                raise StateStoreError(
                    f"the lock to {scope} was lost with its connection; nothing was changed, run again"
                )

            yield require_held

    def is_held(self, scope: str) -> bool:
        """Whether a living process holds this scope at the moment, this one included."""
        with transaction(self._engine) as connection:
            return not connection.execute(_FREE, {"scope": scope}).scalar_one()
