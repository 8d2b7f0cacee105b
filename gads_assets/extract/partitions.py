"""Extracting many partitions: one call per customer and window of days, each failure kept to the customer it hits."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from gads_assets.catalog.specification import QuerySpecification
from gads_assets.domain.accounts import Account, require_active, require_open
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.state import ExtractionAttempt, ExtractionOutcome
from gads_assets.errors import AuthenticationError, GadsError, PartitionKeyError
from gads_assets.extract.client import GoogleAdsSource
from gads_assets.extract.customer_days import extract_days
from gads_assets.extract.extraction import Extraction
from gads_assets.raw.sink import RawSink
from gads_assets.state.partition_states import StateStore

_CUSTOMERS_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class _Try:
    """One partition's part of a call, numbered before the call is made."""

    key: PartitionKey
    run_id: RunId
    run_seq: int


@dataclass(frozen=True, kw_only=True)
class Extractor:
    source: GoogleAdsSource
    sink: RawSink
    store: StateStore
    new_run_id: Callable[[], RunId]
    now: Callable[[], datetime]

    def extract(
        self,
        specification: QuerySpecification,
        keys: Sequence[PartitionKey],
        accounts: Mapping[CustomerId, Account],
        *,
        code_version: str,
        dagster_run_id: str,
    ) -> Extraction:
        """Extracts what it can, and records an attempt for every partition, whatever came of it.

        Only what would stop every other account too ends the batch: refused credentials, a database out of reach.
        """
        started_at = self.now()
        refused = _refused(specification, keys, accounts, now=started_at)
        if refused:
            self._record(self._tries(sorted(refused)), refused, started_at, dagster_run_id)

        def extract_window(window: list[PartitionKey]) -> Extraction:
            account = accounts[window[0].customer_id]
            return self._extract_window(specification, window, account, code_version, dagster_run_id)

        sealed: dict[PartitionKey, RunManifest] = {}
        failed: dict[PartitionKey, GadsError] = {**refused}
        with ThreadPoolExecutor(_CUSTOMERS_AT_ONCE) as pool:
            for outcome in pool.map(extract_window, _windows(set(keys) - refused.keys())):
                sealed |= outcome.sealed
                failed |= outcome.failed
        return Extraction(sealed=sealed, failed=failed)

    def _extract_window(
        self,
        specification: QuerySpecification,
        window: list[PartitionKey],
        account: Account,
        code_version: str,
        dagster_run_id: str,
    ) -> Extraction:
        tries = self._tries(window)
        started_at = self.now()
        sealed: dict[PartitionKey, RunManifest] = {}
        failed: dict[PartitionKey, GadsError] = {}
        try:
            for manifest in extract_days(
                source=self.source,
                source_name=window[0].source,
                sink=self.sink,
                specification=specification,
                account=account,
                days=[key.logical_date for key in window],
                run_seq=iter([each.run_seq for each in tries]).__next__,
                new_run_id=iter([each.run_id for each in tries]).__next__,
                now=self.now,
                code_version=code_version,
            ):
                sealed[manifest.key] = manifest
        except GadsError as error:
            failed = {key: error for key in window if key not in sealed}
            if isinstance(error, AuthenticationError):
                self._record(tries, failed, started_at, dagster_run_id)
                raise
        self._record(tries, failed, started_at, dagster_run_id)
        return Extraction(sealed=sealed, failed=failed)

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
            )
            for each in tries
        )


def _refused(
    specification: QuerySpecification,
    keys: Iterable[PartitionKey],
    accounts: Mapping[CustomerId, Account],
    *,
    now: datetime,
) -> dict[PartitionKey, GadsError]:
    """The days that cannot be asked for yet, or at all; their neighbours in a window can."""
    refused: dict[PartitionKey, GadsError] = {}
    for key in keys:
        account = accounts.get(key.customer_id)
        try:
            if account is None:
                raise PartitionKeyError(f"customer {key.customer_id} is not registered; run `gads customers sync`")
            require_active(account)
            require_open(
                customer_id=key.customer_id,
                time_zone=account.time_zone,
                logical_date=key.logical_date,
                settling_delay=specification.settling_delay,
                now=now,
            )
        except GadsError as error:
            refused[key] = error
    return refused


def _windows(keys: Iterable[PartitionKey]) -> Iterator[list[PartitionKey]]:
    """Consecutive days of one customer belong to one call: the API counts calls, not rows."""
    window: list[PartitionKey] = []
    expected: tuple[CustomerId, date] | None = None
    for key in sorted(keys):
        if window and (key.customer_id, key.logical_date) != expected:
            yield window
            window = []
        window.append(key)
        expected = (key.customer_id, key.logical_date + timedelta(days=1))
    if window:
        yield window
