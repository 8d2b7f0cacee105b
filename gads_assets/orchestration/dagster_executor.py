"""How steps run, in the process of their run: with patience for pools, and over partitions that are no rectangle.

As `dagster_internals` of what Dagster does not offer in public; the same tests fail when an upgrade changes it.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import NoReturn

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.errors import DagsterUserCodeProcessError, raise_execution_interrupts
from dagster._core.events import EngineEventData
from dagster._core.execution.api import ExecuteRunWithPlanIterable, create_execution_plan, execute_run
from dagster._core.execution.context.system import PlanExecutionContext, PlanOrchestrationContext
from dagster._core.execution.context_creation_job import PlanExecutionContextManager
from dagster._core.execution.plan.execute_plan import inner_plan_execution_iterator
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.snap import snapshot_from_execution_plan
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG
from dagster_shared.error import SerializableErrorInfo
from sqlalchemy.exc import DBAPIError

from gads_assets.errors import BatchError, GadsError, ScopeTakenError
from gads_assets.orchestration.dagster_internals import ListedPartitions, listing, plan_partitions

_LONGEST_SLEEP = 1.0

IsPresent = Callable[[str], bool]
"""Whether the process of the run with this id is still there."""

PartitionsOfRun = Callable[[dg.DagsterRun], Mapping[str, Sequence[str]] | None]
"""The partitions that a run was asked for beside Dagster's tags, by the last part of their assets' names; None for all
other runs."""


class PatientExecutor(dg.Executor):
    """Runs steps in this process as Dagster's own executor does, but for the wait for a place in a pool.

    Dagster's takes a whole core to wait, hears no signal meanwhile, and waits for ever if the run in the place was
    killed. This one looks once a second, can be interrupted, and frees places of runs that are gone. `join` makes this
    run present to others for a block, and says who else is.

    `batch` is asked once, of a run that is present, before its steps: to Dagster each of them has all partitions that
    it gives, and takes those of its own asset from them. Both may raise a GadsError, which ends the run as failed with
    that one line.
    """

    def __init__(self, *, join: Callable[..., AbstractContextManager[IsPresent]], batch: PartitionsOfRun) -> None:
        self._join = join
        self._batch = batch

    @property
    def retries(self) -> RetryMode:
        return RetryMode.ENABLED

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        yield dg.DagsterEvent.engine_event(
            plan_context,
            f"Executing steps in process (pid: {os.getpid()})",
            event_specific_data=EngineEventData.in_process(os.getpid(), execution_plan.step_keys_to_execute),
        )
        yield from ExecuteRunWithPlanIterable(
            execution_plan=execution_plan,
            iterator=self._steps,
            execution_context_manager=PlanExecutionContextManager(
                job=plan_context.job,
                retry_mode=plan_context.retry_mode,
                execution_plan=execution_plan,
                run_config=plan_context.run_config,
                dagster_run=plan_context.dagster_run,
                instance=plan_context.instance,
                raise_on_error=plan_context.raise_on_error,
                output_capture=plan_context.output_capture,
            ),
        )

    def _steps(self, job_context: PlanExecutionContext, execution_plan: ExecutionPlan) -> Iterator[dg.DagsterEvent]:
        run = job_context.dagster_run
        with ExitStack() as held:
            try:
                is_present = held.enter_context(self._join(run.run_id, run.root_run_id))
                listed = self._batch(run)
                if listed is not None:
                    planned = _materialized_assets(job_context, execution_plan)
                    plan_partitions(job_context.instance, run, planned, listed)
            except ScopeTakenError as error:
                _leave_to_the_other(job_context.instance, run, error)
            except GadsError as error:
                raise _error_of_one_line(error) from None
            if listed:
                job_context._plan_data = job_context.plan_data._replace(dagster_run=_over(run, listed))
            claims = held.enter_context(PatientClaims(job_context.instance, run, is_present))
            yield from inner_plan_execution_iterator(job_context, execution_plan, claims)


def _leave_to_the_other(instance: dg.DagsterInstance, run: dg.DagsterRun, error: ScopeTakenError) -> NoReturn:
    """Two daemons that take a run from the queue at the same moment start it twice, and Dagster notices only if one
    is well ahead of the other. Whatever else this process did to end would be recorded as the end of the run."""
    instance.report_engine_event(f"Leaving the run to its other process: {error}.", run)
    os._exit(0)


def _materialized_assets(
    job_context: PlanExecutionContext, execution_plan: ExecutionPlan
) -> Iterator[tuple[str, dg.AssetKey]]:
    """With the step that does, in the order of their names; none if the run only checks."""
    steps = (execution_plan.get_step_by_key(step_key) for step_key in execution_plan.step_keys_to_execute)
    found = {(step.key, output.properties.asset_key) for step in steps for output in step.step_outputs}
    for step_key, asset_key in sorted(found, key=str):
        if asset_key is None:
            continue
        if not isinstance(job_context.job_def.asset_layer.get(asset_key).partitions_def, ListedPartitions):
            raise BatchError(f"{asset_key.to_user_string()} has other partitions than a batch; launch it without one")
        yield step_key, asset_key


def _over(run: dg.DagsterRun, listed: Mapping[str, Sequence[str]]) -> dg.DagsterRun:
    ends = listing(sorted(set().union(*listed.values())))
    return run.with_tags({**run.tags, ASSET_PARTITION_RANGE_START_TAG: ends, ASSET_PARTITION_RANGE_END_TAG: ends})


def _error_of_one_line(error: GadsError) -> DagsterUserCodeProcessError:
    """Of any other error Dagster shows the way to where it was raised, which is all Dagster's own."""
    shown = SerializableErrorInfo(message=str(error), stack=[], cls_name=type(error).__name__)
    return DagsterUserCodeProcessError(str(error), user_code_process_error_infos=[shown])  # type: ignore[no-untyped-call]


def carry_out_here(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    request: dg.RunRequest,
    *,
    tags: Mapping[str, str],
    run_config: Mapping[str, object],
) -> dg.JobExecutionResult:
    """What the daemon and the launcher do with a request, in this process. Dagster's own call for that takes another
    executor than the job's."""
    checks = None if request.asset_check_keys is None else frozenset(request.asset_check_keys)
    chosen = job.get_subset(asset_selection=frozenset(request.asset_selection or ()), asset_check_selection=checks)
    plan = create_execution_plan(chosen, run_config, instance_ref=instance.get_ref())
    run = instance.create_run(
        job_name=chosen.name,
        run_id=None,
        run_config=run_config,
        status=None,
        tags=tags,
        root_run_id=None,
        parent_run_id=None,
        step_keys_to_execute=None,
        execution_plan_snapshot=snapshot_from_execution_plan(plan, chosen.get_job_snapshot_id()),
        job_snapshot=chosen.get_job_snapshot(),
        parent_job_snapshot=chosen.get_parent_job_snapshot(),
        asset_selection=chosen.asset_selection,
        asset_check_selection=checks,
        resolved_op_selection=None,
        op_selection=None,
        remote_job_origin=None,
        job_code_origin=None,
        asset_graph=chosen.asset_layer.asset_graph,
    )
    return execute_run(InMemoryJob(job), run, instance)


class PatientClaims(InstanceConcurrencyContext):
    """The places of one run in pools."""

    def __init__(self, instance: dg.DagsterInstance, run: dg.DagsterRun, is_present: IsPresent) -> None:
        super().__init__(instance, run)
        self._is_present = is_present

    def claim(self, concurrency_key: str, step_key: str, step_priority: int = 0) -> bool:
        with raise_execution_interrupts():  # held back otherwise until a step runs
            self._free_places_of_the_gone(concurrency_key)
        try:
            return super().claim(concurrency_key, step_key, step_priority)
        except DBAPIError:
            # Of runs that are the first ever to need the pool, one puts it into the database. Dagster means the others
            # to find it there, which PostgreSQL refuses in the transaction of the failed attempt.
            return super().claim(concurrency_key, step_key, step_priority)

    def interval_to_next_pending_claim_check(self) -> float:
        now = time.time()
        waits = [ready_at - now for ready_at in self._pending_timeouts.values()]
        return min(max(min(waits, default=0.0), 0.0), _LONGEST_SLEEP)

    def _free_places_of_the_gone(self, pool: str) -> None:
        """Those that wait for a place too: it would be given to them."""
        storage = self._instance.event_log_storage
        info = storage.get_concurrency_info(pool)
        runs = {slot.run_id for slot in info.claimed_slots} | {step.run_id for step in info.pending_steps}
        for run_id in runs - {self._run_id}:
            if not self._is_present(run_id):
                storage.free_concurrency_slots_for_run(run_id)
