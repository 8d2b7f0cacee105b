"""An agency whose runs are real `dagster` processes, and an emulator that counts the calls made at once."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG
from sqlalchemy import text

from gads_assets.domain.roles import Role
from gads_assets.emulator.accounts import made_up_accounts
from gads_assets.emulator.server import RunningEmulator, serve_emulator
from gads_assets.orchestration.customers import dagster_instance, register_accounts
from gads_assets.orchestration.instance import dagster_environment
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.state.connection import transaction
from gads_assets_tests.agencies import registered
from gads_assets_tests.integration.orchestration import raw_alone

POOL = "google_ads_api"
DAY, ANOTHER_DAY = "2024-06-01", "2024-06-02"
CALLS_AT_ONCE = 3
PATIENCE = 120.0


def eventually(happened: Callable[[], object], process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert process is None or process.poll() is None, "the run ended before"
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@dataclass
class Agency:
    """A dozen registered customers; `start` is one run that extracts two queries of all of them."""

    home: Path
    here: Workplace
    instance: dg.DagsterInstance
    emulator: RunningEmulator
    environment: dict[str, str]
    customers: list[str]
    runs: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """Of one run that is not disturbed."""
        return 2 * len(self.customers)

    def tags_of(self, day: str) -> dict[str, str]:
        return {
            ASSET_PARTITION_RANGE_START_TAG: f"{self.customers[0]}|{day}",
            ASSET_PARTITION_RANGE_END_TAG: f"{self.customers[-1]}|{day}",
        }

    def start(self, day: str = DAY, *, tags: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Of all customers' day, unless tags say otherwise."""
        asked = json.dumps(tags or self.tags_of(day))
        return self.start_process(
            [
                *(sys.executable, "-m", "dagster", "job", "execute", "--job", "raw_alone"),
                *("-m", raw_alone.__name__, "--tags", asked),
            ]
        )

    def start_process(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with self.log(len(self.runs)).open("wb") as log:
            process = subprocess.Popen(command, env={**os.environ, **self.environment}, stdout=log, stderr=log)
        self.runs.append(process)
        return process

    def log(self, number: int) -> Path:
        return self.home / f"run-{number}.log"

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        returncode = process.wait(timeout=PATIENCE)
        assert returncode == 0, self.log(self.runs.index(process)).read_text()[-3000:]

    def sealed(self) -> int:
        with transaction(self.here.engine_as(Role.OPERATOR)) as connection:
            statement = text("SELECT count(*) FROM extraction_attempt WHERE outcome = 'sealed'")
            count: int = connection.execute(statement).scalar_one()
            return count

    def places(self) -> dict[str, set[str]]:
        """Who has a place in the pool, and who is in its queue (those who have one among them)."""
        info = self.instance.event_log_storage.get_concurrency_info(POOL)
        return {
            "taken": {slot.run_id for slot in info.claimed_slots},
            "queue": {step.run_id for step in info.pending_steps},
        }

    def take_place(self, run_id: str) -> None:
        storage = self.instance.event_log_storage
        storage.initialize_concurrency_limit_to_default(POOL)
        assert storage.claim_concurrency_slot(POOL, run_id, "google_ads__raw__campaign").is_claimed


@contextmanager
def opened_agency(folder: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agency]:
    accounts = registered(account for account in made_up_accounts(12) if account.status == "ENABLED")
    with ExitStack() as held:
        emulator = held.enter_context(
            serve_emulator(home=folder / "emulator", accounts=made_up_accounts(12), latency=0.3)
        )
        variables = {
            "GADS_HOME": str(folder),
            "GADS_DATABASE_URL": database_url,
            "GADS_GOOGLE_ADS_ENDPOINT": emulator.endpoint,
            "GADS_API_CALLS_AT_ONCE": str(CALLS_AT_ONCE),
            "GADS_LEASE_SECONDS": "5",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        settings = read_settings(variables)
        here = held.enter_context(Workplace(settings))
        customers = list(accounts.values())
        register_accounts(here, customers, now=datetime.now(UTC))
        agency = Agency(
            home=folder,
            here=here,
            instance=held.enter_context(dagster_instance(here)),
            emulator=emulator,
            environment={**variables, **dagster_environment(settings, database_url)},
            customers=[account.customer_id for account in customers],
        )
        yield agency
        for process in agency.runs:
            process.kill()
            process.wait()
