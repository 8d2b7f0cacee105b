"""What is read of Dagster's log, after a real run: an upgrade that stores any of it otherwise is found here."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG
from ulid import ULID

from gads_assets.domain.partition_status import Outcome, Place, Planned
from gads_assets.orchestration.partitions import CUSTOMERS, customer_days
from gads_assets_tests.status_desks import BIKES, SHOES, START, TABLE, Desk

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

DAYS = ("2026-11-06", "2026-11-07")
KEYS = [f"{customer}|{day}" for customer in (SHOES, BIKES) for day in DAYS]
EXTRACTED = datetime(2026, 11, 8, 3, 4, 5, 678000, tzinfo=UTC)


class Nowhere(dg.IOManager):
    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        pass

    def load_input(self, context: dg.InputContext) -> None:
        raise NotImplementedError


def test_a_run_of_many_partitions_is_read_as_what_it_planned_made_and_came_to(desk: Desk) -> None:
    """The second customer's days come to nothing: the asset yields what it has, and then fails."""
    desk.instance.add_dynamic_partitions(CUSTOMERS, [SHOES, BIKES])
    partitions_def = customer_days(desk.here.catalog)

    @dg.asset(
        key=TABLE.split("/"),
        partitions_def=partitions_def,
        backfill_policy=dg.BackfillPolicy.single_run(),
        code_version="seven",
    )
    def campaign(context: dg.AssetExecutionContext) -> Iterator[dg.Output[None]]:
        assert sorted(context.partition_keys) == sorted(KEYS)
        metadata = {
            "pointer_version": 3,
            "run_id": str(ULID.from_datetime(EXTRACTED)),
            "preview": {"a": [1, "é\u2028"]},
        }
        context.add_output_metadata(metadata)
        yield dg.Output(None)
        raise dg.Failure("the rest")

    definitions = dg.Definitions(assets=[campaign], resources={"io_manager": Nowhere()})
    job = definitions.resolve_implicit_global_asset_job_def()
    tags = {ASSET_PARTITION_RANGE_START_TAG: KEYS[0], ASSET_PARTITION_RANGE_END_TAG: KEYS[-1]}
    result = job.execute_in_process(instance=desk.instance, tags=tags, raise_on_error=False)
    assert not result.success

    events = desk.log.between(0, desk.log.highest())

    places = [Place(TABLE, key) for key in KEYS]
    assert sorted(events.planned) == sorted(Planned(result.run_id, place) for place in places)
    assert sorted(place for place, _ in events.materialized) == sorted(places)
    for _, made in events.materialized:
        assert made.run_id == result.run_id
        assert made.code_version == "seven"
        assert made.content_at == EXTRACTED
        assert abs(made.at - datetime.now(UTC)) < timedelta(minutes=5)
    [ended] = events.ended
    assert (ended.run_id, ended.outcome) == (result.run_id, Outcome.FAILED)
    assert ended.event_id > max(made.event_id for _, made in events.materialized)
    assert desk.log.numbers_given() >= desk.log.highest()


def test_dagster_plans_partition_by_partition_in_this_storage(desk: Desk) -> None:
    """Otherwise an attempt that failed would leave no trace of which partitions it was of."""
    storage = desk.instance.event_log_storage
    assert not storage.supports_partition_subset_in_asset_materialization_planned_events


def test_cancellations_and_failures_that_others_report_are_ends_too(desk: Desk) -> None:
    runs = [desk.instance.add_run(dg.DagsterRun(job_name="job", run_id=f"run {number}")) for number in range(2)]
    desk.instance.report_run_canceled(runs[0])
    desk.instance.report_run_failed(runs[1])
    ended = desk.log.between(0, desk.log.highest()).ended
    assert [(each.run_id, each.outcome) for each in ended] == [
        ("run 0", Outcome.CANCELLED),
        ("run 1", Outcome.FAILED),
    ]


def test_only_what_is_a_day_old_passes_for_settled(desk: Desk) -> None:
    assert desk.log.settled() == 0
    desk.succeed("old", Place(TABLE, KEYS[0]))
    old = desk.log.highest()
    desk.written.end("new", Outcome.FAILED, at=datetime.now(UTC))
    assert datetime.now(UTC) - timedelta(days=2) > START
    assert desk.log.settled() == old
