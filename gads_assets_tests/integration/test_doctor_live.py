"""`gads doctor --live` as a person with credentials runs it, against the emulator through the library's own client."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from gads_assets.emulator.faults import parse_faults
from gads_assets.emulator.server import RunningEmulator, serve_emulator
from gads_assets.state.operations import OperationsBudget
from gads_assets_tests.google_credentials import (
    GRANTED,
    REFUSED,
    serving_tokens,
    trusting,
    write_google_ads_yaml,
)

PROGRAM = str(Path(sys.executable).parent / "gads")
SECRET = "hunter2"
LIVE = ["api version", "credentials", "accounts", "login"]


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[RunningEmulator]:
    with serve_emulator(home=tmp_path / "emulator") as running:
        yield running


def doctor(home: Path, database_url: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """With a database and a Spark elsewhere, so that only the API can be a problem."""
    foreign = ("GADS_", "GOOGLE_ADS_", "DAGSTER_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    ours = {"GADS_HOME": str(home), "GADS_DATABASE_URL": database_url, "GADS_SPARK_REMOTE": "sc://localhost:1"}
    done = subprocess.run(
        [PROGRAM, "doctor", *arguments],
        env={**kept, **ours, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert SECRET not in done.stdout + done.stderr
    return done


def live_parts(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    return {part["part"]: part for part in json.loads(done.stdout) if part["part"] in LIVE}


def test_credentials_that_work_are_shown_to_work_for_two_operations_that_are_counted(
    tmp_path: Path, emulator: RunningEmulator, database_url: str, engine: Engine
) -> None:
    with serving_tokens(GRANTED) as server:
        path = write_google_ads_yaml(
            tmp_path, server, endpoint=emulator.endpoint, login_customer_id="1000000000", use_proto_plus=False
        )
        done = doctor(
            tmp_path / "home",
            database_url,
            "--live",
            "--json",
            GADS_GOOGLE_ADS_CONFIG=str(path),
            **trusting(emulator.ca_path),
        )
    assert done.returncode == 0
    assert done.stderr == "asking the API: two read-only calls, at most two operations of the quota\n"
    parts = live_parts(done)
    assert list(parts) == LIVE
    assert all(part["ok"] for part in parts.values())
    assert parts["credentials"]["detail"] == "google is ready to be asked under login 1000000000"
    assert parts["accounts"]["detail"] == "1 directly accessible"
    assert parts["login"]["detail"] == "1000000000 answers queries"
    assert emulator.operations == 1  # the emulator counts queries only
    assert OperationsBudget(engine, origin="google", allowed=None).status().used == 2
    assert not (tmp_path / "home").exists()


def test_refused_credentials_are_one_problem_with_its_fix_and_the_api_is_not_asked(
    tmp_path: Path, emulator: RunningEmulator, database_url: str
) -> None:
    with serving_tokens(REFUSED) as server:
        path = write_google_ads_yaml(tmp_path, server, endpoint=emulator.endpoint, login_customer_id="1000000000")
        given = {"GADS_GOOGLE_ADS_CONFIG": str(path), **trusting(emulator.ca_path)}
        shown = doctor(tmp_path / "home", database_url, "--live", **given)
        done = doctor(tmp_path / "home", database_url, "--live", "--json", **given)
    assert (shown.returncode, done.returncode) == (1, 1)
    assert shown.stdout.count("PROBLEM") == 1
    parts = live_parts(done)
    assert list(parts) == ["api version", "credentials"]
    assert str(parts["credentials"]["detail"]).startswith("Google refuses the credentials (invalid_grant); create new")
    assert emulator.operations == 0


def test_a_login_that_the_credentials_may_not_use_is_named_with_the_fix(
    tmp_path: Path, emulator: RunningEmulator, database_url: str
) -> None:
    done = doctor(
        tmp_path,
        database_url,
        "--live",
        "--json",
        GADS_GOOGLE_ADS_ENDPOINT=emulator.endpoint,
        GADS_GOOGLE_ADS_LOGIN="999-999-9999",
    )
    assert done.returncode == 1
    parts = live_parts(done)
    assert [name for name, part in parts.items() if not part["ok"]] == ["login"]
    assert "9999999999" in str(parts["login"]["detail"])
    assert str(parts["login"]["detail"]).endswith(
        "set GADS_GOOGLE_ADS_LOGIN to an account that these credentials may use"
    )


@pytest.mark.parametrize("spend", ["all operations", "a pause"])
def test_when_the_operations_are_spent_or_paused_the_parts_say_so_and_the_api_is_not_asked(
    tmp_path: Path, emulator: RunningEmulator, database_url: str, engine: Engine, spend: str
) -> None:
    budget = OperationsBudget(engine, origin="emulator", allowed=1)
    if spend == "a pause":
        budget.pause(seconds=30, reason="a moment")
    else:
        assert budget.take(1, now=datetime.now(UTC)) is None
    done = doctor(
        tmp_path,
        database_url,
        "--live",
        "--json",
        GADS_GOOGLE_ADS_ENDPOINT=emulator.endpoint,
        GADS_API_DAILY_OPERATIONS="1",
    )
    assert done.returncode == 1
    parts = live_parts(done)
    assert [name for name, part in parts.items() if not part["ok"]] == ["accounts", "login"]
    for name in ("accounts", "login"):
        assert "account 1000000000 was not asked: the API's operations are used up or paused until" in str(
            parts[name]["detail"]
        )
    assert emulator.operations == 0


@pytest.mark.parametrize(
    ("faults", "accounts", "login", "used"),
    [
        ("transient@*/customer/*:9", "1 directly accessible", "broke off", 2),
        ("quota@*/*/*:40", "used up, said while asking", "used up or paused until", 1),
    ],
)
def test_no_call_is_made_again_and_a_quota_that_is_gone_pauses_everybody(
    tmp_path: Path, database_url: str, engine: Engine, *, faults: str, accounts: str, login: str, used: int
) -> None:
    with serve_emulator(home=tmp_path / "emulator", faults=parse_faults(faults)) as running:
        done = doctor(tmp_path, database_url, "--live", "--json", GADS_GOOGLE_ADS_ENDPOINT=running.endpoint)
    details = {name: str(part["detail"]) for name, part in live_parts(done).items()}
    assert accounts in details["accounts"]
    assert login in details["login"]
    assert OperationsBudget(engine, origin="emulator", allowed=None).status().used == used


def test_a_database_that_is_not_there_is_a_problem_of_its_own_and_the_api_is_asked_uncounted(
    tmp_path: Path, emulator: RunningEmulator
) -> None:
    done = doctor(
        tmp_path,
        "postgresql://nobody@127.0.0.1:1/ads",
        "--live",
        "--json",
        GADS_GOOGLE_ADS_ENDPOINT=emulator.endpoint,
        GADS_GOOGLE_ADS_LOGIN="1000000000",
    )
    assert done.returncode == 1
    assert done.stderr.endswith("at most two operations of the quota, not counted without the database\n")
    assert [part["part"] for part in json.loads(done.stdout) if not part["ok"]] == ["database"]
    assert emulator.operations == 1


def test_without_live_nothing_is_asked(tmp_path: Path, emulator: RunningEmulator, database_url: str) -> None:
    done = doctor(tmp_path, database_url, "--json", GADS_GOOGLE_ADS_ENDPOINT=emulator.endpoint)
    assert done.returncode == 0
    assert live_parts(done) == {}
    assert emulator.operations == 0


def test_the_emulator_of_a_new_home_passes_too(tmp_path: Path, database_url: str) -> None:
    done = doctor(tmp_path / "home", database_url, "--live", "--json")
    assert done.returncode == 0
    assert all(part["ok"] for part in live_parts(done).values())
