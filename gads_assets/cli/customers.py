"""`gads customers`: the accounts whose days can be launched."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from gads_assets.cli.output import JsonOption, messages, print_json, print_table
from gads_assets.domain.accounts import Account, FoundAccount
from gads_assets.domain.keys import CustomerId, parse_customer_id
from gads_assets.domain.roles import Role
from gads_assets.errors import CustomerUnavailableError, PartitionKeyError
from gads_assets.settings import read_settings

customers_app = typer.Typer(help="Discover, register and list accounts.", no_args_is_help=True)


@customers_app.command()
def sync(
    yes: Annotated[
        bool, typer.Option("--yes", help="Also if more than half of the accounts are to be closed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Register every enabled account below the manager account, GADS_GOOGLE_ADS_LOGIN, and close what is not any more.

    Closed are accounts that were cancelled, suspended or taken out from below the manager. Their history stays, and
    they are reopened when they are enabled again. Costs one API operation for each manager account. While another walk
    is under way this one waits for it.

    Without credentials (GADS_GOOGLE_ADS_CONFIG, a google-ads.yaml) these are the emulator's accounts.
    """
    from gads_assets.orchestration.customers import sync_accounts  # noqa: PLC0415
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    with Workplace(read_settings(os.environ)) as here:
        plan = sync_accounts(here, now=datetime.now(UTC), closes_most=yes)
    messages.print(
        f"{len(plan.new)} accounts registered, {len(plan.changed)} changed, {len(plan.closed)} closed, "
        f"{len(plan.reopened)} reopened, {len(plan.unchanged)} as they were"
    )
    _show(plan.accounts, as_json)


@customers_app.command()
def add(
    customer_ids: Annotated[list[str], typer.Argument(metavar="CUSTOMER_ID", help="As 123-456-7890 or 1234567890.")],
    as_json: JsonOption = False,
) -> None:
    """Register some of the accounts below the manager account."""
    from gads_assets.orchestration.customers import register_found  # noqa: PLC0415
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    wanted = [parse_customer_id(text) for text in customer_ids]
    with Workplace(read_settings(os.environ)) as here:

        def choose(found: Sequence[FoundAccount]) -> list[Account]:
            return _wanted_of(found, wanted, login_customer_id=here.source.login_customer_id)

        registered = register_found(here, choose, now=datetime.now(UTC))
    accounts, new = registered.accounts, registered.new
    messages.print(f"{len(new)} accounts registered, {len(accounts) - len(new)} were there already")
    _show(accounts, as_json)


def _wanted_of(
    found: Sequence[FoundAccount], wanted: Sequence[CustomerId], *, login_customer_id: CustomerId
) -> list[Account]:
    known = {each.account.customer_id for each in found}
    unknown = [customer_id for customer_id in wanted if customer_id not in known]
    if unknown:
        raise PartitionKeyError(
            f"customer {', '.join(unknown)} is not a client of manager {login_customer_id}; "
            "check the id, or set GADS_GOOGLE_ADS_LOGIN to its manager"
        )
    chosen = [each for each in found if each.account.customer_id in wanted]
    for each in chosen:
        if not each.is_enabled or each.without_days:
            why = f"has no days: {each.without_days}" if each.is_enabled else f"is {each.reason}"
            fix = "correct" if each.is_enabled else "enable"
            raise CustomerUnavailableError(
                f"customer {each.account.customer_id} {why}, so its days cannot be asked for; {fix} it there first",
                customer_id=each.account.customer_id,
            )
    return [each.account for each in chosen]


@customers_app.command("list")
def list_customers(
    with_closed: Annotated[bool, typer.Option("--all", help="Closed accounts too, with since when and why.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the registered accounts."""
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    with Workplace(read_settings(os.environ)) as here:
        _show(here.customers_as(Role.CONSUMER).customers(with_closed=with_closed), as_json)


def _show(accounts: Sequence[Account], as_json: bool) -> None:
    if as_json:
        print_json([asdict(account) for account in accounts])
        return
    print_table(
        None,
        ["customer", "name", "time zone", "currency", "managers", "api", "status", "since", "reason"],
        [
            (
                account.customer_id,
                account.name,
                account.time_zone,
                account.currency,
                " > ".join(account.login_path or (account.login_customer_id,)),
                account.origin,
                account.status,
                account.closed_at and f"{account.closed_at:%Y-%m-%d}",
                account.closed_reason,
            )
            for account in accounts
        ],
    )
