"""What the database itself refuses, whatever code holds the connection."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine, text

from gads_assets.domain.accounts import Account
from gads_assets.domain.keys import CustomerId
from gads_assets.errors import StateStoreError, TransitionError
from gads_assets.state.connection import transaction
from gads_assets.state.customers import CustomerRegister

NOW = datetime(2024, 7, 1, tzinfo=UTC)
RUN, NEWER_RUN = "01HZ0000000000000000000001", "01HZ0000000000000000000002"

INSERT = """
    INSERT INTO partition_state VALUES (
        'google_ads', '1234567890', 'campaign', '2024-06-01', :status, :current_run_id, :schema_version, :record_count,
        now(), :error_message, :attempt_count, :version, :current_run_seq)
"""
SUCCESS: dict[str, object] = {
    "status": "success",
    "current_run_id": RUN,
    "schema_version": "1",
    "record_count": 3,
    "error_message": None,
    "attempt_count": 2,
    "version": 5,
    "current_run_seq": 10,
}
FAILED = SUCCESS | {"status": "failed", "error_message": "bad"}
PENDING = SUCCESS | {"status": "pending"}
ATTEMPT = f"""
    INSERT INTO partition_attempt VALUES (
        'v1', 'google_ads', '1234567890', 'campaign', '2024-06-01', '{RUN}', 10, 'demoted', 2, 'bad', NULL, 3, '1',
        '[]', 5, NULL, now())
"""
INTENT = f"""
    INSERT INTO demotion VALUES (
        'google_ads', '1234567890', 'campaign', '2024-06-01', '{RUN}', 5, 'v1', 'bad', now())
"""


def execute(engine: Engine, statement: str, **values: object) -> None:
    with transaction(engine) as connection:
        connection.execute(text(statement), values)


@pytest.mark.parametrize(
    ("before", "change", "rule"),
    [
        (SUCCESS, "record_count = 4", "version rises by exactly one, not from 5 to 5"),
        (SUCCESS, "version = 7", "version rises by exactly one, not from 5 to 7"),
        (SUCCESS, "version = 4", "version rises by exactly one, not from 5 to 4"),
        (SUCCESS, "version = 6, attempt_count = 1", "attempt_count never falls"),
        (FAILED, f"version = 6, current_run_id = '{NEWER_RUN}', current_run_seq = 11", "only a success moves"),
        (FAILED, "version = 6, current_run_id = NULL, current_run_seq = NULL", "only a success moves"),
        (SUCCESS, f"version = 6, current_run_id = '{NEWER_RUN}', current_run_seq = 9", "only to a newer run"),
        (SUCCESS, f"version = 6, current_run_id = '{NEWER_RUN}'", "only to a newer run"),
        (SUCCESS, "version = 6, current_run_seq = 9", "a run keeps its run_seq"),
        (SUCCESS, "version = 6, current_run_seq = 11", "a run keeps its run_seq"),
        (FAILED, "version = 6, status = 'pending'", "only the control plane returns a partition to pending"),
        (SUCCESS, "version = 6, status = 'pending'", "only the control plane returns a partition to pending"),
        (SUCCESS, "version = 6, status = 'failed', error_message = 'bad'", "only through a demotion of its run"),
        (SUCCESS, "version = 6, query_name = 'ad_group'", "a state row keeps its key"),
    ],
)
def test_a_forbidden_change_of_state_is_refused_by_its_rule(
    engine: Engine, before: dict[str, object], change: str, rule: str
) -> None:
    execute(engine, INSERT, **before)
    with pytest.raises(TransitionError, match=rf"^google_ads/campaign 1234567890\|2024-06-01: .*{rule}"):
        execute(engine, f"UPDATE partition_state SET {change}")


def test_a_state_row_is_never_deleted(engine: Engine) -> None:
    execute(engine, INSERT, **SUCCESS)
    with pytest.raises(TransitionError, match="never deleted"):
        execute(engine, "DELETE FROM partition_state")


def test_a_success_fails_through_an_open_demotion_of_its_own_run_only(engine: Engine) -> None:
    execute(engine, INSERT, **SUCCESS)
    execute(engine, ATTEMPT)
    execute(engine, INTENT.replace(RUN, NEWER_RUN))
    failing = "UPDATE partition_state SET version = 6, status = 'failed', error_message = 'bad'"
    with pytest.raises(TransitionError, match="only through a demotion of its run"):
        execute(engine, failing)
    execute(engine, f"UPDATE demotion SET run_id = '{RUN}'")
    execute(engine, failing)


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        (SUCCESS | {"status": "terminal"}, "status_check"),
        (SUCCESS | {"current_run_id": None, "current_run_seq": None}, "success_check"),
        (SUCCESS | {"error_message": "but bad"}, "success_check"),
        (SUCCESS | {"record_count": None}, "success_check"),
        (SUCCESS | {"schema_version": None}, "success_check"),
        (FAILED | {"error_message": None}, "failed_check"),
        (FAILED | {"attempt_count": 0}, "judged_check"),
        (SUCCESS | {"current_run_seq": None}, "authority_check"),
        (SUCCESS | {"current_run_id": "latest"}, "current_run_id_check"),
        (SUCCESS | {"record_count": -1}, "counts_check"),
        (PENDING | {"attempt_count": -1}, "counts_check"),
        (SUCCESS | {"version": 0}, "counts_check"),
        (SUCCESS | {"current_run_seq": 0}, "counts_check"),
    ],
)
def test_a_state_that_contradicts_itself_cannot_be_stored(
    engine: Engine, values: dict[str, object], constraint: str
) -> None:
    with pytest.raises(StateStoreError, match=f"partition_state_{constraint}"):
        execute(engine, INSERT, **values)


@pytest.mark.parametrize("customer", ["123-456-7890", "123456789", "12345678901", "\uff11" * 10, ""])
def test_a_customer_id_that_is_not_ten_digits_cannot_be_stored(engine: Engine, customer: str) -> None:
    with pytest.raises(StateStoreError, match="partition_state_customer_id_check"):
        execute(engine, INSERT.replace("'1234567890'", f"'{customer}'"), **SUCCESS)


@pytest.mark.parametrize(
    "change", ["UPDATE partition_attempt SET outcome = 'accepted'", "DELETE FROM partition_attempt"]
)
def test_a_recorded_attempt_stays_as_it_was_written(engine: Engine, change: str) -> None:
    execute(engine, INSERT, **SUCCESS)
    execute(engine, ATTEMPT)
    with pytest.raises(TransitionError, match="partition_attempt: what is recorded stays"):
        execute(engine, change)


def test_an_attempt_needs_the_state_that_counts_it_and_a_number_of_its_own(engine: Engine) -> None:
    with pytest.raises(StateStoreError, match="partition_attempt_partition_state_fkey"):
        execute(engine, ATTEMPT)
    execute(engine, INSERT, **SUCCESS)
    execute(engine, ATTEMPT)
    with pytest.raises(StateStoreError, match="partition_attempt_number"):
        execute(engine, ATTEMPT.replace("'v1'", "'v2'"))


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
