"""A schedule with a few accounts, and tries of their partitions as runs would leave them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, text
from ulid import ULID

from gads_assets.control.ticking import ControlPlane, Runs
from gads_assets.domain.accounts import Account
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.ledger_news import RunEnd
from gads_assets.domain.retrying import RetryPolicy
from gads_assets.domain.state import ExtractionOutcome
from gads_assets.state.customers import CustomerRegister
from gads_assets.state.dispatching import Dispatcher
from gads_assets.state.opening import OpeningRule
from gads_assets.state.partition_states import StateStore
from gads_assets.state.rows import key_from_row
from gads_assets.state.schedule import Schedule
from gads_assets_tests.integration.control.simulated_agency import SOURCE, account
from gads_assets_tests.ledgers import extraction, judgement

RULE = OpeningRule(
    query_name="campaign", start_date=date(2024, 1, 1), settling=timedelta(hours=3), ages=(), reach_days=None
)


def account_in(number: int, time_zone: str) -> Account:
    return replace(account(number), time_zone=time_zone)


def day_of(each: Account, day: date, query: str = "campaign") -> PartitionKey:
    return PartitionKey(source=SOURCE, customer_id=each.customer_id, query_name=query, logical_date=day)


@dataclass
class Desk:
    """`schedule` acts as the operator, `store` as the owner."""

    engine: Engine
    schedule: Schedule
    store: StateStore

    def register(self, accounts: Iterable[Account], now: datetime) -> None:
        CustomerRegister(self.engine).register_customers(accounts, now=now)

    def rows(self) -> dict[PartitionKey, Mapping[str, Any]]:
        with self.engine.begin() as connection:
            return {
                key_from_row(row): dict(row)
                for row in connection.execute(text("SELECT * FROM retry_schedule")).mappings()
            }

    def clear(self) -> None:
        with self.engine.begin() as connection:
            connection.execute(text("DELETE FROM retry_schedule"))

    def seal(self, key: PartitionKey, *, now: datetime, run_id: RunId | None = None) -> tuple[RunId, int]:
        run_id, [run_seq] = run_id or RunId(str(ULID())), self.store.allocate_run_seqs(1)
        attempt = replace(extraction(), key=key, run_id=run_id, run_seq=run_seq, started_at=now, finished_at=now)
        self.store.record_extractions([attempt])
        return run_id, run_seq

    def fail(self, key: PartitionKey, error: str, *, now: datetime, retry_at: datetime | None = None) -> None:
        [run_seq] = self.store.allocate_run_seqs(1)
        attempt = replace(
            extraction(),
            key=key,
            run_id=RunId(str(ULID())),
            run_seq=run_seq,
            started_at=now,
            finished_at=now,
            outcome=ExtractionOutcome.FAILED,
            error_class=error,
            error_message="in vain",
            dagster_run_id=str(ULID()),
            retry_at=retry_at,
        )
        self.store.record_extractions([attempt])

    def judge(self, key: PartitionKey, run: tuple[RunId, int], *, accepted: bool = True, now: datetime) -> None:
        self.store.record_judgements([(key, judgement(*run, accepted=accepted))], now=now, dagster_run_id="validator")

    def try_once(self, key: PartitionKey, *, accepted: bool = True, now: datetime) -> None:
        self.judge(key, self.seal(key, now=now), accepted=accepted, now=now)

    def plane(
        self,
        accounts: Iterable[Account],
        *,
        rules: Iterable[OpeningRule] = (RULE,),
        ended: Mapping[str, RunEnd] | None = None,
        missing: bool = False,
    ) -> ControlPlane:
        chosen = list(rules)
        return ControlPlane(
            schedule=self.schedule,
            policies={rule.query_name: RetryPolicy() for rule in chosen},
            rules=chosen,
            dispatcher=self.dispatcher([each.customer_id for each in accounts], rules=chosen),
            runs_of=lambda batches: Runs(
                ended=ended or {}, missing=[batch.batch_id for batch in batches] if missing else ()
            ),
            not_asked=None,
            reserved_for_fresh=False,
            random=lambda: 1.0,
        )

    def dispatcher(self, customers: Iterable[CustomerId], *, rules: Iterable[OpeningRule] = (RULE,)) -> Dispatcher:
        return Dispatcher(
            source=SOURCE,
            customers=list(customers),
            start_dates={rule.query_name: rule.start_date for rule in rules},
            policies={rule.query_name: RetryPolicy() for rule in rules},
            largest=4,
            new_batch_id=lambda: str(ULID()),
            new_override_id=lambda: str(ULID()),
        )
