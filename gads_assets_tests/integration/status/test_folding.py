"""The fold on a real log and a real database: in steps and from zero, with late numbers, two folders, and lost runs."""

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from sqlalchemy import text

from gads_assets.domain.partition_status import Outcome, Place
from gads_assets.domain.roles import Role
from gads_assets.status import event_log, folding
from gads_assets.status.folding import Cursor, move_cursor
from gads_assets.status.tracking import Workspace
from gads_assets_tests.status_desks import BIKES, FRESHNESS, MART, RAW, SHOES, START, TABLE, Desk, account, place

ELSEWHERE = Workspace(tenant_id="default", workspace_id="from zero")


def position(desk: Desk) -> tuple[int, int | None]:
    with desk.here.engine_as(Role.REPORTER).begin() as connection:
        row = connection.execute(text("SELECT folded_until, horizon FROM status_cursor")).one()
        return row.folded_until, row.horizon


def let_time_pass(desk: Desk) -> None:
    """So that whatever was being written when the cursor last looked is written, or never will be."""
    with desk.here.engine_as(Role.REPORTER).begin() as connection:
        connection.execute(text("UPDATE status_cursor SET horizon_at = horizon_at - interval '2 minutes'"))


def skip_numbers(desk: Desk, count: int) -> list[int]:
    """Numbers that another process has taken for its events, and not committed yet."""
    with desk.instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
        taken = "SELECT nextval(pg_get_serial_sequence('event_logs', 'id')) FROM generate_series(1, %s)"
        return [number for (number,) in connection.exec_driver_sql(taken, (count,))]


def renumber(desk: Desk, event_id: int, to: int) -> None:
    """An event becomes visible at last, with the number that it was given long ago."""
    with desk.instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql("UPDATE event_logs SET id = %s WHERE id = %s", (to, event_id))


@pytest.fixture
def recent_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's events pass for new, so that others may still be on their way."""
    monkeypatch.setattr(event_log, "_LONGEST_INSERT", timedelta(days=3650))


@pytest.mark.parametrize("seed", range(6))
def test_folding_in_steps_gives_the_rows_of_folding_from_zero(
    desk: Desk, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "_AT_ONCE", 7)
    choose = random.Random(seed)
    places = [place(asset, customer) for asset in (RAW, TABLE, MART, FRESHNESS) for customer in (SHOES, BIKES)]
    for number in range(12):
        some = choose.sample(places, choose.randint(1, len(places)))
        made = [each for each in some if choose.random() < 0.6]
        desk.written.plan(f"run {number}", *some)
        if choose.random() < 0.3:
            desk.fold()
        desk.written.materialize(f"run {number}", *made)
        if choose.random() < 0.3:
            desk.fold()
        if choose.random() < 0.9:
            desk.written.end(f"run {number}", choose.choice([*Outcome]))
        if choose.random() < 0.5:
            desk.fold()
    desk.fold()
    desk.folder(ELSEWHERE).fold(desk.log)
    assert desk.rows() == desk.rows(ELSEWHERE.workspace_id)
    assert len(desk.rows()) >= 4


def test_a_second_fold_reads_nothing_and_changes_nothing(desk: Desk) -> None:
    desk.succeed("good", place(TABLE))
    assert desk.fold().partitions == 1
    version = desk.folder().version()
    again = desk.fold()
    assert (again.events, again.partitions) == (0, 0)
    assert desk.folder().version() == version


@pytest.mark.usefixtures("recent_events")
def test_an_event_whose_number_shows_late_is_not_lost(desk: Desk) -> None:
    [missing] = skip_numbers(desk, 1)
    desk.succeed("later", place(RAW))
    desk.fold()
    assert position(desk)[0] < missing
    desk.written.materialize("slow", place(TABLE))
    late = desk.log.highest()
    renumber(desk, late, missing)
    assert desk.fold().partitions == 1
    assert desk.told(place(TABLE))["last_materialization"]["run_id"] == "slow"
    # Its run has a lower number than the extraction that came after it: the table is stale by that.
    assert desk.told(place(TABLE))["stale_reason_code"] == "UPSTREAM_CHANGED"


@pytest.mark.usefixtures("recent_events")
def test_a_number_that_never_comes_is_waited_for_a_minute(desk: Desk) -> None:
    desk.succeed("first", place(RAW))
    skip_numbers(desk, 3)
    desk.succeed("second", place(TABLE))
    desk.fold()
    highest = desk.log.highest()
    assert position(desk) == (0, highest)
    version = desk.folder().version()
    assert desk.fold().events > 0
    assert desk.folder().version() == version
    let_time_pass(desk)
    assert desk.fold().partitions == 0
    assert position(desk) == (highest, None)
    assert desk.fold().events == 0


def test_the_cursor_moves_behind_what_may_still_come() -> None:
    waiting = Cursor(folded_until=10, horizon=20, is_settled=False)
    settled = Cursor(folded_until=10, horizon=20, is_settled=True)
    assert move_cursor(waiting, 10, 30, is_whole=True) == Cursor(folded_until=30)
    assert move_cursor(Cursor(folded_until=10), 10, 30, is_whole=False) == Cursor(folded_until=10, horizon=30)
    assert move_cursor(waiting, 10, 30, is_whole=False) == Cursor(folded_until=10, horizon=20)
    assert move_cursor(settled, 10, 30, is_whole=False) == Cursor(folded_until=20, horizon=30)
    assert move_cursor(settled, 10, 20, is_whole=False) == Cursor(folded_until=20)
    assert move_cursor(settled, 0, 15, is_whole=False) == Cursor(folded_until=0, horizon=15)


def test_two_folders_at_once_fold_each_event_once(desk: Desk) -> None:
    for number in range(20):
        desk.succeed(f"run {number}", place(RAW), place(TABLE))
    with ThreadPoolExecutor(4) as pool:
        folded = list(pool.map(lambda _: desk.fold(), range(8)))
    assert sorted(each.partitions for each in folded) == [0, 0, 0, 0, 0, 0, 0, 2]
    assert {row["last_attempt_run_id"] for row in desk.rows()} == {"run 19"}


def test_a_fold_that_dies_leaves_the_cursor_and_the_rows_as_they_were(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.succeed("good", place(TABLE))
    desk.fold()
    before, rows = position(desk), desk.rows()
    desk.end_without("bad", [place(TABLE), place(RAW)], Outcome.FAILED)
    monkeypatch.setattr(folding, "_MOVE", text("SELECT 1 / 0"))
    with pytest.raises(Exception, match="division by zero"):
        desk.fold()
    assert (position(desk), desk.rows()) == (before, rows)
    monkeypatch.undo()
    assert desk.fold().partitions == 2


def test_a_run_deleted_in_dagster_takes_no_good_data_with_it(desk: Desk) -> None:
    desk.succeed("good", place(TABLE))
    desk.fold()
    desk.written.plan("deleted", place(TABLE))
    desk.fold()
    for run_id in ("good", "deleted"):
        desk.instance.event_log_storage.delete_events(run_id)
    desk.fold()
    desk.succeed("another", place(RAW))
    let_time_pass(desk)
    told = desk.told(place(TABLE))
    assert told["last_materialization"]["run_id"] == "good"
    assert told["last_attempt"]["outcome"] == "SUCCEEDED"


def test_the_newest_run_may_be_deleted_without_taking_older_ones_for_newer(desk: Desk) -> None:
    desk.succeed("first", place(TABLE), place(RAW))
    desk.succeed("second", place(TABLE))
    desk.succeed("reload", place(RAW))
    desk.succeed("elsewhere", place(MART))
    desk.fold()
    before = desk.rows()
    for run_id in ("second", "elsewhere"):
        desk.instance.event_log_storage.delete_events(run_id)
    assert desk.fold().partitions == 0
    assert desk.rows() == before
    assert desk.told(place(TABLE))["stale_reason_code"] == "UPSTREAM_CHANGED"


@pytest.mark.usefixtures("recent_events")
def test_a_materialization_that_shows_after_the_end_of_its_run_was_a_success(desk: Desk) -> None:
    desk.written.plan("killed", place(TABLE))
    [missing] = skip_numbers(desk, 1)
    desk.written.end("killed", Outcome.FAILED)
    assert desk.told(place(TABLE))["last_attempt"]["outcome"] == "FAILED"
    desk.written.materialize("killed", place(TABLE))
    renumber(desk, desk.log.highest(), missing)
    assert desk.told(place(TABLE))["last_attempt"]["outcome"] == "SUCCEEDED"
    desk.folder(ELSEWHERE).fold(desk.log)
    assert desk.rows() == desk.rows(ELSEWHERE.workspace_id)


def test_a_long_log_is_folded_in_portions_that_stay(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "_AT_ONCE", 2)
    monkeypatch.setattr(folding, "_KEPT_AT_ONCE", 4)
    for number in range(5):
        desk.succeed(f"run {number}", place(RAW), place(TABLE))
    desk.succeed("newest", place(TABLE), at=datetime.now(UTC))
    heard: list[tuple[int, int]] = []

    def die(done: int, total: int) -> None:
        heard.append((done, total))
        if len(heard) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        desk.folder().fold(desk.log, progress=die)
    assert position(desk) == (12, None)
    desk.fold()
    assert position(desk) == (desk.log.highest(), None)
    desk.folder(ELSEWHERE).fold(desk.log)
    assert desk.rows() == desk.rows(ELSEWHERE.workspace_id)


def test_a_failed_attempt_leaves_what_the_sweep_found_of_a_missing_day(desk: Desk) -> None:
    desk.register(account(SHOES))
    desk.end_without("first", [place(TABLE)], Outcome.FAILED)
    desk.fold()
    desk.now += timedelta(days=5)
    desk.statuses.sweep(desk.selection(), now=desk.now)
    swept = desk.rows()[0]["stale_since"]
    assert swept is not None
    desk.end_without("second", [place(TABLE)], Outcome.FAILED)
    desk.fold()
    assert desk.rows()[0]["stale_since"] == swept


def test_a_log_that_begins_anew_adds_to_what_is_known(desk: Desk) -> None:
    desk.succeed("good", place(RAW), place(TABLE))
    desk.succeed("reload", place(RAW))
    desk.fold()
    desk.instance.event_log_storage.wipe()
    with desk.instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql("SELECT setval(pg_get_serial_sequence('event_logs', 'id'), 1, false)")
    desk.end_without("bad", [place(TABLE)], Outcome.FAILED)
    told = desk.told(place(TABLE))
    assert told["display"] == "MaterializedButLastAttemptFailed"
    assert told["last_materialization"]["run_id"] == "good"
    version = desk.folder().version()
    desk.written.end("of nothing", Outcome.FAILED)
    desk.fold()
    assert desk.folder().version() != version
    desk.succeed("anew", place(TABLE))
    assert desk.told(place(TABLE))["last_materialization"]["run_id"] == "anew"


def test_a_run_that_dagster_marks_failed_long_after_it_was_killed_is_an_attempt_of_that_moment(desk: Desk) -> None:
    desk.written.plan("killed", place(RAW), place(TABLE))
    desk.written.materialize("killed", place(RAW))
    desk.fold()
    assert [row["asset_key"] for row in desk.rows()] == [RAW]
    desk.written.end("killed", Outcome.FAILED, at=START + timedelta(days=1))
    told = desk.told(place(TABLE))
    assert told["last_attempt"] == {
        "run_id": "killed",
        "at": (START + timedelta(days=1)).isoformat(),
        "outcome": "FAILED",
    }
    assert desk.told(place(RAW))["last_attempt"]["outcome"] == "SUCCEEDED"


def test_what_a_killed_process_still_publishes_after_its_run_was_given_up_counts(desk: Desk) -> None:
    desk.written.plan("zombie", place(TABLE))
    desk.written.end("zombie", Outcome.FAILED)
    desk.fold()
    desk.written.materialize("zombie", place(TABLE))
    assert desk.told(place(TABLE))["display"] == "Materialized"


def test_somebody_elses_materialization_is_no_data_of_ours(desk: Desk) -> None:
    where = place(TABLE)
    desk.instance.report_runless_asset_event(
        dg.AssetMaterialization(dg.AssetKey(TABLE.split("/")), partition=where.partition_key)
    )
    forged = {"pointer_version": 1}
    desk.instance.report_runless_asset_event(
        dg.AssetMaterialization(dg.AssetKey(TABLE.split("/")), partition=where.partition_key, metadata=forged)
    )
    desk.written.store([desk.written.materialized("theirs", where, metadata={"rows": 1})])
    desk.written.store([desk.written.materialized("theirs", Place(TABLE, "no partition"))])
    desk.written.store([desk.written.materialized("theirs", Place(TABLE, f"{SHOES}|2026-02-30"))])
    desk.written.end("theirs", Outcome.SUCCEEDED)
    desk.fold()
    assert desk.rows() == []


def test_the_roles_let_only_the_reporter_write_and_nobody_delete(desk: Desk) -> None:
    desk.succeed("good", place(TABLE))
    desk.fold()
    for role in Role:
        with desk.here.engine_as(role).connect() as connection:
            for statement in ("DELETE FROM folded_status", "TRUNCATE folded_status", "DELETE FROM status_cursor"):
                with pytest.raises(Exception, match="permission denied"):
                    connection.execute(text(statement))
                connection.rollback()
            if role is not Role.REPORTER:
                with pytest.raises(Exception, match="permission denied"):
                    connection.execute(text("UPDATE folded_status SET last_attempt_outcome = 'SUCCEEDED'"))


def test_many_events_at_once_fold_into_the_rows_of_as_many_single_ones(desk: Desk) -> None:
    """What tests and benchmarks write quickly is what Dagster would have written."""
    days = [START.date() - timedelta(days=age) for age in range(20)]
    places = [place(TABLE, SHOES, day) for day in days]
    keys = [place(TABLE, BIKES, day).partition_key for day in days]
    desk.written.plan("good", *places)
    desk.written.materialize("good", *places, at=START)
    desk.written.plan("bad", *places)
    desk.written.plan_many("good", TABLE, keys)
    desk.written.materialize_many("good", TABLE, keys, at=START)
    desk.written.plan_many("bad", TABLE, keys)
    desk.written.end("bad", Outcome.FAILED, at=START + timedelta(hours=1))
    desk.fold()
    own = {"customer_id", "partition_key", "materialization_event"}
    told = [{name: value for name, value in row.items() if name not in own} for row in desk.rows()]
    assert told[:20] == told[20:]
    stored = desk.instance.get_records_for_run("good", of_type=dg.DagsterEventType.ASSET_MATERIALIZATION).records
    assert [record.partition_key for record in stored] == [*(each.partition_key for each in places), *keys]
