"""Registering customers: once in the state store, with what extraction needs, and once as Dagster partitions."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime

import dagster as dg

from gads_assets.domain.accounts import Account, FoundAccount, SyncPlan, plan_sync
from gads_assets.domain.roles import Role
from gads_assets.errors import SettingsError
from gads_assets.orchestration.instance import storage_environment, write_dagster_home
from gads_assets.orchestration.partitions import CUSTOMERS
from gads_assets.orchestration.workplace import Workplace


@dataclass(frozen=True, kw_only=True)
class Registered:
    """`new` are those of the accounts that could not be launched before."""

    accounts: Sequence[Account]
    new: Sequence[Account]


@contextmanager
def dagster_instance(here: Workplace) -> Iterator[dg.DagsterInstance]:
    """The Dagster instance of this home, whether or not the shell was set up for it."""
    write_dagster_home(here.settings.dagster_home)
    needed = storage_environment(here.database_url)
    before = {name: os.environ.get(name) for name in needed}
    os.environ.update(needed)
    try:
        with dg.DagsterInstance.from_config(str(here.settings.dagster_home)) as instance:
            yield instance
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _found_accounts(here: Workplace) -> list[FoundAccount]:
    """Walks the accounts below the login that settings name, as far as the day's operations allow: all, or none."""
    from gads_assets.extract.accounts import find_accounts  # noqa: PLC0415

    return find_accounts(here.source, here.source.login_customer_id, pacer=here.pacer)


def sync_accounts(here: Workplace, *, now: datetime, closes_most: bool) -> SyncPlan:
    """Brings the register to what is found below the login, in one transaction, and makes new accounts launchable.

    Partitions of closed accounts stay: their history hangs on them. Unless `closes_most`, a walk after which more than
    half of the login's active accounts would be closed is refused, and changes nothing.
    """
    register = here.customers_as(Role.OPERATOR)
    with _registering(here) as require_held:
        known = register.customers(with_closed=True)
        login = here.source.login_customer_id
        plan = plan_sync(_found_accounts(here), known, origin=here.source.origin, login_customer_id=login, now=now)
        if plan.closes_most and not closes_most:
            raise SettingsError(
                f"GADS_GOOGLE_ADS_LOGIN {login} shows so little that {len(plan.closed)} accounts, most of those that "
                "are active, would be closed; check the login and its access, or repeat with --yes if they are closed "
                "indeed"
            )
        require_held()
        register.register_customers(plan.to_write, now=now)
        _make_launchable(here, plan.accounts)
    return plan


def register_found(
    here: Workplace, choose: Callable[[Sequence[FoundAccount]], Sequence[Account]], *, now: datetime
) -> Registered:
    """Makes launchable what `choose` takes of all that is found below the login; nothing is closed."""
    with _registering(here) as require_held:
        accounts = choose(_found_accounts(here))
        require_held()
        return Registered(accounts=accounts, new=register_accounts(here, accounts, now=now))


def _registering(here: Workplace) -> AbstractContextManager[Callable[[], None]]:
    """One walk at a time, to what is written of it: a slow one would overrule what a later one found.

    Asks for the operator's rights before anything else, so that whoever lacks them costs no operation.
    """
    return here.records_as(Role.OPERATOR).exclusive("register customers")


def register_accounts(here: Workplace, accounts: Sequence[Account], *, now: datetime) -> list[Account]:
    """Makes these accounts' partitions launchable; returns those that were not before. Repeating it changes nothing.

    The state store comes first: a partition that can be launched must find its account there.
    """
    here.customers_as(Role.OPERATOR).register_customers(accounts, now=now)
    return _make_launchable(here, accounts)


def _make_launchable(here: Workplace, accounts: Sequence[Account]) -> list[Account]:
    with dagster_instance(here) as instance:
        known = set(instance.get_dynamic_partitions(CUSTOMERS))
        new = [account for account in accounts if account.customer_id not in known]
        instance.add_dynamic_partitions(CUSTOMERS, [account.customer_id for account in new])
    return new
