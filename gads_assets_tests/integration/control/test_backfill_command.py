"""`gads backfill` as an operator uses it: what it takes, what it leaves out, how far it is, and holding it."""

import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from gads_assets.cli.confirming import acting_user
from gads_assets.control.backfilling import days_of_quota
from gads_assets.domain.accounts import day_opens_at, last_open_day
from gads_assets.domain.keys import CustomerId
from gads_assets.domain.quota import BudgetStatus
from gads_assets.domain.roles import Role
from gads_assets.domain.scheduling import Purpose
from gads_assets.state.rows import key_from_row
from gads_assets_tests.ledgers import KEY
from gads_assets_tests.operators import (
    BIKES,
    SHOES,
    Gads,
    Office,
    Terminal,
    account,
    days,
)

JUNE = ("--from", "2024-06-01", "--to", "2024-06-10")
CAMPAIGN = (*JUNE, "--query", "campaign")


def started(gads: Gads, *arguments: str) -> dict[str, Any]:
    code, out, err = gads("backfill", *arguments, "--yes", "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out, parse_constant=pytest.fail)
    return found


def progress(gads: Gads, *arguments: str) -> dict[str, Any]:
    code, out, err = gads("backfill", "status", *arguments, "--json")
    assert code == 0, err
    [found] = json.loads(out)["backfills"]
    return dict(found)


def finish(office: Office, *keys: Any) -> None:
    """As a tick does once their verdicts are good."""
    office.accept(*keys)
    for key in keys:
        office.execute(
            "DELETE FROM retry_schedule WHERE (customer_id, logical_date) = (:customer, :day)",
            customer=key.customer_id,
            day=key.logical_date,
        )


def test_a_backfill_says_what_it_takes_and_schedules_each_partition_once(office: Office, gads: Gads) -> None:
    code, out, err = gads("backfill", *CAMPAIGN, "--yes")
    assert code == 0, err
    assert "partitions 20, runs 1, API operations 2 if none has to be made again" in out
    assert "15000 of today's 15000 are left, so it takes 1 day of the quota" in out
    assert re.search(r"backfill [0-9A-Z]{26} is scheduled", err)
    assert "`gads backfill status`" in err
    planned = office.rows("retry_schedule")
    assert {(row["purpose"], row["disposition"], row["backoff_strategy"]) for row in planned} == {
        ("backfill", "due", "backfill")
    }
    assert {row["customer_id"] for row in planned} == {SHOES, BIKES}
    [made] = office.rows("backfill")
    assert (made["partitions"], made["operations"], made["status"]) == (20, 2, "active")
    assert (made["created_by"], made["first_day"], made["last_day"]) == (
        acting_user(),
        date(2024, 6, 1),
        date(2024, 6, 10),
    )


def test_what_is_published_scheduled_or_given_up_is_left_out_and_told(office: Office, gads: Gads) -> None:
    published, terminal, blocked, scheduled = days(4)
    office.accept(published)
    office.give_up("terminal", terminal)
    office.give_up("blocked", blocked)
    office.reject(scheduled)
    gads("state", "retry", "--logical-date", str(scheduled.logical_date), "--reason", "x", "--yes")
    found = started(gads, *CAMPAIGN, "--customer-id", SHOES)
    assert found["partitions"] == 6
    assert {each["reason"]: each["partitions"] for each in found["left_out"]} == {
        "published": 1,
        "terminal": 1,
        "blocked": 1,
        "scheduled": 1,
    }
    assert [*found] == [
        *("backfill_id", "dry_run", "from", "to", "customer_ids", "partitions", "runs", "operations"),
        *("operations_left_today", "days_of_quota", "left_out", "snapshots"),
    ]
    _, out, _ = gads("backfill", "--from", "2024-06-01", "--to", "2024-06-11", "--query", "campaign", "--yes")
    assert "1 published" in out
    assert "1 terminal" in out


def test_the_same_command_again_goes_on_where_it_stopped(office: Office, gads: Gads) -> None:
    first = started(gads, *CAMPAIGN)
    before = office.dump()
    code, out, err = gads("backfill", *CAMPAIGN, "--yes")
    assert (code, out) == (0, "")
    assert "nothing is left to backfill: of 20 partitions 20 scheduled" in err
    assert office.dump() == before
    gads("backfill", "cancel", first["backfill_id"], "--yes")
    finish(office, *days(3))
    again = started(gads, *CAMPAIGN)
    assert again["partitions"] == 17
    assert again["left_out"] == [{"query": "campaign", "reason": "published", "partitions": 3}]
    finish(office, *days(10), *days(10, replace(KEY, customer_id=BIKES)))
    code, out, err = gads("backfill", *CAMPAIGN, "--json")
    assert code == 0
    assert (json.loads(out)["backfill_id"], json.loads(out)["partitions"]) == (None, 0)
    assert "20 published" in err


def test_snapshots_are_left_out_by_name(office: Office, gads: Gads) -> None:
    found = started(gads, *CAMPAIGN, "--query", "conversion_action")
    assert (found["snapshots"], found["partitions"]) == (["conversion_action"], 20)
    assert {row["query_name"] for row in office.rows("retry_schedule")} == {"campaign"}
    _, out, _ = gads("backfill", *JUNE, "--query", "ad", "--query", "conversion_action", "--yes")
    assert "the past of a snapshot cannot be had: conversion_action" in out


def test_days_that_are_open_in_some_time_zones_only_are_left_out_in_the_others(office: Office, gads: Gads) -> None:
    kiritimati, niue = CustomerId("4567890123"), CustomerId("5678901234")
    office.register(account(kiritimati, time_zone="Pacific/Kiritimati"), account(niue, time_zone="Pacific/Niue"))
    now = datetime.now(UTC)
    newest, older = (
        last_open_day(zone, timedelta(hours=3), now=now) for zone in ("Pacific/Kiritimati", "Pacific/Niue")
    )
    assert 1 <= (newest - older).days <= 2
    found = started(
        gads,
        *("--from", f"{newest - timedelta(days=5)}", "--to", f"{newest}", "--query", "campaign"),
        *("--customer-id", kiritimati, "--customer-id", niue),
    )
    missing = (newest - older).days
    assert found["partitions"] == 12 - missing
    assert found["left_out"] == [{"query": "campaign", "reason": "not open yet", "partitions": missing}]
    code, _, err = gads("backfill", "--from", f"{newest}", "--to", f"{newest + timedelta(days=1)}", "--yes")
    assert code == 1
    assert f"the last open day is {newest}" in err


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Pacific/Kiritimati", "Pacific/Niue"])
def test_the_last_open_day_is_the_last_that_has_opened(zone: str) -> None:
    for hour in range(0, 24 * 4, 3):
        now = datetime(2024, 3, 29, tzinfo=UTC) + timedelta(hours=hour)
        day, settling = last_open_day(zone, timedelta(hours=3), now=now), timedelta(hours=3)
        assert day_opens_at(zone, day, settling) <= now < day_opens_at(zone, day + timedelta(days=1), settling)


@pytest.mark.parametrize(
    ("operations", "used", "allowed", "on_days"),
    [
        (0, 0, 10, 0),
        (1, 0, 10, 1),
        (10, 0, 10, 1),
        (11, 0, 10, 2),
        (5, 8, 10, 2),
        (5, 10, 10, 1),
        (5, 99, 10, 1),
        (5, 0, None, 1),
    ],
)
def test_the_quota_is_counted_in_days(operations: int, used: int, allowed: int | None, on_days: int) -> None:
    budget = BudgetStatus(used=used, allowed=allowed, resets_at=datetime.now(UTC), paused_until=None, reason=None)
    assert days_of_quota(operations, budget) == on_days


def test_the_proposal_stands_beside_what_is_left_of_the_day(
    office: Office, gads: Gads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GADS_API_DAILY_OPERATIONS", "4")
    assert office.here.operations_as(Role.EXTRACTOR).take(3, now=office.moment) is None
    found = started(gads, "--from", "2024-01-01", "--to", "2024-12-31", "--query", "ad", "--expect", "732")
    assert (found["partitions"], found["runs"], found["operations"]) == (732, 9, 18)
    assert (found["operations_left_today"], found["days_of_quota"]) == (1, 6)


def test_more_than_fifty_are_confirmed_by_their_number(office: Office, gads: Gads) -> None:
    asked = ("backfill", "--from", "2024-06-01", "--to", "2024-06-30", "--query", "campaign")
    before = office.dump()
    for typed, code in (("y", 1), ("60", 0)):
        terminal = Terminal(office, *asked)
        terminal.wait_for("Type their number to schedule 60 partitions: ")
        assert "partitions 60, runs 1" in terminal.shown
        terminal.type(typed)
        assert terminal.finish() == code, terminal.shown
        if code:
            assert office.dump() == before
    assert len(office.rows("retry_schedule")) == 60


def test_nothing_of_a_paused_backfill_is_dispatched_until_it_is_resumed(office: Office, gads: Gads) -> None:
    backfill_id = started(gads, *CAMPAIGN)["backfill_id"]
    code, _, err = gads("backfill", "pause", backfill_id[:20].lower())
    assert (code, "is paused" in err) == (0, True)
    assert office.dispatch() == 0
    assert progress(gads)["status"] == "paused"
    code, _, err = gads("backfill", "pause", backfill_id)
    assert (code, f"backfill {backfill_id} is paused already" in err) == (1, True)
    assert gads("backfill", "resume", backfill_id)[0] == 0
    assert office.dispatch(Purpose.BACKFILL) == 20


def test_status_counts_what_is_done_runs_fails_and_waits(office: Office, gads: Gads) -> None:
    backfill_id = started(gads, *CAMPAIGN, "--customer-id", SHOES)["backfill_id"]
    done, terminal, blocked, retried, *_ = keys = days(10)
    finish(office, done)
    for key, change in (
        (terminal, "disposition = 'terminal', next_run_at = NULL, reason = 'too often'"),
        (blocked, "disposition = 'blocked', next_run_at = NULL, reason = 'too often'"),
        (retried, "dispatches = 1, next_run_at = next_run_at + interval '1 hour'"),
    ):
        office.execute(f"UPDATE retry_schedule SET {change} WHERE logical_date = :day", day=key.logical_date)
    assert office.dispatch(Purpose.BACKFILL, largest=4, batches=1) == 4
    found = progress(gads, backfill_id[:24])
    counted = ("partitions", "done", "percent", "remaining", "queued", "retrying", "terminal", "blocked", "is_over")
    assert [found[name] for name in counted] == [10, 1, 10, 9, 4, 1, 1, 1, False]
    assert (found["created_by"], found["customer_ids"], found["queries"]) == (acting_user(), [SHOES], ["campaign"])
    _, out, _ = gads("backfill", "status")
    for words in (backfill_id, "active", "1/10", "2024-06-01 to 06-10"):
        assert words in out
    finish(office, *keys)
    assert (progress(gads)["done"], progress(gads)["is_over"]) == (10, True)
    assert " done " in gads("backfill", "status")[1]
    code, _, err = gads("backfill", "pause", backfill_id)
    assert (code, "is done" in err) == (1, True)


def test_what_is_left_of_a_cancelled_backfill_is_off_the_schedule_and_what_runs_goes_on(
    office: Office, gads: Gads
) -> None:
    backfill_id = started(gads, *CAMPAIGN, "--customer-id", SHOES)["backfill_id"]
    assert office.dispatch(Purpose.BACKFILL, largest=3, batches=2) == 6
    schedule = office.here.schedule_as(Role.EXTRACTOR)
    running, queued = (batch.batch_id for batch in schedule.open_batches())
    keys, _ = schedule.claim_batch(running, "a run")
    code, _, err = gads("backfill", "cancel", backfill_id, "--yes")
    assert code == 0
    assert "7 partitions are off the schedule, 3 run to the end" in err
    assert {key_from_row(row) for row in office.rows("retry_schedule")} == set(keys)
    assert schedule.claim_batch(queued, "a run that comes too late") == ([], None)
    found = progress(gads)
    told = ("status", "partitions", "done", "running", "queued", "is_over")
    assert [found[name] for name in told] == ["cancelled", 10, 0, 3, 0, False]
    finish(office, keys[0])
    assert [progress(gads)[name] for name in ("done", "remaining")] == [1, 2]
    for words in ("cancelled", "1/10", "2 running, 7 taken off", f"cancelled by {acting_user()}"):
        assert words in gads("backfill", "status")[1]
    code, _, err = gads("backfill", "resume", backfill_id)
    assert (code, "is cancelled for good; `gads backfill` with the same days" in err) == (1, True)
    assert len(err.splitlines()) == 1


def test_an_id_that_fits_two_backfills_is_refused(office: Office, gads: Gads) -> None:
    one, other = (started(gads, *CAMPAIGN, "--customer-id", each)["backfill_id"] for each in (SHOES, BIKES))
    before = office.dump()
    code, _, err = gads("backfill", "cancel", "0")
    assert code == 1
    assert "is ambiguous" in err
    assert one in err
    assert other in err
    assert office.dump() == before


def test_a_backfill_shows_a_bar_on_a_terminal(office: Office, gads: Gads) -> None:
    started(gads, *CAMPAIGN)
    terminal = Terminal(office, "backfill", "status")
    assert terminal.finish() == 0, terminal.shown
    assert "━" in terminal.shown


def test_without_a_backfill_status_says_how_to_start_one(gads: Gads) -> None:
    code, out, err = gads("backfill", "status")
    assert (code, out) == (0, "")
    assert "gads backfill --from DAY --to DAY" in err


def test_partitions_that_were_scheduled_between_proposal_and_confirmation_keep_it_from_starting(office: Office) -> None:
    terminal = Terminal(office, "backfill", *CAMPAIGN)
    terminal.wait_for("Schedule 20 partitions? [y/N] ")
    office.give_up("blocked", KEY)
    before = office.dump()
    terminal.type("y")
    assert terminal.finish() == 1
    assert "were scheduled meanwhile; nothing was changed" in terminal.shown
    assert office.dump() == before


def test_what_failed_before_a_cancellation_is_marked_and_counted_apart(office: Office, gads: Gads) -> None:
    backfill_id = started(gads, *CAMPAIGN, "--customer-id", SHOES)["backfill_id"]
    rejected, *_ = days(1)
    office.reject(rejected)
    code, _, err = gads("backfill", "cancel", backfill_id, "--yes")
    assert code == 0, err
    assert "9 partitions are off the schedule, 1 that had failed is marked terminal" in err
    assert "1 terminal, 9 taken off" in gads("backfill", "status")[1]


def test_what_waits_in_the_queue_and_what_runs_is_told_apart(office: Office, gads: Gads) -> None:
    started(gads, *CAMPAIGN, "--customer-id", SHOES)
    assert office.dispatch(Purpose.BACKFILL, largest=3, batches=2) == 6
    schedule = office.here.schedule_as(Role.EXTRACTOR)
    [first, _] = schedule.open_batches()
    schedule.claim_batch(first.batch_id, "a run")
    found = progress(gads)
    assert (found["queued"], found["running"]) == (3, 3)
    assert "4 waiting, 3 queued, 3 running" in gads("backfill", "status")[1]


@pytest.mark.parametrize(("typed", "code"), [("y", 0), ("", 1)])
def test_the_end_of_a_backfill_is_final_so_it_is_asked_for(office: Office, gads: Gads, typed: str, code: int) -> None:
    backfill_id = started(gads, *CAMPAIGN, "--customer-id", SHOES)["backfill_id"]
    before = office.dump()
    answer, _, err = gads("backfill", "cancel", backfill_id)
    assert (answer, len(err.splitlines())) == (1, 1)
    assert f"the end of backfill {backfill_id} waits for a yes, and there is no terminal to ask on" in err
    terminal = Terminal(office, "backfill", "cancel", backfill_id)
    terminal.wait_for(f"Cancel backfill {backfill_id}? [y/N] ")
    assert "ends for good; off the schedule: 10 waiting; kept: 0 running, 0 given up" in terminal.shown
    assert office.dump() == before
    terminal.type(typed)
    assert terminal.finish() == code
    assert (office.rows("retry_schedule") == []) is (code == 0)


def test_what_is_expected_and_is_not_there_any_more_is_refused(office: Office, gads: Gads) -> None:
    started(gads, *CAMPAIGN)
    code, _, err = gads("backfill", *CAMPAIGN, "--yes", "--expect", "99")
    assert (code, len(err.splitlines())) == (1, 1)
    assert "--expect 99 is not the plan's number, which is 0" in err


def test_its_help_says_what_a_backfill_does(gads: Gads) -> None:
    code, out, _ = gads("backfill", "--help")
    assert code == 0
    assert "Extract the days from --from to --to that are not published" in " ".join(out.split())
