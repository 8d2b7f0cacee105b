"""The assets, the checks and the IO manager in real Dagster runs, with the real client, Spark and PostgreSQL."""

import gzip
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import DataFrame
from sqlalchemy import Engine, Pool, event, text

from gads_assets.catalog.loading import load_catalog
from gads_assets.domain.keys import RunId
from gads_assets.domain.roles import Role
from gads_assets.domain.state import Judgement, PartitionStatus
from gads_assets.emulator.accounts import ACCOUNTS
from gads_assets.orchestration.code_location import code_location
from gads_assets.orchestration.customers import register_accounts
from gads_assets.orchestration.dagster_internals import KeptEventLog
from gads_assets.orchestration.partitions import CUSTOMERS
from gads_assets.state.connection import transaction
from gads_assets_tests.worlds import (
    BERLIN,
    NEW_YORK,
    RAW,
    STATUS_URL,
    TABLE,
    TOKYO,
    VERDICT,
    SharedSpark,
    World,
    evaluations,
    key,
    step_failure,
)

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")


def test_one_partition_is_extracted_judged_and_published_with_its_facts_on_the_page(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    label = f"{NEW_YORK}|2024-06-01"

    result = world.run(label)

    assert result.success
    assert evaluations(result) == {label: True}
    sealed = world.here.sink.sealed_runs(key(label))
    assert world.published() == {label: set(sealed)}
    shown = world.materialization(TABLE, label).metadata
    assert shown["run_id"].value == sealed[0]
    assert shown["schema_version"].value == "1"
    assert shown["pointer_version"].value == 0
    assert shown["dagster/row_count"].value == world.here.sink.manifest(key(label), sealed[0]).record_count
    assert len(shown["preview"].records) == 5  # type: ignore[attr-defined]
    [load] = world.here.store_as(Role.CONSUMER).load_records()
    assert (load.key, load.run_id) == (key(label), sealed[0])


def test_rows_that_cannot_be_previewed_are_one_warning_and_not_a_failed_load(make_world: Callable[..., World]) -> None:
    world = make_world()
    label = f"{NEW_YORK}|2024-06-01"
    world.run(label)
    [staged] = Path(world.here.layout.stage("campaign", "1")).glob("*.parquet")
    staged.unlink()

    result = world.run(label, assets=[TABLE])

    assert result.success
    shown = world.materialization(TABLE, label)
    assert "preview" not in shown.metadata
    assert shown.metadata["pointer_version"].value == 0
    warnings = [
        entry.user_message for entry in world.instance.all_logs(result.run_id) if entry.level == logging.WARNING
    ]
    [warning] = [message for message in warnings if "preview" in message]
    assert staged.name in warning
    assert "\n" not in warning


def test_a_rejected_partition_fails_its_check_and_its_table_is_not_run(make_world: Callable[..., World]) -> None:
    world = make_world(f"duplicated_rows@{BERLIN}/campaign/2024-06-03")
    label = f"{BERLIN}|2024-06-03"

    result = world.run(label)

    assert not result.success
    assert evaluations(result) == {label: False}
    assert world.status(label) is PartitionStatus.FAILED
    assert world.materialized(RAW) == {label}
    assert world.materialized(TABLE) == set()
    assert world.published() == {}
    steps = {event.step_key for event in result.all_events if event.event_type is dg.DagsterEventType.STEP_START}
    assert "google_ads__campaign" not in steps


def test_a_mixed_run_publishes_the_good_partitions_and_ends_failed_naming_the_others(
    make_world: Callable[..., World],
) -> None:
    world = make_world(f"duplicated_rows@{BERLIN}/campaign/2024-06-02;transient@{TOKYO}/campaign/*:99")
    rejected = f"{BERLIN}|2024-06-02"
    good = {f"{NEW_YORK}|2024-06-0{day}" for day in (1, 2, 3)} | {f"{BERLIN}|2024-06-01", f"{BERLIN}|2024-06-03"}
    unextracted = {f"{TOKYO}|2024-06-0{day}" for day in (1, 2, 3)}

    result = world.run(f"{NEW_YORK}|2024-06-01", f"{TOKYO}|2024-06-03")

    assert not result.success
    assert world.materialized(RAW) == good | {rejected}
    assert world.materialized(TABLE) == good
    assert set(world.published()) == good
    assert evaluations(result) == dict.fromkeys(good, True) | {rejected: False}
    assert {label: world.status(label) for label in unextracted} == dict.fromkeys(unextracted)
    reason = step_failure(result, "google_ads__campaign")
    assert "4 of 9 partitions were not published" in reason
    for label in (rejected, *unextracted):
        assert label in reason


def test_every_event_of_a_mixed_run_belongs_to_one_partition(make_world: Callable[..., World]) -> None:
    world = make_world(f"duplicated_rows@{BERLIN}/campaign/2024-06-02")

    world.run(f"{NEW_YORK}|2024-06-01", f"{BERLIN}|2024-06-03")

    for asset, count in ((RAW, 6), (TABLE, 5)):
        records = world.instance.fetch_materializations(asset, limit=100).records
        assert len(records) == count
        for record in records:
            assert record.partition_key is not None
            materialization = record.asset_materialization
            assert materialization is not None
            assert materialization.tags is not None
            assert materialization.tags["dagster/partition/customer_id"] in record.partition_key
            assert materialization.tags["dagster/code_version"]
    checks = world.instance.event_log_storage.get_asset_check_execution_history(VERDICT, limit=100)
    judged = {check.event.dagster_event.event_specific_data.partition for check in checks if check.event}  # type: ignore[union-attr]
    assert judged == world.materialized(RAW)


def test_a_run_of_many_partitions_stores_its_events_in_as_few_statements_as_one_of_two(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    first, second, last = f"{NEW_YORK}|2024-06-01", f"{NEW_YORK}|2024-06-02", f"{TOKYO}|2024-06-02"
    world.run(first, last, assets=[RAW])
    said: list[str] = []
    listening: list[tuple[type, str, Callable[..., None]]] = [
        (Engine, "before_cursor_execute", lambda *arguments: said.append(arguments[2])),
        (Pool, "connect", lambda *_: said.append("connect")),
    ]
    counts = []
    for target, name, listener in listening:
        event.listen(target, name, listener)
    try:
        for end in (second, last):
            said.clear()
            result = world.run(first, end, assets=[TABLE])
            stored = [statement for statement in said if statement.startswith("INSERT INTO event_logs")]
            counts.append((len(stored), said.count("connect")))
    finally:
        for target, name, listener in listening:
            event.remove(target, name, listener)

    (stored_of_two, connections_of_two), (stored_of_many, connections_of_many) = counts
    assert stored_of_many == stored_of_two
    assert connections_of_many <= connections_of_two
    planned = world.instance.all_logs(result.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    assert len(planned) == 6
    assert {entry.get_dagster_event().partition for entry in planned} == world.materialized(TABLE)


def test_events_are_stored_after_the_database_was_started_again(make_world: Callable[..., World]) -> None:
    world = make_world()
    storage = world.instance.event_log_storage
    assert isinstance(storage, KeptEventLog)
    processes = set()
    for _ in range(2):
        with storage.index_connection() as connection:
            processes.add(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
    [kept] = processes
    with transaction(world.here.engine_as(Role.OPERATOR)) as connection:
        connection.execute(text("RESET ROLE"))
        connection.execute(text("SELECT pg_terminate_backend(:kept, 10000)"), {"kept": kept})

    assert world.instance.get_dynamic_partitions(CUSTOMERS)


def test_failed_reprocessing_leaves_the_published_run_untouched(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    label = f"{BERLIN}|2024-06-03"
    world.run(label)
    before = world.published()
    monkeypatch.setenv("GADS_EMULATOR_FAULTS", f"duplicated_rows@{BERLIN}/campaign/2024-06-03")

    one = world.run(label)
    batch = world.run(label, f"{BERLIN}|2024-06-04")

    assert not one.success
    assert not batch.success
    assert world.published()[label] == before[label]
    assert set(world.published()) == {label, f"{BERLIN}|2024-06-04"}
    assert world.status(label) is PartitionStatus.SUCCESS
    assert world.attempts(label) == 3
    assert len(world.here.sink.sealed_runs(key(label))) == 3


def test_a_new_extraction_replaces_the_published_run(make_world: Callable[..., World]) -> None:
    world = make_world()
    label = f"{TOKYO}|2024-06-01"
    world.run(label)
    world.run(label)
    runs = world.here.sink.sealed_runs(key(label))
    assert len(runs) == 2
    assert world.published() == {label: {runs[1]}}


def test_loading_again_without_extracting_changes_nothing(make_world: Callable[..., World]) -> None:
    world = make_world()
    first, last = f"{NEW_YORK}|2024-06-01", f"{BERLIN}|2024-06-02"
    world.run(first, last)
    before, loads = world.published(), world.here.store_as(Role.CONSUMER).load_records()

    again = world.run(first, last, assets=[TABLE])

    assert again.success
    assert world.published() == before
    assert world.here.store_as(Role.CONSUMER).load_records() == loads
    assert world.materialization(TABLE, first).metadata["pointer_version"].value == 0


@pytest.mark.parametrize("spoiled", [1, 2])
def test_a_load_leaves_out_the_runs_that_were_spoiled_since_they_were_judged_and_names_them(
    make_world: Callable[..., World], spoiled: int
) -> None:
    """With both spoiled nothing is published, and no materialization is left without a partition."""
    world = make_world()
    first, second = f"{NEW_YORK}|2024-06-01", f"{NEW_YORK}|2024-06-02"
    world.run(first, second, assets=[RAW])
    for label in [second, first][:spoiled]:
        [run_id] = world.here.sink.sealed_runs(key(label))
        [payload] = world.here.sink.payload_uris(world.here.sink.manifest(key(label), run_id))
        Path(payload).unlink()

    result = world.run(first, second, assets=[TABLE])

    assert not result.success
    assert set(world.published()) == {first, second} - set([second, first][:spoiled])
    assert world.materialized(TABLE) == set(world.published())
    assert f"{spoiled} of 2 partitions were not published" in step_failure(result, "google_ads__campaign")
    assert second in step_failure(result, "google_ads__campaign")


def test_a_check_run_on_its_own_finds_an_altered_file_and_hides_the_partition(make_world: Callable[..., World]) -> None:
    world = make_world()
    label = f"{NEW_YORK}|2024-06-01"
    world.run(label, f"{NEW_YORK}|2024-06-02")
    [run_id] = world.here.sink.sealed_runs(key(label))
    [payload] = world.here.sink.payload_uris(world.here.sink.manifest(key(label), run_id))
    content = gzip.decompress(Path(payload).read_bytes())
    Path(payload).write_bytes(gzip.compress(content.replace(b"1", b"2")))

    result = world.check_alone(label)

    assert evaluations(result) == {label: False}
    assert world.status(label) is PartitionStatus.FAILED
    assert set(world.published()) == {f"{NEW_YORK}|2024-06-02"}
    assert world.here.store_as(Role.CONSUMER).open_demotions() == []


def test_a_check_run_on_its_own_accepts_an_intact_partition_again_and_keeps_it_published(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    label = f"{NEW_YORK}|2024-06-01"
    world.run(label)
    before = world.published()

    assert world.check_alone(label).success

    assert world.published() == before
    assert world.attempts(label) == 2


def test_a_partition_without_any_run_cannot_be_checked_and_gets_no_state(make_world: Callable[..., World]) -> None:
    world = make_world()
    label = f"{NEW_YORK}|2024-06-01"

    result = world.check_alone(label)

    assert not result.success
    assert "no sealed run exists" in step_failure(result, "google_ads__raw__campaign__validator")
    assert world.status(label) is None


def test_a_table_whose_partition_was_never_accepted_refuses_to_load(make_world: Callable[..., World]) -> None:
    world = make_world()
    result = world.run(f"{NEW_YORK}|2024-06-01", assets=[TABLE])
    assert not result.success
    assert "no run of it was accepted yet" in step_failure(result, "google_ads__campaign")
    assert world.materialized(TABLE) == set()


def test_a_suspended_account_fails_alone_with_its_reason(make_world: Callable[..., World]) -> None:
    world = make_world()
    suspended = next(account for account in ACCOUNTS if account.status == "SUSPENDED").customer_id
    [known] = [
        account for account in world.here.customers_as(Role.CONSUMER).customers() if account.customer_id == NEW_YORK
    ]
    register_accounts(world.here, [replace(known, customer_id=suspended, name="closed")], now=datetime.now(UTC))

    result = world.run(f"{NEW_YORK}|2024-06-01", f"{suspended}|2024-06-01")

    assert not result.success
    assert "1 of 4 partitions were not published" in step_failure(result, "google_ads__campaign")
    assert suspended in step_failure(result, "google_ads__campaign")
    assert len(world.published()) == 3


def test_a_day_that_could_not_be_asked_for_fails_its_run_also_where_an_earlier_one_is_published(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    label = f"{BERLIN}|2024-06-01"
    assert world.run(label).success
    before = world.published()
    with transaction(world.here.engine_as(Role.OPERATOR)) as connection:
        connection.execute(
            text("""
                UPDATE customer SET status = 'inactive', closed_at = '2024-06-30', closed_reason = 'suspended'
                WHERE customer_id = :berlin
            """),
            {"berlin": BERLIN},
        )

    result = world.run(f"{NEW_YORK}|2024-06-01", label)

    assert not result.success
    failure = step_failure(result, "google_ads__campaign")
    reason = f"account {BERLIN} is closed since 2024-06-30 (suspended)"
    assert f"1 of 2 partitions were not published. {label}: {reason}" in failure
    assert world.attempts(label) == 1
    assert world.published() == {**world.published(), **before}
    assert world.materialized(TABLE) == {f"{NEW_YORK}|2024-06-01", label}


def test_a_newer_run_is_published_although_a_withdrawal_was_killed_half_way(make_world: Callable[..., World]) -> None:
    world = make_world()
    label = f"{NEW_YORK}|2024-06-01"
    assert world.run(label).success
    [old] = world.published()[label]
    state = world.here.store_as(Role.CONSUMER).states([key(label)])[key(label)]
    assert state.current_run_seq
    rejected = Judgement(
        run_id=RunId(old),
        run_seq=state.current_run_seq,
        schema_version="1",
        record_count=0,
        content_digest=None,
        seal_sha256=None,
        accepted=False,
        error_message="seal: damaged",
        validation_id="killed",
    )
    world.here.store_as(Role.VALIDATOR).record_judgements(
        [(key(label), rejected)], now=datetime.now(UTC), dagster_run_id=None
    )
    refused = world.run(label, assets=[TABLE])
    assert "its rows are being withdrawn; run its check again" in step_failure(refused, "google_ads__campaign")

    assert world.run(label).success

    assert world.here.store_as(Role.CONSUMER).open_demotions() == []
    [new] = world.published()[label]
    assert new != old


def test_a_downstream_asset_gets_the_published_rows_of_its_partition_only(make_world: Callable[..., World]) -> None:
    received: list[list[dict[str, object]]] = []
    code = code_location(load_catalog(), SharedSpark(), status_url=STATUS_URL)
    partitions_def = code.resolve_asset_graph().get(TABLE).partitions_def

    @dg.asset(partitions_def=partitions_def, ins={"campaigns": dg.AssetIn(TABLE)})
    def report(campaigns: DataFrame) -> None:
        received.append([row.asDict() for row in campaigns.collect()])

    world = make_world(extra_assets=[report])
    world.run(f"{NEW_YORK}|2024-06-01", f"{BERLIN}|2024-06-02")

    result = world.run(f"{BERLIN}|2024-06-02", assets=[report.key])

    assert result.success
    [rows] = received
    assert {(row["customer_id"], str(row["logical_date"])) for row in rows} == {(BERLIN, "2024-06-02")}
    assert len(rows) == world.materialization(TABLE, f"{BERLIN}|2024-06-02").metadata["dagster/row_count"].value
