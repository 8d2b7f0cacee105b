"""An operator at the command line, in a home whose ledger is written by hand: no Spark, no API, no daemon."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import RowMapping, text
from ulid import ULID

from gads_assets.cli.main import main
from gads_assets.control.rules import retry_policies
from gads_assets.domain.accounts import Account, AccountStatus
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId, StageId
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.domain.roles import Role
from gads_assets.domain.scheduling import Purpose
from gads_assets.domain.state import ExtractionAttempt, ExtractionOutcome, LoadRecord
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.state.connection import open_engine
from gads_assets.state.dispatching import Dispatcher
from gads_assets.state.rows import keys_json
from gads_assets.warehouse.pointers import append_pointers
from gads_assets_tests.ledgers import KEY, judgement
from gads_assets_tests.sealed_runs import row, seal

PROJECT = Path(__file__).resolve().parents[1]
SHOES, BIKES, CLOSED, STRANGER = (
    CustomerId(digits) for digits in ("1234567890", "2345678901", "3456789012", "9999999999")
)
TOLD = ("partition_state", "override_log", "retry_schedule", "backfill")

Answer = tuple[int, str, str]
"""Exit code, standard output, standard error."""
Gads = Callable[..., Answer]

_PATIENCE_SECONDS = 60
_numbers = count(1)


@dataclass
class Office:
    """`start` and `Terminal` run a command as a process of its own, `in_process` runs it in this one."""

    here: Workplace
    environment: Mapping[str, str]
    moment: datetime = field(default_factory=lambda: datetime.now(UTC))

    def register(self, *accounts: Account) -> None:
        self.here.customers_as(Role.OPERATOR).register_customers(accounts, now=self.moment)

    def reject(self, *keys: PartitionKey) -> None:
        """A run of each was extracted, judged, and is bad: failed."""
        self._judge(keys, accepted=False)

    def accept(self, *keys: PartitionKey) -> None:
        self._judge(keys, accepted=True)

    def _judge(self, keys: Iterable[PartitionKey], *, accepted: bool) -> None:
        judged = []
        for key in keys:
            run_id, run_seq = self.seal_on_record(key)
            judged.append((key, judgement(run_id, run_seq, accepted=accepted)))
        self.here.store_as(Role.VALIDATOR).record_judgements(judged, now=self.moment, dagster_run_id="judging run")

    def publish(self, key: PartitionKey = KEY) -> str:
        """Accepted, loaded, and shown to readers."""
        self.accept(key)
        run_id = self.row("partition_state", key)["current_run_id"]
        facts: dict[str, Any] = {
            "key": key,
            "run_id": run_id,
            "schema_version": "1",
            "record_count": 3,
            "content_digest": "digest",
            "stage_id": StageId("stage"),
            "loaded_at": self.moment,
        }
        pointer = Pointer(**facts, state_version=1, stage_commit=1, status=PointerStatus.ACTIVE)
        append_pointers(self.here.layout, key.query_name, [pointer])
        self.here.store_as(Role.LOADER).record_loads([LoadRecord(**facts, pointer_version=0)])
        return str(run_id)

    def seal_on_record(self, key: PartitionKey) -> tuple[RunId, int]:
        """The ledger says that a run is sealed; the raw sink has nothing of it."""
        store = self.here.store_as(Role.EXTRACTOR)
        [run_seq] = store.allocate_run_seqs(1)
        attempt = self._attempt(key, RunId(str(ULID())), run_seq)
        store.record_extractions([attempt])
        return attempt.run_id, run_seq

    def seal(self, key: PartitionKey) -> None:
        """In the raw sink, and on record."""
        store = self.here.store_as(Role.EXTRACTOR)
        [run_seq] = store.allocate_run_seqs(1)
        sealed = seal(self.here.sink, key, [row(key, 1)], run_seq=run_seq)
        store.record_extractions([self._attempt(key, sealed.run_id, run_seq)])

    def fail_to_extract(self, key: PartitionKey, error_class: str = "customer", said: str | None = None) -> None:
        store = self.here.store_as(Role.EXTRACTOR)
        [run_seq] = store.allocate_run_seqs(1)
        attempt = self._attempt(key, RunId(str(ULID())), run_seq)
        store.record_extractions(
            [
                replace(
                    attempt,
                    outcome=ExtractionOutcome.FAILED,
                    error_class=error_class,
                    error_message=said or f"the API said {error_class}",
                )
            ]
        )

    def _attempt(self, key: PartitionKey, run_id: RunId, run_seq: int) -> ExtractionAttempt:
        return ExtractionAttempt(
            key=key,
            run_id=run_id,
            run_seq=run_seq,
            outcome=ExtractionOutcome.SEALED,
            error_class=None,
            error_message=None,
            started_at=self.moment,
            finished_at=self.moment,
            dagster_run_id=f"extracting run {next(_numbers)}",
        )

    def give_up(self, disposition: str, *keys: PartitionKey) -> None:
        """As the control plane does: terminal or blocked, and not by hand."""
        with self.here.engine_as(Role.OPERATOR).begin() as connection:
            connection.execute(
                text("""
                    INSERT INTO retry_schedule (source, customer_id, query_name, logical_date, purpose, disposition,
                        backoff_strategy, reason, scheduled_at)
                    SELECT k.*, 'retry', :disposition, :disposition, 'too often', :now
                    FROM jsonb_to_recordset(CAST(:keys AS jsonb))
                        AS k (source text, customer_id text, query_name text, logical_date date)
                """),
                {"keys": keys_json(keys), "disposition": disposition, "now": self.moment},
            )

    def lease(self, *keys: PartitionKey, run_id: str = "living run") -> None:
        assert self.here.leases_as(Role.EXTRACTOR).take(run_id, keys) == {}

    def let_leases_expire(self) -> None:
        """The process that had them is gone for longer than a lease lasts."""
        self.execute("UPDATE run_lease SET lease_until = statement_timestamp() - interval '1 second'")

    def dispatch(self, *purposes: Purpose, largest: int = 400, batches: int = 2) -> int:
        """What the daemon's next tick would take off the schedule, counted in partitions."""
        schedule = self.here.schedule_as(Role.OPERATOR)
        before = sum(batch.partitions for batch in schedule.open_batches())
        dispatcher = Dispatcher(
            source=self.here.catalog.source,
            customers=[each.customer_id for each in self.here.customers_as(Role.OPERATOR).customers()],
            start_dates={query.name: query.start_date for query in self.here.catalog.queries.values()},
            policies=retry_policies(self.here.catalog),
            largest=largest,
            new_batch_id=lambda: str(ULID()),
            new_override_id=lambda: str(ULID()),
        )
        schedule.dispatch(dispatcher, dict.fromkeys(purposes or Purpose, batches), now=schedule.clock())
        return sum(batch.partitions for batch in schedule.open_batches()) - before

    def execute(self, statement: str, **values: object) -> None:
        """As the database's owner, whom no grant binds."""
        engine = open_engine(self.here.database_url)
        with engine.begin() as connection:
            connection.execute(text(statement), values)
        engine.dispose()

    def rows(self, table: str) -> list[RowMapping]:
        with self.here.engine_as(Role.OPERATOR).begin() as connection:
            return list(connection.execute(text(f"SELECT * FROM {table} AS t ORDER BY t")).mappings())

    def row(self, table: str, key: PartitionKey = KEY) -> RowMapping:
        """The one row of a partition."""
        found = [
            row
            for row in self.rows(table)
            if (row["customer_id"], row["query_name"], row["logical_date"])
            == (key.customer_id, key.query_name, key.logical_date)
        ]
        assert len(found) == 1, found
        return found[0]

    def dump(self) -> dict[str, list[dict[str, Any]]]:
        """All that a command of an operator could change."""
        return {table: [dict(row) for row in self.rows(table)] for table in TOLD}

    def start(self, *arguments: str, **more: Any) -> "subprocess.Popen[str]":
        wanted: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "env": self.environment}
        return subprocess.Popen(
            [sys.executable, "-c", "from gads_assets.cli.main import main; main()", *arguments],
            cwd=PROJECT,
            stderr=subprocess.PIPE,
            text=True,
            **(wanted | more),
        )


# What was started in the background ignores an interrupt, and so does all that it starts.
_HEARING_INTERRUPTS = """
import signal
from gads_assets.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


class Terminal:
    """A command that believes that a person sits before it."""

    def __init__(self, office: Office, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HEARING_INTERRUPTS, *arguments],
            cwd=PROJECT,
            env=dict(office.environment),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.shown = ""

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while words not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self._read()

    def type(self, line: str) -> None:
        self.press(f"{line}\n")

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def finish(self) -> int:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.shown
            self._read()
        while self._read():
            pass
        os.close(self._ours)
        return self._process.returncode

    def _read(self) -> bool:
        """Whether there was anything: a terminal gives no more than a few kilobytes at a time."""
        # Once the other end is closed, reading is an error on Linux, not an end of file.
        with suppress(OSError):
            if select.select([self._ours], [], [], 0.1)[0]:
                self.shown += os.read(self._ours, 65536).decode()
                return True
        return False


def document(answer: Answer) -> Any:
    code, out, err = answer
    assert code == 0, err
    return json.loads(out, parse_constant=pytest.fail)


def refused(answer: Answer, *said: str) -> None:
    code, out, err = answer
    assert code == 1, out + err
    assert len(err.splitlines()) == 1, err
    for words in said:
        assert words in err


@contextmanager
def opened_office(home: Path, database_url: str) -> Iterator[Office]:
    """With three customers, one of them closed."""
    ours = {"GADS_HOME": str(home), "GADS_DATABASE_URL": database_url, "COLUMNS": "240"}
    with Workplace(read_settings(ours)) as here:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GADS_")}
        office = Office(here=here, environment={**inherited, **ours})
        office.register(account(SHOES), account(BIKES), account(CLOSED, is_closed=True))
        yield office


def in_process(office: Office, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gads:
    for name in ("GADS_HOME", "GADS_DATABASE_URL", "COLUMNS"):
        monkeypatch.setenv(name, office.environment[name])

    def gads(*arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["gads", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return gads


def account(customer_id: CustomerId, *, time_zone: str = "Europe/Berlin", is_closed: bool = False) -> Account:
    made = Account(
        customer_id=customer_id,
        name=f"account {customer_id}",
        time_zone=time_zone,
        currency="EUR",
        login_customer_id=CustomerId("9876543210"),
        origin="emulator",
    )
    if not is_closed:
        return made
    return replace(
        made,
        status=AccountStatus.INACTIVE,
        closed_at=datetime(2024, 5, 1, tzinfo=UTC),
        closed_reason="canceled in Google Ads",
    )


def days(number: int, key: PartitionKey = KEY) -> list[PartitionKey]:
    return [replace(key, logical_date=key.logical_date + timedelta(days=day)) for day in range(number)]
