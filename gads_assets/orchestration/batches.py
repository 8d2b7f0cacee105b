"""Runs over partitions that are no rectangle: they are those of a batch, which a tag of the run names."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import dagster as dg

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.roles import Role
from gads_assets.errors import BatchError
from gads_assets.orchestration.dagster_internals import observe_partitions
from gads_assets.orchestration.leasing import leases_of_others, take_leases
from gads_assets.orchestration.partitions import dagster_key
from gads_assets.orchestration.runs import BATCH, readable_failures, root_run_id
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings


def partitions_of_batch(run: dg.DagsterRun) -> Mapping[str, Sequence[str]] | None:
    """Those of the run's batch, by query; None if it has none. The first run that asks has it, and its repetitions."""
    if BATCH not in run.tags:
        return None
    with Workplace(read_settings(os.environ), outlived_by_database=True) as here:
        return labels_by_query(_claimed(here, run))


def labels_by_query(keys: Iterable[PartitionKey]) -> dict[str, list[str]]:
    by_query: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        by_query[key.query_name].append(key.label)
    return by_query


def begin_step(
    here: Workplace, run: dg.DagsterRun, keys: Sequence[PartitionKey], *, after_extraction: bool = False
) -> tuple[list[PartitionKey], dict[PartitionKey, str]]:
    """Of the partitions of one query that Dagster gives a step: those that it works on, and why it leaves others to
    another run. Of a batch these are its own of that query.

    `after_extraction` says that an earlier step of the run was to extract them. What that one left to another run this
    one leaves too, although the other may be done by now: it has nothing of this run's to go on with.
    """
    if BATCH in run.tags:
        claimed = set(_claimed(here, run))
        keys = [key for key in keys if key in claimed]
    left = _not_extracted(here, run, keys) if after_extraction else {}
    refused = left | take_leases(here, run.run_id, [key for key in keys if key not in left])
    return [key for key in keys if key not in refused], refused


def explain_failures(
    instance: dg.DagsterInstance,
    run: dg.DagsterRun,
    without: Mapping[dg.AssetKey, str],
    reasons: Mapping[PartitionKey, str],
) -> None:
    """Puts the reason on the page of each partition that a batch could not do: Dagster shows no failure there.
    `without` are the assets that go without it, and what it was not."""
    if BATCH in run.tags:
        observed = {dagster_key(key): {"reason": dg.MetadataValue.text(reason)} for key, reason in reasons.items()}
        for asset_key, what in without.items():
            observe_partitions(instance, run, asset_key, observed, description=what)


@contextmanager
def explained_failures(
    instance: dg.DagsterInstance,
    run: dg.DagsterRun,
    without: Mapping[dg.AssetKey, str],
    keys: Iterable[PartitionKey],
) -> Iterator[None]:
    """As `readable_failures`; and what ends the step as a whole is the reason of each of its partitions."""
    try:
        with readable_failures():
            yield
    except Exception as error:
        said = error.description if isinstance(error, dg.Failure) else None
        explain_failures(instance, run, without, dict.fromkeys(keys, said or f"{type(error).__name__}: {error}"))
        raise


def _not_extracted(here: Workplace, run: dg.DagsterRun, keys: Sequence[PartitionKey]) -> dict[PartitionKey, str]:
    extracted = here.records_as(Role.VALIDATOR).extractions(root_run_id(run), keys)
    left = [key for key in keys if key not in extracted]
    reason = "another run had it when this one extracted, so this one leaves it alone; launch it again if it is wanted"
    return dict.fromkeys(left, reason) | leases_of_others(here, left)


def _claimed(here: Workplace, run: dg.DagsterRun) -> Sequence[PartitionKey]:
    batch_id = run.tags[BATCH]
    keys, other = here.schedule_as(Role.EXTRACTOR).claim_batch(batch_id, root_run_id(run))
    if not keys and other:
        raise BatchError(f"batch {batch_id} has gone to run {other}; there is nothing left for this one")
    if not keys:
        raise BatchError(
            f"batch {batch_id} is over, and what it left undone is scheduled anew; `gads state retry` brings it forward"
        )
    return keys
