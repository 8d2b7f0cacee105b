"""Each role does its work and nothing else, by a login of its own if there is one, in its own database only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, text

from gads_assets.domain.accounts import Account
from gads_assets.domain.keys import CustomerId
from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionStatus
from gads_assets.errors import SettingsError, StateStoreError
from gads_assets.orchestration.customers import register_accounts
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.state.connection import open_engine, parse_database_url, transaction
from gads_assets.state.customers import CustomerRegister
from gads_assets.state.migration import migrate
from gads_assets.state.partition_states import StateStore
from gads_assets.state.roles import GRANTS, found_grants, role_names, wanted_grants
from gads_assets.state.run_records import RunRecords
from gads_assets.state.tables import KEY_COLUMNS, VERSION_TABLE, metadata
from gads_assets_tests.databases import execute, named
from gads_assets_tests.ledgers import (
    KEY,
    NOW,
    extraction,
    failed,
    judgement,
    load,
    neighbour,
    record,
    return_to_pending,
    succeeded,
)

TABLES = {
    **{name: [c.name for c in table.columns] for name, table in metadata.tables.items()},
    VERSION_TABLE: [],
    "partition_status": [],
}
ACCOUNT = Account(
    customer_id=CustomerId("1234567890"),
    name="Shoes",
    time_zone="Europe/Berlin",
    currency="EUR",
    login_customer_id=CustomerId("9876543210"),
    origin="emulator",
)


@contextmanager
def opened(url: str, role: Role | None = None) -> Iterator[Engine]:
    engine = open_engine(url, role)
    try:
        yield engine
    finally:
        engine.dispose()


def held(connection: Connection, role: str) -> set[tuple[str, str]]:
    """What PostgreSQL says that a role may do, asked privilege by privilege."""
    found: set[tuple[str, str]] = set()
    for table, columns in TABLES.items():
        for privilege in ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"):
            ask = text("SELECT has_table_privilege(:role, :table, :privilege)")
            if connection.execute(ask, {"role": role, "table": table, "privilege": privilege}).scalar_one():
                found.add((table, privilege))
        for column in columns:
            ask = text("SELECT has_column_privilege(:role, :table, :column, 'UPDATE')")
            if connection.execute(ask, {"role": role, "table": table, "column": column}).scalar_one():
                found.add((table, f"UPDATE({column})"))
    for privilege in ("USAGE", "SELECT", "UPDATE"):
        ask = text("SELECT has_sequence_privilege(:role, 'run_seq', :privilege)")
        if connection.execute(ask, {"role": role, "privilege": privilege}).scalar_one():
            found.add(("SEQUENCE run_seq", privilege))
    return found


def test_a_role_holds_exactly_what_the_table_of_grants_says(engine: Engine) -> None:
    with engine.begin() as connection:
        names = role_names(connection)
        assert names == {role: f"test_{role}" for role in Role}
        assert found_grants(connection) == wanted_grants(connection)
        for role, name in names.items():
            written = {(target, privilege) for target, privileges in GRANTS[role].items() for privilege in privileges}
            assert held(connection, name) == written | {(VERSION_TABLE, "SELECT")}
            schema = text("SELECT has_schema_privilege(:role, 'public', 'USAGE')")
            assert connection.execute(schema, {"role": name}).scalar_one()


def test_no_role_may_change_a_key_or_empty_a_table() -> None:
    granted = {
        (target, privilege) for grants in GRANTS.values() for target, held in grants.items() for privilege in held
    }
    assert not {(target, privilege) for target, privilege in granted if privilege in {"UPDATE", "TRUNCATE"}}
    keys = {f"UPDATE({column})" for column in KEY_COLUMNS}
    assert not {privilege for target, privilege in granted if privilege in keys}
    removable = {target for target, privilege in granted if privilege == "DELETE"}
    assert removable == {"demotion", "retry_schedule", "api_pause", "run_lease"}


def test_only_the_validator_and_the_operator_may_write_state_and_only_the_extractor_numbers_runs() -> None:
    def may(target: str, *verbs: str) -> set[Role]:
        return {role for role, grants in GRANTS.items() for held in grants.get(target, ()) if held.startswith(verbs)}

    assert may("partition_state", "INSERT") == {Role.VALIDATOR}
    assert may("partition_state", "UPDATE") == {Role.VALIDATOR, Role.OPERATOR}
    assert may("partition_attempt", "INSERT") == {Role.VALIDATOR}
    assert may("load_record", "INSERT") == {Role.LOADER}
    assert may("override_log", "INSERT") == {Role.OPERATOR}
    assert may("extraction_attempt", "INSERT") == {Role.EXTRACTOR}
    assert may("SEQUENCE run_seq", "USAGE", "UPDATE") == {Role.EXTRACTOR}


def test_every_role_can_do_its_own_work(acting: Callable[[Role], Engine], store: StateStore) -> None:
    engines = {role: acting(role) for role in Role}
    stores = {role: StateStore(engine) for role, engine in engines.items()}
    records = {role: RunRecords(engine) for role, engine in engines.items()}

    CustomerRegister(engines[Role.OPERATOR]).register_customers([ACCOUNT], now=NOW)
    CustomerRegister(engines[Role.OPERATOR]).register_customers([ACCOUNT], now=NOW)
    for role in (Role.EXTRACTOR, Role.CONSUMER, Role.OPERATOR):
        assert CustomerRegister(engines[role]).customers() == [ACCOUNT]

    assert stores[Role.EXTRACTOR].allocate_run_seqs(2) == [1, 2]
    stores[Role.EXTRACTOR].record_extractions([extraction()])
    stores[Role.EXTRACTOR].record_extractions([extraction()])
    for role in (Role.VALIDATOR, Role.LOADER, Role.OPERATOR):
        assert list(records[role].extractions("dagster-run", [KEY])) == [KEY]

    failed(stores[Role.VALIDATOR])
    return_to_pending(stores[Role.OPERATOR])
    assert stores[Role.CONSUMER].states([KEY])[KEY].status is PartitionStatus.PENDING
    record(stores[Role.VALIDATOR], judgement())
    assert list(records[Role.LOADER].judgements("dagster-run", [KEY])) == [KEY]
    assert len(stores[Role.LOADER].accepted_contents([KEY])) == 1
    with records[Role.LOADER].exclusive("publish") as require_held:
        require_held()
    for _ in range(2):
        stores[Role.LOADER].record_loads([load()])

    for role in (Role.LOADER, Role.CONSUMER, Role.OPERATOR):
        [state] = stores[role].publishable([KEY])
        assert (state.status, state.attempt_count, state.version) == (PartitionStatus.SUCCESS, 2, 3)
        assert stores[role].load_records() == [load()]
    assert records[Role.OPERATOR].progress(since=NOW) == {"extracted": 1, "judged": 1, "published": 1}

    record(stores[Role.VALIDATOR], judgement(accepted=False))
    [intent] = stores[Role.VALIDATOR].open_demotions([KEY])
    assert stores[Role.CONSUMER].open_demotions() == [intent]
    assert stores[Role.VALIDATOR].finish_demotions([intent], now=NOW)[0].status is PartitionStatus.FAILED
    with transaction(engines[Role.OPERATOR]) as connection:
        connection.execute(
            text("""
                INSERT INTO retry_schedule (source, customer_id, query_name, logical_date, purpose, disposition,
                    next_run_at, backoff_strategy, scheduled_at)
                VALUES ('google_ads', '1234567890', 'campaign', '2024-06-01', 'retry', 'due', now(), 'none', now());
                UPDATE retry_schedule SET batch_id = '01HZ0000000000000000000009', dispatched_at = now();
                DELETE FROM retry_schedule
            """)
        )


@pytest.mark.parametrize("role", Role)
def test_a_connection_keeps_its_role_in_the_pool_after_a_rollback_and_after_it_was_cut(
    database_url: str, engine: Engine, role: Role
) -> None:
    def who(of_the_role: Engine) -> str:
        with of_the_role.begin() as connection:
            name: str = connection.execute(text("SELECT current_user")).scalar_one()
            return name

    with opened(database_url, role) as of_the_role:
        assert who(of_the_role) == f"test_{role}"
        with pytest.raises(StateStoreError), transaction(of_the_role) as connection:
            connection.execute(text("SELECT 1 / 0"))
        assert who(of_the_role) == f"test_{role}"
        with engine.begin() as connection:
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            connection.execute(text(f"{cut} AND datname = current_database()"))
        assert who(of_the_role) == f"test_{role}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture
def other_database(postgres_url: str) -> Iterator[Callable[..., str]]:
    """Makes further databases; they and their roles are gone afterwards."""
    made: list[str] = []

    def make(name: str, *, clauses: str = "") -> str:
        execute(postgres_url, f"CREATE DATABASE {quoted(name)} {clauses}")
        made.append(name)
        return named(postgres_url, name)

    yield make
    for name in made:
        with opened(named(postgres_url, name)) as engine, engine.begin() as connection:
            has_roles = connection.execute(text("SELECT to_regproc('gads_role')")).scalar_one() is not None
            roles = list(role_names(connection).values()) if has_roles else []
        execute(postgres_url, f"DROP DATABASE {quoted(name)} WITH (FORCE)")
        for role in roles:
            execute(postgres_url, f"DROP ROLE IF EXISTS {role}")


def test_the_roles_of_one_database_have_no_rights_in_another_of_the_same_server(
    database_url: str, other_database: Callable[..., str]
) -> None:
    other = other_database("other")
    migrate(other)
    with opened(other) as engine, engine.begin() as connection:
        for role in Role:
            assert held(connection, f"test_{role}") == set()
            assert held(connection, f"other_{role}") != set()
    for statement in ("CREATE ROLE test_only LOGIN", "GRANT test_validator TO test_only"):
        execute(other, statement)
    login = parse_database_url(other).set(username="test_only").render_as_string(hide_password=False)
    with (
        opened(login, Role.VALIDATOR) as engine,
        pytest.raises(StateStoreError, match="GRANT other_validator TO test_o"),
    ):
        StateStore(engine).states([KEY])
    execute(other, "DROP ROLE test_only")


def test_a_copied_database_heals_and_takes_the_rights_of_the_roles_it_was_copied_with(
    database_url: str, other_database: Callable[..., str]
) -> None:
    copy = other_database("copy", clauses="TEMPLATE test STRATEGY file_copy")
    with opened(copy, Role.CONSUMER) as engine:
        with pytest.raises(StateStoreError, match=r"has no role of its own for the consumer; run `gads db migrate`"):
            StateStore(engine).states([KEY])
        migrate(copy)
        assert StateStore(engine).states([KEY]) == {}
    with opened(copy) as engine, engine.begin() as connection:
        assert {role: held(connection, f"test_{role}") for role in Role} == {role: set() for role in Role}
        assert found_grants(connection) == wanted_grants(connection)
    with opened(database_url) as engine, engine.begin() as connection:
        assert found_grants(connection) == wanted_grants(connection)


def test_migrating_gives_back_what_is_missing_and_takes_what_is_too_much(database_url: str, engine: Engine) -> None:
    for statement in (
        "REVOKE SELECT ON load_record FROM test_consumer",
        "REVOKE UPDATE (status) ON partition_state FROM test_validator",
        "REVOKE USAGE ON SCHEMA public FROM test_loader",
        "GRANT INSERT, TRUNCATE ON partition_state TO test_consumer",
        "GRANT UPDATE (customer_id) ON partition_state TO test_validator",
        "GRANT UPDATE ON SEQUENCE run_seq TO test_loader",
        "GRANT CREATE ON SCHEMA public TO test_extractor",
        "GRANT test_operator TO test_validator",
        "CREATE TABLE elsewhere (a int)",
        "GRANT SELECT ON elsewhere TO test_consumer",
    ):
        execute(database_url, statement)
    with engine.begin() as connection:
        assert len(found_grants(connection) ^ wanted_grants(connection)) == 10
    migrate(database_url)
    with engine.begin() as connection:
        assert found_grants(connection) == wanted_grants(connection)


def test_a_role_that_was_dropped_is_made_again(other_database: Callable[..., str]) -> None:
    url = other_database("other")
    migrate(url)
    execute(url, "DROP OWNED BY other_loader")
    execute(url, "DROP ROLE other_loader")
    with opened(url, Role.LOADER) as of_the_loader:
        with pytest.raises(StateStoreError, match="no role of its own for the loader; run `gads db migrate`"):
            StateStore(of_the_loader).load_records()
        migrate(url)
        assert StateStore(of_the_loader).load_records() == []


@pytest.mark.parametrize("name", ["a" * 63, "ä" * 31, 'it\'s "50%"', "Mixed Case"])
def test_any_name_of_a_database_gives_roles_of_its_own(other_database: Callable[..., str], name: str) -> None:
    url = other_database(name)
    migrate(url)
    with opened(url) as engine, engine.begin() as connection:
        asked = text("SELECT gads_role(kind) FROM unnest(CAST(:kinds AS text[])) AS kind")
        names = connection.execute(asked, {"kinds": list(Role)}).scalars().all()
    assert len(set(names)) == len(Role)
    assert max(len(each.encode()) for each in names) <= 63
    with opened(url, Role.VALIDATOR) as engine:
        assert record(StateStore(engine), judgement()).state.status is PartitionStatus.SUCCESS


@pytest.fixture
def logins(database_url: str) -> Iterator[dict[Role | None, str]]:
    """As docs/state_store.md has it for production: a login for each role, and one for Dagster's storage."""
    names: dict[Role | None, str] = {None: "login_plain", **{role: f"login_{role}" for role in Role}}
    for role, name in names.items():
        execute(database_url, f"CREATE ROLE {name} LOGIN PASSWORD 's3cret'")
        if role:
            execute(database_url, f"GRANT test_{role} TO {name}")
    execute(database_url, f"GRANT SELECT ON {VERSION_TABLE} TO login_plain")
    execute(database_url, "GRANT USAGE, CREATE ON SCHEMA dagster TO login_plain")
    given = parse_database_url(database_url).set(drivername="postgresql", password="s3cret")
    yield {role: given.set(username=name).render_as_string(hide_password=False) for role, name in names.items()}
    for name in names.values():
        execute(database_url, f"DROP OWNED BY {name}")
        execute(database_url, f"DROP ROLE {name}")


def test_every_part_works_by_the_login_that_settings_have_for_its_role(
    logins: dict[Role | None, str], tmp_path: Path
) -> None:
    environment = {f"GADS_DATABASE_URL_{role.upper()}": url for role, url in logins.items() if role}
    plain = logins[None]
    with Workplace(read_settings({"GADS_HOME": str(tmp_path), "GADS_DATABASE_URL": plain, **environment})) as here:
        for role in Role:
            with transaction(here.engine_as(role)) as connection:
                who = connection.execute(text("SELECT session_user, current_user")).one()
            assert tuple(who) == (f"login_{role}", f"test_{role}")
        assert register_accounts(here, [ACCOUNT], now=NOW) == [ACCOUNT]
        failed(here.store_as(Role.VALIDATOR))
        return_to_pending(here.store_as(Role.OPERATOR))
        with pytest.raises(StateStoreError, match="permission denied for table partition_state"):
            failed(here.store_as(Role.CONSUMER))


def test_a_login_in_the_wrong_variable_is_a_line_with_the_grant_it_lacks(
    logins: dict[Role | None, str], tmp_path: Path
) -> None:
    environment = {
        "GADS_HOME": str(tmp_path),
        "GADS_DATABASE_URL": logins[None],
        "GADS_DATABASE_URL_VALIDATOR": logins[Role.LOADER],
    }
    with Workplace(read_settings(environment)) as here:
        with pytest.raises(StateStoreError) as refusal:
            failed(here.store_as(Role.VALIDATOR))
        assert str(refusal.value).startswith("database 'test' at /")
        assert str(refusal.value).endswith(
            "does not let login login_loader act as the validator; an administrator's fix: "
            "GRANT test_validator TO login_loader"
        )
        with pytest.raises(StateStoreError, match="GRANT test_consumer TO login_plain"):
            here.store_as(Role.CONSUMER).states([KEY])


def test_a_url_of_a_role_that_cannot_be_read_is_named_without_its_password() -> None:
    with pytest.raises(SettingsError, match="GADS_DATABASE_URL_LOADER cannot be read") as refusal:
        open_engine("postgresql://me:s3cret@host:port/ads", Role.LOADER)
    assert "s3cret" not in str(refusal.value)


@pytest.fixture
def owner(postgres_url: str) -> Iterator[str]:
    execute(postgres_url, "CREATE ROLE owner LOGIN")
    yield "owner"
    execute(postgres_url, "DROP ROLE owner")


def test_a_login_that_may_not_create_roles_is_a_line_with_the_fix_and_nothing_is_migrated(
    owner: str, other_database: Callable[..., str]
) -> None:
    url = other_database("owned", clauses=f"OWNER {owner}")
    login = parse_database_url(url).set(username=owner).render_as_string(hide_password=False)
    with pytest.raises(StateStoreError) as refusal:
        migrate(login)
    assert str(refusal.value) == (
        "login owner may not create the roles of the state store; an administrator's fix: ALTER ROLE owner CREATEROLE, "
        "or run `gads db migrate` once with a login that has it"
    )
    with opened(url) as engine, engine.begin() as connection:
        assert connection.execute(text("SELECT to_regclass('partition_state')")).scalar_one() is None


def test_an_owner_that_may_create_roles_migrates_and_then_acts_as_each(
    owner: str, other_database: Callable[..., str]
) -> None:
    url = other_database("owned", clauses=f"OWNER {owner}")
    execute(url, f"ALTER ROLE {owner} CREATEROLE")
    login = parse_database_url(url).set(username=owner).render_as_string(hide_password=False)
    migrate(login)
    migrate(login)
    with opened(login, Role.VALIDATOR) as validator, opened(login, Role.OPERATOR) as operator:
        failed(StateStore(validator))
        return_to_pending(StateStore(operator))


def may_make_temporary_tables(url: str) -> set[Role]:
    ask = text("SELECT has_database_privilege(gads_role(:role), current_database(), 'TEMPORARY')")
    with opened(url) as engine, engine.begin() as connection:
        return {role for role in Role if connection.execute(ask, {"role": role}).scalar_one()}


def test_temporary_tables_are_taken_from_every_role_by_whoever_owns_the_database_and_nobody_else_fails_of_it(
    owner: str, other_database: Callable[..., str]
) -> None:
    url = other_database("owned")
    execute(url, f"ALTER ROLE {owner} CREATEROLE")
    execute(url, f"GRANT CREATE ON DATABASE owned TO {owner}")
    execute(url, f"GRANT USAGE, CREATE ON SCHEMA public TO {owner} WITH GRANT OPTION")
    migrate(parse_database_url(url).set(username=owner).render_as_string(hide_password=False))
    assert may_make_temporary_tables(url) == set(Role)
    migrate(url)
    assert may_make_temporary_tables(url) == set()


def test_the_guards_look_in_the_schema_of_their_tables_whatever_its_name(other_database: Callable[..., str]) -> None:
    url = other_database("other")
    execute(url, 'CREATE SCHEMA "The Ledger"')
    execute(url, 'ALTER DATABASE other SET search_path = "The Ledger"')
    migrate(url)
    with opened(url) as engine, engine.begin() as connection:
        asked = "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = CAST(:schema AS regnamespace)"
        paths = {row.proname: row.proconfig for row in connection.execute(text(asked), {"schema": '"The Ledger"'})}
    assert paths.pop("refuse") is None  # names nothing
    assert len(paths) == 12
    assert {tuple(path) for path in paths.values()} == {('search_path="The Ledger", pg_temp',)}
    execute(url, "GRANT TEMPORARY ON DATABASE other TO PUBLIC")
    with opened(url, Role.VALIDATOR) as validator:
        ledger = StateStore(validator)
        record(ledger, judgement())
        record(ledger, judgement(accepted=False))
        hiding = "CREATE TEMPORARY TABLE partition_state (LIKE partition_state); DELETE FROM demotion"
        with (
            pytest.raises(StateStoreError, match="a demotion stays open until its failure shows"),
            transaction(validator) as connection,
        ):
            connection.exec_driver_sql(hiding)


def test_a_login_that_does_not_own_the_tables_cannot_grant_and_says_so(
    database_url: str, logins: dict[Role | None, str]
) -> None:
    execute(database_url, "REVOKE SELECT ON load_record FROM test_consumer")
    with pytest.raises(
        StateStoreError, match=r"login login_plain may not grant .* with the login that owns its tables"
    ):
        migrate(logins[None])
    migrate(database_url)
    migrate(logins[None])


def test_a_return_to_pending_is_logged_and_keeps_count_and_authority(
    acting: Callable[[Role], Engine], store: StateStore, engine: Engine
) -> None:
    succeeded(store)
    record(store, judgement(accepted=False))
    [intent] = store.open_demotions()
    before = store.finish_demotions([intent], now=NOW)[0]
    later = NOW + timedelta(hours=1)
    [after] = StateStore(acting(Role.OPERATOR)).return_to_pending(
        [KEY, KEY],
        actor="ana",
        reason="files restored",
        now=later,
        new_override_id=lambda: "01HZ0000000000000000000009",
    )
    assert store.states([KEY])[KEY] == after
    assert (after.status, after.error_message, after.version) == (PartitionStatus.PENDING, None, before.version + 1)
    assert (after.attempt_count, after.current_run_id) == (before.attempt_count, before.current_run_id)
    with engine.begin() as connection:
        [logged] = connection.execute(text("SELECT * FROM override_log")).all()
    assert (logged.action, logged.actor, logged.reason, logged.state_version) == (
        *("retry", "ana", "files restored"),
        after.version,
    )
    record(store, judgement())
    assert store.states([KEY])[KEY].status is PartitionStatus.SUCCESS


@pytest.mark.parametrize("state", ["pending without a row", "success", "pending"])
def test_only_failures_return_to_pending_and_one_other_among_them_changes_nothing(
    store: StateStore, state: str
) -> None:
    failed(store)
    if state == "success":
        record(store, judgement(), neighbour(1))
    elif state == "pending":
        record(store, judgement(accepted=False), neighbour(1))
        return_to_pending(store, neighbour(1))
    before = store.states([KEY, neighbour(1)])
    with pytest.raises(StateStoreError, match=rf"2024-06-02 is {state.partition(' ')[0]}; only a failed partition"):
        return_to_pending(store, KEY, neighbour(1))
    assert store.states([KEY, neighbour(1)]) == before


@pytest.mark.parametrize(("actor", "reason"), [("", "why"), ("me", " ")])
def test_an_override_without_a_name_or_a_reason_is_refused(store: StateStore, actor: str, reason: str) -> None:
    failed(store)
    with pytest.raises(StateStoreError, match=r"override_log_(actor|reason)_check"):
        store.return_to_pending(
            [KEY], actor=actor, reason=reason, now=NOW, new_override_id=lambda: "01HZ0000000000000000000009"
        )
    assert store.states([KEY])[KEY].status is PartitionStatus.FAILED
