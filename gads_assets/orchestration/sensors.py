"""The sensor that keeps the warehouse as the ledger says."""

import os
from collections.abc import Collection, Mapping
from datetime import timedelta
from itertools import chain, islice
from typing import Final

import dagster as dg
import msgspec

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.reconciling import Rest, is_at_rest, rest_after_comparing
from gads_assets.domain.roles import Role
from gads_assets.errors import GadsError
from gads_assets.orchestration.keys import assets_of_queries
from gads_assets.orchestration.killed_runs import report_killed_runs
from gads_assets.orchestration.reconciling import describe, reconcile
from gads_assets.orchestration.requested_runs import (
    RunTask,
    customer_order,
    partitions_of,
    run_requests,
    runs_under_way,
)
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.warehouse.marts.differences import pointer_versions

_TRIES: Final = 5
_LOOKS_BACK: Final = timedelta(days=2)
_PATIENCE: Final = timedelta(seconds=5)
"""With a loader that publishes what a tick would withdraw: the daemon gives a tick a minute, and the next is near."""
_MOST_RUNS: Final = 20
"""Unfinished at a time: what fails far and wide must not fill the queue in front of everything else."""


def reconcile_sensor(catalog: Catalog) -> dg.SensorDefinition:
    name = f"{catalog.source}_reconcile"
    tries = dict.fromkeys(catalog.queries, _TRIES)

    @dg.sensor(
        name=name,
        asset_selection=assets_of_queries(catalog),
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
                now, marks, rests = here.schedule_as(Role.OPERATOR).clock(), _marks(here), _rests(context.cursor)
                restless = [
                    query for query in catalog.queries if not is_at_rest(rests.get(query), marks[query], now=now)
                ]
                found = reconcile(here, instance, queries=restless, looks_back=_LOOKS_BACK)
                report_killed_runs(here, instance)
                unfinished = runs_under_way(instance, name)
        except GadsError as error:
            return dg.SkipReason(str(error))
        rests |= {
            query: rest_after_comparing(rests.get(query), marks[query], agreed=query not in found.differing, now=now)
            for query in restless
        }
        context.update_cursor(msgspec.json.encode(rests).decode())
        order = customer_order(instance)
        under_way = set().union(*(partitions_of(catalog, run, order) for run in unfinished))
        wanted = chain.from_iterable(
            run_requests(catalog, instance, task, _without(wanted_by, under_way), most_tries=tries)
            for task, wanted_by in ((RunTask.JUDGE, found.to_judge), (RunTask.LOAD, found.to_load))
        )
        requests = list(islice(wanted, max(_MOST_RUNS - len(unfinished), 0)))
        told = describe(found)
        if not requests:
            return dg.SkipReason(told)
        context.log.info(told)
        return requests

    return reconciler


def _marks(here: Workplace) -> dict[str, str]:
    """Taken before anything is compared: what changes meanwhile is compared next time."""
    states = here.store_as(Role.OPERATOR).marks(source=here.catalog.source)
    pointers = pointer_versions(here.layout, here.catalog)
    return {query: f"{states.get(query)}, pointers at {version}" for query, version in pointers.items()}


def _rests(cursor: str | None) -> dict[str, Rest]:
    """Of another version of this code, or written by hand: all is compared, and remembered anew."""
    try:
        return msgspec.json.decode(cursor or "{}", type=dict[str, Rest])
    except msgspec.DecodeError:
        return {}


def _without(marks: Mapping[PartitionKey, str], under_way: Collection[PartitionKey]) -> dict[PartitionKey, str]:
    return {key: mark for key, mark in marks.items() if key not in under_way}
