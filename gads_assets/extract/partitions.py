"""Extracting many partitions: one call per customer and window of days, each failure kept to the customer it hits."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import TypeGuard

from gads_assets.catalog.specification import QuerySpecification
from gads_assets.domain.accounts import Account, require_active
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.state import ExtractionAttempt, ExtractionOutcome
from gads_assets.domain.windows import LONGEST_WINDOW, plan_windows
from gads_assets.errors import (
    AuthenticationError,
    CustomerUnavailableError,
    ExtractionError,
    GadsError,
    LostHistoryError,
    PartitionKeyError,
    QuotaExhaustedError,
    TransientApiError,
    WarehouseError,
)
from gads_assets.extract.client import GoogleAdsSource
from gads_assets.extract.customer_days import extract_days, require_askable, require_same_origin
from gads_assets.extract.extraction import Extraction
from gads_assets.extract.pacing import Pacer
from gads_assets.raw.sink import RawSink
from gads_assets.state.partition_states import StateStore


@dataclass(frozen=True, kw_only=True)
class _Try:
    """One partition's part of a call, numbered before the call is made."""

    key: PartitionKey
    run_id: RunId
    run_seq: int


@dataclass(frozen=True, kw_only=True)
class _Order:
    """What is the same for every call of a batch, and what its calls found out for those after them: `stopped_by` is
    what no call can follow, `stopped_customers` no further one of that customer, `faults` are ours."""

    specification: QuerySpecification
    accounts: Mapping[CustomerId, Account]
    code_version: str
    dagster_run_id: str
    stopped_by: list[AuthenticationError] = field(default_factory=list)
    stopped_customers: dict[CustomerId, ExtractionError] = field(default_factory=dict)
    faults: list[Exception] = field(default_factory=list)

    def stopped(self, customer_id: CustomerId) -> ExtractionError | None:
        return self.stopped_by[0] if self.stopped_by else self.stopped_customers.get(customer_id)


@dataclass(frozen=True, kw_only=True)
class Extractor:
    """`estranged` tells which of some partitions, all of one query, readers see from a history that the database lost:
    a new run of them would get a number below those that were lost with it."""

    source: GoogleAdsSource
    sink: RawSink
    store: StateStore
    pacer: Pacer
    new_run_id: Callable[[], RunId]
    now: Callable[[], datetime]
    calls_at_once: int
    estranged: Callable[[Sequence[PartitionKey]], Collection[PartitionKey]]

    def extract(
        self,
        specification: QuerySpecification,
        keys: Sequence[PartitionKey],
        accounts: Mapping[CustomerId, Account],
        *,
        code_version: str,
        dagster_run_id: str,
    ) -> Extraction:
        """Extracts what it can, and records an attempt for every partition and every call, whatever came of it.

        Only what would stop every other account too ends the batch: refused credentials, a database out of reach.
        """
        started_at = self.now()
        refused = {
            **_refused(specification, keys, accounts, origin=self.source.origin, now=started_at),
            **{key: _lost_history(key) for key in self._estranged(keys)},
        }
        if refused:
            self._record(self._tries(sorted(refused)), refused, started_at, dagster_run_id)
        order = _Order(
            specification=specification,
            accounts=accounts,
            code_version=code_version,
            dagster_run_id=dagster_run_id,
        )
        sealed: dict[PartitionKey, RunManifest] = {}
        failed: dict[PartitionKey, GadsError] = {**refused}
        windows = _windows(set(keys) - refused.keys(), longest=specification.shape.days_per_call or LONGEST_WINDOW)
        with ThreadPoolExecutor(self.calls_at_once) as pool:
            for outcome in pool.map(lambda window: self._extract_window(order, window), windows):
                sealed |= outcome.sealed
                failed |= outcome.failed
        if stoppers := [*order.faults, *order.stopped_by]:
            raise stoppers[0]
        return Extraction(sealed=sealed, failed=failed)

    def _estranged(self, keys: Sequence[PartitionKey]) -> Collection[PartitionKey]:
        try:
            return self.estranged(keys)
        except WarehouseError:
            # Some days can be had today only, and the loader asks again before it shows anything.
            return ()

    def _extract_window(self, order: _Order, window: Sequence[PartitionKey]) -> Extraction:
        """Calls again where that may help and is not far off; each call takes new run ids and numbers."""
        calls = 0
        while True:
            customer_id = window[0].customer_id
            # Looked at again after what may have been a long wait.
            not_asked = order.stopped(customer_id) or self.pacer.permit(customer_id) or order.stopped(customer_id)
            tries, started_at = self._tries(window), self.now()
            sealed, error = ({}, not_asked) if not_asked else self._call(order, tries)
            failed = {key: error for key in window if key not in sealed} if error else {}
            self._record(tries, failed, started_at, order.dagster_run_id)
            calls += 1
            if not_asked or not isinstance(error, ExtractionError) or not self.pacer.wait_after(error, calls=calls):
                return Extraction(sealed=sealed, failed=failed)

    def _call(self, order: _Order, tries: Sequence[_Try]) -> tuple[dict[PartitionKey, RunManifest], GadsError | None]:
        """What was sealed, and what ended it before all was."""
        sealed: dict[PartitionKey, RunManifest] = {}
        customer_id = tries[0].key.customer_id
        try:
            for manifest in self._sealed_runs(order, tries):
                sealed[manifest.key] = manifest
        except AuthenticationError as error:
            order.stopped_by.append(error)
            return sealed, error
        except GadsError as error:
            if isinstance(error, CustomerUnavailableError) or _is_accounts_own(error, self.pacer.longest_wait):
                order.stopped_customers[customer_id] = error
            return sealed, error
        except Exception as fault:  # noqa: BLE001  it is raised at the end, when the others have had their turn
            order.faults.append(fault)
            return sealed, ExtractionError(
                f"account {customer_id} could not be extracted: {type(fault).__name__}; report it with the run's log",
                customer_id=customer_id,
            )
        return sealed, None

    def _sealed_runs(self, order: _Order, tries: Sequence[_Try]) -> Iterator[RunManifest]:
        return extract_days(
            source=self.source,
            source_name=tries[0].key.source,
            sink=self.sink,
            specification=order.specification,
            account=order.accounts[tries[0].key.customer_id],
            days=[each.key.logical_date for each in tries],
            run_seq=iter([each.run_seq for each in tries]).__next__,
            new_run_id=iter([each.run_id for each in tries]).__next__,
            now=self.now,
            code_version=order.code_version,
        )

    def _tries(self, keys: Sequence[PartitionKey]) -> list[_Try]:
        run_seqs = self.store.allocate_run_seqs(len(keys))
        return [
            _Try(key=key, run_id=self.new_run_id(), run_seq=run_seq)
            for key, run_seq in zip(keys, run_seqs, strict=True)
        ]

    def _record(
        self,
        tries: Sequence[_Try],
        failed: Mapping[PartitionKey, GadsError],
        started_at: datetime,
        dagster_run_id: str,
    ) -> None:
        finished_at = max(self.now(), started_at)
        self.store.record_extractions(
            ExtractionAttempt(
                key=each.key,
                run_id=each.run_id,
                run_seq=each.run_seq,
                outcome=ExtractionOutcome.FAILED if (error := failed.get(each.key)) else ExtractionOutcome.SEALED,
                error_class=error.error_class if error else None,
                error_message=str(error) if error else None,
                started_at=started_at,
                finished_at=finished_at,
                dagster_run_id=dagster_run_id,
                retry_at=_retry_at(error, finished_at),
            )
            for each in tries
        )


def _is_accounts_own(error: GadsError, longest_wait: timedelta) -> TypeGuard[QuotaExhaustedError]:
    """A quota that the account used up alone, for longer than anybody waits."""
    return (
        isinstance(error, QuotaExhaustedError)
        and error.scope == "account"
        and error.retry_after > longest_wait.total_seconds()
    )


def _retry_at(error: GadsError | None, failed_at: datetime) -> datetime | None:
    if isinstance(error, QuotaExhaustedError | TransientApiError):
        return failed_at + timedelta(seconds=error.retry_after)
    return None


def _refused(
    specification: QuerySpecification,
    keys: Iterable[PartitionKey],
    accounts: Mapping[CustomerId, Account],
    *,
    origin: str,
    now: datetime,
) -> dict[PartitionKey, GadsError]:
    """The days that cannot be asked for yet, any more, or at all; their neighbours in a window can."""
    refused: dict[PartitionKey, GadsError] = {}
    for key in keys:
        account = accounts.get(key.customer_id)
        try:
            if account is None:
                raise PartitionKeyError(f"customer {key.customer_id} is not registered; run `gads customers sync`")
            require_active(account)
            require_same_origin(account, origin)
            require_askable(specification, account, key.logical_date, now=now)
        except GadsError as error:
            refused[key] = error
    return refused


def _lost_history(key: PartitionKey) -> LostHistoryError:
    return LostHistoryError(
        f"{key} is shown from a history that this database does not have, and a new run could pass for older than "
        "those that it lost; run `gads reconcile --adopt`, then try again",
        customer_id=key.customer_id,
    )


def _windows(keys: Iterable[PartitionKey], *, longest: int) -> list[list[PartitionKey]]:
    return [
        [replace(some[0], logical_date=day) for day in window]
        for _, group in groupby(sorted(keys), key=lambda key: (key.source, key.customer_id, key.query_name))
        for some in [list(group)]
        for window in plan_windows((key.logical_date for key in some), longest=longest)
    ]
