"""What a look of the control plane costs over a hundred thousand partitions, and an operator's retry of many."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final

from sqlalchemy import text

from benchmarks.partition_status import FIRST_DAY, open_desk
from benchmarks.results import Result
from benchmarks.timing import in_turns, timed
from gads_assets.domain.roles import Role
from gads_assets.orchestration.control import look
from gads_assets.state.connection import open_engine
from gads_assets_tests.filled_ledgers import fill_ledger

_ALLOWANCE_MILLISECONDS: Final = 1000.0
_RETRY_SECONDS: Final = 5.0
_QUERY: Final = "campaign"

# As the last look found it: due, and in no batch.
_FAILURES_ARE_DUE: Final = """
    UPDATE partition_state SET status = 'failed', error_message = 'two rows share a key' WHERE status = 'pending';
    UPDATE retry_schedule SET batch_id = NULL, dispatched_at = NULL, next_run_at = now() WHERE purpose = 'retry'
"""


def measure_tick(
    folder: Path, *, customers: int = 200, days: int = 500, due: int = 500, warm_up: int = 1, rounds: int = 5
) -> list[Result]:
    """All of the sensor's work but for its process: the ledger, the schedule, the quota, and the runs in Dagster."""
    with open_desk(folder) as desk:
        desk.register(customers=customers, days=1)
        here, instance = desk.here, desk.instance
        engine = open_engine(here.database_url)
        long_ago = datetime.now(UTC) - timedelta(days=1)
        fill_ledger(engine, query_name=_QUERY, first_day=FIRST_DAY, days=days, failed=due, now=long_ago)
        look(here, instance)  # the failures are found, and days that have opened are out of the way

        def make_due() -> None:
            with engine.begin() as connection:
                connection.execute(text("SET LOCAL session_replication_role = replica"))
                for statement in _FAILURES_ARE_DUE.split(";"):
                    connection.execute(text(statement))

        def tick(_: int) -> None:
            found = look(here, instance)
            assert sum(batch.partitions for batch in found.requests if batch.purpose == "retry") == due

        def find_all(_: int) -> None:
            """As once an hour, and after the database was restored: everything on record is looked at."""
            here.schedule_as(Role.OPERATOR).news([_QUERY], over=(), since=None, now=datetime.now(UTC), most=due)

        [ticks] = in_turns(tick, warm_up=warm_up, rounds=rounds, before_each=make_due)
        [searches] = in_turns(find_all, warm_up=warm_up, rounds=rounds)
        engine.dispose()
    return [
        Result(
            name="control_tick",
            unit="ms",
            ours=median(ticks),
            peer=f"the second it is allowed, over {customers * days} partitions with {due} due",
            peer_value=_ALLOWANCE_MILLISECONDS,
            goal=1.0,
        ),
        Result(
            name="control_tick_everything",
            unit="ms",
            ours=median(searches),
            peer="the same second, for all that is on record",
            peer_value=_ALLOWANCE_MILLISECONDS,
        ),
    ]


def measure_retry(folder: Path, *, customers: int = 200, days: int = 500, failed: int = 2000) -> list[Result]:
    """The whole command in a process of its own, from its start to its answer: plan, log, and schedule."""
    with open_desk(folder) as desk:
        desk.register(customers=customers, days=1)
        engine = open_engine(desk.here.database_url)
        long_ago = datetime.now(UTC) - timedelta(days=1)
        fill_ledger(engine, query_name=_QUERY, first_day=FIRST_DAY, days=days, failed=failed, now=long_ago)
        asked = ["state", "retry", "--status", "failed", "--reason", "measured", "--yes", "--expect", f"{failed}"]

        def retry() -> None:
            answered = subprocess.run(
                [sys.executable, "-c", "from gads_assets.cli.main import main; main()", *asked, "--json"],
                env={**os.environ, "GADS_HOME": str(folder)},
                check=True,
                capture_output=True,
            )
            assert len(json.loads(answered.stdout)["changed"]) == failed

        taken = timed(retry)
        engine.dispose()
    return [
        Result(
            name="retry_many",
            unit="ms",
            ours=taken,
            peer=f"the five seconds it is allowed, for {failed} of {customers * days} partitions",
            peer_value=_RETRY_SECONDS * 1000,
            goal=1.0,
        )
    ]
