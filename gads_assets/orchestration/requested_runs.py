"""Runs that a sensor asks for: a rectangle of partitions each, under a key of which Dagster makes one run."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import count
from typing import Final

import dagster as dg

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.keys import CustomerId, PartitionKey, partition_key_from_label
from gads_assets.domain.rectangles import Rectangle, partitions_between, plan_rectangles
from gads_assets.domain.scheduling import Purpose
from gads_assets.domain.verdict import Rule
from gads_assets.orchestration.checks import VERDICT
from gads_assets.orchestration.dagster_executor import carry_out_here
from gads_assets.orchestration.keys import mart_key, raw_key, table_key
from gads_assets.orchestration.killed_runs import RUNNING
from gads_assets.orchestration.partitions import CUSTOMERS, first_day
from gads_assets.orchestration.runs import JUDGES, UNJUDGED

_RANGE_START: Final = "dagster/asset_partition_range_start"
_RANGE_END: Final = "dagster/asset_partition_range_end"
_RUN_KEY: Final = "dagster/run_key"
_SENSOR: Final = "dagster/sensor_name"
_QUERY: Final = "gads/query"
# Without NOT_STARTED: such a run was left by a daemon that was killed, and is launched when its key comes again.
_UNDER_WAY: Final = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, *RUNNING]
_FOLLOWED: Final = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS)
_KEYS_AT_ONCE: Final = 500


class RunTask(StrEnum):
    JUDGE = "judge"
    """Judge what is sealed and was never judged; nothing is asked of the API."""

    LOAD = "load"
    """Publish what the ledger calls a success; nothing is asked of the API."""

    REFRESH = "refresh"
    """Make partitions of a mart anew; its name stands in for the query's."""


def customer_order(instance: dg.DagsterInstance) -> list[CustomerId]:
    """Dagster reads a range of customers in the order in which they were registered."""
    return [CustomerId(customer) for customer in instance.get_dynamic_partitions(CUSTOMERS)]


def runs_under_way(instance: dg.DagsterInstance, sensor: str) -> list[dg.DagsterRun]:
    """Those of a sensor that wait or run."""
    return list(instance.get_runs(dg.RunsFilter(tags={_SENSOR: sensor}, statuses=_UNDER_WAY)))


def partitions_of(catalog: Catalog, run: dg.DagsterRun, order: Sequence[CustomerId]) -> set[PartitionKey]:
    """Those that a run of a sensor was asked for."""
    first, last = (
        partition_key_from_label(run.tags[tag], source=catalog.source, query_name=run.tags[_QUERY])
        for tag in (_RANGE_START, _RANGE_END)
    )
    return partitions_between(first, last, order)


def not_launchable(
    catalog: Catalog, instance: dg.DagsterInstance, keys: Iterable[PartitionKey]
) -> dict[PartitionKey, str]:
    """Those that Dagster has no partition for, and what can be done about it."""
    customers, first = set(customer_order(instance)), first_day(catalog)
    reasons = {}
    for key in keys:
        if key.customer_id not in customers:
            reasons[key] = f"customer {key.customer_id} is not registered; run `gads customers sync`"
        elif key.logical_date < first:
            reasons[key] = f"days before {first} are no partitions any more; set the catalog's start_date back"
    return reasons


def run_requests(
    catalog: Catalog,
    instance: dg.DagsterInstance,
    task: RunTask,
    marks: Mapping[PartitionKey, object],
    *,
    most_tries: Mapping[str, int] | None = None,
) -> list[dg.RunRequest]:
    """Newest days first. A partition's mark changes when another run of it is worth it.

    Dagster makes one run of a key. One that ended and changed nothing, killed for instance, is followed by the key with
    the next number, up to the query's `most_tries`; one that somebody cancelled by none. Days before the catalog's
    first are no partitions, and left out.
    """
    first = first_day(catalog)
    known = {key: mark for key, mark in marks.items() if key.logical_date >= first}
    rectangles = plan_rectangles(known, customer_order(instance))
    chosen: dict[Rectangle, str] = {}
    undecided = rectangles
    for number in count():
        names = {
            rectangle: rectangle.name(task, number)
            for rectangle in undecided
            if most_tries is None or number < most_tries[rectangle.first.query_name]
        }
        if not names:
            break
        ended = ended_runs(instance, list(names.values()))
        chosen |= {rectangle: name for rectangle, name in names.items() if name not in ended}
        undecided = [rectangle for rectangle, name in names.items() if ended.get(name) in _FOLLOWED]
    return [_request(catalog, task, rectangle, chosen[rectangle]) for rectangle in rectangles if rectangle in chosen]


def carry_out(
    definitions: dg.Definitions, instance: dg.DagsterInstance, request: dg.RunRequest
) -> dg.JobExecutionResult:
    """The run that the daemon would make of a request, in this process and without a word."""
    return carry_out_here(
        definitions.resolve_implicit_global_asset_job_def(),
        instance,
        request,
        tags={**request.tags, _RUN_KEY: str(request.run_key)},
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )


def _request(catalog: Catalog, task: RunTask, rectangle: Rectangle, run_key: str) -> dg.RunRequest:
    query = rectangle.first.query_name
    raw, table = raw_key(catalog, query), table_key(catalog, query)
    tags = {
        _RANGE_START: rectangle.first.label,
        _RANGE_END: rectangle.last.label,
        _QUERY: query,
        "dagster/priority": str(Purpose.RETRY.priority),
    }
    match task:
        case RunTask.JUDGE:
            checks = [dg.AssetCheckKey(raw, name) for name in (VERDICT, *(rule.value for rule in Rule))]
            return dg.RunRequest(
                run_key=run_key, asset_selection=[], asset_check_keys=checks, tags={**tags, JUDGES: UNJUDGED}
            )
        case RunTask.LOAD:
            return dg.RunRequest(run_key=run_key, asset_selection=[table], asset_check_keys=[], tags=tags)
        case RunTask.REFRESH:
            return refresh_request(catalog, query, rectangle.first.label, rectangle.last.label, run_key=run_key)


def refresh_request(catalog: Catalog, mart: str, first: str, last: str, *, run_key: str) -> dg.RunRequest:
    """A mart can wait: whatever else is queued goes first."""
    tags = {_RANGE_START: first, _RANGE_END: last, _QUERY: mart, "dagster/priority": "-1"}
    return dg.RunRequest(run_key=run_key, asset_selection=[mart_key(catalog, mart)], tags=tags)


def of_query(run: dg.DagsterRun) -> str:
    """The query, or the mart, that a run of a sensor was asked for."""
    return run.tags[_QUERY]


def ended_runs(instance: dg.DagsterInstance, run_keys: Sequence[str]) -> dict[str, dg.DagsterRunStatus]:
    """How the runs of these keys ended, of those that did."""
    statuses = [*_FOLLOWED, dg.DagsterRunStatus.CANCELED]
    found: dict[str, dg.DagsterRunStatus] = {}
    for start in range(0, len(run_keys), _KEYS_AT_ONCE):
        some = run_keys[start : start + _KEYS_AT_ONCE]
        runs = instance.get_runs(dg.RunsFilter(tags={_RUN_KEY: some}, statuses=statuses))
        found |= {run.tags[_RUN_KEY]: run.status for run in runs}
    return found
