"""`gads state` as an operator uses it: what is on record, side by side, and overrides behind their rails."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest
from sqlalchemy import Engine, text
from ulid import ULID

from gads_assets.cli.confirming import acting_user
from gads_assets.domain.desk import Action, PartitionChoice, plan_action
from gads_assets.domain.roles import Role
from gads_assets.domain.scheduling import Purpose
from gads_assets.errors import StateStoreError, TransitionError
from gads_assets.state.connection import transaction
from gads_assets.state.desk import OperatorDesk
from gads_assets_tests.integration.conftest import wait_until, waiting_for_locks
from gads_assets_tests.ledgers import KEY
from gads_assets_tests.operators import (
    BIKES,
    STRANGER,
    Gads,
    Office,
    Terminal,
    days,
    document,
    refused,
)

REASON = "the API was mended"
SELECTION = ("--query", "campaign")
AGREED = (*SELECTION, "--reason", REASON, "--yes")


def test_a_customer_that_is_not_registered_any_more_is_still_found(office: Office, gads: Gads) -> None:
    office.reject(replace(KEY, customer_id=STRANGER))
    [found] = document(gads("state", "inspect", "--customer-id", STRANGER, "--json"))["partitions"]
    assert found["status"] == "failed"
    refused(
        gads("state", "retry", "--customer-id", STRANGER, "--reason", REASON, "--yes"),
        f"customer {STRANGER} is not registered",
        "`gads customers sync`",
    )


def test_a_failure_that_is_retried_is_pending_due_now_logged_and_counts_anew(office: Office, gads: Gads) -> None:
    for _ in range(3):
        office.reject(KEY)
    office.give_up("terminal", KEY)
    before = datetime.now(UTC)
    code, out, err = gads("state", "retry", *AGREED)
    assert code == 0, err
    assert "retry: 1 to change, 0 refused" in out
    assert f"customer {KEY.customer_id}, day 2024-06-01" in out
    for words in (
        "due to be extracted again: campaign 1234567890|2024-06-01;",
        "Dagster's daemon",
        "`make ui`",
        "`gads state inspect`",
    ):
        assert words in err
    state, planned, logged = (office.row(table) for table in ("partition_state", "retry_schedule", "override_log"))
    assert (state["status"], state["attempt_count"], state["version"], state["error_message"]) == (
        "pending",
        3,
        4,
        None,
    )
    assert (planned["purpose"], planned["disposition"], planned["backoff_strategy"]) == ("retry", "due", "manual")
    assert (planned["baseline_attempts"], planned["seen_attempts"]) == (3, 3)
    assert planned["baseline_run_seq"] == planned["seen_run_seq"] > 0
    assert abs(planned["next_run_at"] - before) < timedelta(minutes=1)
    assert (planned["override_id"], planned["reason"]) == (logged["override_id"], REASON)
    assert (logged["action"], logged["actor"], logged["reason"]) == ("retry", acting_user(), REASON)
    assert (logged["change"], logged["state_version"]) == (
        "failed → pending; terminal → retry due; attempts count from 3",
        4,
    )
    assert office.dispatch(Purpose.RETRY) == 1


def test_a_success_that_is_retried_stays_what_it_is_until_a_new_run_is_good(office: Office, gads: Gads) -> None:
    office.accept(KEY)
    before = office.row("partition_state")
    found = document(gads("state", "retry", *AGREED, "--json"))
    assert found["action"] == "retry"
    assert found["counts"] == [{"query": "campaign", "status": "success", "error_class": None, "partitions": 1}]
    assert [each["logical_date"] for each in found["changed"]] == ["2024-06-01"]
    assert office.row("partition_state") == before
    planned, logged = office.row("retry_schedule"), office.row("override_log")
    assert (planned["purpose"], planned["disposition"], planned["baseline_attempts"]) == ("retry", "due", 1)
    assert (logged["state_version"], logged["change"]) == (None, "not scheduled → retry due; attempts count from 1")


def test_a_blocked_extraction_is_due_again_although_no_run_of_it_was_ever_judged(office: Office, gads: Gads) -> None:
    office.fail_to_extract(KEY, "customer")
    office.give_up("blocked", KEY)
    assert gads("state", "retry", *AGREED, "--error-class", "customer")[0] == 0
    planned = office.row("retry_schedule")
    assert (planned["disposition"], planned["fruitless_runs"], planned["baseline_attempts"]) == ("due", 0, 0)
    assert planned["baseline_run_seq"] > 0
    assert office.rows("partition_state") == []
    assert office.row("override_log")["change"].startswith("blocked → retry due")


def test_what_was_retried_a_moment_ago_is_not_retried_again(office: Office, gads: Gads) -> None:
    office.reject(KEY)
    assert gads("state", "retry", *AGREED)[0] == 0
    before = office.dump()
    refused(gads("state", "retry", *AGREED), "a retry of it is due already")
    assert office.dump() == before


def test_a_sealed_run_is_judged_again_without_a_change_of_its_state(office: Office, gads: Gads) -> None:
    lost = replace(KEY, customer_id=BIKES)
    office.reject(KEY, lost)
    office.seal(KEY)
    before = office.row("partition_state")
    code, out, err = gads("state", "revalidate", *AGREED)
    assert code == 0, err
    assert "revalidate: 1 to change, 1 refused" in out
    assert "the raw sink has no sealed run of it" in out
    assert f"campaign {lost.label}" in out
    assert office.row("partition_state") == before
    [planned] = office.rows("retry_schedule")
    assert (planned["purpose"], planned["customer_id"]) == ("revalidate", KEY.customer_id)
    assert office.row("override_log")["action"] == "revalidate"
    assert office.dispatch(Purpose.REVALIDATE) == 1
    assert office.row("partition_state") == before


def test_what_is_marked_is_listed_with_why_and_left_alone_until_it_is_cleared(office: Office, gads: Gads) -> None:
    office.reject(KEY)
    assert gads("state", "terminal", "mark", *SELECTION, "--reason", "the account is lost", "--yes")[0] == 0
    assert office.row("partition_state")["status"] == "failed"
    assert office.dispatch() == 0
    [listed] = document(gads("state", "terminal", "list", "--json"))["partitions"]
    assert (listed["disposition"], listed["reason"], listed["status"]) == ("terminal", "the account is lost", "failed")
    assert datetime.fromisoformat(listed["since"]) <= datetime.now(UTC) + timedelta(minutes=1)
    assert "the account is lost" in gads("state", "terminal", "list")[1]
    refused(gads("state", "terminal", "mark", *AGREED), "it is marked already: the account is lost")
    code, _, err = gads("state", "terminal", "clear", *AGREED)
    assert code == 0, err
    assert gads("state", "terminal", "list")[2] == "nothing of these is terminal or blocked\n"
    assert office.dispatch(Purpose.RETRY) == 1
    assert [each["action"] for each in office.rows("override_log")] == ["terminal", "clear", "retry"]


def test_nobody_edits_the_log_of_overrides(office: Office, gads: Gads, acting: Callable[[Role], Engine]) -> None:
    office.reject(KEY)
    gads("state", "retry", *AGREED)
    before = office.dump()
    for role in Role:
        for statement in ("UPDATE override_log SET reason = 'another'", "DELETE FROM override_log"):
            with pytest.raises(StateStoreError, match="permission denied"), transaction(acting(role)) as connection:
                connection.execute(text(statement))
    with pytest.raises(Exception, match="what override_log holds stays as it was written"):
        office.execute("UPDATE override_log SET reason = 'another'")
    assert office.dump() == before


def test_a_partition_that_a_living_run_has_is_refused_and_one_of_a_dead_run_is_not(office: Office, gads: Gads) -> None:
    office.reject(KEY)
    office.lease(KEY)
    before = office.dump()
    refused(gads("state", "retry", *AGREED), "run living run has it", "wait for its end, or cancel it in Dagster")
    assert office.dump() == before
    office.let_leases_expire()
    code, _, err = gads("state", "retry", *AGREED)
    assert code == 0, err
    assert office.row("partition_state")["status"] == "pending"


def test_a_partition_that_was_dispatched_is_refused_until_its_run_has_ended(office: Office, gads: Gads) -> None:
    office.reject(KEY)
    gads("state", "retry", *AGREED)
    assert office.dispatch(Purpose.RETRY) == 1
    batch_id = office.row("retry_schedule")["batch_id"]
    refused(gads("state", "terminal", "mark", *AGREED), f"it waits in Dagster's queue (tag gads/batch={batch_id})")
    [found] = document(gads("state", "inspect", "--json"))["partitions"]
    assert (found["held_by"], found["waits_in_batch"]) == (None, batch_id)
    assert "it waits in Dagster's queue" in gads("state", "inspect")[1]
    office.here.schedule_as(Role.EXTRACTOR).claim_batch(batch_id, "the run that came")
    refused(gads("state", "terminal", "mark", *AGREED), "run the run that came has it")
    [found] = document(gads("state", "inspect", "--json"))["partitions"]
    assert (found["held_by"], found["waits_in_batch"]) == ("the run that came", None)


def test_what_can_be_changed_is_changed_and_what_cannot_is_named(office: Office, gads: Gads) -> None:
    held, free = KEY, replace(KEY, customer_id=BIKES)
    office.reject(held, free)
    office.lease(held)
    found = document(gads("state", "retry", *AGREED, "--json"))
    assert [each["customer_id"] for each in found["changed"]] == [free.customer_id]
    assert [(each["customer_id"], each["reason"].split(";")[0]) for each in found["refused"]] == [
        (held.customer_id, "run living run has it")
    ]
    assert office.row("partition_state", held)["status"] == "failed"
    assert office.row("partition_state", free)["status"] == "pending"


def test_of_two_operators_who_retry_the_same_partition_at_once_exactly_one_does(
    office: Office, acting: Callable[[Role], Engine]
) -> None:
    tries = [*days(10), *days(10, replace(KEY, query_name="ad"))]
    office.reject(*tries[:10])
    office.accept(*tries[10:])
    together = Barrier(2)

    def operator(name: str) -> list[str]:
        desk = OperatorDesk(acting(Role.OPERATOR), source="google_ads")
        lost = []
        for key in tries:
            rows = desk.rows(PartitionChoice(queries=[key.query_name], first=key.logical_date, last=key.logical_date))
            plan = plan_action(Action.RETRY, rows)
            together.wait(timeout=60)
            try:
                desk.carry_out(
                    plan, actor=name, reason=REASON, now=datetime.now(UTC), new_override_id=lambda: str(ULID())
                )
            except TransitionError as error:
                lost.append(str(error))
            together.wait(timeout=60)
        return lost

    with ThreadPoolExecutor(2) as pool:
        lost = [line for each in [pool.submit(operator, name) for name in ("one", "other")] for line in each.result()]
    assert len(lost) == len(tries)
    assert all("is not any more as it was shown" in line and "\n" not in line for line in lost)
    assert len(office.rows("override_log")) == len(office.rows("retry_schedule")) == len(tries)


def test_of_two_commands_at_once_one_changes_the_partition_and_one_says_why_not(office: Office) -> None:
    office.reject(KEY)
    with ThreadPoolExecutor(2) as pool:
        started = [pool.submit(office.start, "state", "retry", *AGREED) for _ in range(2)]
        processes = [each.result() for each in started]
        said = [pool.submit(process.communicate, timeout=60) for process in processes]
        answers = [each.result() for each in said]
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [0, 1]
    [(_, err)] = [answer for answer, code in zip(answers, codes, strict=True) if code == 1]
    assert len(err.splitlines()) == 1
    assert "due already" in err or "not any more as it was shown" in err
    assert len(office.rows("override_log")) == 1


def test_a_plan_that_is_not_true_any_more_when_it_is_confirmed_changes_nothing(office: Office) -> None:
    office.reject(*days(3))
    terminal = Terminal(office, "state", "retry", *SELECTION, "--reason", REASON)
    terminal.wait_for("Change 3 partitions? [y/N] ")
    office.accept(KEY)
    before = office.dump()
    terminal.type("y")
    assert terminal.finish() == 1
    assert f"{KEY}: it is not any more as it was shown" in terminal.shown
    assert office.dump() == before


def test_a_run_that_comes_for_a_partition_between_plan_and_confirmation_keeps_it(office: Office, gads: Gads) -> None:
    office.reject(KEY)
    desk = office.here.desk
    plan = plan_action(Action.RETRY, desk.rows(PartitionChoice(queries=["campaign"])))
    office.lease(KEY)
    before = office.dump()
    with pytest.raises(TransitionError, match="not any more as it was shown"):
        desk.carry_out(plan, actor="me", reason=REASON, now=office.moment, new_override_id=lambda: str(ULID()))
    assert office.dump() == before


def test_a_partition_that_is_dispatched_while_it_is_retried_stays_with_its_run(office: Office, engine: Engine) -> None:
    """It had no row that could be locked: the daemon makes one, with a batch, in a transaction that ends first."""
    office.reject(KEY)
    desk = office.here.desk
    plan = plan_action(Action.RETRY, desk.rows(PartitionChoice(queries=["campaign"])))
    dispatched = text("""
        INSERT INTO retry_schedule (source, customer_id, query_name, logical_date, purpose, disposition, next_run_at,
            backoff_strategy, batch_id, dispatched_at, scheduled_at)
        VALUES ('google_ads', :customer, 'campaign', :day, 'retry', 'due', now(), 'x', :batch, now(), now())
    """)
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as connection:
            asked = {"customer": KEY.customer_id, "day": KEY.logical_date, "batch": str(ULID())}
            connection.execute(dispatched, asked)
            retried = pool.submit(
                desk.carry_out,
                plan,
                actor="me",
                reason=REASON,
                now=office.moment,
                new_override_id=lambda: str(ULID()),
            )
            wait_until(lambda: waiting_for_locks(engine, "transactionid") == 1)
        with pytest.raises(TransitionError, match="a run was made for some of them meanwhile; nothing was changed"):
            retried.result(timeout=60)
    assert (office.row("partition_state")["status"], office.rows("override_log")) == ("failed", [])
    assert office.row("retry_schedule")["batch_id"] == asked["batch"]


def test_two_thousand_partitions_are_retried_at_once(office: Office, gads: Gads) -> None:
    keys = [
        key for name in ("campaign", "ad", "ad_group", "account") for key in days(500, replace(KEY, query_name=name))
    ]
    office.reject(*keys)
    found = document(
        gads("state", "retry", "--from", "2024-06-01", "--reason", REASON, "--yes", "--expect", "2000", "--json")
    )
    assert len(found["changed"]) == 2000
    assert len(office.rows("override_log")) == len(office.rows("retry_schedule")) == 2000
    assert {row["status"] for row in office.rows("partition_state")} == {"pending"}


def backfilled(gads: Gads, customer_id: str) -> str:
    """Three days of a backfill that is paused."""
    found = document(
        gads(
            *("backfill", "--from", "2024-06-01", "--to", "2024-06-03", "--query", "campaign"),
            *("--customer-id", customer_id, "--yes", "--json"),
        )
    )
    assert gads("backfill", "pause", found["backfill_id"])[0] == 0
    return str(found["backfill_id"])


def test_what_an_operator_retries_runs_although_its_backfill_is_paused(office: Office, gads: Gads) -> None:
    backfill_id = backfilled(gads, KEY.customer_id)
    assert office.dispatch() == 0
    code, _, err = gads("state", "retry", "--logical-date", "2024-06-01", "--reason", REASON, "--yes")
    assert code == 0, err
    assert office.dispatch() == 1
    [found] = document(gads("backfill", "status", "--json"))["backfills"]
    assert (found["backfill_id"], found["remaining"], found["queued"]) == (backfill_id, 3, 1)


def test_what_an_operator_asked_for_outlives_the_backfill_that_it_was_part_of(office: Office, gads: Gads) -> None:
    retried, revalidated, _ = days(3)
    backfill_id = backfilled(gads, KEY.customer_id)
    office.seal(revalidated)
    for action, key in (("retry", retried), ("revalidate", revalidated)):
        code, _, err = gads("state", action, "--logical-date", f"{key.logical_date}", "--reason", REASON, "--yes")
        assert code == 0, err
    code, _, err = gads("backfill", "cancel", backfill_id, "--yes")
    assert code == 0, err
    assert "1 partition is off the schedule, 2 stay, asked for by hand" in err
    kept = [(row["logical_date"], row["purpose"]) for row in office.rows("retry_schedule")]
    assert kept == [(retried.logical_date, "retry"), (revalidated.logical_date, "revalidate")]
    assert office.dispatch() == 2
