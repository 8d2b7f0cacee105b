"""Registering customers: once in the state store, with what extraction needs, and once as Dagster partitions."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import dagster as dg

from gads_assets.domain.accounts import Account
from gads_assets.domain.roles import Role
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


def register_accounts(here: Workplace, accounts: Sequence[Account], *, now: datetime) -> list[Account]:
    """Makes these accounts' partitions launchable; returns those that were not before. Repeating it changes nothing.

    The state store comes first: a partition that can be launched must find its account there.
    """
    here.customers_as(Role.OPERATOR).register_customers(accounts, now=now)
    with dagster_instance(here) as instance:
        known = set(instance.get_dynamic_partitions(CUSTOMERS))
        new = [account for account in accounts if account.customer_id not in known]
        instance.add_dynamic_partitions(CUSTOMERS, [account.customer_id for account in new])
    return new
