"""The day's operations are shared: no process gets what another has taken, and a pause by one stops them all."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from gads_assets.domain.quota import next_reset
from gads_assets.domain.roles import Role
from gads_assets.errors import StateStoreError
from gads_assets.state.connection import transaction
from gads_assets.state.operations import OperationsBudget
from gads_assets_tests.integration.conftest import wait_until, waiting_for_locks
from gads_assets_tests.ledgers import NOW

PROCESS_SECONDS = 120

TAKE_MANY = """
import sys
from datetime import UTC, datetime
from gads_assets.domain.roles import Role
from gads_assets.state.connection import open_engine
from gads_assets.state.operations import OperationsBudget

budget = OperationsBudget(open_engine(sys.argv[1], Role.EXTRACTOR), origin="google", allowed=100)
sys.stdin.readline()
print(sum(budget.take(count, now=datetime.now(UTC)) is None and count for count in [1, 2] * 25))
"""

PAUSE = """
import sys
from datetime import UTC, datetime
from gads_assets.domain.roles import Role
from gads_assets.state.connection import open_engine
from gads_assets.state.operations import OperationsBudget

budget = OperationsBudget(open_engine(sys.argv[1], Role.EXTRACTOR), origin="google", allowed=100)
budget.pause(seconds=float(sys.argv[2]), reason="the API said so")
"""


@pytest.fixture
def budget(acting: Callable[[Role], Engine]) -> OperationsBudget:
    return OperationsBudget(acting(Role.EXTRACTOR), origin="google", allowed=3)


def used_on(engine: Engine, *, days_ago: int, used: int) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("""
                INSERT INTO api_operations
                SELECT 'google', 'default', CAST(now() AT TIME ZONE 'America/Los_Angeles' AS date) - :days_ago, :used
            """),
            {"days_ago": days_ago, "used": used},
        )


def test_processes_that_take_at_once_get_exactly_the_budget_together(database_url: str, engine: Engine) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TAKE_MANY, database_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    taken = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        output, _ = process.communicate(timeout=PROCESS_SECONDS)
        assert process.returncode == 0
        taken.append(int(output))
    assert sum(taken) == 100
    status = OperationsBudget(engine, origin="google", allowed=100).status()
    assert (status.used, status.allowed) == (100, 100)


def test_a_pause_by_one_process_stops_another(database_url: str, budget: OperationsBudget) -> None:
    now = datetime.now(UTC)
    assert budget.take(1, now=now) is None
    subprocess.run([sys.executable, "-c", PAUSE, database_url, "43200"], check=True, timeout=PROCESS_SECONDS)
    until = budget.take(1, now=now)
    assert until is not None
    assert timedelta(hours=11, minutes=55) < until - now <= timedelta(hours=12)
    status = budget.status()
    assert (status.used, status.reason) == (1, "the API said so")


def test_a_pause_ends_by_itself(budget: OperationsBudget) -> None:
    budget.pause(seconds=0.2, reason="a moment")
    assert budget.take(1, now=datetime.now(UTC)) is not None
    time.sleep(0.3)
    assert budget.take(1, now=datetime.now(UTC)) is None
    over = budget.status()
    assert (over.used, over.paused_until, over.reason) == (1, None, None)


@pytest.mark.parametrize("days", [-400, -1, 1, 400])
def test_a_clock_that_is_wrong_ends_no_pause_and_makes_none_longer(budget: OperationsBudget, days: int) -> None:
    budget.pause(seconds=3600, reason="an hour")
    wrong = datetime.now(UTC) + timedelta(days=days)
    until = budget.take(1, now=wrong)
    assert until is not None
    assert timedelta(minutes=55) < until - wrong <= timedelta(hours=1)


def test_a_delay_that_nobody_can_mean_pauses_for_two_days_at_most(budget: OperationsBudget) -> None:
    budget.pause(seconds=1e12, reason="for ever")
    status = budget.status()
    assert status.paused_until is not None
    assert status.paused_until - datetime.now(UTC) <= timedelta(days=2)


def test_a_pause_is_never_shortened_and_a_longer_one_takes_its_place(budget: OperationsBudget) -> None:
    budget.pause(seconds=7200, reason="two hours")
    budget.pause(seconds=3600, reason="one hour")
    assert budget.status().reason == "two hours"
    budget.pause(seconds=10800, reason="three hours")
    assert budget.status().reason == "three hours"


def test_when_the_day_is_spent_nothing_is_taken_and_the_answer_is_its_end(budget: OperationsBudget) -> None:
    now = datetime.now(UTC)
    assert budget.take(2, now=now) is None
    # Two do not fit any more, one does.
    until = budget.take(2, now=now)
    assert until is not None
    assert now < until <= next_reset(now) + timedelta(seconds=1)
    assert budget.take(1, now=now) is None
    assert budget.take(1, now=now) is not None
    status = budget.status()
    assert (status.used, status.resets_at) == (3, next_reset(now))


@pytest.mark.parametrize("days", [-400, -1, 1, 400])
def test_a_clock_that_is_wrong_frees_nothing_and_is_answered_in_its_own_time(
    budget: OperationsBudget, days: int
) -> None:
    assert budget.take(3, now=datetime.now(UTC)) is None
    wrong = datetime.now(UTC) + timedelta(days=days)
    until = budget.take(1, now=wrong)
    assert until is not None
    assert wrong < until <= wrong + timedelta(hours=25, seconds=1)
    assert budget.status().used == 3


def test_a_new_day_starts_at_nothing_used(budget: OperationsBudget, engine: Engine) -> None:
    used_on(engine, days_ago=1, used=3)
    assert budget.status().used == 0
    assert budget.take(3, now=datetime.now(UTC)) is None


def test_apis_and_developer_tokens_have_budgets_and_pauses_of_their_own(
    acting: Callable[[Role], Engine], budget: OperationsBudget
) -> None:
    engine = acting(Role.EXTRACTOR)
    others = [
        OperationsBudget(engine, origin="emulator", allowed=3),
        OperationsBudget(engine, origin="google", allowed=3, scope="second"),
    ]
    assert budget.take(3, now=NOW) is None
    budget.pause(seconds=3600, reason="wait")
    for other in others:
        assert other.take(3, now=NOW) is None
        assert other.status().paused_until is None


def test_without_a_limit_operations_are_counted_and_pauses_still_hold(acting: Callable[[Role], Engine]) -> None:
    unlimited = OperationsBudget(acting(Role.EXTRACTOR), origin="google", allowed=None)
    assert unlimited.take(1_000_000, now=NOW) is None
    assert unlimited.take(1_000_000, now=NOW) is None
    status = unlimited.status()
    assert (status.used, status.allowed) == (2_000_000, None)
    unlimited.pause(seconds=3600, reason="wait")
    until = unlimited.take(1, now=NOW)
    assert until is not None
    assert timedelta(minutes=55) < until - NOW <= timedelta(hours=1)


def test_a_lower_allowance_holds_at_once_for_what_was_used_under_a_higher_one(
    acting: Callable[[Role], Engine], budget: OperationsBudget
) -> None:
    assert budget.take(3, now=NOW) is None
    lowered = OperationsBudget(acting(Role.EXTRACTOR), origin="google", allowed=2)
    assert lowered.take(1, now=NOW) is not None


def test_what_can_never_be_taken_is_refused_with_the_fix(budget: OperationsBudget) -> None:
    with pytest.raises(StateStoreError, match=r"4 operations .* the 3 of a whole day; raise GADS_API_DAILY_OPERATIONS"):
        budget.take(4, now=NOW)
    for count in (0, -1):
        with pytest.raises(ValueError, match="take at least one"):
            budget.take(count, now=NOW)
    assert budget.status().used == 0


def run_quota(database_url: str, home: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GADS_", "DAGSTER_", "PG"))}
    return subprocess.run(
        [str(Path(sys.executable).with_name("gads")), "quota", *options],
        env=kept | {"GADS_HOME": str(home), "GADS_DATABASE_URL": database_url, **variables},
        check=True,
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
    )


def gads_quota(database_url: str, home: Path, *options: str, **variables: str) -> str:
    return run_quota(database_url, home, *options, **variables).stdout


def test_the_command_shows_what_is_used_when_it_starts_anew_and_why_the_api_is_paused(
    acting: Callable[[Role], Engine], database_url: str, tmp_path: Path
) -> None:
    emulated = OperationsBudget(acting(Role.EXTRACTOR), origin="emulator", allowed=None)
    assert emulated.take(7, now=datetime.now(UTC)) is None
    resets_at = emulated.status().resets_at
    fresh = gads_quota(database_url, tmp_path)
    assert fresh.splitlines() == [
        "used             7 of 15000",
        f"resets at        {resets_at:%Y-%m-%d %H:%M:%S} UTC",
        "paused until     -",
    ]
    emulated.pause(seconds=7200, reason="the API said so")
    paused_until = emulated.status().paused_until
    assert paused_until is not None
    shown = f"paused until     {paused_until:%Y-%m-%d %H:%M:%S} UTC (the API said so)"
    assert shown in gads_quota(database_url, tmp_path)
    assert json.loads(gads_quota(database_url, tmp_path, "--json", GADS_API_DAILY_OPERATIONS="0")) == {
        "used": 7,
        "allowed": None,
        "resets_at": resets_at.isoformat(),
        "paused_until": paused_until.isoformat(),
        "reason": "the API said so",
    }


def test_the_operator_lifts_the_pause_that_was_shown_and_processes_ask_again(
    acting: Callable[[Role], Engine], budget: OperationsBudget
) -> None:
    operator = OperationsBudget(acting(Role.OPERATOR), origin="google", allowed=3)
    another = OperationsBudget(acting(Role.EXTRACTOR), origin="google", allowed=3, scope="second")
    for each in (budget, another):
        each.pause(seconds=3600, reason="an hour")
    shown = operator.status().paused_until
    assert shown is not None
    assert operator.lift_pause(shown)
    assert budget.take(1, now=NOW) is None
    assert another.take(1, now=NOW) is not None
    assert not operator.lift_pause(shown)


def test_a_pause_that_took_the_place_of_the_one_shown_is_not_lifted(
    acting: Callable[[Role], Engine], budget: OperationsBudget
) -> None:
    operator = OperationsBudget(acting(Role.OPERATOR), origin="google", allowed=3)
    budget.pause(seconds=3600, reason="an hour")
    shown = operator.status().paused_until
    assert shown is not None
    with budget._engine.begin() as connection, ThreadPoolExecutor(1) as pool:
        # The other process's statement, whose transaction is not over when the operator's begins.
        connection.execute(text("UPDATE api_pause SET paused_until = now() + interval '1 day', reason = 'a day'"))
        lifted = pool.submit(operator.lift_pause, shown)
        wait_until(lambda: waiting_for_locks(budget._engine, "transactionid") == 1)
        connection.commit()
        assert not lifted.result(timeout=PROCESS_SECONDS)
    assert budget.status().reason == "a day"


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.OPERATOR])
def test_nobody_but_the_operator_lifts_a_pause(
    acting: Callable[[Role], Engine], budget: OperationsBudget, role: Role
) -> None:
    budget.pause(seconds=3600, reason="an hour")
    shown = budget.status().paused_until
    assert shown is not None
    with pytest.raises(StateStoreError, match="permission denied for table api_pause"):
        OperationsBudget(acting(role), origin="google", allowed=3).lift_pause(shown)
    assert budget.status().paused_until == shown


def test_the_command_lifts_a_pause_says_which_and_says_when_there_was_none(
    acting: Callable[[Role], Engine], database_url: str, tmp_path: Path
) -> None:
    emulated = OperationsBudget(acting(Role.EXTRACTOR), origin="emulator", allowed=None)
    emulated.pause(seconds=7200, reason="the API said [so]")
    paused_until = emulated.status().paused_until
    lifted = run_quota(database_url, tmp_path, "--resume")
    assert lifted.stderr == f"lifted the pause until {paused_until:%Y-%m-%d %H:%M:%S} UTC (the API said [so])\n"
    assert "paused until     -" in lifted.stdout
    assert emulated.take(1, now=NOW) is None
    again = run_quota(database_url, tmp_path, "--resume", "--json")
    assert again.stderr == "nothing was paused\n"
    assert json.loads(again.stdout)["paused_until"] is None


STATE = "('google_ads', '1234567890', 'campaign', '2024-06-01', 'failed', NULL, NULL, NULL, now(), 'bad', 1, 1, NULL)"


@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT INTO partition_state VALUES {STATE}",
        "UPDATE partition_state SET status = 'success'",
        "DELETE FROM partition_state",
        "SELECT FROM partition_state",
    ],
)
def test_who_may_use_the_budget_may_still_not_touch_state(
    acting: Callable[[Role], Engine], budget: OperationsBudget, statement: str
) -> None:
    assert budget.take(1, now=NOW) is None
    budget.pause(seconds=0, reason="over already")
    with (
        pytest.raises(StateStoreError, match="permission denied for table partition_state"),
        transaction(acting(Role.EXTRACTOR)) as connection,
    ):
        connection.execute(text(statement))


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.EXTRACTOR])
def test_nobody_but_the_extractor_takes_operations_or_pauses(acting: Callable[[Role], Engine], role: Role) -> None:
    other = OperationsBudget(acting(role), origin="google", allowed=3)
    with pytest.raises(StateStoreError, match="permission denied"):
        other.take(1, now=NOW)
    with pytest.raises(StateStoreError, match="permission denied"):
        other.pause(seconds=1, reason="mine")
    if role in (Role.CONSUMER, Role.OPERATOR):
        assert other.status().used == 0
