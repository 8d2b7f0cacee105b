"""Registering customers: once in the state store, with what extraction needs, and once as Dagster partitions."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import dagster as dg

from gads_assets.domain.accounts import Account, FoundAccount, SyncPlan, plan_sync
from gads_assets.domain.roles import Role
from gads_assets.errors import QuotaExhaustedError, SettingsError
from gads_assets.orchestration.instance import STORAGE_VARIABLE, dagster_storage_url, write_dagster_home
from gads_assets.orchestration.partitions import CUSTOMERS
from gads_assets.orchestration.workplace import Workplace


@contextmanager
def dagster_instance(here: Workplace) -> Iterator[dg.DagsterInstance]:
    """The Dagster instance of this home, whether or not the shell was set up for it."""
    write_dagster_home(here.settings.dagster_home)
    # dagster.yaml takes the address from the environment, and Dagster looks when it first needs a storage.
    before = os.environ.get(STORAGE_VARIABLE)
    os.environ[STORAGE_VARIABLE] = dagster_storage_url(here.database_url)
    try:
        with dg.DagsterInstance.from_config(str(here.settings.dagster_home)) as instance:
            yield instance
    finally:
        if before is None:
            del os.environ[STORAGE_VARIABLE]
        else:
            os.environ[STORAGE_VARIABLE] = before


def found_accounts(here: Workplace) -> list[FoundAccount]:
    """Walks the accounts below the login that settings name, as far as the day's operations allow: all, or none."""
    from gads_assets.extract.accounts import find_accounts  # noqa: PLC0415

    source, budget = here.source, here.operations_as(Role.EXTRACTOR)

    def take_one() -> None:
        now = datetime.now(UTC)
        until = budget.take(1, now=now)
        if until is not None:
            raise QuotaExhaustedError(
                f"the API is not asked for accounts before {until:%Y-%m-%d %H:%M} UTC; `gads quota` says why, try "
                "again after that",
                customer_id=source.login_customer_id,
                retry_after=(until - now).total_seconds(),
            )

    return find_accounts(source, source.login_customer_id, before_call=take_one)


def sync_accounts(here: Workplace, *, now: datetime, closes_most: bool) -> SyncPlan:
    """Brings the register to what is found below the login, in one transaction, and makes new accounts launchable.

    Partitions of closed accounts stay: their history hangs on them. Unless `closes_most`, a walk after which more than
    half of the login's active accounts would be closed is refused, and changes nothing.
    """
    register = here.customers_as(Role.OPERATOR)
    known = register.customers(with_closed=True)  # first: whoever may not write need not ask the API
    login = here.source.login_customer_id
    plan = plan_sync(found_accounts(here), known, origin=here.source.origin, login_customer_id=login, now=now)
    if plan.closes_most and not closes_most:
        raise SettingsError(
            f"GADS_GOOGLE_ADS_LOGIN {login} shows so little that {len(plan.closed)} accounts, most of those that are "
            "active, would be closed; check the login and its access, or repeat with --yes if they are closed indeed"
        )
    register.register_customers(plan.to_write, now=now)
    _make_launchable(here, plan.accounts)
    return plan


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
