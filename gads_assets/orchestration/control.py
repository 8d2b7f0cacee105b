"""The control plane's sensor: what is due becomes runs of many partitions each, and what has ended is followed up."""

import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

import dagster as dg
from ulid import ULID

from gads_assets.catalog.specification import Catalog
from gads_assets.control.rules import opening_rules, retry_policies
from gads_assets.control.ticking import ControlPlane, Runs, Tick
from gads_assets.domain.ledger_news import RunEnd
from gads_assets.domain.quota import is_reserved_for_fresh, why_not_asked
from gads_assets.domain.roles import Role
from gads_assets.domain.scheduling import Purpose
from gads_assets.domain.verdict import Rule
from gads_assets.errors import GadsError
from gads_assets.orchestration.checks import VERDICT
from gads_assets.orchestration.keys import assets_of_queries, raw_key, table_key
from gads_assets.orchestration.killed_runs import ENDED, report_killed_runs
from gads_assets.orchestration.requested_runs import customer_order
from gads_assets.orchestration.runs import ATTEMPT, BATCH, PURPOSE, root_run_id, run_failure, step_failure
from gads_assets.orchestration.unclaimed_batches import plan_unclaimed
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.state.dispatching import Dispatcher, OpenBatch

_TICK_SECONDS: Final = 30


def control_sensor(catalog: Catalog) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"{catalog.source}_control",
        asset_selection=assets_of_queries(catalog),
        minimum_interval_seconds=_TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Decides which partitions run, and when: days as they open in each account's time zone, days that "
        "Google may have changed since, failures once another try is worth it, what operators asked for, and "
        "backfills last. Follows up runs that ended, and those that were killed.",
    )
    def control(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            with Workplace(read_settings(os.environ)) as here:
                tick = look(here, context.instance)
        except GadsError as error:
            return dg.SkipReason(str(error))
        told = describe(tick)
        if not tick.requests:
            return dg.SkipReason(told)
        context.log.info(told)
        return dg.SensorResult(run_requests=[request_of(catalog, batch) for batch in tick.requests])

    return control


def look(here: Workplace, instance: dg.DagsterInstance) -> Tick:
    """One tick of the control plane, by the database's clock."""
    report_killed_runs(here, instance)
    schedule, policies = here.schedule_as(Role.OPERATOR), retry_policies(here.catalog)
    budget = here.operations_as(Role.OPERATOR).status()
    accounts = here.customers_as(Role.OPERATOR).customers()

    def followed(batches: Sequence[OpenBatch]) -> Runs:
        runs = runs_of(instance, batches)
        plan_unclaimed(here, instance, batches, runs)
        return runs

    plane = ControlPlane(
        schedule=schedule,
        policies=policies,
        rules=opening_rules(here.catalog),
        dispatcher=Dispatcher(
            source=here.catalog.source,
            customers=customer_order(instance),
            start_dates={query.name: query.start_date for query in here.catalog.queries.values()},
            policies=policies,
            largest=here.settings.batch_partitions,
            new_batch_id=lambda: str(ULID()),
            new_override_id=lambda: str(ULID()),
        ),
        runs_of=followed,
        not_asked=why_not_asked(budget),
        reserved_for_fresh=is_reserved_for_fresh(budget, next_days=len(accounts) * len(here.catalog.queries)),
        random=random.random,
    )
    return plane.tick(now=schedule.clock())


def runs_of(instance: dg.DagsterInstance, batches: Sequence[OpenBatch]) -> Runs:
    """Where there are two runs of a batch, the one that came for it counts, and else one that may still come."""
    if not batches:
        return Runs()
    by_batch: dict[str, list[dg.DagsterRun]] = {batch.batch_id: [] for batch in batches}
    # One that a killed daemon left behind is launched when its key comes again.
    for run in instance.get_runs(dg.RunsFilter(tags={BATCH: list(by_batch)})):
        if run.status is not dg.DagsterRunStatus.NOT_STARTED:
            by_batch[run.tags[BATCH]].append(run)
    ended = {}
    for batch in batches:
        runs = by_batch[batch.batch_id]
        if runs and all(run.status in ENDED for run in runs):
            # The newest first: of repetitions of one the last has the word.
            came = next((run for run in runs if root_run_id(run) == batch.dagster_run_id), runs[0])
            ended[batch.batch_id] = RunEnd(
                cancelled=came.status is dg.DagsterRunStatus.CANCELED, reason=_last_words(instance, came)
            )
    return Runs(ended=ended, missing=[batch_id for batch_id, runs in by_batch.items() if not runs])


def request_of(catalog: Catalog, batch: OpenBatch) -> dg.RunRequest:
    tags = {
        BATCH: batch.batch_id,
        PURPOSE: batch.purpose.value,
        ATTEMPT: str(batch.attempt),
        "dagster/priority": str(batch.purpose.priority),
    }
    if batch.purpose is Purpose.REVALIDATE:
        checks = [
            dg.AssetCheckKey(raw_key(catalog, query), name)
            for query in batch.queries
            for name in (VERDICT, *(rule.value for rule in Rule))
        ]
        return dg.RunRequest(run_key=batch.run_key, asset_selection=[], asset_check_keys=checks, tags=tags)
    assets = [make(catalog, query) for query in batch.queries for make in (raw_key, table_key)]
    return dg.RunRequest(run_key=batch.run_key, asset_selection=assets, tags=tags)


def describe(tick: Tick) -> str:
    """One line, for people."""
    by_purpose: Counter[str] = Counter()
    for batch in tick.requests:
        by_purpose[batch.purpose] += batch.partitions
    requested = ", ".join(f"{number} {purpose}" for purpose, number in by_purpose.items())
    parts = [
        f"{requested} in {len(tick.requests)} runs" if requested else "",
        f"{tick.opened.fresh} days have opened" if tick.opened.fresh else "",
        f"{tick.opened.restated} days are due again" if tick.opened.restated else "",
        f"{tick.settled} partitions were followed up" if tick.settled else "",
        tick.not_asked or "",
    ]
    return "; ".join(filter(None, parts)) or "nothing is due"


def _last_words(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    if run.status is not dg.DagsterRunStatus.FAILURE:
        return f"run {run.run_id} ended as {run.status.value.lower()}, and did not try it"
    failures = instance.all_logs(run.run_id, {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE})
    said = next(
        (step_failure(event) if event.is_step_failure else run_failure(event) for event in _events(failures)),
        None,
    )
    return f"run {run.run_id} failed: {said or 'without a word'}".partition("\n")[0][:1000]


def _events(entries: Sequence[dg.EventLogEntry]) -> list[dg.DagsterEvent]:
    return [entry.get_dagster_event() for entry in entries]
