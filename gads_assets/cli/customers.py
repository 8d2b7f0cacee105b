"""`gads customers`: the accounts whose days can be launched."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from gads_assets.cli.output import JsonOption, messages, print_json, print_table
from gads_assets.domain.accounts import Account
from gads_assets.domain.keys import parse_customer_id
from gads_assets.domain.roles import Role
from gads_assets.errors import PartitionKeyError
from gads_assets.settings import read_settings

customers_app = typer.Typer(help="Discover, register and list accounts.", no_args_is_help=True)


@customers_app.command()
def sync(as_json: JsonOption = False) -> None:
    """Register every enabled account below the manager account, GADS_GOOGLE_ADS_LOGIN.

    Without credentials (GADS_GOOGLE_ADS_CONFIG, a google-ads.yaml) these are the emulator's accounts.
    """
    _register(None, as_json)


@customers_app.command()
def add(
    customer_ids: Annotated[list[str], typer.Argument(metavar="CUSTOMER_ID", help="As 123-456-7890 or 1234567890.")],
    as_json: JsonOption = False,
) -> None:
    """Register some of the accounts below the manager account."""
    _register([parse_customer_id(text) for text in customer_ids], as_json)


@customers_app.command("list")
def list_customers(as_json: JsonOption = False) -> None:
    """List the registered accounts."""
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    with Workplace(read_settings(os.environ)) as here:
        _show(here.customers_as(Role.CONSUMER).customers(), as_json)


def _register(wanted: Sequence[str] | None, as_json: bool) -> None:
    from gads_assets.extract.accounts import discover_accounts  # noqa: PLC0415
    from gads_assets.orchestration.customers import register_accounts  # noqa: PLC0415
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    with Workplace(read_settings(os.environ)) as here:
        found = {
            account.customer_id: account for account in discover_accounts(here.source, here.source.login_customer_id)
        }
        unknown = [customer_id for customer_id in wanted or () if customer_id not in found]
        if unknown:
            raise PartitionKeyError(
                f"customer {', '.join(unknown)} is not an enabled client of manager {here.source.login_customer_id}; "
                "check the id, or set GADS_GOOGLE_ADS_LOGIN to its manager"
            )
        chosen = [account for key, account in found.items() if wanted is None or key in wanted]
        new = register_accounts(here, chosen, now=datetime.now(UTC))
        messages.print(f"{len(new)} accounts registered, {len(chosen) - len(new)} were there already")
        _show(chosen, as_json)


def _show(accounts: Sequence[Account], as_json: bool) -> None:
    if as_json:
        print_json([asdict(account) for account in accounts])
        return
    print_table(
        None,
        ["customer", "name", "time zone", "currency", "manager", "api"],
        [
            (
                account.customer_id,
                account.name,
                account.time_zone,
                account.currency,
                account.login_customer_id,
                account.origin,
            )
            for account in accounts
        ],
    )
