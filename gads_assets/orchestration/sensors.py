"""The sensors: one tries failed extractions again once that is worth it, one keeps the warehouse as the ledger says."""

import os
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from itertools import chain, islice
from typing import Final

import dagster as dg

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.quota import BudgetStatus, shown
from gads_assets.domain.rescheduling import RetryPolicy
from gads_assets.domain.roles import Role
from gads_assets.errors import GadsError
from gads_assets.orchestration.keys import raw_key, table_key
from gads_assets.orchestration.presence import at_work
from gads_assets.orchestration.reconciling import describe, reconcile
from gads_assets.orchestration.requested_runs import (
    Purpose,
    customer_order,
    partitions_of,
    run_requests,
    runs_under_way,
)
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings

_TRIES: Final = 5
_LOOKS_BACK: Final = timedelta(days=2)
_PATIENCE: Final = timedelta(seconds=5)
"""With a loader that publishes what a tick would withdraw: the daemon gives a tick a minute, and the next is near."""
_MOST_RUNS: Final = 20
"""Unfinished at a time: what fails far and wide must not fill the queue in front of everything else."""


def reschedule_sensor(catalog: Catalog) -> dg.SensorDefinition:
    name = f"{catalog.source}_reschedule"
    policies = {
        query.name: RetryPolicy(max_attempts=query.max_attempts, start_date=query.start_date)
        for query in catalog.queries.values()
    }
    tries = {name: policy.max_attempts for name, policy in policies.items()}

    @dg.sensor(
        name=name,
        asset_selection=_assets_of_queries(catalog),
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tries failed extractions again once their quota or the API has recovered, up to the query's "
        "max_attempts: each is extracted, judged and published.",
    )
    def reschedule(context: dg.SensorEvaluationContext) -> dg.SkipReason | list[dg.RunRequest]:
        try:
            with Workplace(read_settings(os.environ)) as here:
                if refusal := _not_asked(here.operations_as(Role.OPERATOR).status()):
                    return dg.SkipReason(refusal)
                due = here.store_as(Role.OPERATOR).due_partitions(policies, source=catalog.source)
                records = here.records_as(Role.OPERATOR)
                living = at_work(records, {each.dagster_run_id for each in due})
                unfinished = runs_under_way(context.instance, name, records)
        except GadsError as error:
            return dg.SkipReason(str(error))
        order = customer_order(context.instance)
        under_way = {key for run in unfinished for key in partitions_of(catalog, run, order)}
        # A run that lives may be about to make the call again itself.
        waiting = {
            each.key: each.retry_at for each in due if each.key not in under_way and each.dagster_run_id not in living
        }
        room = max(_MOST_RUNS - len(unfinished), 0)
        wanted = run_requests(catalog, context.instance, Purpose.EXTRACT, waiting, most_tries=tries)
        requests = wanted[:room]
        unknown = sorted({key.customer_id for key in waiting} - set(order))
        return requests or dg.SkipReason(_why_nothing(due=len(due), waiting=len(waiting), room=room, unknown=unknown))

    return reschedule


def reconcile_sensor(catalog: Catalog) -> dg.SensorDefinition:
    name = f"{catalog.source}_reconcile"
    tries = dict.fromkeys(catalog.queries, _TRIES)

    @dg.sensor(
        name=name,
        asset_selection=_assets_of_queries(catalog),
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Compares the ledger with what readers see. Finishes withdrawals that a crash left half way, hides "
        "what is no success any more, judges what was sealed and never judged, and loads what is not shown: nothing is "
        "extracted for it.",
    )
    def reconciler(context: dg.SensorEvaluationContext) -> dg.SkipReason | list[dg.RunRequest]:
        instance = context.instance
        try:
            with Workplace(read_settings(os.environ), patience=_PATIENCE) as here:
                found = reconcile(here, instance, looks_back=_LOOKS_BACK)
                unfinished = runs_under_way(instance, name, here.records_as(Role.OPERATOR))
        except GadsError as error:
            return dg.SkipReason(str(error))
        order = customer_order(instance)
        under_way = {key for run in unfinished for key in partitions_of(catalog, run, order)}
        wanted = chain.from_iterable(
            run_requests(catalog, instance, purpose, _without(marks, under_way), most_tries=tries)
            for purpose, marks in ((Purpose.JUDGE, found.to_judge), (Purpose.LOAD, found.to_load))
        )
        requests = list(islice(wanted, max(_MOST_RUNS - len(unfinished), 0)))
        told = describe(found)
        if not requests:
            return dg.SkipReason(told)
        context.log.info(told)
        return requests

    return reconciler


def _assets_of_queries(catalog: Catalog) -> dg.AssetSelection:
    return dg.AssetSelection.assets(
        *(make(catalog, query) for query in catalog.queries for make in (raw_key, table_key))
    )


def _without(marks: Mapping[PartitionKey, str], under_way: Collection[PartitionKey]) -> dict[PartitionKey, str]:
    return {key: mark for key, mark in marks.items() if key not in under_way}


def _not_asked(status: BudgetStatus) -> str | None:
    if status.paused_until:
        return (
            f"the API is paused until {shown(status.paused_until)}: {status.reason}; `gads quota --resume` lifts the "
            "pause, for what is launched by hand: what failed waits for its own time"
        )
    if status.allowed is not None and status.used >= status.allowed:
        return f"the day's {status.allowed} API operations are used up until {shown(status.resets_at)}"
    return None


def _why_nothing(*, due: int, waiting: int, room: int, unknown: Sequence[CustomerId]) -> str:
    if not due:
        return "no failed extraction is due"
    if not waiting:
        return f"{due} failed extractions are due, all in runs that have not ended yet"
    if not room:
        return f"{waiting} failed extractions are due, and wait until one of {_MOST_RUNS} runs has ended"
    if unknown:
        return (
            f"failed extractions of {', '.join(unknown[:5])} are due, and Dagster has no such partitions; "
            "run `gads customers sync`"
        )
    return (
        f"{waiting} failed extractions are due, and the runs that were to try them again failed before they did, "
        "or were cancelled; launch the partitions by hand once what the runs name is mended"
    )
