"""Which accounts there are: the manager's own list of its clients."""

from typing import Any

from gads_assets.domain.accounts import Account
from gads_assets.domain.keys import CustomerId, parse_customer_id
from gads_assets.extract.client import GoogleAdsSource

_CLIENTS = (
    "SELECT customer_client.id, customer_client.descriptive_name, customer_client.currency_code, "
    "customer_client.time_zone, customer_client.manager, customer_client.status, customer_client.level "
    "FROM customer_client WHERE customer_client.status = 'ENABLED' AND customer_client.manager = FALSE"
)


def discover_accounts(source: GoogleAdsSource, login_customer_id: CustomerId) -> list[Account]:
    """The enabled client accounts below the manager at any depth, each once, by customer id.

    Managers are left out: they have no metrics. Costs one API operation.
    """
    found: dict[CustomerId, Account] = {}
    for batch in source.stream(login_customer_id, _CLIENTS):
        for row in batch:
            client: Any = row.customer_client  # type: ignore[attr-defined]  # GoogleAdsRow, made at run time
            # Ids below ten digits would lose their leading zeros as numbers.
            customer_id = parse_customer_id(f"{client.id:010d}")
            found[customer_id] = Account(
                customer_id=customer_id,
                name=client.descriptive_name,
                time_zone=client.time_zone,
                currency=client.currency_code,
                login_customer_id=login_customer_id,
                origin=source.origin,
            )
    return [found[customer_id] for customer_id in sorted(found)]
