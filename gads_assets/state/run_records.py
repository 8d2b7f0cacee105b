"""What one Dagster run did to its partitions, and the lock that keeps two of them from publishing at once."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ARRAY, Connection, Engine, RowMapping, Text, any_, bindparam, exists, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.state import AttemptOutcome, ExtractionOutcome, UnjudgedRun
from gads_assets.errors import ScopeTakenError, StateStoreError
from gads_assets.state.connection import session, transaction
from gads_assets.state.rows import key_from_row, key_order, keys_json, run_of_row, select_by_keys
from gads_assets.state.tables import KEY_COLUMNS, extraction_attempt, partition_attempt, partition_state

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

_JUDGED_RUNS = select_by_keys(partition_attempt, "run_id")

_WAITS_FOR_A_VERDICT = (
    extraction_attempt.c.outcome == ExtractionOutcome.SEALED,
    ~exists().where(*(partition_attempt.c[name] == extraction_attempt.c[name] for name in (*KEY_COLUMNS, "run_id"))),
    ~exists().where(
        *(partition_state.c[name] == extraction_attempt.c[name] for name in KEY_COLUMNS),
        partition_state.c.current_run_seq >= extraction_attempt.c.run_seq,
    ),
)

_UNJUDGED_COLUMNS = ("run_id", "run_seq", "dagster_run_id")

_UNJUDGED = (
    select(*(extraction_attempt.c[name] for name in (*KEY_COLUMNS, *_UNJUDGED_COLUMNS)))
    .where(
        extraction_attempt.c.source == bindparam("source"),
        extraction_attempt.c.query_name == any_(bindparam("queries", type_=ARRAY(Text))),
        *_WAITS_FOR_A_VERDICT,
    )
    .order_by(*key_order(extraction_attempt), extraction_attempt.c.run_seq)
)

_UNJUDGED_OF_KEYS = (
    select_by_keys(extraction_attempt, *_UNJUDGED_COLUMNS)
    .where(*_WAITS_FOR_A_VERDICT)
    .order_by(extraction_attempt.c.run_seq)
)

_LAST_JUDGED = select_by_keys(partition_attempt, "dagster_run_id").order_by(partition_attempt.c.attempt_number)

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

_SHARE = text("SELECT pg_advisory_lock_shared(hashtextextended(scope, 0)) FROM unnest(:scopes) AS scope").bindparams(
    bindparam("scopes", type_=ARRAY(Text))
)

_TAKE = text("SELECT pg_try_advisory_lock(hashtextextended(:scope, 0))")

_PATIENCE = text("SELECT set_config('lock_timeout', :milliseconds, false)")

_HOLDER = text("SELECT pg_backend_pid()")

HELD_SCOPES: Final = """
    SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
"""Those that living processes hold, as hashtextextended(scope, 0). Looking takes no lock: two who look would take each
other for the holder."""

_HELD = text(f"""
    SELECT scope FROM unnest(:scopes) AS scope WHERE hashtextextended(scope, 0) IN ({HELD_SCOPES})
""").bindparams(bindparam("scopes", type_=ARRAY(Text)))

# A machine that is gone answers no more, and its session ends within a minute, not after hours.
_ASK_IF_THERE = text("""
    SELECT set_config(name, seconds, false)
    FROM (VALUES ('tcp_keepalives_idle', '20'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '4'))
        AS wanted (name, seconds)
""")

_NOT_IN_TIME = "55P03"


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

    def judged_runs(self, keys: Iterable[PartitionKey]) -> set[tuple[PartitionKey, RunId]]:
        """Every run of these partitions that an attempt ever judged, whatever came of it."""
        with transaction(self._engine) as connection:
            return {run_of_row(row) for row in connection.execute(_JUDGED_RUNS, {"keys": keys_json(keys)}).mappings()}

    def unjudged(self, queries: Collection[str], *, source: str = "google_ads") -> dict[PartitionKey, UnjudgedRun]:
        """Of each partition of these queries the newest sealed run that waits for a verdict, in key order."""
        asked = {"source": source, "queries": list(queries)}
        with transaction(self._engine) as connection:
            return _newest_by_key(connection.execute(_UNJUDGED, asked).mappings())

    def unjudged_of(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, UnjudgedRun]:
        """The same, of these partitions."""
        with transaction(self._engine) as connection:
            return _newest_by_key(connection.execute(_UNJUDGED_OF_KEYS, {"keys": keys_json(keys)}).mappings())

    def last_judged_in(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, str]:
        """The Dagster run of each partition's newest verdict, where it has one."""
        with transaction(self._engine) as connection:
            rows = connection.execute(_LAST_JUDGED, {"keys": keys_json(keys)}).mappings()
            return {key_from_row(row): row["dagster_run_id"] for row in rows if row["dagster_run_id"]}

    def progress(self, *, since: datetime) -> dict[str, int]:
        """How many partitions were extracted, judged and published since then."""
        with transaction(self._engine) as connection:
            return dict(connection.execute(_PROGRESS, {"since": since}).mappings().one())

    @contextmanager
    def exclusive(self, scope: str, *, patience: timedelta | None = None) -> Iterator[Callable[[], None]]:
        """Waits until nobody else holds this scope, or raises StateStoreError once the patience is at its end. A
        process that dies lets go of it with its connection.

        Yields what raises StateStoreError when the connection was lost in between, and the scope with it.
        """
        with session(self._engine) as connection:
            holder = _locked(connection, scope, patience)

            def require_held() -> None:
                if not _is_held(connection, holder):
                    raise StateStoreError(
                        f"the lock to {scope} was lost with its connection; nothing was changed, run again"
                    )

            yield require_held

    @contextmanager
    def shared(self, scopes: Collection[str], *, alone: str | None = None) -> Iterator[Callable[[], None]]:
        """Holds these scopes beside whoever else shares them, for `held` to tell. `alone` is one that nobody else may
        hold: raises ScopeTakenError if somebody does.

        Yields what holds them again where they were lost with the connection, as a restart of the database ends it.
        """
        with ExitStack() as held:
            is_held = held.enter_context(self._sharing(scopes, alone))

            def keep() -> None:
                nonlocal is_held
                if not is_held():
                    held.close()
                    is_held = held.enter_context(self._sharing(scopes, alone))

            yield keep

    @contextmanager
    def _sharing(self, scopes: Collection[str], alone: str | None) -> Iterator[Callable[[], bool]]:
        with session(self._engine) as connection:
            connection.execute(_ASK_IF_THERE)
            if alone and not connection.execute(_TAKE, {"scope": alone}).scalar_one():
                raise ScopeTakenError(f"{alone} is there already, and there is one at a time")
            connection.execute(_SHARE, {"scopes": sorted(scopes)})
            holder = connection.execute(_HOLDER).scalar_one()
            yield lambda: _is_held(connection, holder)

    def held(self, scopes: Iterable[str]) -> set[str]:
        """Those that a living process holds at the moment, this one included."""
        with transaction(self._engine) as connection:
            return set(connection.execute(_HELD, {"scopes": list(scopes)}).scalars())


def _is_held(connection: Connection, holder: int) -> bool:
    """Whether it is still that session: a connection that was cut may come back as another."""
    with suppress(SQLAlchemyError):
        is_same: bool = connection.execute(_HOLDER).scalar_one() == holder
        return is_same
    return False


def _locked(connection: Connection, scope: str, patience: timedelta | None) -> int:
    """The session that holds it now."""
    if patience is not None:
        connection.execute(_PATIENCE, {"milliseconds": str(patience // timedelta(milliseconds=1))})
    try:
        holder: int = connection.execute(_LOCK, {"scope": scope}).scalar_one()
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _NOT_IN_TIME:
            raise
        raise StateStoreError(
            f"others have had the lock to {scope} all the time; nothing was changed, run again"
        ) from None
    return holder


def _newest_by_key(rows: Iterable[RowMapping]) -> dict[PartitionKey, UnjudgedRun]:
    """Of rows in which the newer runs of a partition come later."""
    runs = (
        UnjudgedRun(
            key=key_from_row(row),
            run_id=RunId(row["run_id"]),
            run_seq=row["run_seq"],
            dagster_run_id=row["dagster_run_id"],
        )
        for row in rows
    )
    return {run.key: run for run in runs}
