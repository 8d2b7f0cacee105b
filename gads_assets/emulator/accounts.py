"""The accounts that the emulator knows.

By default one manager, three clients in three time zones and one that was suspended; or an agency of any size.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gads_assets.domain.keys import CustomerId


@dataclass(frozen=True, kw_only=True)
class EmulatedAccount:
    """`parent` is the manager right above, None at the top.

    `money` scales bids and conversion values, so that a yen account does not bid fractions of a yen. With
    `performance_max`, some of its campaigns are of that channel: asset groups, and neither ad groups nor keywords.
    """

    customer_id: CustomerId
    name: str
    time_zone: str
    currency: str
    parent: CustomerId | None = None
    status: str = "ENABLED"
    manager: bool = False
    hidden: bool = False
    money: int = 1
    performance_max: bool = False


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
        parent=MANAGER_CUSTOMER_ID,
    ),
    EmulatedAccount(
        customer_id=CustomerId("3305550102"),
        name="Müller & Söhne Fahrräder",
        time_zone="Europe/Berlin",
        currency="EUR",
        parent=MANAGER_CUSTOMER_ID,
    ),
    EmulatedAccount(
        customer_id=CustomerId("4815550103"),
        name="ことり文具店",
        time_zone="Asia/Tokyo",
        currency="JPY",
        parent=MANAGER_CUSTOMER_ID,
        money=150,
    ),
    EmulatedAccount(
        customer_id=CustomerId("5925550104"),
        name="Closed Garden Centre",
        time_zone="Europe/London",
        currency="GBP",
        parent=MANAGER_CUSTOMER_ID,
        status="SUSPENDED",
    ),
)

_CLIENTS_OF_A_MANAGER = 20
# Half hours, the day's both ends, and zones that change their clocks at different times of the year.
_PLACES = (
    ("America/New_York", "USD", 1),
    ("Asia/Kolkata", "INR", 80),
    ("Pacific/Auckland", "NZD", 2),
    ("Europe/Berlin", "EUR", 1),
    ("Pacific/Honolulu", "USD", 1),
    ("Asia/Tokyo", "JPY", 150),
    ("America/St_Johns", "CAD", 1),
    ("Pacific/Tongatapu", "AUD", 2),
    ("Asia/Kathmandu", "INR", 80),
    ("America/Sao_Paulo", "BRL", 5),
    ("Asia/Jakarta", "IDR", 16_000),
    ("Australia/Adelaide", "AUD", 2),
    ("Africa/Cairo", "EGP", 50),
    ("Pacific/Kiritimati", "AUD", 2),
)
_TRADES = (
    "Bakery",
    "Fahrräder",
    "文具店",
    "Café",
    "متجر الكتب",
    "🚲 Rentals",
    "Кофе",
    "חנות ספרים",
    "Flórería",
    "Garden",
)


def made_up_accounts(count: int) -> tuple[EmulatedAccount, ...]:
    """An agency: the manager, a manager under it for every 20 clients, and `count` clients, the same ones every time.

    Every 50th client is suspended. Among more than 60 some are closed or cancelled, and some are hidden from lists.
    """
    managers = [
        EmulatedAccount(
            customer_id=CustomerId(f"{1_000_100_000 + index}"),
            name=f"Lighthouse Media, team {index + 1}",
            time_zone="Europe/London",
            currency="GBP",
            parent=MANAGER_CUSTOMER_ID,
            manager=True,
        )
        for index in range(-(-count // _CLIENTS_OF_A_MANAGER))
    ]
    clients = (_made_up_client(index, managers[index // _CLIENTS_OF_A_MANAGER]) for index in range(count))
    return (ACCOUNTS[0], *managers, *clients)


def _made_up_client(index: int, manager: EmulatedAccount) -> EmulatedAccount:
    time_zone, currency, money = _PLACES[index % len(_PLACES)]
    status = "ENABLED"
    if index % 50 == 49:
        status = "SUSPENDED"
    elif index % 100 in (60, 70):
        status = "CLOSED" if index % 100 == 60 else "CANCELED"
    return EmulatedAccount(
        # A prime step, so that neighbours are as far apart as real ones and no two are the same.
        customer_id=CustomerId(f"{2_000_000_000 + index * 7_654_321 % 7_000_000_000}"),
        name=f"{_TRADES[index % len(_TRADES)]} {index + 1}",
        time_zone=time_zone,
        currency=currency,
        parent=manager.customer_id,
        status=status,
        hidden=index % 31 == 30,
        money=money,
        performance_max=True,
    )


def managers_above(account: EmulatedAccount, accounts: Mapping[str, EmulatedAccount]) -> Iterator[CustomerId]:
    """From the nearest to the one at the top."""
    parent = account.parent
    while parent is not None:
        yield parent
        parent = accounts[parent].parent
