"""Housekeeping in Dagster: an asset that nothing else depends on, materialized by a schedule."""

from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from gads_assets_tests.warehouses import let_pass
from gads_assets_tests.worlds import NEW_YORK, World

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

HOUSEKEEPING = dg.AssetKey(["google_ads", "housekeeping"])


def test_the_scheduled_asset_tidies_the_warehouse_and_keeps_what_it_removed_on_record(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    for _ in range(2):
        assert world.run(f"{NEW_YORK}|2024-06-01").success
    published = world.published()
    tables = Path(world.here.settings.warehouse_uri) / "google_ads" / "campaign"
    for name in ("pointers", "stage_v1"):
        let_pass(tables / name, hours=8 * 24)

    result = _materialize(world)

    assert result.success
    [event] = result.asset_materializations_for_node("google_ads__housekeeping")
    removed = event.metadata["removed"]
    assert isinstance(removed, dg.TableMetadataValue)
    told = {record.data["query"]: record.data for record in removed.records}
    assert len(told) == 12
    assert (told["campaign"]["superseded_partitions"], told["campaign"]["pointer_rows"]) == (1, 1)
    assert world.published() == published


def test_a_table_that_cannot_be_tidied_fails_the_run_in_one_line_with_what_was_done(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    log = Path(world.here.layout.pointers("campaign")) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text('{"add": ')

    result = _materialize(world)

    assert not result.success
    [failure] = [event.step_failure_data for event in result.get_step_failure_events()]
    assert failure.user_failure_data is not None
    assert failure.user_failure_data.description is not None
    assert failure.user_failure_data.description.startswith("campaign: the table at ")
    assert "removed" in failure.user_failure_data.metadata


def test_the_schedule_is_on_from_the_start_and_asks_for_the_asset_alone(make_world: Callable[..., World]) -> None:
    world = make_world()
    schedule = world.definitions.resolve_schedule_def("google_ads_housekeeping")
    assert isinstance(schedule, dg.ScheduleDefinition)
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    job = world.definitions.get_repository_def().get_job(schedule.job_name)
    assert job.asset_layer.executable_asset_keys == {HOUSEKEEPING}


def _materialize(world: World) -> dg.ExecuteInProcessResult:
    return world.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=world.instance, asset_selection=[HOUSEKEEPING], raise_on_error=False
    )
