"""The marts as assets downstream of the published tables, and the sensor that keeps them as readers see those."""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Final

import dagster as dg
import pyarrow as pa

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.keys import CustomerId
from gads_assets.errors import GadsError
from gads_assets.orchestration import metadata
from gads_assets.orchestration.assets import OWNERS
from gads_assets.orchestration.dagster_internals import describe_partitions, narrow_output
from gads_assets.orchestration.keys import mart_key, table_key
from gads_assets.orchestration.killed_runs import report_killed_runs
from gads_assets.orchestration.partitions import (
    CUSTOMER_DIMENSION,
    CUSTOMERS,
    CustomerDays,
    dagster_key,
    first_day,
    partition_keys,
)
from gads_assets.orchestration.requested_runs import (
    RunTask,
    customer_order,
    ended_runs,
    of_query,
    partitions_of,
    refresh_request,
    run_requests,
    runs_under_way,
)
from gads_assets.orchestration.resources import WorkplaceResource
from gads_assets.orchestration.runs import partition_failure, readable_failures
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.warehouse.marts.account_day import performance_queries
from gads_assets.warehouse.marts.differences import (
    is_freshness_stale,
    mart_versions,
    pointer_versions,
    stale_account_days,
)
from gads_assets.warehouse.marts.tables import ACCOUNT_DAY, FRESHNESS, Mart

Refreshed = Mapping[str, metadata.Metadata]
"""The partitions of a mart that were refreshed, and what is said of each."""

MART_CODE_VERSION: Final = "1"

_TRIES: Final = 5
_MOST_RUNS: Final = 4
"""Unfinished at a time: one of a mart writes, and the others wait for it in places where loads could run."""


def account_day_asset(catalog: Catalog, partitions_def: CustomerDays, *, status_url: str) -> dg.AssetsDefinition:
    key = mart_key(catalog, ACCOUNT_DAY.name)

    @dg.asset(
        key=key,
        deps=[table_key(catalog, name) for name in performance_queries(catalog)],
        partitions_def=partitions_def,
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key="refreshed_marts",
        group_name=f"{catalog.source}_marts",
        kinds={"pyspark", "deltalake"},
        owners=OWNERS,
        code_version=MART_CODE_VERSION,
        metadata=_metadata(catalog, ACCOUNT_DAY, status_url),
        description="What each query counted of an account's day, in the account's currency: a row for each that is "
        f"published, with the run that it is of.\n\n{metadata.status_words(key, status_url)}",
    )
    def account_day(context: dg.AssetExecutionContext, workplace: WorkplaceResource) -> Iterator[dg.Output[Refreshed]]:
        keys = partition_keys(context.partition_keys, source=catalog.source, query_name=ACCOUNT_DAY.name)
        with readable_failures():
            inputs = _by_label(workplace.get().marts.refresh_account_days(keys))
        missing = dict.fromkeys((key for key in keys if key.label not in inputs), "nothing is published of it")
        if inputs:
            described = {label: metadata.refreshed_account_day(rows) for label, rows in inputs.items()}
            yield dg.Output({dagster_key(key): described[key.label] for key in keys if key.label in inputs})
        if missing:
            raise partition_failure("have no rows", missing, of=len(keys))

    return account_day


def freshness_asset(catalog: Catalog, *, status_url: str) -> dg.AssetsDefinition:
    key = mart_key(catalog, FRESHNESS.name)
    by_customer = dg.MultiToSingleDimensionPartitionMapping(CUSTOMER_DIMENSION)

    @dg.asset(
        key=key,
        deps=[dg.AssetDep(table_key(catalog, name), partition_mapping=by_customer) for name in catalog.queries],
        partitions_def=dg.DynamicPartitionsDefinition(name=CUSTOMERS),
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key="refreshed_marts",
        group_name=f"{catalog.source}_marts",
        kinds={"pyspark", "deltalake"},
        owners=OWNERS,
        code_version=MART_CODE_VERSION,
        metadata=_metadata(catalog, FRESHNESS, status_url),
        description="Of each customer and query: which days are published, which are missing between them, and when "
        f"what is shown was loaded.\n\n{metadata.status_words(key, status_url)}",
    )
    def freshness(context: dg.AssetExecutionContext, workplace: WorkplaceResource) -> dg.Output[Refreshed]:
        customers = [CustomerId(customer) for customer in context.partition_keys]
        with readable_failures():
            inputs = workplace.get().marts.refresh_freshness(customers)
        return dg.Output(dict.fromkeys(customers, metadata.refreshed_customer(inputs.versions)))

    return freshness


class MartIOManager(dg.ConfigurableIOManager):
    """The rows are in their table already; this reports the partitions that have some, and no others."""

    def handle_output(self, context: dg.OutputContext, obj: Refreshed) -> None:
        narrow_output(context, context.asset_partitions_def, list(obj))
        describe_partitions(context, obj)

    def load_input(self, context: dg.InputContext) -> None:
        raise dg.DagsterInvariantViolationError(
            "a mart is not handed over as an input; depend on it without one, and read it with `mart_rows`"
        )


def marts_sensor(catalog: Catalog) -> dg.SensorDefinition:
    name = f"{catalog.source}_marts"
    first = first_day(catalog)

    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.assets(
            mart_key(catalog, ACCOUNT_DAY.name), mart_key(catalog, FRESHNESS.name)
        ),
        minimum_interval_seconds=300,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Refreshes the marts where something was published, replaced or withdrawn since they were made. "
        "While no table has changed, it compares nothing.",
    )
    def marts(context: dg.SensorEvaluationContext) -> dg.SkipReason | list[dg.RunRequest]:
        instance = context.instance
        order = customer_order(instance)
        registered = set(order)
        try:
            with Workplace(read_settings(os.environ)) as here:
                # Before the comparison: what changes during it is compared next time.
                versions = pointer_versions(here.layout, catalog)
                seen = _cursor(versions, mart_versions(here.layout), order, first=first)
                if max(versions.values()) < 0:
                    return dg.SkipReason("nothing is published yet")
                if context.cursor == seen:
                    return dg.SkipReason("nothing has changed since the marts were last found up to date")
                stale = {
                    key: mark
                    for key, mark in stale_account_days(here.layout, catalog).items()
                    if key.customer_id in registered and key.logical_date >= first
                }
                customers = order if is_freshness_stale(here.layout, order, versions) else []
                report_killed_runs(here, instance)
                unfinished = runs_under_way(instance, name)
        except GadsError as error:
            return dg.SkipReason(str(error))
        if not (stale or customers):
            context.update_cursor(seen)
            return dg.SkipReason("the marts are made of what readers see")
        under_way = {
            key for run in unfinished if of_query(run) == ACCOUNT_DAY.name for key in partitions_of(catalog, run, order)
        }
        waiting = {key: mark for key, mark in stale.items() if key not in under_way}
        requests = run_requests(catalog, instance, RunTask.REFRESH, waiting, most_tries={ACCOUNT_DAY.name: _TRIES})
        if customers and not any(of_query(run) == FRESHNESS.name for run in unfinished):
            requests = [*_freshness_request(catalog, instance, customers, versions), *requests]
        told = f"{len(stale)} account-days and the freshness of {len(customers)} customers wait to be refreshed"
        context.log.info(told)
        return requests[: max(_MOST_RUNS - len(unfinished), 0)] or dg.SkipReason(told)

    return marts


def _metadata(catalog: Catalog, mart: Mart, status_url: str) -> dict[str, object]:
    return {
        **metadata.mart_columns(mart),
        **metadata.status_link(mart_key(catalog, mart.name), status_url),
        "dagster/table_name": f"{catalog.source}_marts.{mart.name}",  # its name in `gads query`
    }


def _by_label(lineage: pa.Table) -> Mapping[str, Sequence[Mapping[str, object]]]:
    rows: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for row in lineage.to_pylist():
        rows[f"{row['customer_id']}|{row['logical_date']}"].append(row)
    return rows


def _cursor(
    pointers: Mapping[str, int], marts: Mapping[str, int], customers: Sequence[CustomerId], *, first: date
) -> str:
    """All that the comparison depends on."""
    known = [str(first), *customers]
    return json.dumps({"pointers": pointers, "marts": marts, "partitions": _digest(known)}, sort_keys=True)


def _freshness_request(
    catalog: Catalog, instance: dg.DagsterInstance, customers: Sequence[CustomerId], versions: Mapping[str, int]
) -> list[dg.RunRequest]:
    """One that ended and left it stale is followed by another, a few times; one that somebody cancelled by none."""
    mark = _digest([*map(str, versions.items()), *customers])
    run_keys = [f"{RunTask.REFRESH} {FRESHNESS.name} {mark} {number}" for number in range(_TRIES)]
    ended = ended_runs(instance, run_keys)
    left = [] if dg.DagsterRunStatus.CANCELED in ended.values() else [key for key in run_keys if key not in ended]
    return [refresh_request(catalog, FRESHNESS.name, customers[0], customers[-1], run_key=key) for key in left[:1]]


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
