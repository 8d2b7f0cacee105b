"""Emulated accounts as a sync would have registered them, and a connection to the emulator that has them."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime

from gads_assets.domain.accounts import Account
from gads_assets.domain.keys import CustomerId
from gads_assets.emulator.accounts import MANAGER_CUSTOMER_ID, EmulatedAccount
from gads_assets.emulator.server import RunningEmulator
from gads_assets.extract.accounts import find_accounts
from gads_assets.extract.client import EMULATOR, GoogleAdsSource, connect_to_emulator
from gads_assets.extract.pacing import Pacer, Uncounted


def registered(accounts: Iterable[EmulatedAccount]) -> dict[CustomerId, Account]:
    return {
        account.customer_id: Account(
            customer_id=account.customer_id,
            name=account.name,
            time_zone=account.time_zone,
            currency=account.currency,
            login_customer_id=MANAGER_CUSTOMER_ID,
            origin=EMULATOR,
        )
        for account in accounts
        if not account.manager
    }


def connected(running: RunningEmulator, *, api_version: str) -> GoogleAdsSource:
    return connect_to_emulator(
        running.endpoint, running.ca_path, api_version=api_version, login_customer_id=MANAGER_CUSTOMER_ID
    )


def enabled_accounts(source: GoogleAdsSource) -> list[Account]:
    """As the API itself lists them, below the source's login."""
    pacer = Pacer(budget=Uncounted(), now=lambda: datetime.now(UTC), sleep=time.sleep)
    return [each.account for each in find_accounts(source, source.login_customer_id, pacer=pacer) if each.is_enabled]
