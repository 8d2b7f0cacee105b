"""The sensor that tries failed extractions again, once that is worth it."""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import dagster as dg

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.keys import CustomerId, PartitionKey, partition_key_from_label
from gads_assets.domain.quota import BudgetStatus, shown
from gads_assets.domain.rescheduling import Rerun, RetryPolicy, partitions_between, plan_reruns
from gads_assets.domain.roles import Role
from gads_assets.errors import GadsError
from gads_assets.orchestration.keys import raw_key, table_key
from gads_assets.orchestration.partitions import CUSTOMERS
from gads_assets.orchestration.pool import is_extracting
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings

_RANGE_START: Final = "dagster/asset_partition_range_start"
_RANGE_END: Final = "dagster/asset_partition_range_end"
_RUN_KEY: Final = "dagster/run_key"
_SENSOR: Final = "dagster/sensor_name"
# Without NOT_STARTED: such a run was left by a daemon that was killed, and is launched when its key comes again.
_UNFINISHED: Final = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_MOST_RUNS: Final = 20
"""Unfinished at a time: what fails far and wide must not fill the queue in front of everything else."""


def reschedule_sensor(catalog: Catalog) -> dg.SensorDefinition:
    name = f"{catalog.source}_reschedule"
    policies = {
        query.name: RetryPolicy(max_attempts=query.max_attempts, start_date=query.start_date)
        for query in catalog.queries.values()
    }

    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.assets(
            *(make(catalog, query) for query in catalog.queries for make in (raw_key, table_key))
        ),
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
                living = {run_id for run_id in {each.dagster_run_id for each in due} if is_extracting(records, run_id)}
        except GadsError as error:
            return dg.SkipReason(str(error))
        unfinished = context.instance.get_runs(dg.RunsFilter(tags={_SENSOR: name}, statuses=_UNFINISHED))
        order = [CustomerId(customer) for customer in context.instance.get_dynamic_partitions(CUSTOMERS)]
        under_way = {key for run in unfinished for key in _partitions(catalog, run, order)}
        # A run that lives may be about to make the call again itself.
        waiting = [each for each in due if each.key not in under_way and each.dagster_run_id not in living]
        room = max(_MOST_RUNS - len(unfinished), 0)
        requests = list(islice(_requests(catalog, context.instance, plan_reruns(waiting, order)), room))
        unknown = sorted({each.key.customer_id for each in waiting} - set(order))
        return requests or dg.SkipReason(_why_nothing(due=len(due), waiting=len(waiting), room=room, unknown=unknown))

    return reschedule


def _requests(catalog: Catalog, instance: dg.DagsterInstance, reruns: Sequence[Rerun]) -> Iterator[dg.RunRequest]:
    """Dagster makes one run of a key. One that failed before it tried anything, killed for instance, is followed by the
    key with the next number, up to the query's `max_attempts`; one that somebody cancelled by none."""
    names = {
        rerun: [rerun.name(number) for number in range(catalog.query(rerun.first.query_name).max_attempts)]
        for rerun in reruns
    }
    ended = _ended(instance, [name for some in names.values() for name in some])
    for rerun, some in names.items():
        following = next((name for name in some if ended.get(name) is not dg.DagsterRunStatus.FAILURE), None)
        if following and following not in ended:
            query_name = rerun.first.query_name
            yield dg.RunRequest(
                run_key=following,
                asset_selection=[raw_key(catalog, query_name), table_key(catalog, query_name)],
                tags={_RANGE_START: rerun.first.label, _RANGE_END: rerun.last.label},
            )


def _ended(instance: dg.DagsterInstance, run_keys: Sequence[str]) -> dict[str, dg.DagsterRunStatus]:
    if not run_keys:
        return {}
    statuses = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
    runs = instance.get_runs(dg.RunsFilter(tags={_RUN_KEY: run_keys}, statuses=statuses))
    return {run.tags[_RUN_KEY]: run.status for run in runs}


def _partitions(catalog: Catalog, run: dg.DagsterRun, order: Sequence[CustomerId]) -> Iterator[PartitionKey]:
    """Those that a run of this sensor extracts."""
    for query_name in catalog.queries:
        if raw_key(catalog, query_name) in (run.asset_selection or ()):
            first, last = (
                partition_key_from_label(run.tags[tag], source=catalog.source, query_name=query_name)
                for tag in (_RANGE_START, _RANGE_END)
            )
            yield from partitions_between(first, last, order)


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
