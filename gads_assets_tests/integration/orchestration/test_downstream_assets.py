"""What an asset downstream of a published table is given: the published rows of its own partitions, or a reason."""

from collections.abc import Callable
from dataclasses import replace

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from gads_assets.catalog.loading import load_catalog
from gads_assets.domain.keys import StageId
from gads_assets.orchestration.code_location import code_location
from gads_assets.warehouse.pointers import append_pointers
from gads_assets.warehouse.publishing import current_state
from gads_assets_tests.worlds import BERLIN, NEW_YORK, STATUS_URL, TABLE, TOKYO, SharedSpark, World, key, step_failure

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")


def test_a_downstream_asset_gets_exactly_the_published_rows_of_its_range_and_fails_on_a_gap(
    make_world: Callable[..., World],
) -> None:
    received: list[list[dict[str, object]]] = []
    partitions_def = (
        code_location(load_catalog(), SharedSpark(), status_url=STATUS_URL)
        .resolve_asset_graph()
        .get(TABLE)
        .partitions_def
    )

    @dg.asset(
        partitions_def=partitions_def,
        ins={"campaigns": dg.AssetIn(TABLE)},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def report(campaigns: DataFrame) -> None:
        received.append([row.asDict() for row in campaigns.collect()])

    world = make_world(extra_assets=[report])
    assert world.run(f"{NEW_YORK}|2024-06-01", f"{BERLIN}|2024-06-03").success
    published = current_state(world.here.layout, "campaign")

    assert world.run(f"{NEW_YORK}|2024-06-02", f"{BERLIN}|2024-06-03", assets=[report.key]).success

    wanted = [key(f"{customer}|2024-06-0{day}") for customer in (NEW_YORK, BERLIN) for day in (2, 3)]
    assert {(row["customer_id"], row["logical_date"], row["run_id"]) for row in received[0]} == {
        (partition.customer_id, partition.logical_date, published[partition].run_id) for partition in wanted
    }
    assert len(received[0]) == sum(published[partition].record_count for partition in wanted)

    gap = world.run(f"{NEW_YORK}|2024-06-03", f"{BERLIN}|2024-06-04", assets=[report.key])

    assert not gap.success
    assert step_failure(gap, "report") == (
        "2 of 4 partitions of google_ads/campaign cannot be read. "
        f"{NEW_YORK}|2024-06-04, {BERLIN}|2024-06-04: nothing is published of it"
    )

    empty = replace(published[wanted[0]], key=key(f"{TOKYO}|2024-06-04"), record_count=0, stage_id=StageId("EMPTY"))
    append_pointers(world.here.layout, "campaign", [empty])

    assert world.run(f"{TOKYO}|2024-06-04", assets=[report.key]).success
    assert received[1:] == [[]]
