"""What a step may know about the Dagster run it is part of, and how a run says which partitions it could not do."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import dagster as dg

from gads_assets.domain.keys import PartitionKey
from gads_assets.errors import GadsError
from gads_assets.warehouse.session import SPARK_ERRORS, spark_reason

JUDGES: Final = "gads/judges"
"""The tag that says which sealed runs a run's check judges; without it, what it extracted, or else the authorities."""
UNJUDGED: Final = "unjudged"
"""Only what was never judged: see `Validator.validate`."""

BATCH: Final = "gads/batch"
"""The tag of a run that the control plane asked for: it works on the partitions of this batch."""
PURPOSE: Final = "gads/purpose"
ATTEMPT: Final = "gads/attempt"

_NAMED = 20


def root_run_id(run: dg.DagsterRun) -> str:
    """The same for a run and all its re-executions, so that a repeated step finds what the first try did."""
    return run.root_run_id or run.run_id


def judges_only_unjudged(run: dg.DagsterRun) -> bool:
    return run.tags.get(JUDGES) == UNJUDGED


def includes_asset(job: dg.JobDefinition, key: dg.AssetKey) -> bool:
    """Asked of the job of a step, which is narrowed to its run's selection: a run of a job with a name has none."""
    return key in job.asset_layer.selected_asset_keys


def includes_check(run: dg.DagsterRun, key: dg.AssetCheckKey) -> bool:
    return run.asset_check_selection is None or key in run.asset_check_selection


@contextmanager
def readable_failures() -> Iterator[None]:
    """Ends the step with the error's own sentence. Dagster prints a failure with all that led to it, which for a full
    disk or refused credentials is hundreds of lines about nothing else."""
    try:
        yield
    except GadsError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    except SPARK_ERRORS as error:
        raise dg.Failure(f"Spark failed: {spark_reason(error)}", allow_retries=False) from None


def partition_failure(what: str, reasons: Mapping[PartitionKey, str], *, of: int) -> dg.Failure:
    """Ends the step as failed, naming the partitions. Dagster must not repeat it: the control plane decides that."""
    by_reason: dict[str, list[str]] = {}
    for key, reason in sorted(reasons.items()):
        by_reason.setdefault(reason, []).append(key.label)
    named = [f"{_first(labels, ', ')}: {reason}" for reason, labels in by_reason.items()]
    return dg.Failure(
        description=f"{len(reasons)} of {of} partitions {what}. {_first(named, '; ')}",
        metadata={
            "partitions": dg.MetadataValue.table(
                [
                    dg.TableRecord({"partition": key.label, "reason": reason})
                    for key, reason in sorted(reasons.items())[:500]
                ]
            )
        },
        allow_retries=False,
    )


def _first(texts: Sequence[str], separator: str) -> str:
    more = [f"and {len(texts) - _NAMED} more"] if len(texts) > _NAMED else []
    return separator.join([*texts[:_NAMED], *more])


def step_failure(event: dg.DagsterEvent) -> str:
    """What a failed step said, in one line where it was ours."""
    failure = event.step_failure_data
    said = failure.user_failure_data and failure.user_failure_data.description
    return said or (failure.error.message.strip() if failure.error else "a step failed")


def run_failure(event: dg.DagsterEvent) -> str:
    """What a run said that failed before its first step, or was reported as failed; after one, only that it did."""
    error = event.job_failure_data.error if event.event_specific_data else None
    return error.message.strip() if error else event.message or "the run failed"
