"""Housekeeping as an asset of its own, materialized every night: what was removed is in its history."""

from collections.abc import Sequence
from datetime import UTC, datetime

import dagster as dg

from gads_assets.catalog.specification import Catalog
from gads_assets.orchestration.assets import OWNERS
from gads_assets.orchestration.keys import housekeeping_key
from gads_assets.orchestration.metadata import Metadata
from gads_assets.orchestration.resources import WorkplaceResource
from gads_assets.orchestration.runs import readable_failures
from gads_assets.raw.housekeeping import Fate, Outcome, find_orphans, remove_orphans
from gads_assets.warehouse.housekeeping import TidiedQuery


def housekeeping_asset(catalog: Catalog) -> dg.AssetsDefinition:
    @dg.asset(
        key=housekeeping_key(catalog),
        group_name=f"{catalog.source}_upkeep",
        kinds={"pyspark", "deltalake"},
        owners=OWNERS,
        description="Removes what no run and no reader needs any more, as `gads housekeeping` does: staged rows that "
        "were replaced, withdrawn or abandoned, their pointers and files, and what killed extractions left behind.",
    )
    def housekeeping(workplace: WorkplaceResource) -> dg.MaterializeResult[None]:
        here, now = workplace.get(), datetime.now(UTC)
        with readable_failures():
            orphans = remove_orphans(here.sink, find_orphans(here.sink, now=now).orphans, now=now)
            tidied = list(here.housekeeper.tidy_all())
        failed = [f"{each.upkeep.query_name}: {each.reason}" for each in tidied if each.reason]
        failed += [f"raw sink: {outcome.reason}" for outcome in orphans if outcome.fate is Fate.FAILED]
        if failed:
            raise dg.Failure("; ".join(failed), metadata=_removed(tidied, orphans), allow_retries=False)
        return dg.MaterializeResult(metadata=_removed(tidied, orphans))

    return housekeeping


def housekeeping_schedule(catalog: Catalog) -> dg.ScheduleDefinition:
    """On from the start: a warehouse that nobody tidies grows with each restated day, and nobody misses what goes."""
    name = f"{catalog.source}_housekeeping"
    return dg.ScheduleDefinition(
        name=name,
        job=dg.define_asset_job(name, dg.AssetSelection.assets(housekeeping_key(catalog))),
        cron_schedule="30 3 * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Tidies the raw sink and the warehouse once a night.",
    )


def _removed(tidied: Sequence[TidiedQuery], orphans: Sequence[Outcome]) -> Metadata:
    gone = [outcome.orphan for outcome in orphans if outcome.fate is Fate.REMOVED]
    found = [each.upkeep for each in tidied]
    return {
        "bytes_freed": dg.MetadataValue.int(sum(each.bytes for each in [*found, *gone])),
        "raw_orphans_removed": dg.MetadataValue.int(len(gone)),
        "removed": dg.MetadataValue.table(
            [
                dg.TableRecord(
                    {
                        "query": each.query_name,
                        "superseded_partitions": each.superseded,
                        "abandoned_partitions": each.abandoned,
                        "pointer_rows": each.pointer_rows,
                        "small_files_compacted": each.small_files,
                        "files": each.files,
                        "bytes": each.bytes,
                    }
                )
                for each in found
            ]
        ),
    }
