"""Where outputs go: a sealed run is already in the raw sink; a table is published by swapping its pointers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
import pyarrow as pa
from pyspark.sql import DataFrame

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.pointer import Pointer
from gads_assets.errors import WarehouseError
from gads_assets.extract.extraction import Extraction
from gads_assets.orchestration import metadata
from gads_assets.orchestration.batches import explain_failures, explained_failures
from gads_assets.orchestration.dagster_internals import describe_partitions, narrow_output
from gads_assets.orchestration.partitions import customer_days, dagster_key, partition_keys
from gads_assets.orchestration.resources import WorkplaceResource
from gads_assets.orchestration.runs import partition_failure, readable_failures
from gads_assets.orchestration.workplace import Workplace
from gads_assets.warehouse.arrow import read_first_rows
from gads_assets.warehouse.reading import rows_of
from gads_assets.warehouse.selection import Selection
from gads_assets.warehouse.snapshots import take_snapshot

_PREVIEWED_PARTITIONS = 25
_PREVIEWED_ROWS = 5


class RawRunIOManager(dg.ConfigurableIOManager):
    """The extractor has sealed the runs; this reports the partitions that have one, and no others."""

    workplace: dg.ResourceDependency[WorkplaceResource]

    def handle_output(self, context: dg.OutputContext, obj: Extraction) -> None:
        _report(
            context,
            self.workplace.get(),
            {key: metadata.sealed_run(manifest) for key, manifest in obj.sealed.items()},
        )

    def load_input(self, context: dg.InputContext) -> None:
        raise dg.DagsterInvariantViolationError(
            "a sealed run is read by the validator and the loader only; depend on the published table instead"
        )


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The partitions of a run that may be shown, and why the others are not; once the output is stored, `refused` also
    says which of the first could not be."""

    keys: Sequence[PartitionKey]
    refused: dict[PartitionKey, str]


class PublishedTableIOManager(dg.ConfigurableIOManager):
    """The output of a table's asset names the partitions to show; storing it is the pointer swap."""

    workplace: dg.ResourceDependency[WorkplaceResource]

    def handle_output(self, context: dg.OutputContext, obj: Publication) -> None:
        workplace, step = self.workplace.get(), context.step_context
        without = {context.asset_key: "was not published"}
        with explained_failures(step.instance, step.dagster_run, without, [*obj.keys, *obj.refused]):
            published = workplace.loader.load(obj.keys)
        obj.refused.update(published.refused)
        if not published.pointers:
            explain_failures(step.instance, step.dagster_run, without, obj.refused)
            raise partition_failure("were not published", obj.refused, of=len(obj.refused))
        previews = _previews(context, workplace, published.pointers)
        _report(
            context,
            workplace,
            {
                pointer.key: metadata.published_partition(pointer, published.pointer_version, previews.get(pointer.key))
                for pointer in published.pointers
            },
        )

    def load_input(self, context: dg.InputContext) -> DataFrame:
        """The published rows of the partitions that the downstream asset asks for.

        Fails naming those that are not published: a missing day must not look like a day without rows.
        """
        workplace = self.workplace.get()
        catalog, query_name = workplace.catalog, context.asset_key.path[-1]
        keys = partition_keys(context.asset_partition_keys, source=catalog.source, query_name=query_name)
        with readable_failures():
            snapshot = take_snapshot(workplace.layout, catalog, query_name, Selection(partitions=keys))
            missing = dict.fromkeys(set(keys) - snapshot.keys, "nothing is published of it")
            if missing:
                raise partition_failure(f"of {catalog.source}/{query_name} cannot be read", missing, of=len(keys))
            return rows_of(workplace.session(), snapshot)


def _report(
    context: dg.OutputContext, workplace: Workplace, described: Mapping[PartitionKey, metadata.Metadata]
) -> None:
    by_key: dict[str, metadata.Metadata] = {dagster_key(key): shown for key, shown in described.items()}
    narrow_output(context, customer_days(workplace.catalog), list(by_key))
    describe_partitions(context, by_key)


def _previews(
    context: dg.OutputContext, workplace: Workplace, pointers: Sequence[Pointer]
) -> Mapping[PartitionKey, pa.Table]:
    """The first rows of each partition, while they are few enough to be looked at one by one.

    The partitions are published by now, so the step goes on without a preview where there is none to be had.
    """
    if not pointers or len(pointers) > _PREVIEWED_PARTITIONS:
        return {}
    try:
        return read_first_rows(workplace.layout, workplace.catalog, pointers, limit=_PREVIEWED_ROWS)
    except WarehouseError as error:
        context.log.warning(f"published, but without a preview of the rows: {error}")
        return {}
