"""Migrations by their effect: an empty database ends as the declaration says, once, whoever else migrates."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

import gads_assets.state
from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionStatus
from gads_assets.errors import StateStoreError, TransitionError
from gads_assets.state.connection import open_engine, transaction
from gads_assets.state.migration import MigrationStatus, migrate, migration_status, require_current_schema
from gads_assets.state.partition_states import StateStore
from gads_assets.state.tables import VERSION_TABLE, metadata
from gads_assets_tests.ledgers import KEY, NOW, SCHEMA_HEAD, judgement, neighbour, record, return_to_pending

# Everything in our schema that has a definition, as PostgreSQL itself writes it back.
CATALOG = {
    "columns": """
        SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default
        FROM information_schema.columns WHERE table_schema = 'public'
    """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    """,
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "sequences": "SELECT sequencename, data_type::text, start_value, increment_by FROM pg_sequences",
    "triggers": """
        SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
    """,
    "functions": """
        SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    """,
}


@contextmanager
def opened(url: str, role: Role | None = None) -> Iterator[Engine]:
    engine = open_engine(url, role)
    try:
        yield engine
    finally:
        engine.dispose()


def catalog(engine: Engine) -> dict[str, list[tuple[object, ...]]]:
    with engine.begin() as connection:
        found = {name: [tuple(row) for row in connection.execute(text(query))] for name, query in CATALOG.items()}
    return {
        name: sorted((row for row in rows if not str(row[0]).startswith(VERSION_TABLE)), key=repr)
        for name, rows in found.items()
    }


def test_an_empty_database_migrates_to_exactly_the_declared_schema(new_database: Callable[[], str]) -> None:
    migrated_url, declared_url = new_database(), new_database()
    migrate(migrated_url)
    with opened(migrated_url) as migrated, opened(declared_url) as declared:
        metadata.create_all(declared)
        expected = catalog(declared)
        assert catalog(migrated) == expected
        assert len(expected["triggers"]) == 19
        assert len(expected["functions"]) == 13


def test_alembic_finds_nothing_to_generate_after_migrating(new_database: Callable[[], str]) -> None:
    url = new_database()
    migrate(url)
    with opened(url) as engine, engine.begin() as connection:
        context = MigrationContext.configure(
            connection,
            opts={"version_table": VERSION_TABLE, "compare_type": True, "compare_server_default": True},
        )
        assert compare_metadata(context, metadata) == []


def test_migrating_twice_changes_nothing(new_database: Callable[[], str]) -> None:
    url = new_database()
    assert migration_status(url) == MigrationStatus(current=None, head=SCHEMA_HEAD)
    assert migrate(url) == MigrationStatus(current=None, head=SCHEMA_HEAD)
    with opened(url) as engine:
        before = catalog(engine)
        assert migrate(url) == MigrationStatus(current=SCHEMA_HEAD, head=SCHEMA_HEAD)
        assert catalog(engine) == before
    assert migration_status(url).is_current


def test_processes_that_migrate_at_once_all_succeed_and_one_does_the_work(new_database: Callable[[], str]) -> None:
    url = new_database()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: migrate(url), range(4)))
    assert sorted(status.current or "" for status in found) == ["", SCHEMA_HEAD, SCHEMA_HEAD, SCHEMA_HEAD]


def test_a_migration_that_fails_leaves_the_database_as_it_was(new_database: Callable[[], str]) -> None:
    url = new_database()
    with opened(url) as engine:
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE customer (somebody_elses text)"))
        before = catalog(engine)
        with pytest.raises(StateStoreError, match=r'relation "customer" already exists'):
            migrate(url)
        assert catalog(engine) == before
    assert migration_status(url).current is None


def test_a_database_of_a_newer_version_is_left_alone_with_the_fix_named(new_database: Callable[[], str]) -> None:
    url = new_database()
    migrate(url)
    with opened(url) as engine, engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        before = catalog(engine)
    for attempt in (migrate, require_current_schema):
        with pytest.raises(StateStoreError, match=r"schema 9999, migrated by a newer .*; update this installation"):
            attempt(url)
    with opened(url) as engine:
        assert catalog(engine) == before


def test_a_database_that_was_never_migrated_is_refused_with_the_command_and_left_as_it_is(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    with pytest.raises(StateStoreError, match=rf"has no schema, .* needs {SCHEMA_HEAD}; run `gads db migrate`"):
        require_current_schema(url)
    assert migration_status(url).current is None
    migrate(url)
    assert require_current_schema(url) == SCHEMA_HEAD


def test_migrating_works_from_any_folder_and_leaves_nothing_there(
    new_database: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    migrate(new_database())
    assert list(tmp_path.iterdir()) == []


# As 0001 held it: a failure, a success, a success that is being withdrawn, and an extraction and a load of it.
OF_THE_FIRST_SCHEMA = """
    INSERT INTO partition_state VALUES
        ('google_ads', '1234567890', 'campaign', '2024-06-01', 'failed', NULL, NULL, NULL, now(), 'bad', 1, 1, NULL),
        ('google_ads', '1234567890', 'campaign', '2024-06-02', 'success', '01HZ0000000000000000000001', '1', 3, now(),
            NULL, 1, 1, 10),
        ('google_ads', '1234567890', 'campaign', '2024-06-03', 'success', '01HZ0000000000000000000002', '1', 3, now(),
            NULL, 2, 2, 11);
    INSERT INTO partition_attempt VALUES
        ('v1', 'google_ads', '1234567890', 'campaign', '2024-06-01', '01HZ0000000000000000000003', 9, 'rejected', 1,
            'bad', NULL, 3, '1', '[]', 1, NULL, now()),
        ('v2', 'google_ads', '1234567890', 'campaign', '2024-06-02', '01HZ0000000000000000000001', 10, 'accepted', 1,
            NULL, 'digest', 3, '1', '[]', 1, NULL, now()),
        ('v3', 'google_ads', '1234567890', 'campaign', '2024-06-03', '01HZ0000000000000000000002', 11, 'accepted', 1,
            NULL, 'digest', 3, '1', '[]', 1, NULL, now()),
        ('v4', 'google_ads', '1234567890', 'campaign', '2024-06-03', '01HZ0000000000000000000002', 11, 'demoted', 2,
            'altered', NULL, 3, '1', '[]', 2, NULL, now());
    INSERT INTO demotion VALUES
        ('google_ads', '1234567890', 'campaign', '2024-06-03', '01HZ0000000000000000000002', 2, 'v4', 'altered', now());
    INSERT INTO extraction_attempt VALUES
        ('google_ads', '1234567890', 'campaign', '2024-06-02', '01HZ0000000000000000000001', 10, 'sealed', NULL, NULL,
            now(), now(), NULL);
    INSERT INTO load_record VALUES
        ('google_ads', '1234567890', 'campaign', '2024-06-02', '01HZ0000000000000000000001', '1', 3, 'digest', 'stage',
            1, now());
    INSERT INTO customer VALUES
        ('1234567890', 'Shoes', 'Europe/Berlin', 'EUR', '9876543210', 'emulator', 'active', now()),
        ('1234567891', 'Boots', 'Europe/Berlin', 'EUR', '9876543210', 'emulator', 'inactive', now())
"""


def upgrade_to(url: str, revision: str) -> None:
    configuration = Config()
    configuration.set_main_option("script_location", str(Path(gads_assets.state.__file__).with_name("migrations")))
    with opened(url) as engine, engine.begin() as connection:
        configuration.attributes["connection"] = connection
        command.upgrade(configuration, revision)


def test_a_ledger_of_the_first_schema_keeps_every_row_and_goes_on_under_the_new_rules(
    new_database: Callable[[], str],
) -> None:
    url, declared_url = new_database(), new_database()
    upgrade_to(url, "0001")
    tables = ("partition_state", "partition_attempt", "demotion", "extraction_attempt", "load_record", "customer")

    def rows(engine: Engine) -> dict[str, list[dict[str, object]]]:
        with engine.begin() as connection:
            return {
                table: [
                    {name: value for name, value in row.items() if name in first[table]}
                    for row in connection.execute(text(f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4")).mappings()
                ]
                for table in tables
            }

    with opened(url) as engine:
        first = {table: {column["name"] for column in inspect(engine).get_columns(table)} for table in tables}
        with engine.begin() as connection:
            connection.exec_driver_sql(OF_THE_FIRST_SCHEMA)
        before = rows(engine)
        assert migrate(url) == MigrationStatus(current="0001", head=SCHEMA_HEAD)
        assert rows(engine) == before
        with opened(declared_url) as declared:
            metadata.create_all(declared)
            assert catalog(engine) == catalog(declared)

    with opened(url) as owner, opened(url, Role.VALIDATOR) as validator, opened(url, Role.OPERATOR) as operator:
        store = StateStore(validator)
        [intent] = store.open_demotions()
        assert store.finish_demotions([intent], now=NOW)[0].status is PartitionStatus.FAILED
        return_to_pending(StateStore(operator), KEY, neighbour(2))
        assert record(store, judgement(accepted=False)).attempt_number == 2
        assert record(store, judgement(), neighbour(1)).attempt_number == 2
        with (
            pytest.raises(TransitionError, match="a success never returns to pending"),
            transaction(owner) as connection,
        ):
            connection.execute(
                text("UPDATE partition_state SET version = version + 1, status = 'pending' WHERE status = 'success'")
            )


def test_runs_that_are_under_way_when_0009_comes_go_on_by_the_code_before(new_database: Callable[[], str]) -> None:
    """It knows neither how long a lease lasts nor what a verdict knew."""
    url = new_database()
    upgrade_to(url, "0008")
    lease = "INSERT INTO run_lease (dagster_run_id, lease_until, taken_at) VALUES ('{}', now() + interval '1 h', now())"
    with opened(url) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql(lease.format("before"))
        migrate(url)
        with engine.begin() as connection:
            connection.exec_driver_sql(lease.format("after"))
            found = connection.execute(text("SELECT dagster_run_id, lasts FROM run_lease")).all()
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            connection.exec_driver_sql("""
                INSERT INTO partition_attempt SELECT * FROM jsonb_populate_recordset(NULL::partition_attempt, '[{
                    "validation_id": "v1", "source": "google_ads", "customer_id": "1234567890",
                    "query_name": "campaign", "logical_date": "2024-06-01", "run_id": "01HZ0000000000000000000003",
                    "run_seq": 9, "outcome": "rejected", "attempt_number": 1, "error_message": "bad", "record_count": 3,
                    "schema_version": "1", "rule_results": [], "state_version": 1, "judged_at": "2024-07-01"}]')
            """)
    assert {tuple(row) for row in found} == {("before", timedelta(seconds=30)), ("after", timedelta(seconds=30))}
