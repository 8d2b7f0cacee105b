"""The accounts whose days are partitions."""

from collections.abc import Iterable
from datetime import UTC, date, datetime

from sqlalchemy import Engine, RowMapping, text

from gads_assets.domain.accounts import Account, AccountStatus
from gads_assets.domain.keys import CustomerId
from gads_assets.errors import StateStoreError
from gads_assets.state.connection import transaction
from gads_assets.state.rows import rows_json, value_row

# An account of the other origin is left alone, and then missing from what is returned.
_REGISTER = text("""
    INSERT INTO customer AS c (customer_id, name, time_zone, currency, login_customer_id, origin, status, added_at,
        login_path, closed_at, closed_reason)
    SELECT n.customer_id, n.name, n.time_zone, n.currency, n.login_customer_id, n.origin, n.status, :now,
        n.login_path, n.closed_at, n.closed_reason
    FROM jsonb_populate_recordset(NULL::customer, CAST(:rows AS jsonb)) AS n ORDER BY n.customer_id
    ON CONFLICT (customer_id) DO UPDATE
    SET name = excluded.name, time_zone = excluded.time_zone, currency = excluded.currency,
        login_customer_id = excluded.login_customer_id, login_path = excluded.login_path,
        status = excluded.status, closed_at = excluded.closed_at, closed_reason = excluded.closed_reason
    WHERE c.origin = excluded.origin
    RETURNING customer_id
""")

_CUSTOMERS = text("SELECT * FROM customer WHERE status = 'active' OR :with_closed ORDER BY customer_id")

FIRST_DAY = "CAST(c.added_at AT TIME ZONE c.time_zone AS date) - 1"
"""Of a customer c: the day that was the newest open one, or was about to be, when it was registered."""

_FIRST_DAYS = text(f"SELECT c.customer_id, {FIRST_DAY} AS first_day FROM customer AS c WHERE c.status = 'active'")


class CustomerRegister:
    """An account belongs for ever to the API that it was registered from, so that emulated days never stand among
    real ones."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def register_customers(self, accounts: Iterable[Account], *, now: datetime) -> None:
        """All or none, each as it is given; known accounts keep the API that they came from."""
        wanted = {account.customer_id: account for account in accounts}
        with transaction(self._engine) as connection:
            rows = rows_json(map(value_row, wanted.values()))
            registered = set(connection.execute(_REGISTER, {"rows": rows, "now": now}).scalars())
            refused = sorted(wanted.keys() - registered)
            if refused:
                raise StateStoreError(
                    f"customer {', '.join(refused)} comes from {wanted[refused[0]].origin} but is registered here from "
                    "the other API, and emulated days must not stand among real ones; use another GADS_HOME"
                )

    def customers(self, *, with_closed: bool = False) -> list[Account]:
        """By customer id."""
        with transaction(self._engine) as connection:
            return [_account(row) for row in connection.execute(_CUSTOMERS, {"with_closed": with_closed}).mappings()]

    def first_days(self) -> dict[CustomerId, date]:
        """From which day on each active account is looked after: what came before is a backfill's."""
        with transaction(self._engine) as connection:
            return {CustomerId(row.customer_id): row.first_day for row in connection.execute(_FIRST_DAYS)}


def _account(row: RowMapping) -> Account:
    return Account(
        customer_id=CustomerId(row["customer_id"]),
        name=row["name"],
        time_zone=row["time_zone"],
        currency=row["currency"],
        login_customer_id=CustomerId(row["login_customer_id"]),
        origin=row["origin"],
        login_path=tuple(CustomerId(manager) for manager in row["login_path"]),
        status=AccountStatus(row["status"]),
        closed_at=row["closed_at"] and row["closed_at"].astimezone(UTC),
        closed_reason=row["closed_reason"],
    )
