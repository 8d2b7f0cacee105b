"""What happens inside the transaction that records judgements, and the one that finishes a demotion.

A demotion takes three steps, each safe to crash after: (a) `record_judgements` writes the attempt and an open intent,
the status still success; (b) the warehouse appends the pointer that withdraws the rows, at the intent's version;
(c) `finish_demotions` shows the failure and closes the intent. Nothing publishes the partition in between.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ARRAY, Connection, Text, any_, bindparam, select, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.state import (
    AttemptOutcome,
    Decision,
    DemotionIntent,
    Judgement,
    PartitionState,
    decide,
    state_after,
    state_after_demotion,
)
from gads_assets.errors import TransitionError
from gads_assets.state.rows import (
    demotion_from_row,
    key_from_row,
    key_row,
    keys_json,
    rows_json,
    select_by_keys,
    state_from_row,
    value_row,
)
from gads_assets.state.tables import demotion, override_log, partition_attempt, partition_state

# Locked in key order, so that two validators with overlapping batches queue instead of deadlocking.
_LOCK_STATES = select_by_keys(partition_state).with_for_update(of=partition_state)

_INSERT_STATES = text("""
    INSERT INTO partition_state
    SELECT * FROM jsonb_populate_recordset(NULL::partition_state, CAST(:rows AS jsonb)) ON CONFLICT DO NOTHING
""")

# Compare and swap on the version that was read, which travels with the row.
_UPDATE_STATES = text("""
    UPDATE partition_state AS s
    SET status = n.status, current_run_id = n.current_run_id, current_run_seq = n.current_run_seq,
        schema_version = n.schema_version, record_count = n.record_count, error_message = n.error_message,
        attempt_count = n.attempt_count, updated_at = n.updated_at, version = n.version
    FROM jsonb_array_elements(CAST(:rows AS jsonb)) AS r
        CROSS JOIN jsonb_populate_record(NULL::partition_state, r) AS n
    WHERE (s.source, s.customer_id, s.query_name, s.logical_date)
            = (n.source, n.customer_id, n.query_name, n.logical_date)
        AND s.version = CAST(r ->> 'version_read' AS bigint)
""")

_FLOORS = (
    select_by_keys(override_log, "version_floor")
    .where(override_log.c.action == "adopt")
    .order_by(override_log.c.version_floor)
)

_RECORDED_ATTEMPTS = select(partition_attempt).where(
    partition_attempt.c.validation_id == any_(bindparam("validation_ids", type_=ARRAY(Text)))
)

_INSERT_ATTEMPTS = text("""
    INSERT INTO partition_attempt
    SELECT whole.*
    FROM jsonb_populate_recordset(NULL::partition_attempt, CAST(:rows AS jsonb)) AS n
        CROSS JOIN LATERAL (
            SELECT coalesce(max(run_seq), 0) AS run_seq FROM extraction_attempt AS e
            WHERE (e.source, e.customer_id, e.query_name, e.logical_date)
                = (n.source, n.customer_id, n.query_name, n.logical_date)
        ) AS e
        CROSS JOIN LATERAL jsonb_populate_record(n, jsonb_build_object('known_run_seq', e.run_seq)) AS whole
""")

# The first rejection of a run opens its demotion; one of a later authority replaces an intent that is still open,
# since withdrawing the partition at the higher version withdraws both.
_OPEN_DEMOTIONS = text("""
    INSERT INTO demotion SELECT * FROM jsonb_populate_recordset(NULL::demotion, CAST(:rows AS jsonb))
    ON CONFLICT (source, customer_id, query_name, logical_date) DO UPDATE
    SET run_id = excluded.run_id, state_version = excluded.state_version, validation_id = excluded.validation_id,
        error_message = excluded.error_message, started_at = excluded.started_at
    WHERE demotion.run_id <> excluded.run_id
""")

_DEMOTIONS = select_by_keys(demotion)

_CLOSE_DEMOTIONS = text("""
    DELETE FROM demotion AS d
    USING jsonb_to_recordset(CAST(:keys AS jsonb))
        AS k (source text, customer_id text, query_name text, logical_date date)
    WHERE (d.source, d.customer_id, d.query_name, d.logical_date)
        = (k.source, k.customer_id, k.query_name, k.logical_date)
""")


@dataclass(frozen=True, kw_only=True)
class RecordedJudgement:
    """What the ledger holds about a judgement, from this call or from an earlier one with the same validation id.

    `state` is the partition's at the end of this call. `demotion_opened` is set as long as the withdrawal that the
    judgement asked for is not finished: append the withdrawing pointer, then `finish_demotions`.
    """

    key: PartitionKey
    validation_id: str
    outcome: AttemptOutcome
    attempt_number: int
    state_version: int
    state: PartitionState
    repeated: bool
    demotion_opened: DemotionIntent | None


class LostRaceError(Exception):
    """Another validator created one of our rows between our reading and our writing; reading again finds it."""


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    key: PartitionKey
    outcome: AttemptOutcome
    attempt_number: int
    state_version: int


def record_judgements(
    connection: Connection,
    judgements: Sequence[tuple[PartitionKey, Judgement]],
    *,
    now: datetime,
    dagster_run_id: str | None,
    rule_results: Mapping[str, object],
) -> list[RecordedJudgement]:
    states = lock_states(connection, (key for key, _ in judgements))
    # Read after the lock: before it, another process may be about to record the same validation.
    attempts = _recorded_attempts(connection, judgements)
    repeated = set(attempts)
    floors = _version_floors(connection, (key for key, _ in judgements))
    for batch in _one_per_key(judgements, without=repeated):
        decided = [(key, judgement, decide(states.get(key), judgement)) for key, judgement in batch]
        after = {
            key: state_after(
                states.get(key),
                key=key,
                judgement=judgement,
                decision=decision,
                now=now,
                version_floor=floors.get(key, 0),
            )
            for key, judgement, decision in decided
        }
        _insert_states(connection, [state for key, state in after.items() if key not in states])
        _update_states(connection, [(states[key], state) for key, state in after.items() if key in states])
        rows = [
            {
                **_attempt_row(after[key], judgement, decision),
                "rule_results": rule_results.get(judgement.validation_id, []),
                "dagster_run_id": dagster_run_id,
            }
            for key, judgement, decision in decided
        ]
        connection.execute(_INSERT_ATTEMPTS, {"rows": rows_json(rows)})
        intents = [_intent(after[key], judgement) for key, judgement, decision in decided if decision.opens_demotion]
        if intents:
            connection.execute(_OPEN_DEMOTIONS, {"rows": rows_json(map(value_row, intents))})
        states |= after
        attempts |= {
            judgement.validation_id: _Attempt(
                key=key,
                outcome=decision.outcome,
                attempt_number=after[key].attempt_count,
                state_version=after[key].version,
            )
            for key, judgement, decision in decided
        }
    return _answers(connection, judgements, states, attempts, repeated)


def finish_demotions(
    connection: Connection, intents: Sequence[DemotionIntent], *, now: datetime
) -> list[PartitionState]:
    wanted = {intent.key: intent for intent in intents}
    before = lock_states(connection, wanted)
    if stateless := sorted(wanted.keys() - before.keys()):
        raise TransitionError(f"{stateless[0]} has no state, so nothing of it can be demoted")
    still_open = {
        key: intent
        for key, intent in open_intents(connection, wanted).items()
        if intent.state_version == wanted[key].state_version
    }
    after = {key: state_after_demotion(before[key], intent, now=now) for key, intent in still_open.items()}
    _update_states(connection, [(before[key], state) for key, state in after.items() if state != before[key]])
    connection.execute(_CLOSE_DEMOTIONS, {"keys": keys_json(still_open)})
    return [after.get(intent.key, before[intent.key]) for intent in intents]


def _one_per_key(
    judgements: Sequence[tuple[PartitionKey, Judgement]], *, without: set[str]
) -> Iterator[list[tuple[PartitionKey, Judgement]]]:
    """Batches in which each key appears once, since a statement can raise a row's version only once."""
    waiting = {
        judgement.validation_id: (key, judgement)
        for key, judgement in judgements
        if judgement.validation_id not in without
    }
    while waiting:
        first: dict[PartitionKey, str] = {}
        for name, (key, _) in waiting.items():
            first.setdefault(key, name)
        yield [waiting.pop(first[key]) for key in sorted(first)]


def _answers(
    connection: Connection,
    judgements: Sequence[tuple[PartitionKey, Judgement]],
    states: Mapping[PartitionKey, PartitionState],
    attempts: Mapping[str, _Attempt],
    repeated: set[str],
) -> list[RecordedJudgement]:
    demoted = [attempt.key for attempt in attempts.values() if attempt.outcome is AttemptOutcome.DEMOTED]
    intents = open_intents(connection, demoted) if demoted else {}
    answers = []
    for key, judgement in judgements:
        attempt = attempts[judgement.validation_id]
        if attempt.key != key:
            raise TransitionError(
                f"run {judgement.run_id} is judged as {key} and as {attempt.key}; a run belongs to one partition"
            )
        intent = intents.get(key) if attempt.outcome is AttemptOutcome.DEMOTED else None
        answers.append(
            RecordedJudgement(
                key=key,
                validation_id=judgement.validation_id,
                outcome=attempt.outcome,
                attempt_number=attempt.attempt_number,
                state_version=attempt.state_version,
                state=states[key],
                repeated=judgement.validation_id in repeated,
                demotion_opened=intent if intent and intent.run_id == judgement.run_id else None,
            )
        )
    return answers


def _attempt_row(after: PartitionState, judgement: Judgement, decision: Decision) -> dict[str, object]:
    return {
        **key_row(after.key),
        "validation_id": judgement.validation_id,
        "run_id": judgement.run_id,
        "run_seq": judgement.run_seq,
        "outcome": decision.outcome,
        "attempt_number": after.attempt_count,
        "error_message": judgement.error_message,
        "content_digest": judgement.content_digest,
        "seal_sha256": judgement.seal_sha256,
        "record_count": judgement.record_count,
        "schema_version": judgement.schema_version,
        "state_version": after.version,
        "judged_at": after.updated_at,
        "spend_micros": judgement.spend_micros,
        "comparable_spend_micros": judgement.comparable_spend_micros,
    }


def _intent(after: PartitionState, judgement: Judgement) -> DemotionIntent:
    return DemotionIntent(
        key=after.key,
        run_id=judgement.run_id,
        state_version=after.version,
        validation_id=judgement.validation_id,
        error_message=judgement.error_message or "",
        started_at=after.updated_at,
    )


def lock_states(connection: Connection, keys: Iterable[PartitionKey]) -> dict[PartitionKey, PartitionState]:
    rows = connection.execute(_LOCK_STATES, {"keys": keys_json(keys)}).mappings()
    return {state.key: state for state in map(state_from_row, rows)}


def _insert_states(connection: Connection, states: Sequence[PartitionState]) -> None:
    if not states:
        return
    inserted = connection.execute(_INSERT_STATES, {"rows": rows_json(map(value_row, states))})
    if inserted.rowcount != len(states):
        raise LostRaceError


def _update_states(connection: Connection, changes: Sequence[tuple[PartitionState, PartitionState]]) -> None:
    """Each from the first of two to the second."""
    if not changes:
        return
    rows = [{**value_row(after), "version_read": before.version} for before, after in changes]
    updated = connection.execute(_UPDATE_STATES, {"rows": rows_json(rows)})
    if updated.rowcount != len(changes):
        raise TransitionError("a partition state changed although it was locked; somebody disabled the locks")


def _version_floors(connection: Connection, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    """The highest that a partition was adopted with."""
    rows = connection.execute(_FLOORS, {"keys": keys_json(keys)}).mappings()
    return {key_from_row(row): row["version_floor"] for row in rows}


def _recorded_attempts(
    connection: Connection, judgements: Iterable[tuple[PartitionKey, Judgement]]
) -> dict[str, _Attempt]:
    names = [judgement.validation_id for _, judgement in judgements]
    rows = connection.execute(_RECORDED_ATTEMPTS, {"validation_ids": names}).mappings()
    return {
        row["validation_id"]: _Attempt(
            key=key_from_row(row),
            outcome=AttemptOutcome(row["outcome"]),
            attempt_number=row["attempt_number"],
            state_version=row["state_version"],
        )
        for row in rows
    }


def open_intents(connection: Connection, keys: Iterable[PartitionKey]) -> dict[PartitionKey, DemotionIntent]:
    rows = connection.execute(_DEMOTIONS, {"keys": keys_json(keys)}).mappings()
    return {intent.key: intent for intent in map(demotion_from_row, rows)}
