"""The ledger: which partitions are safe to consume, which run each comes from, and every attempt at judging one."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import ARRAY, Engine, Text, any_, bindparam, select, text

from gads_assets.domain.expectations import Surroundings
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.pointer import Pointer
from gads_assets.domain.readiness import Readiness, ReadyPartition, asked_partitions, tell_ready
from gads_assets.domain.state import (
    AttemptOutcome,
    DayRange,
    DemotionIntent,
    ExtractionAttempt,
    Judgement,
    LoadRecord,
    PartitionState,
    PartitionStatus,
    Reconcilable,
)
from gads_assets.errors import StateStoreError
from gads_assets.state.connection import transaction
from gads_assets.state.judging import (
    LostRaceError,
    RecordedJudgement,
    finish_demotions,
    open_intents,
    record_judgements,
)
from gads_assets.state.overriding import adopt, open_adoptions, return_to_pending
from gads_assets.state.reconcilable import BEING_WITHDRAWN, read_marks, read_reconcilable, read_standings
from gads_assets.state.rows import (
    demotion_from_row,
    key_from_row,
    key_order,
    keys_json,
    load_record_from_row,
    rows_json,
    run_of_row,
    select_by_keys,
    state_from_row,
    value_row,
)
from gads_assets.state.surroundings import read_surroundings
from gads_assets.state.tables import demotion, load_record, partition_attempt, partition_state

__all__ = ["AcceptedContent", "RecordedJudgement", "StateStore"]

_STATES = select_by_keys(partition_state)

_PUBLISHABLE = select_by_keys(partition_state).where(
    partition_state.c.status == PartitionStatus.SUCCESS, ~BEING_WITHDRAWN
)

_READINESS = select(partition_state, BEING_WITHDRAWN.label("demoted")).where(
    partition_state.c.source == bindparam("source"),
    partition_state.c.query_name == bindparam("query_name"),
    partition_state.c.customer_id == any_(bindparam("customers", type_=ARRAY(Text))),
    partition_state.c.logical_date.between(bindparam("first"), bindparam("last")),
)

_ACCEPTED = (
    select_by_keys(partition_attempt, "run_id", "content_digest", "record_count", "seal_sha256")
    .where(partition_attempt.c.outcome == AttemptOutcome.ACCEPTED)
    .order_by(partition_attempt.c.attempt_number)
)

_DEMOTIONS = select(demotion).order_by(*key_order(demotion))

_ALLOCATE_RUN_SEQS = text("SELECT nextval('run_seq') FROM generate_series(1, :count)")

_TAKE_RUN_SEQS = text("SELECT max(nextval('run_seq')) FROM generate_series(1, :count)")

_NUMBERS_AT_ONCE = 1_000_000

_MOST_NUMBERS = 100_000_000
"""Above what is ever extracted between two backups, or before the first; taking so many lasts a minute."""

_INSERT_EXTRACTIONS = text("""
    INSERT INTO extraction_attempt
    SELECT * FROM jsonb_populate_recordset(NULL::extraction_attempt, CAST(:rows AS jsonb)) ON CONFLICT DO NOTHING
""")

_INSERT_LOADS = text("""
    INSERT INTO load_record
    SELECT * FROM jsonb_populate_recordset(NULL::load_record, CAST(:rows AS jsonb)) ON CONFLICT DO NOTHING
""")

_LOADS = select_by_keys(load_record).order_by(load_record.c.loaded_at)

_LOAD_TIMES = select(
    *(load_record.c[name] for name in ("customer_id", "logical_date", "run_id", "schema_version", "loaded_at"))
).where(
    load_record.c.source == bindparam("source"),
    load_record.c.query_name == bindparam("query_name"),
    load_record.c.customer_id == any_(bindparam("customers", type_=ARRAY(Text))),
)

_ALL_LOADS = select(load_record).order_by(*key_order(load_record), load_record.c.loaded_at)


@dataclass(frozen=True, kw_only=True)
class AcceptedContent:
    """What the validator saw in a run that it accepted; a loader's staged rows must equal it. Of the seal nothing is on
    record for acceptances before schema version 0003."""

    content_digest: str
    record_count: int
    seal_sha256: str | None


class StateStore:
    """Every method is one transaction. A missing row means pending; none is invented for keys never judged."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def record_judgements(
        self,
        judgements: Sequence[tuple[PartitionKey, Judgement]],
        *,
        now: datetime,
        dagster_run_id: str | None,
        rule_results: Mapping[str, object] | None = None,
    ) -> list[RecordedJudgement]:
        """Records all of them or none, and answers in their order. `rule_results` is JSON by validation id.

        A validation id that is recorded already counts no second time, also when two processes try at once. Several
        judgements of one key apply in the order given.
        """
        distinct_keys = len({key for key, _ in judgements})
        for _ in range(distinct_keys + 1):  # a lost race leaves at least one key more that is found next time
            try:
                with transaction(self._engine) as connection:
                    return record_judgements(
                        connection,
                        judgements,
                        now=now,
                        dagster_run_id=dagster_run_id,
                        rule_results=rule_results or {},
                    )
            except LostRaceError:
                continue
        raise StateStoreError("partition states appear and vanish while being judged; see who writes the database")

    def finish_demotions(self, intents: Sequence[DemotionIntent], *, now: datetime) -> list[PartitionState]:
        """Shows the failures, all or none; call it once the pointers that withdraw the rows are appended. Returns the
        states after, in the order of the intents.

        Repeating it, or finishing an intent that another has replaced, changes nothing. When a newer run became the
        authority in between, the intent closes and that success stands.
        """
        with transaction(self._engine) as connection:
            return finish_demotions(connection, intents, now=now)

    def return_to_pending(
        self,
        keys: Iterable[PartitionKey],
        *,
        actor: str,
        reason: str,
        now: datetime,
        new_override_id: Callable[[], str],
    ) -> list[PartitionState]:
        """The control plane's, as operator: each override is logged, and its failure is pending again. In key order.

        All or none: raises TransitionError naming a partition that is not failed, and nothing changes.
        """
        with transaction(self._engine) as connection:
            return return_to_pending(
                connection, keys, actor=actor, reason=reason, now=now, new_override_id=new_override_id
            )

    def adopt(
        self,
        pointers: Iterable[Pointer],
        *,
        actor: str,
        reason: str,
        now: datetime,
        new_override_id: Callable[[], str],
    ) -> dict[PartitionKey, int]:
        """The control plane's, as operator: logs that these partitions go on above the versions of their pointers.

        The floor is the pointer's version, or the state's own where that is higher. No state changes by it: the next
        verdict on such a partition makes the version above its floor. Returns the floors; what waits for its verdict
        already is not logged again.
        """
        with transaction(self._engine) as connection:
            return adopt(connection, pointers, actor=actor, reason=reason, now=now, new_override_id=new_override_id)

    def open_adoptions(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """The floors of those whose verdict is still to come."""
        with transaction(self._engine) as connection:
            return open_adoptions(connection, keys)

    def reconcilable(self, pointers: Mapping[PartitionKey, Pointer | None]) -> dict[PartitionKey, Reconcilable]:
        """Of each of these partitions, beside its current pointer if it has one, in key order; at one moment."""
        with transaction(self._engine) as connection:
            return read_reconcilable(connection, pointers)

    def marks(self, *, source: str) -> dict[str, str]:
        """Of each query with a state: what changes when any of its states does."""
        with transaction(self._engine) as connection:
            return read_marks(connection, source=source)

    def standings(self, query_name: str, *, source: str = "google_ads") -> dict[str, Sequence[object]]:
        """Every state of a query, as columns of equal length: customer_id, logical_date, status, authority,
        authority_schema_version, version, is_being_withdrawn."""
        with transaction(self._engine) as connection:
            return read_standings(connection, source=source, query_name=query_name)

    def open_demotions(self, keys: Iterable[PartitionKey] | None = None) -> list[DemotionIntent]:
        """In key order; None means all."""
        with transaction(self._engine) as connection:
            if keys is not None:
                return list(open_intents(connection, keys).values())
            return [demotion_from_row(row) for row in connection.execute(_DEMOTIONS).mappings()]

    def states(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, PartitionState]:
        """A key without a row is left out: it is pending."""
        with transaction(self._engine) as connection:
            rows = connection.execute(_STATES, {"keys": keys_json(keys)}).mappings()
            return {state.key: state for state in map(state_from_row, rows)}

    def ready_partitions(
        self, query_name: str, customers: Collection[CustomerId], days: DayRange, *, source: str = "google_ads"
    ) -> list[ReadyPartition]:
        """What a consumer may read of these customers' days, in key order; a gap is not ready, whatever raw files
        there are."""
        return list(self.readiness(query_name, customers, days, source=source).ready)

    def readiness(
        self, query_name: str, customers: Collection[CustomerId], days: DayRange, *, source: str = "google_ads"
    ) -> Readiness:
        """All of these customers' days: ready, or why not. One statement, so one moment."""
        parameters = {
            "source": source,
            "query_name": query_name,
            "customers": list(customers),
            "first": days.first,
            "last": days.last,
        }
        with transaction(self._engine) as connection:
            rows = connection.execute(_READINESS, parameters).mappings().all()
        states = {state.key: state for state in map(state_from_row, rows)}
        demoted = {key_from_row(row) for row in rows if row["demoted"]}
        return tell_ready(asked_partitions(source, query_name, customers, days), states, demoted)

    def surroundings(
        self, keys: Collection[PartitionKey], *, days: Mapping[str, int], queries: Iterable[str]
    ) -> Surroundings:
        """What is accepted and current around these partitions: row counts of their customers' days, as many back as
        `days` says for their query, and the spends of `queries` on their own day."""
        with transaction(self._engine) as connection:
            return read_surroundings(connection, keys, days=days, queries=queries)

    def publishable(self, keys: Iterable[PartitionKey]) -> list[PartitionState]:
        """Of these, the ones a loader may publish: success, and no demotion under way."""
        with transaction(self._engine) as connection:
            rows = connection.execute(_PUBLISHABLE, {"keys": keys_json(keys)}).mappings()
            return [state_from_row(row) for row in rows]

    def accepted_contents(self, keys: Iterable[PartitionKey]) -> dict[tuple[PartitionKey, RunId], AcceptedContent]:
        """By run, for every run of these keys that was ever accepted; its latest acceptance counts."""
        with transaction(self._engine) as connection:
            rows = connection.execute(_ACCEPTED, {"keys": keys_json(keys)}).mappings()
            return {
                run_of_row(row): AcceptedContent(
                    content_digest=row["content_digest"],
                    record_count=row["record_count"],
                    seal_sha256=row["seal_sha256"],
                )
                for row in rows
            }

    def allocate_run_seqs(self, count: int) -> list[int]:
        """Rising, and never given twice; an unused number leaves a gap."""
        with transaction(self._engine) as connection:
            return sorted(connection.execute(_ALLOCATE_RUN_SEQS, {"count": count}).scalars())

    def raise_run_seq(self, to: int) -> None:
        """Every number given afterwards is above this one, as they must be after a restore for new runs to win.

        By taking numbers until there: that cannot lower the sequence, whoever else takes or raises at the same time.
        """
        [taken] = self.allocate_run_seqs(1)
        if to - taken > _MOST_NUMBERS:
            raise StateStoreError(
                f"a run has the number {to}, and the database has come to {taken}: no history is that long; find that "
                "run by its metadata.json, and move it out of the raw sink"
            )
        while taken < to:
            with transaction(self._engine) as connection:
                taken = connection.execute(_TAKE_RUN_SEQS, {"count": min(to - taken, _NUMBERS_AT_ONCE)}).scalar_one()

    def record_extractions(self, attempts: Iterable[ExtractionAttempt]) -> None:
        """Touches no partition state; a run that is recorded already stays as it was written."""
        with transaction(self._engine) as connection:
            connection.execute(_INSERT_EXTRACTIONS, {"rows": rows_json(map(value_row, attempts))})

    def record_loads(self, records: Iterable[LoadRecord]) -> None:
        """The first record of a (partition, run, schema version) stays."""
        with transaction(self._engine) as connection:
            connection.execute(_INSERT_LOADS, {"rows": rows_json(map(value_row, records))})

    def load_records(self, keys: Iterable[PartitionKey] | None = None) -> list[LoadRecord]:
        """In key order, then as loaded; None means all."""
        with transaction(self._engine) as connection:
            result = (
                connection.execute(_ALL_LOADS)
                if keys is None
                else connection.execute(_LOADS, {"keys": keys_json(keys)})
            )
            return [load_record_from_row(row) for row in result.mappings()]

    def load_times(
        self, query_name: str, customers: Collection[CustomerId], *, source: str = "google_ads"
    ) -> list[tuple[str, date, str, str, datetime]]:
        """When each run of these customers was first published: customer, day, run, schema version, time; in no order.

        As plain rows: there are as many as the query has partitions, and more.
        """
        asked = {"source": source, "query_name": query_name, "customers": list(customers)}
        with transaction(self._engine) as connection:
            return [tuple(row) for row in connection.execute(_LOAD_TIMES, asked)]
