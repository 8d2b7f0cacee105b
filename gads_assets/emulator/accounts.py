"""The accounts that the emulator knows: one manager, three clients in three time zones, one that was suspended."""

from dataclasses import dataclass

from gads_assets.domain.keys import CustomerId


@dataclass(frozen=True, kw_only=True)
class EmulatedAccount:
    """`money` scales bids and conversion values, so that a yen account does not bid fractions of a yen."""

    customer_id: CustomerId
    name: str
    time_zone: str
    currency: str
    status: str = "ENABLED"
    manager: bool = False
    money: int = 1


MANAGER_CUSTOMER_ID = CustomerId("1000000000")

ACCOUNTS: tuple[EmulatedAccount, ...] = (
    EmulatedAccount(
        customer_id=MANAGER_CUSTOMER_ID,
        name="Lighthouse Media (manager)",
        time_zone="Europe/London",
        currency="GBP",
        manager=True,
    ),
    EmulatedAccount(
        customer_id=CustomerId("2145550101"),
        name="Harbor Street Bakery",
        time_zone="America/New_York",
        currency="USD",
    ),
    EmulatedAccount(
        customer_id=CustomerId("3305550102"),
        name="Müller & Söhne Fahrräder",
        time_zone="Europe/Berlin",
        currency="EUR",
    ),
    EmulatedAccount(
        customer_id=CustomerId("4815550103"),
        name="ことり文具店",
        time_zone="Asia/Tokyo",
        currency="JPY",
        money=150,
    ),
    EmulatedAccount(
        customer_id=CustomerId("5925550104"),
        name="Closed Garden Centre",
        time_zone="Europe/London",
        currency="GBP",
        status="SUSPENDED",
    ),
)
