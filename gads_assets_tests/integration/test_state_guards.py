"""What the database itself refuses, whatever code holds the connection and whichever role it acts as."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

import gads_assets.state
from gads_assets.domain.accounts import Account
from gads_assets.domain.keys import CustomerId
from gads_assets.domain.roles import Role
from gads_assets.errors import StateStoreError, TransitionError
from gads_assets.state.connection import open_engine, transaction
from gads_assets.state.customers import CustomerRegister
from gads_assets.state.partition_states import StateStore
from gads_assets_tests.ledgers import (
    NEWER_RUN,
    OLDER_RUN,
    RUN,
    SEAL,
    Condition,
    accepted,
    demoted,
    demoting,
    extracted,
    failed,
    returned,
    succeeded,
    untouched,
)

NOW = datetime(2024, 7, 1, tzinfo=UTC)
PARTITION = "google_ads/campaign 1234567890|2024-06-01"
KEY = "'google_ads', '1234567890', 'campaign', DATE '2024-06-01'"
LEDGER = (
    *("partition_state", "partition_attempt", "extraction_attempt", "load_record", "demotion", "override_log"),
    "api_operations",
)
GUARDS = Path(gads_assets.state.__file__).with_name("guards.sql").read_text()


def first(status: str = "success", *, run: str | None = RUN, version: int = 1, attempts: int = 1, rows: int = 3) -> str:
    authority = f"'{run}', '1', {rows}" if run else "NULL, NULL, NULL"
    error = "'bad'" if status == "failed" else "NULL"
    return (
        f"INSERT INTO partition_state VALUES ({KEY}, '{status}', {authority}, now(), {error}, {attempts}, {version}, "
        f"{10 if run else 'NULL'})"
    )


def change(what: str) -> str:
    return f"UPDATE partition_state SET version = version + 1, {what}"


def verdict(what: str) -> str:
    return change(f"attempt_count = attempt_count + 1, {what}")


def attempt(outcome: str, number: int, version: int, *, run: str = RUN, seq: int = 10) -> str:
    error = "'bad'" if outcome in {"rejected", "demoted"} else "NULL"
    return (
        f"INSERT INTO partition_attempt VALUES ('v{number}-{outcome}', {KEY}, '{run}', {seq}, '{outcome}', {number}, "
        f"{error}, 'digest', 3, '1', '[]', {version}, NULL, now(), NULL, NULL, '{SEAL}')"
    )


def demotion(run: str, version: int, validation: str) -> str:
    return f"INSERT INTO demotion VALUES ({KEY}, '{run}', {version}, '{validation}', 'bad', now())"


def override(action: str, version: int | None, *, floor: int | None = None, run: str | None = None) -> str:
    named = f"'{run}'" if run else "NULL"
    return (
        f"INSERT INTO override_log VALUES ('01HZ0000000000000000000009', '{action}', {KEY}, 'me', 'why', "
        f"{version or 'NULL'}, now(), {floor or 'NULL'}, {named})"
    )


def adoption(floor: int) -> str:
    return override("adopt", None, floor=floor, run=RUN)


def to_version(version: int, what: str = "updated_at = now()") -> str:
    return f"UPDATE partition_state SET version = {version}, attempt_count = attempt_count + 1, {what}"


def loaded(*, run: str = RUN, schema: str = "1", rows: int = 3, digest: str = "digest") -> str:
    return f"INSERT INTO load_record VALUES ({KEY}, '{run}', '{schema}', {rows}, '{digest}', 'stage', 4, now())"


def hiding(table: str) -> str:
    """What stands in front of a table of the ledger for everything that does not name its schema."""
    return f"CREATE TEMPORARY TABLE {table} (LIKE public.{table})"


def schedule(**changes: str) -> str:
    row = {
        "purpose": "'retry'",
        "disposition": "'due'",
        "next_run_at": "now()",
        "backoff_strategy": "'none'",
        **changes,
    }
    return (
        "INSERT INTO retry_schedule (source, customer_id, query_name, logical_date, scheduled_at, "
        f"{', '.join(row)}) VALUES ({KEY}, now(), {', '.join(row.values())})"
    )


def extraction(outcome: str, *, error: str = "NULL, NULL", retry_at: str = "NULL") -> str:
    return (
        f"INSERT INTO extraction_attempt VALUES ({KEY}, '{RUN}', 10, '{outcome}', {error}, now(), now(), NULL, "
        f"{retry_at})"
    )


def customer(status: str = "active", *, path: str = "{9876543210}", closed: str = "NULL, NULL") -> str:
    return (
        "INSERT INTO customer VALUES ('1234567890', 'Shoes', 'Europe/Berlin', 'EUR', '9876543210', 'emulator', "
        f"'{status}', now(), '{path}', {closed})"
    )


USED = "INSERT INTO api_operations VALUES ('emulator', 'default', '2024-06-01', 5)"
NO_CUSTOMERS = ("123-456-7890", "123456789", "12345678901", "\uff11" * 10, "")
NEWER = f"current_run_id = '{NEWER_RUN}', current_run_seq = 11"
FAILING = "status = 'failed', error_message = 'bad'"
FINISHING = "status = 'failed', error_message = 'two rows share a key'"
PASSING = "status = 'success', error_message = NULL"
PENDING = "status = 'pending', error_message = NULL"


@dataclass(frozen=True)
class Forbidden:
    """`rule` is what the refusal says to somebody who has every privilege."""

    before: Condition
    statements: Sequence[str]
    rule: str


def forbidden(before: Condition, *statements: str, rule: str) -> Forbidden:
    return Forbidden(before=before, statements=statements, rule=rule)


LEASED = (
    "INSERT INTO run_lease SELECT run, now() + interval '1 minute', now() FROM unnest(ARRAY['first', 'other']) AS run",
    f"INSERT INTO partition_lease VALUES ({KEY}, 'first')",
)

FORBIDDEN = [
    # A lease of a run that lives.
    forbidden(untouched, *LEASED, "UPDATE partition_lease SET dagster_run_id = 'other'", rule="has it, and lives"),
    forbidden(untouched, *LEASED, "UPDATE partition_lease SET query_name = 'other'", rule="a lease keeps its key"),
    # A first row that is no verdict.
    forbidden(untouched, first("pending", run=None), rule="its first row is a verdict"),
    forbidden(untouched, first("pending", run=None, attempts=0), rule="its first row is a verdict"),
    forbidden(untouched, first(version=2), rule="a first verdict is attempt 1 at version 1, not 1 at 2"),
    forbidden(untouched, first(attempts=2), rule="a first verdict is attempt 1 at version 1, not 2 at 1"),
    forbidden(untouched, first("failed"), rule="only a success moves current_run_id"),
    # A state without the attempt that made it, or with another.
    forbidden(untouched, first(), rule="attempt 1 is counted but not recorded"),
    forbidden(untouched, first(), attempt("rejected", 1, 1), rule=f"which rejected run {RUN}"),
    forbidden(untouched, first(), attempt("accepted", 1, 1, run=NEWER_RUN), rule="does not follow from attempt 1"),
    forbidden(untouched, first(), attempt("accepted", 1, 1, seq=11), rule="does not follow from attempt 1"),
    forbidden(untouched, first(rows=4), attempt("accepted", 1, 1), rule="does not follow from attempt 1"),
    forbidden(untouched, first(), attempt("superseded", 1, 1), rule="does not follow from attempt 1"),
    forbidden(untouched, first(), attempt("demoted", 1, 1), rule="does not follow from attempt 1"),
    forbidden(untouched, first("failed", run=None), attempt("accepted", 1, 1), rule="does not follow from attempt 1"),
    forbidden(succeeded, verdict(NEWER), rule="attempt 3 is counted but not recorded"),
    forbidden(succeeded, verdict(NEWER), attempt("rejected", 3, 3, run=NEWER_RUN, seq=11), rule="does not follow"),
    forbidden(
        succeeded,
        verdict(f"{NEWER}, record_count = 4"),
        attempt("accepted", 3, 3, run=NEWER_RUN, seq=11),
        rule="follow",
    ),
    forbidden(succeeded, verdict("updated_at = now()"), attempt("rejected", 3, 3), rule="which rejected run"),
    forbidden(
        succeeded, verdict("updated_at = now()"), attempt("superseded", 3, 3, run=NEWER_RUN, seq=11), rule="follow"
    ),
    forbidden(
        succeeded, verdict("updated_at = now()"), attempt("accepted", 3, 3, run=NEWER_RUN, seq=11), rule="follow"
    ),
    forbidden(failed, verdict(PASSING), rule="success_check"),
    forbidden(
        failed,
        verdict(f"{PASSING}, {NEWER}, schema_version = '1', record_count = 3"),
        attempt("rejected", 2, 2),
        rule="does not follow from attempt 2",
    ),
    forbidden(failed, verdict(FAILING), attempt("superseded", 2, 2, run=OLDER_RUN, seq=9), rule="does not follow"),
    forbidden(demoted, verdict(PASSING), attempt("rejected", 4, 5, run=NEWER_RUN, seq=11), rule="does not follow"),
    forbidden(demoted, verdict(PASSING), attempt("superseded", 4, 5, run=OLDER_RUN, seq=9), rule="does not follow"),
    forbidden(demoted, verdict(PASSING), attempt("demoted", 4, 5), rule="does not follow from attempt 4"),
    forbidden(returned, verdict(PASSING), attempt("rejected", 4, 6, run=NEWER_RUN, seq=11), rule="does not follow"),
    forbidden(returned, verdict("updated_at = now()"), attempt("rejected", 4, 6), rule="does not follow"),
    # An attempt that no state counts.
    forbidden(untouched, attempt("accepted", 1, 1), rule="partition_attempt_partition_state_fkey"),
    forbidden(succeeded, attempt("rejected", 3, 3), rule="attempt 3 at version 3 is not the one that its state counts"),
    forbidden(succeeded, attempt("rejected", 3, 2), rule="attempt 3 at version 2 is not the one that its state counts"),
    forbidden(succeeded, attempt("accepted", 2, 2), rule="partition_attempt_number"),
    # A change of the state by itself.
    forbidden(succeeded, "DELETE FROM partition_state", rule="a state row is never deleted"),
    forbidden(succeeded, change("query_name = 'ad_group'"), rule="a state row keeps its key"),
    forbidden(
        succeeded, "UPDATE partition_state SET record_count = 4", rule="version rises from 2 to exactly 3, not to 2"
    ),
    forbidden(succeeded, "UPDATE partition_state SET version = 4", rule="version rises from 2 to exactly 3, not to 4"),
    forbidden(succeeded, "UPDATE partition_state SET version = 1", rule="version rises from 2 to exactly 3, not to 1"),
    forbidden(succeeded, change("attempt_count = 1"), rule="attempt_count never falls"),
    forbidden(succeeded, change("attempt_count = 4"), rule="a verdict is one attempt"),
    forbidden(succeeded, change("updated_at = now()"), rule="a state changes by a verdict, which is counted"),
    forbidden(succeeded, change(NEWER), rule="a state changes by a verdict, which is counted"),
    forbidden(failed, change(PASSING), rule="a state changes by a verdict, which is counted"),
    forbidden(demoted, change(PASSING), rule="a state changes by a verdict, which is counted"),
    forbidden(returned, change(PASSING), rule="a state changes by a verdict, which is counted"),
    forbidden(returned, change(FAILING), rule="a state changes by a verdict, which is counted"),
    # Above the floor of an adoption: by exactly one, by a verdict, and once.
    *(
        forbidden(untouched, adoption(7), first(version=version), rule=f"at version 8, not 1 at {version}")
        for version in (2, 7, 9)
    ),
    forbidden(untouched, adoption(7), first(version=8, attempts=2), rule="at version 8, not 2 at 8"),
    forbidden(untouched, adoption(7), first(version=8), rule="attempt 1 is counted but not recorded"),
    forbidden(untouched, override("clear", None), first(version=2), rule="at version 1, not 1 at 2"),
    forbidden(succeeded, to_version(8), rule="version rises from 2 to exactly 3, not to 8"),
    *(
        forbidden(
            succeeded, adoption(7), to_version(version), rule=f"version rises from 2 to exactly 8, not to {version}"
        )
        for version in (4, 7, 9)
    ),
    forbidden(
        succeeded,
        adoption(7),
        "UPDATE partition_state SET version = 8, updated_at = now()",
        rule="version rises from 2 to exactly 3, not to 8",
    ),
    forbidden(succeeded, adoption(7), "UPDATE partition_state SET version = 2, attempt_count = 3", rule="not to 2"),
    forbidden(succeeded, adoption(1), to_version(4), rule="version rises from 2 to exactly 3, not to 4"),
    forbidden(
        succeeded, adoption(7).replace("2024-06-01", "2024-06-02"), to_version(8), rule="from 2 to exactly 3, not to 8"
    ),
    forbidden(
        succeeded,
        adoption(7),
        to_version(8),
        attempt("accepted", 3, 8),
        to_version(10),
        rule="version rises from 8 to exactly 9, not to 10",
    ),
    forbidden(
        failed,
        adoption(7),
        override("retry", 8).replace("09'", "08'"),
        f"UPDATE partition_state SET version = 8, {PENDING}",
        rule="version rises from 1 to exactly 2, not to 8",
    ),
    forbidden(
        demoting,
        adoption(7),
        f"UPDATE partition_state SET version = 8, {FINISHING}",
        "DELETE FROM demotion",
        rule="version rises from 3 to exactly 4, not to 8",
    ),
    forbidden(
        untouched,
        hiding("override_log"),
        adoption(7),
        first(version=8),
        rule="a first verdict is attempt 1 at version 1, not 1 at 8",
    ),
    # Authority.
    forbidden(demoted, verdict(NEWER), rule="only a success moves current_run_id"),
    forbidden(demoted, verdict("current_run_id = NULL, current_run_seq = NULL"), rule="only a success moves"),
    forbidden(succeeded, verdict(f"current_run_id = '{OLDER_RUN}', current_run_seq = 9"), rule="only to a newer run"),
    forbidden(succeeded, verdict(f"current_run_id = '{NEWER_RUN}'"), rule="only to a newer run"),
    forbidden(succeeded, verdict("current_run_seq = 9"), rule="a run keeps its run_seq"),
    forbidden(succeeded, verdict("current_run_seq = 11"), rule="a run keeps its run_seq"),
    forbidden(succeeded, verdict("record_count = 4"), rule="a run keeps its run_seq, schema_version and record_count"),
    forbidden(demoted, verdict("schema_version = '2'"), rule="a run keeps its run_seq, schema_version"),
    # A run's number, and what a sealed run holds.
    forbidden(
        succeeded,
        verdict(f"current_run_id = '{OLDER_RUN}', current_run_seq = 12"),
        attempt("accepted", 3, 3, run=OLDER_RUN, seq=12),
        rule=f"run {OLDER_RUN} was judged with run_seq 9, not 12",
    ),
    forbidden(
        extracted,
        first().replace("1, 10)", "1, 12)"),
        attempt("accepted", 1, 1, seq=12),
        rule=f"run {RUN} was extracted with run_seq 10, not 12",
    ),
    *(
        forbidden(
            before,
            verdict(PASSING),
            attempt("accepted", number, version).replace("'digest', 3, '1'", changed),
            rule=f"run {RUN} was accepted with other content, and a sealed run does not change",
        )
        for before, number, version in ((succeeded, 3, 3), (demoted, 4, 5), (returned, 4, 6))
        for changed in ("'other', 3, '1'", "'digest', 4, '1'", "'digest', 3, '2'")
    ),
    *(
        forbidden(
            before,
            verdict(PASSING),
            attempt("accepted", number, version).replace(SEAL, "6" * 64),
            rule=f"run {RUN} was accepted with other content, and a sealed run does not change",
        )
        for before, number, version in ((succeeded, 3, 3), (demoted, 4, 5), (returned, 4, 6))
    ),
    # Loads of what nobody accepted.
    *(
        forbidden(before, tried, rule="are recorded as loaded, which no attempt accepted so")
        for before, tried in (
            (untouched, loaded()),
            (extracted, loaded()),
            (failed, loaded()),
            (succeeded, loaded(run=OLDER_RUN)),
            (accepted, loaded(run=NEWER_RUN)),
            (accepted, loaded(schema="2")),
            (accepted, loaded(rows=4)),
            (accepted, loaded(digest="other")),
        )
    ),
    # Reasons.
    forbidden(
        untouched,
        first("failed", run=None).replace("'bad'", "'other'"),
        attempt("rejected", 1, 1),
        rule="does not follow from attempt 1",
    ),
    forbidden(
        demoted,
        verdict("error_message = 'other'"),
        attempt("superseded", 4, 5, run=OLDER_RUN, seq=9),
        rule="does not follow from attempt 4",
    ),
    forbidden(failed, override("retry", 2), change("status = 'pending'"), rule="partition_state_pending_check"),
    *(
        forbidden(accepted, attempt("rejected", 2, 2).replace(good, bad, 1), rule=f"partition_attempt_{check}_check")
        for good, bad, check in (
            ("'v2-rejected'", "''", "texts"),
            ("'bad'", "''", "texts"),
            ("'digest'", "''", "texts"),
            ("3, '1'", "3, ''", "texts"),
            ("'[]'", "'{}'", "rule_results"),
        )
    ),
    # Tables that hide the ledger's from code that does not name their schema.
    forbidden(
        untouched,
        hiding("partition_attempt"),
        attempt("accepted", 1, 1),
        first().replace("INTO ", "INTO public."),
        rule="attempt 1 is counted but not recorded",
    ),
    forbidden(
        failed,
        hiding("override_log"),
        override("retry", 2),
        change(PENDING),
        rule="a return to pending is logged as an override first",
    ),
    forbidden(
        succeeded,
        hiding("demotion"),
        demotion(RUN, 3, "v3"),
        change(FAILING),
        rule="a success fails only through a demotion of its run",
    ),
    forbidden(
        demoting,
        hiding("partition_state"),
        "DELETE FROM demotion",
        rule="a demotion stays open until its failure shows",
    ),
    forbidden(
        succeeded,
        hiding("partition_state"),
        first(version=77, attempts=77),
        attempt("accepted", 77, 77),
        rule="attempt 77 at version 77 is not the one that its state counts",
    ),
    forbidden(
        accepted,
        hiding("partition_attempt"),
        attempt("accepted", 2, 2).replace("'digest'", "'other'"),
        loaded(digest="other"),
        rule="which no attempt accepted so",
    ),
    # Back to pending.
    forbidden(succeeded, change(PENDING), rule="a success never returns to pending"),
    forbidden(succeeded, override("retry", 3), change(PENDING), rule="a success never returns to pending"),
    forbidden(demoting, override("retry", 4), change(PENDING), rule="a success never returns to pending"),
    forbidden(failed, change(PENDING), rule="a return to pending is logged as an override first"),
    forbidden(failed, override("retry", 3), change(PENDING), rule="is logged as an override first"),
    forbidden(failed, override("revalidate", 2), change(PENDING), rule="is logged as an override first"),
    forbidden(failed, override("retry", None), change(PENDING), rule="is logged as an override first"),
    forbidden(
        failed, override("retry", 2), verdict(PENDING), rule="only the control plane returns a partition to pending"
    ),
    forbidden(failed, override("retry", 2), rule="an override to version 2 is logged with the return to pending"),
    # A success that fails.
    forbidden(succeeded, change(FAILING), rule="a success fails only through a demotion of its run"),
    forbidden(
        succeeded,
        verdict(FAILING),
        attempt("rejected", 3, 3, run=NEWER_RUN, seq=11),
        rule="a success fails only through a demotion of its run",
    ),
    forbidden(demoting, verdict(FAILING), attempt("demoted", 4, 4), rule="a success fails only through a demotion"),
    forbidden(demoting, change(FAILING), "DELETE FROM demotion", rule="a demotion of its run, and for its reason"),
    forbidden(demoting, change(FINISHING), rule="the failure at version 4 leaves its demotion open"),
    forbidden(
        demoting,
        change(FINISHING),
        verdict(f"{PASSING}, {NEWER}"),
        attempt("accepted", 4, 5, run=NEWER_RUN, seq=11),
        rule="the failure at version 4 leaves its demotion open",
    ),
    # Demotions.
    forbidden(succeeded, demotion(RUN, 2, "v1"), rule="a demotion is of the authority of a success"),
    forbidden(failed, demotion(RUN, 1, "v1"), rule="a demotion is of the authority of a success"),
    forbidden(demoting, f"UPDATE demotion SET run_id = '{NEWER_RUN}'", rule="of the authority of a success"),
    forbidden(demoting, "UPDATE demotion SET state_version = 4", rule="a demotion is of the authority of a success"),
    forbidden(demoting, "UPDATE demotion SET logical_date = '2024-06-02'", rule="a demotion keeps its key"),
    *(
        forbidden(demoting, f"UPDATE demotion SET error_message = '{error}'", rule="with the error of the attempt")
        for error in ("", "nothing much")
    ),
    forbidden(demoting, "DELETE FROM demotion", rule="a demotion stays open until its failure shows"),
    # History.
    *(
        forbidden(returned, statement, rule=f"what {table} holds stays as it was written")
        for table, column in {
            "partition_attempt": "outcome",
            "extraction_attempt": "outcome",
            "load_record": "content_digest",
            "override_log": "reason",
        }.items()
        for statement in (f"UPDATE {table} SET {column} = 'accepted'", f"DELETE FROM {table}")
    ),
    # Operations.
    *(
        forbidden(untouched, USED, statement, rule="what was used of emulator on 2024-06-01 never falls")
        for statement in (
            "UPDATE api_operations SET used = 4",
            "UPDATE api_operations SET day = '2024-06-02'",
            "UPDATE api_operations SET origin = 'google'",
            "DELETE FROM api_operations",
        )
    ),
    *(
        forbidden(returned, f"TRUNCATE {table} CASCADE", rule="a table of the ledger is never emptied")
        for table in LEDGER
    ),
]


def execute(engine: Engine, *statements: str) -> None:
    with transaction(engine) as connection:
        for statement in statements:
            connection.execute(text(statement))


def contents(engine: Engine) -> dict[str, list[str]]:
    with engine.begin() as connection:
        return {
            table: sorted(connection.execute(text(f"SELECT CAST(t AS text) FROM {table} AS t")).scalars())
            for table in LEDGER
        }


@pytest.mark.parametrize("tried", FORBIDDEN, ids=lambda tried: f"{tried.before.__name__}: {tried.statements[-1][:70]}")
def test_a_forbidden_change_is_refused_to_the_owner_by_its_rule_and_to_every_role(
    database_url: str, engine: Engine, store: StateStore, tried: Forbidden
) -> None:
    tried.before(store)
    before = contents(engine)
    with pytest.raises(StateStoreError, match=re.escape(tried.rule)) as refusal:
        execute(engine, *tried.statements)
    if tried.rule in str(refusal.value) and isinstance(refusal.value, TransitionError):
        assert str(refusal.value).startswith((f"{PARTITION}: ", *(f"{table}: " for table in LEDGER)))
    refused = []
    for role in Role:
        of_the_role = open_engine(database_url, role)
        others = "permission denied|only the control plane|only the validator"
        with pytest.raises(StateStoreError, match=f"{others}|{re.escape(tried.rule)}"):
            execute(of_the_role, *tried.statements)
        of_the_role.dispose()
        refused.append(role)
    assert refused == list(Role)
    assert contents(engine) == before


def test_every_rule_of_the_guards_has_somebody_who_tries_to_break_it() -> None:
    rules = re.findall(r"(?:rule := |format\(|EXCEPTION )(?:format\()?'([^']+)'", GUARDS)
    fragments = {rule: [part for part in re.split(r"%s?", rule) if len(part) > 10] for rule in rules}
    untried = [
        rule
        for rule, parts in fragments.items()
        if parts and not any(part in tried.rule or tried.rule in part for part in parts for tried in FORBIDDEN)
    ]
    assert untried == ["only the validator finishes a demotion"]  # allowed to the owner, and tried below
    assert len(fragments) >= 24


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.OPERATOR])
def test_a_logged_return_to_pending_is_refused_to_everybody_but_the_operator(
    engine: Engine, store: StateStore, role: Role
) -> None:
    failed(store)
    with pytest.raises(StateStoreError, match=r"only the control plane returns|permission denied"):
        execute(engine, override("retry", 2), f"SET LOCAL ROLE test_{role}", change(PENDING))
    execute(engine, override("retry", 2), "SET LOCAL ROLE test_operator", change(PENDING))


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.VALIDATOR])
def test_a_demotion_is_finished_by_nobody_but_the_validator(engine: Engine, store: StateStore, role: Role) -> None:
    demoting(store)
    with pytest.raises(StateStoreError, match=r"only the validator finishes a demotion|permission denied"):
        execute(engine, f"SET LOCAL ROLE test_{role}", change(FINISHING), "DELETE FROM demotion")
    execute(engine, "SET LOCAL ROLE test_validator", change(FINISHING), "DELETE FROM demotion")


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        (first("terminal"), "status_check"),
        (first(run=None), "success_check"),
        (first().replace("NULL", "'but bad'"), "success_check"),
        (first().replace("'1', 3", "'1', NULL"), "success_check"),
        (first().replace("'1', 3", "NULL, 3"), "success_check"),
        (first("failed", run=None).replace("'bad'", "NULL"), "failed_check"),
        (first("failed", run=None).replace("'bad'", "''"), "texts_check"),
        (first().replace("'1', 3", "'', 3"), "texts_check"),
        (first().replace("1, 10)", "1, NULL)"), "authority_check"),
        (first(run="latest"), "current_run_id_check"),
        (first(rows=-1), "counts_check"),
        (first().replace("1, 10)", "1, 0)"), "counts_check"),
        *((first().replace("'1234567890'", f"'{customer}'"), "customer_id_check") for customer in NO_CUSTOMERS),
    ],
)
def test_a_state_that_contradicts_itself_cannot_be_stored(engine: Engine, statement: str, constraint: str) -> None:
    with pytest.raises(StateStoreError, match=f"partition_state_{constraint}"):
        execute(engine, statement)


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        (override("reset", None), "override_log_action_check"),
        (override("retry", None).replace("'me'", "' '"), "override_log_actor_check"),
        (override("retry", None).replace("'why'", "''"), "override_log_reason_check"),
        (override("retry", None).replace("01HZ", "latest"), "override_log_override_id_check"),
        (override("adopt", None), "override_log_adoption_check"),
        (override("adopt", None, floor=7), "override_log_adoption_check"),
        (override("adopt", None, run=RUN), "override_log_adoption_check"),
        (override("adopt", 8, floor=7, run=RUN), "override_log_adoption_check"),
        (override("retry", None, floor=7), "override_log_adoption_check"),
        (override("clear", None, run=RUN), "override_log_adoption_check"),
        (override("adopt", None, floor=7, run="latest"), "override_log_run_id_check"),
        (adoption(-1), "override_log_version_floor_check"),
        (adoption(10**16), "override_log_version_floor_check"),
        (f"{adoption(7)}; {adoption(7).replace('09', '08')}", "override_log_version_floor"),
        (schedule(purpose="'whim'"), "retry_schedule_purpose_check"),
        (schedule(purpose="'backfill'"), "retry_schedule_backfill_check"),
        (schedule(disposition="'maybe'"), "retry_schedule_disposition_check"),
        (schedule(next_run_at="NULL"), "retry_schedule_next_run_at_check"),
        (schedule(disposition="'terminal'"), "retry_schedule_next_run_at_check"),
        (schedule(disposition="'blocked'", next_run_at="NULL"), "retry_schedule_reason_check"),
        (schedule(batch_id="'01HZ0000000000000000000009'"), "retry_schedule_batch_check"),
        (schedule(dispatched_at="now()"), "retry_schedule_batch_check"),
        (schedule(dagster_run_id="'run'"), "retry_schedule_batch_check"),
        (schedule(batch_id="'latest'", dispatched_at="now()"), "retry_schedule_batch_id_check"),
        (schedule(override_id="'01HZ0000000000000000000009'"), "retry_schedule_override_log_fkey"),
        (schedule(backfill_id="'01HZ0000000000000000000009'"), "retry_schedule_backfill_fkey"),
    ],
)
def test_an_override_or_a_schedule_that_makes_no_sense_cannot_be_stored(
    engine: Engine, statement: str, constraint: str
) -> None:
    with pytest.raises(StateStoreError, match=constraint):
        execute(engine, statement)
    execute(engine, schedule())


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        (extraction("sealed", retry_at="now()"), "extraction_attempt_retry_at_check"),
        (customer(path="{1111111111}"), "customer_login_check"),
        (customer(path="{9876543210,123-456-7890}"), "customer_login_path_check"),
        (customer(closed="now(), 'suspended'"), "customer_closed_check"),
        (customer("inactive"), "customer_closed_check"),
        (customer("inactive", closed="now(), NULL"), "customer_closed_check"),
        (customer("inactive", closed="now(), ''"), "customer_closed_reason_check"),
        (USED.replace("5)", "0)"), "api_operations_used_check"),
        (USED.replace("emulator", "elsewhere"), "api_operations_origin_check"),
        ("INSERT INTO api_pause VALUES ('emulator', 'default', now(), '')", "api_pause_reason_check"),
    ],
)
def test_an_attempt_an_account_or_a_count_that_contradicts_itself_cannot_be_stored(
    engine: Engine, statement: str, constraint: str
) -> None:
    with pytest.raises(StateStoreError, match=constraint):
        execute(engine, statement)
    execute(engine, extraction("failed", error="'quota', 'spent'", retry_at="now()"))
    execute(engine, customer("inactive", closed="now(), 'suspended'"))


def account(number: int, *, origin: str = "emulator", name: str = "Shoes") -> Account:
    return Account(
        customer_id=CustomerId(f"{number:010d}"),
        name=name,
        time_zone="Europe/Berlin",
        currency="EUR",
        login_customer_id=CustomerId("9876543210"),
        origin=origin,
    )


def test_registered_customers_are_found_and_take_over_new_names(engine: Engine) -> None:
    register = CustomerRegister(engine)
    register.register_customers([account(2), account(1)], now=NOW)
    register.register_customers([account(2, name="Boots"), account(3)], now=NOW)
    assert register.customers() == [account(1), account(2, name="Boots"), account(3)]


@pytest.mark.parametrize(("first", "second"), [("emulator", "google"), ("google", "emulator")])
def test_a_customer_is_never_taken_over_by_the_other_api(engine: Engine, first: str, second: str) -> None:
    register = CustomerRegister(engine)
    register.register_customers([account(1, origin=first)], now=NOW)
    with pytest.raises(StateStoreError, match=rf"customer 0000000001 comes from {second}.*use another GADS_HOME"):
        register.register_customers([account(1, origin=second), account(2, origin=second)], now=NOW)
    assert register.customers() == [account(1, origin=first)]
