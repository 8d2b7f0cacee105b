"""Two assets for every query of the catalog: the sealed runs, and the published table."""

import hashlib
from collections.abc import Iterator, Sequence

import dagster as dg

from gads_assets.catalog.gaql_query import print_gaql
from gads_assets.catalog.specification import Catalog, QuerySpecification
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.roles import Role
from gads_assets.domain.state import AttemptOutcome, PartitionStatus
from gads_assets.extract.extraction import Extraction
from gads_assets.orchestration import metadata
from gads_assets.orchestration.batches import begin_step, explain_failures, explained_failures
from gads_assets.orchestration.checks import VERDICT
from gads_assets.orchestration.io_managers import Publication
from gads_assets.orchestration.keys import api_pool, raw_key, spark_pool, table_key
from gads_assets.orchestration.partitions import CustomerDays, partition_keys
from gads_assets.orchestration.resources import WorkplaceResource
from gads_assets.orchestration.runs import (
    includes_asset,
    includes_check,
    partition_failure,
    readable_failures,
    root_run_id,
)
from gads_assets.orchestration.workplace import Workplace

OWNERS = ["team:ads-data"]


def raw_asset(
    catalog: Catalog, specification: QuerySpecification, partitions_def: CustomerDays, *, status_url: str
) -> dg.AssetsDefinition:
    key = raw_key(catalog, specification.name)
    code_version = raw_code_version(catalog, specification)

    @dg.asset(
        key=key,
        partitions_def=partitions_def,
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key="raw_runs",
        pool=api_pool(catalog),
        group_name=f"{catalog.source}_raw",
        kinds={"python", "json"},
        owners=OWNERS,
        code_version=code_version,
        description=f"{specification.description}\n\nOne sealed extraction per customer and day, never changed after."
        f"\n\n{metadata.status_words(key, status_url)}",
        metadata={
            **metadata.query_metadata(specification),
            **metadata.raw_columns(specification),
            **metadata.status_link(key, status_url),
        },
    )
    def raw(context: dg.AssetExecutionContext, workplace: WorkplaceResource) -> Iterator[dg.Output[Extraction]]:
        here, instance, run = workplace.get(), context.instance, context.run
        asked = partition_keys(context.partition_keys, source=catalog.source, query_name=specification.name)
        with readable_failures():
            keys, held = begin_step(here, run, asked)
        total = len(keys) + len(held)
        without, without_any = {key: "was not extracted"}, {key: "was not extracted"}
        if includes_asset(context.op_execution_context.job_def, table := table_key(catalog, specification.name)):
            without_any[table] = "was not published"  # its step is not even begun
        if not keys:
            explain_failures(instance, run, without_any, held)
            raise partition_failure("were not extracted", held, of=total)
        with explained_failures(instance, run, without_any, [*keys, *held]):
            extraction = here.extractor.extract(
                specification,
                keys,
                {each.customer_id: each for each in here.customers_as(Role.EXTRACTOR).customers(with_closed=True)},
                code_version=code_version,
                dagster_run_id=root_run_id(run),
            )
        reasons = held | {partition: str(error) for partition, error in extraction.failed.items()}
        explain_failures(instance, run, without if extraction.sealed else without_any, reasons)
        if not extraction.sealed:
            raise partition_failure("were not extracted", reasons, of=total)
        yield dg.Output(extraction)
        # A failure here would keep the check and the table of this run from the partitions that were sealed; where
        # they are part of the run, they name the missing ones at their end.
        if reasons and not includes_check(run, dg.AssetCheckKey(key, VERDICT)):
            raise partition_failure("were not extracted", reasons, of=total)

    return raw


def table_asset(
    catalog: Catalog, specification: QuerySpecification, partitions_def: CustomerDays, *, status_url: str
) -> dg.AssetsDefinition:
    key = table_key(catalog, specification.name)

    @dg.asset(
        key=key,
        deps=[raw_key(catalog, specification.name)],
        partitions_def=partitions_def,
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key="published_tables",
        pool=spark_pool(catalog),
        group_name=catalog.source,
        kinds={"pyspark", "deltalake"},
        owners=OWNERS,
        code_version=table_code_version(specification),
        description=f"{specification.description}\n\nWhat consumers read: exactly one accepted extraction per customer "
        f"and day, replaced whole by a pointer swap.\n\n{metadata.status_words(key, status_url)}",
        metadata={
            **metadata.query_metadata(specification),
            **metadata.published_columns(specification),
            **metadata.status_link(key, status_url),
            "dagster/table_name": f"{catalog.source}.{specification.name}",  # its name in `gads query`
        },
    )
    def table(context: dg.AssetExecutionContext, workplace: WorkplaceResource) -> Iterator[dg.Output[Publication]]:
        here, instance, run = workplace.get(), context.instance, context.run
        asked = partition_keys(context.partition_keys, source=catalog.source, query_name=specification.name)
        without = {key: "was not published"}
        extracts = includes_asset(context.op_execution_context.job_def, raw_key(catalog, specification.name))
        with readable_failures():
            keys, held = begin_step(here, run, asked, after_extraction=extracts)
        with explained_failures(instance, run, without, [*keys, *held]):
            refused = held | _refused(here, keys, root_run_id(run))
        publication = Publication(keys=[each for each in keys if each not in refused], refused=refused)
        if publication.keys:
            yield dg.Output(publication)
        if publication.refused:
            explain_failures(instance, run, without, publication.refused)
            raise partition_failure("were not published", publication.refused, of=len(keys) + len(held))

    return table


def _refused(here: Workplace, keys: Sequence[PartitionKey], run_id: str) -> dict[PartitionKey, str]:
    """Why some of these partitions are not shown by this run; state decides, this only says it in words."""
    store, records = here.store_as(Role.LOADER), here.records_as(Role.LOADER)
    publishable = {state.key for state in store.publishable(keys)}
    extracted = records.extractions(run_id, keys)
    judged = records.judgements(run_id, keys)
    states = store.states(keys)
    refused: dict[PartitionKey, str] = {}
    for key in keys:
        extraction, judgement, state = extracted.get(key), judged.get(key), states.get(key)
        if judgement and judgement.outcome in {AttemptOutcome.REJECTED, AttemptOutcome.DEMOTED}:
            # Also where an earlier run stays published: this run's extraction was bad, and the run must say so.
            refused[key] = judgement.error_message or "rejected"
        elif extraction and extraction.error_message:
            refused[key] = extraction.error_message
        elif key in publishable:
            continue
        elif state and state.status is PartitionStatus.FAILED:
            refused[key] = state.error_message or "rejected"
        elif state and state.status is PartitionStatus.SUCCESS:
            refused[key] = "its rows are being withdrawn; run its check again to finish that"
        else:
            refused[key] = "no run of it was accepted yet"
    return refused


def raw_code_version(catalog: Catalog, specification: QuerySpecification) -> str:
    text = f"{catalog.api_version}\n{print_gaql(specification.gaql)}\n{specification.schema.version}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def table_code_version(specification: QuerySpecification) -> str:
    return f"schema-{specification.schema.version}"
