"""Registering customers: once in the state store, with what extraction needs, and once as Dagster partitions."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import dagster as dg

from gads_assets.domain.accounts import Account
from gads_assets.orchestration.instance import dagster_environment, write_dagster_home
from gads_assets.orchestration.partitions import CUSTOMERS
from gads_assets.orchestration.workplace import Workplace


@contextmanager
def dagster_instance(here: Workplace) -> Iterator[dg.DagsterInstance]:
    """The Dagster instance of this home, whether or not the shell was set up for it."""
    write_dagster_home(here.settings.dagster_home)
    os.environ.update(dagster_environment(here.settings, here.database_url))
    with dg.DagsterInstance.from_config(str(here.settings.dagster_home)) as instance:
        yield instance


def register_accounts(here: Workplace, accounts: Sequence[Account], *, now: datetime) -> list[Account]:
    """Makes these accounts' partitions launchable; returns those that were not before. Repeating it changes nothing.

    The state store comes first: a partition that can be launched must find its account there.
    """
    here.customers.register_customers(accounts, now=now)
    with dagster_instance(here) as instance:
        known = set(instance.get_dynamic_partitions(CUSTOMERS))
        new = [account for account in accounts if account.customer_id not in known]
        instance.add_dynamic_partitions(CUSTOMERS, [account.customer_id for account in new])
    return new
