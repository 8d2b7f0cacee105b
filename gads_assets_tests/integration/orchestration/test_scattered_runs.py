"""Runs over partitions that no rectangle holds: real ones, by the project's own executor."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.execution.api import _reexecute_job
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionResolvedStatus
from dagster._core.storage.asset_check_state import AssetCheckState, bulk_update_asset_check_state
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_START_TAG
from dagster._serdes import serialize_value
from sqlalchemy import Engine, event, text

from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionStatus
from gads_assets.extract.partitions import Extractor
from gads_assets.orchestration.partitions import CUSTOMER_DIMENSION, DAY_DIMENSION, customer_days
from gads_assets.orchestration.requested_runs import carry_out
from gads_assets.orchestration.runs import BATCH
from gads_assets_tests.integration.orchestration.scattered import (
    AD_GROUP,
    FRESHNESS,
    GOOD,
    REJECTED,
    REJECTS,
    SCATTERED,
    UNEXTRACTED,
    observations,
    reasons,
    run_failure,
    steps_begun,
)
from gads_assets_tests.worlds import (
    BERLIN,
    NEW_YORK,
    RAW,
    TABLE,
    TOKYO,
    VERDICT,
    World,
    attempted,
    evaluations,
    key,
    step_failure,
)

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")


def test_a_mixed_batch_publishes_its_good_partitions_and_ends_failed_naming_the_others(
    make_world: Callable[..., World],
) -> None:
    world = make_world(f"{REJECTS};transient@{TOKYO}/campaign/*:99")

    result = world.run_batch(SCATTERED)

    assert not result.success
    assert world.materialized(RAW) == GOOD | {REJECTED}
    assert world.materialized(TABLE) == GOOD
    assert set(world.published()) == GOOD
    assert evaluations(result) == dict.fromkeys(GOOD, True) | {REJECTED: False}
    failure = step_failure(result, "google_ads__campaign")
    assert "3 of 6 partitions were not published" in failure
    for label in (REJECTED, *UNEXTRACTED):
        assert label in failure
        assert reasons(world, TABLE, label)[0] in failure
    for label in UNEXTRACTED:
        assert reasons(world, RAW, label) == reasons(world, TABLE, label)
    assert not any(reasons(world, asset, label) for asset in (RAW, TABLE) for label in GOOD)
    assert attempted(world, RAW) == dict.fromkeys(GOOD | {REJECTED}, "SUCCEEDED") | dict.fromkeys(UNEXTRACTED, "FAILED")
    assert attempted(world, TABLE) == dict.fromkeys(GOOD, "SUCCEEDED") | dict.fromkeys(
        {REJECTED, *UNEXTRACTED}, "FAILED"
    )


def test_every_event_of_a_batch_is_as_one_of_a_rectangle(make_world: Callable[..., World]) -> None:
    world = make_world(REJECTS)
    world.run(f"{NEW_YORK}|2024-06-11", f"{NEW_YORK}|2024-06-12")
    expected = (
        world.materialization(RAW, f"{NEW_YORK}|2024-06-11"),
        world.materialization(TABLE, f"{NEW_YORK}|2024-06-11"),
    )

    result = world.run_batch([*GOOD, REJECTED])

    run = world.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert not run.is_partitioned
    stored = world.instance.all_logs(result.run_id)
    assert not any("listed|" in serialize_value(entry) for entry in stored)  # what Dagster takes for a range
    for like, asset, labels in zip(expected, (RAW, TABLE), (GOOD | {REJECTED}, GOOD), strict=True):
        records = world.instance.fetch_materializations(asset, limit=100).records
        of_run = {record.partition_key: record for record in records if record.run_id == result.run_id}
        assert of_run.keys() == labels
        for label, record in of_run.items():
            made = record.asset_materialization
            assert made is not None
            assert made.tags is not None
            assert like.tags is not None
            customer, day = str(label).split("|")
            assert made.tags[f"dagster/partition/{CUSTOMER_DIMENSION}"] == customer
            assert made.tags[f"dagster/partition/{DAY_DIMENSION}"] == day
            assert made.tags["dagster/code_version"] == like.tags["dagster/code_version"]
            assert made.tags.keys() == like.tags.keys()
            assert made.metadata.keys() == like.metadata.keys()
    [explained] = observations(world, TABLE, REJECTED)
    assert explained.tags["dagster/partition/customer_id"] == BERLIN
    assert explained.tags["dagster/partition/logical_date"] == "2024-06-02"


def test_the_checks_page_shows_the_verdict_of_each_partition_of_a_batch(make_world: Callable[..., World]) -> None:
    world = make_world(REJECTS)
    partitions_def = customer_days(world.here.catalog)

    world.run_batch([*GOOD, REJECTED])

    with partition_loading_context(dynamic_partitions_store=world.instance):
        found = bulk_update_asset_check_state(
            world.instance, [(VERDICT, partitions_def)], {VERDICT: AssetCheckState.empty()}
        )
    shown = {
        status: set(subset.subset_value.get_partition_keys())
        for status, subset in found[VERDICT].subsets.items()
        if not subset.is_empty
    }
    assert shown == {
        AssetCheckExecutionResolvedStatus.SUCCEEDED: GOOD,
        AssetCheckExecutionResolvedStatus.FAILED: {REJECTED},
    }


def test_dagsters_own_page_counts_the_failed_partitions_of_a_batch(make_world: Callable[..., World]) -> None:
    world = make_world(f"{REJECTS};transient@{TOKYO}/campaign/*:99")
    world.run_batch(SCATTERED)
    for asset, failed in ((RAW, UNEXTRACTED), (TABLE, {REJECTED, *UNEXTRACTED})):
        status = get_and_update_asset_status_cache_value(world.instance, asset, customer_days(world.here.catalog))
        assert status is not None
        found = status.deserialize_failed_partition_subsets(customer_days(world.here.catalog))
        assert set(found.get_partition_keys()) == failed


def test_one_run_takes_the_same_partitions_of_several_queries(make_world: Callable[..., World]) -> None:
    world = make_world(f"transient@{TOKYO}/ad_group/*:99")
    labels = {f"{NEW_YORK}|2024-06-01", f"{TOKYO}|2024-06-20"}

    result = world.run_batch([*labels], assets=[RAW, TABLE, *AD_GROUP])

    assert not result.success
    for asset in (RAW, TABLE):
        assert world.materialized(asset) == labels
        assert attempted(world, asset) == dict.fromkeys(labels, "SUCCEEDED")
    for asset in AD_GROUP:
        assert world.materialized(asset) == {f"{NEW_YORK}|2024-06-01"}
        assert attempted(world, asset) == {f"{NEW_YORK}|2024-06-01": "SUCCEEDED", f"{TOKYO}|2024-06-20": "FAILED"}


def test_a_batch_of_one_partition_is_blocked_by_its_check_as_a_run_of_one_is(make_world: Callable[..., World]) -> None:
    world = make_world(REJECTS)

    result = world.run_batch([REJECTED])

    assert not result.success
    assert evaluations(result) == {REJECTED: False}
    assert steps_begun(result) == {"google_ads__raw__campaign", "google_ads__raw__campaign__validator"}
    assert world.materialized(TABLE) == set()
    assert attempted(world, RAW) == {REJECTED: "SUCCEEDED"}
    assert attempted(world, TABLE) == {REJECTED: "FAILED"}
    [reason] = reasons(world, TABLE, REJECTED)
    assert reason in step_failure(result, "google_ads__raw__campaign__validator")


def test_a_batch_can_be_judged_only_and_that_is_no_attempt(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.run_batch([*GOOD])
    before = attempted(world, RAW), world.published()
    [spoiled, *intact] = GOOD
    [run_id] = world.here.sink.sealed_runs(key(spoiled))
    [payload] = world.here.sink.payload_uris(world.here.sink.manifest(key(spoiled), run_id))
    Path(payload).unlink()

    result = world.run_batch([*GOOD], assets=[], checks=[VERDICT])

    assert steps_begun(result) == {"google_ads__raw__campaign__validator"}
    assert evaluations(result) == dict.fromkeys(intact, True) | {spoiled: False}
    assert "1 of 3 partitions were not accepted" in step_failure(result, "google_ads__raw__campaign__validator")
    assert world.status(spoiled) is PartitionStatus.FAILED
    assert set(world.published()) == set(intact)
    assert observations(world, RAW, spoiled) == []
    assert attempted(world, RAW) == before[0]


def test_a_load_that_publishes_nothing_of_a_batch_says_why_on_each_partition(make_world: Callable[..., World]) -> None:
    world = make_world()
    labels = [f"{NEW_YORK}|2024-06-01", f"{NEW_YORK}|2024-06-03"]
    world.run_batch(labels, assets=[RAW])
    for label in labels:
        [run_id] = world.here.sink.sealed_runs(key(label))
        [payload] = world.here.sink.payload_uris(world.here.sink.manifest(key(label), run_id))
        Path(payload).unlink()

    result = world.run_batch([*labels, f"{BERLIN}|2024-06-09"], assets=[TABLE], checks=[])

    assert steps_begun(result) == {"google_ads__campaign"}
    assert "3 of 3 partitions were not published" in step_failure(result, "google_ads__campaign")
    assert world.materialized(TABLE) == set()
    assert [len(reasons(world, TABLE, label)) for label in labels] == [1, 1]
    assert reasons(world, TABLE, f"{BERLIN}|2024-06-09") == ["no run of it was accepted yet"]


def test_a_customer_that_is_not_registered_fails_alone(make_world: Callable[..., World]) -> None:
    world = make_world()
    known, unknown = f"{NEW_YORK}|2024-06-01", "1112223334|2024-06-01"
    assert not world.run_batch([known, unknown], assets=[RAW]).success
    assert world.materialized(RAW) == {known}
    assert "1112223334" in reasons(world, RAW, unknown)[0]


def test_a_batch_that_is_cancelled_leaves_a_cancelled_attempt_of_every_partition(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()

    def cancel(*_: object, dagster_run_id: str, **__: object) -> None:
        run = world.instance.get_run_by_id(dagster_run_id)
        assert run is not None
        world.instance.report_run_canceling(run)
        raise KeyboardInterrupt

    monkeypatch.setattr(Extractor, "extract", cancel)
    result = world.run_batch(SCATTERED)

    assert result.dagster_run.status is dg.DagsterRunStatus.CANCELED
    for asset in (RAW, TABLE):
        assert attempted(world, asset) == dict.fromkeys(SCATTERED, "CANCELLED")


def test_a_batch_goes_to_one_run_and_another_ends_with_one_line_and_no_step(make_world: Callable[..., World]) -> None:
    world = make_world()
    first = world.run_batch([*GOOD])
    batch_id = first.dagster_run.tags[BATCH]
    request = dg.RunRequest(run_key="late", asset_selection=[RAW, TABLE], tags={BATCH: batch_id})

    second = carry_out(world.definitions, world.instance, request)

    assert second.dagster_run.status is dg.DagsterRunStatus.FAILURE
    assert run_failure(world, second) == (
        f"batch {batch_id} has gone to run {first.run_id}; there is nothing left for this one"
    )
    assert steps_begun(second) == set()
    assert attempted(world, RAW) == dict.fromkeys(GOOD, "SUCCEEDED")
    assert all(world.attempts(label) == 1 for label in GOOD)


def test_a_batch_that_is_over_and_assets_with_other_partitions_are_refused_in_one_line(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    over = dg.RunRequest(run_key="late", asset_selection=[RAW, TABLE], tags={BATCH: "01HZ0000000000000000000009"})
    assert "is over, and what it left undone is scheduled anew" in run_failure(
        world, carry_out(world.definitions, world.instance, over)
    )
    batch_id = world.make_batch([*GOOD])
    wrong = dg.RunRequest(run_key="wrong", asset_selection=[FRESHNESS], tags={BATCH: batch_id})
    assert run_failure(world, carry_out(world.definitions, world.instance, wrong)) == (
        "google_ads/marts/freshness has other partitions than a batch; launch it without one"
    )


def test_each_query_of_a_batch_gets_its_own_partitions(make_world: Callable[..., World]) -> None:
    world = make_world()
    campaigns, ad_groups = {f"{NEW_YORK}|2024-06-01", f"{TOKYO}|2024-06-20"}, {f"{BERLIN}|2024-06-07"}
    batch_id = world.make_batch([*campaigns])
    other = world.make_batch([*ad_groups], queries=["ad_group"])
    with world.here.engine_as(Role.OPERATOR).begin() as connection:
        connection.execute(
            text("UPDATE retry_schedule SET batch_id = :one WHERE batch_id = :other"),
            {"one": batch_id, "other": other},
        )
    request = dg.RunRequest(run_key="both", asset_selection=[RAW, TABLE, *AD_GROUP], tags={BATCH: batch_id})

    assert carry_out(world.definitions, world.instance, request).success

    for assets, labels in (((RAW, TABLE), campaigns), (AD_GROUP, ad_groups)):
        for asset in assets:
            assert world.materialized(asset) == labels
            assert attempted(world, asset) == dict.fromkeys(labels, "SUCCEEDED")


def test_repeating_a_failed_batch_from_its_failure_does_the_steps_that_are_left(
    make_world: Callable[..., World],
) -> None:
    world = make_world(REJECTS)
    first = world.run_batch([*GOOD, REJECTED])
    job = world.definitions.resolve_implicit_global_asset_job_def()

    again = _reexecute_job(
        InMemoryJob(job.get_subset(asset_selection=frozenset({RAW, TABLE}))),
        run_config={},
        reexecution_options=dg.ReexecutionOptions.from_failure(first.run_id, world.instance),
        tags=first.dagster_run.tags,
        instance=world.instance,
        raise_on_error=False,
    )

    assert steps_begun(again) == {"google_ads__campaign"}
    assert step_failure(again, "google_ads__campaign") == step_failure(first, "google_ads__campaign")
    assert world.materialized(TABLE) == GOOD
    assert len(reasons(world, TABLE, REJECTED)) == 2


def test_a_sensor_can_ask_for_a_batch(make_world: Callable[..., World]) -> None:
    world = make_world()
    batch_id = world.make_batch([*GOOD])

    @dg.sensor(asset_selection=dg.AssetSelection.assets(RAW, TABLE))
    def scattered(_: dg.SensorEvaluationContext) -> dg.RunRequest:
        return dg.RunRequest(run_key="one", asset_selection=[RAW, TABLE], tags={BATCH: batch_id})

    world.definitions = dg.Definitions.merge(world.definitions, dg.Definitions(sensors=[scattered]))

    [request], _ = world.tick("scattered")

    assert request.partition_key is None
    assert carry_out(world.definitions, world.instance, request).success
    assert set(world.published()) == GOOD


def test_runs_without_a_batch_are_as_they_were(make_world: Callable[..., World]) -> None:
    world = make_world()
    label = f"{NEW_YORK}|2024-06-01"
    request = dg.RunRequest(
        run_key="rectangle",
        asset_selection=[RAW, TABLE],
        tags={ASSET_PARTITION_RANGE_START_TAG: label, "dagster/asset_partition_range_end": f"{NEW_YORK}|2024-06-02"},
    )
    assert carry_out(world.definitions, world.instance, request).success
    assert set(world.published()) == {label, f"{NEW_YORK}|2024-06-02"}
    assert observations(world, RAW, label) == []


def test_what_a_batch_begins_is_stored_in_as_few_statements_as_of_two_partitions(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    labels = [f"{customer}|2024-06-0{day}" for customer in (NEW_YORK, BERLIN) for day in range(1, 6)]
    counts = []
    for some in (labels[:2], labels):
        said: list[str] = []

        def listen(*arguments: Any, said: list[str] = said) -> None:
            said.append(arguments[2])

        event.listen(Engine, "before_cursor_execute", listen)
        try:
            world.run_batch(some, assets=[TABLE], checks=[])
        finally:
            event.remove(Engine, "before_cursor_execute", listen)
        counts.append(len([statement for statement in said if statement.startswith("INSERT INTO event_logs")]))
    assert counts[0] == counts[1]
