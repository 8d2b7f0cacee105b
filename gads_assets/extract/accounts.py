"""Which accounts there are: every manager's own list of its clients."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gads_assets.domain.accounts import CLOSED_STATUSES, Account, FoundAccount
from gads_assets.domain.keys import CustomerId, parse_customer_id
from gads_assets.extract.client import GoogleAdsSource
from gads_assets.extract.pacing import Pacer

# One level at a time: a row does not say which manager its account belongs to, only how far below the asked one it is.
_CLIENTS = (
    "SELECT customer_client.id, customer_client.descriptive_name, customer_client.currency_code, "
    "customer_client.time_zone, customer_client.manager, customer_client.status, customer_client.level "
    "FROM customer_client WHERE customer_client.level <= 1"
)


@dataclass(frozen=True, kw_only=True)
class Client:
    """An account right below the one that was asked, or that one itself."""

    customer_id: CustomerId
    name: str
    time_zone: str
    currency: str
    is_manager: bool
    api_status: str


def find_accounts(source: GoogleAdsSource, login_customer_id: CustomerId, *, pacer: Pacer) -> list[FoundAccount]:
    """The client accounts below the login at any depth, closed ones too; see `walk`. All, or an error.

    Costs one API operation for each manager, and one for each call that has to be made again.
    """

    def clients_of(manager: CustomerId) -> list[Client]:
        return pacer.call(manager, lambda: _clients(source, manager, login_customer_id))

    return walk(login_customer_id, clients_of, origin=source.origin)


def walk(
    login_customer_id: CustomerId, clients_of: Callable[[CustomerId], Iterable[Client]], *, origin: str
) -> list[FoundAccount]:
    """Each account once, by its shortest path from the login, in the order of their ids.

    Managers are left out: they have no metrics. What is below a closed one cannot be seen. A login that is a client
    itself finds itself.
    """
    found: dict[CustomerId, FoundAccount] = {}
    paths: dict[CustomerId, tuple[CustomerId, ...]] = {login_customer_id: (login_customer_id,)}
    waiting = [login_customer_id]
    for manager in waiting:  # which grows meanwhile, by what is one level further down
        for client in sorted(clients_of(manager), key=lambda client: client.customer_id):
            if client.is_manager:
                if client.customer_id not in paths and client.api_status not in CLOSED_STATUSES:
                    paths[client.customer_id] = (*paths[manager], client.customer_id)
                    waiting.append(client.customer_id)
            elif client.customer_id not in found:
                account = Account(
                    customer_id=client.customer_id,
                    name=client.name,
                    time_zone=client.time_zone,
                    currency=client.currency,
                    login_customer_id=login_customer_id,
                    origin=origin,
                    login_path=() if client.customer_id == manager else paths[manager],
                )
                found[client.customer_id] = FoundAccount(account=account, api_status=client.api_status)
    return [found[customer_id] for customer_id in sorted(found)]


def _clients(source: GoogleAdsSource, manager: CustomerId, login_customer_id: CustomerId) -> list[Client]:
    return [
        _client(row.customer_client)  # type: ignore[attr-defined]  # GoogleAdsRow, made at run time
        for batch in source.stream(manager, _CLIENTS, login_customer_id=login_customer_id)
        for row in batch
    ]


def _client(message: Any) -> Client:
    statuses = message.DESCRIPTOR.fields_by_name["status"].enum_type.values_by_number
    return Client(
        # Ids below ten digits would lose their leading zeros as numbers.
        customer_id=parse_customer_id(f"{message.id:010d}"),
        name=message.descriptive_name,
        time_zone=message.time_zone,
        currency=message.currency_code,
        is_manager=message.manager,
        # A newer API may send what this version of the client has no name for.
        api_status=statuses[message.status].name if message.status in statuses else "UNKNOWN",
    )
