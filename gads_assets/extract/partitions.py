"""Extracting many partitions: one call per customer and window of days, each failure kept to the customer it hits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from gads_assets.catalog.specification import QuerySpecification
from gads_assets.domain.accounts import Account
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.state import ExtractionAttempt, ExtractionOutcome
from gads_assets.errors import AuthenticationError, ExtractionError, GadsError, PartitionKeyError, RawSinkError
from gads_assets.extract.client import GoogleAdsSource
from gads_assets.extract.customer_days import extract_days
from gads_assets.extract.extraction import Extraction
from gads_assets.raw.sink import RawSink
from gads_assets.state.partition_states import StateStore

_CUSTOMERS_AT_ONCE = 8


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
        """Extracts what it can. Every call that was made is recorded as an attempt, whatever came of it.

        Only credentials that the API refuses stop the batch: no other account would fare better.
        """
        sealed: dict[PartitionKey, RunManifest] = {}
        failed: dict[PartitionKey, GadsError] = {}

        def extract_window(window: list[PartitionKey]) -> list[RunManifest] | GadsError:
            account = accounts.get(window[0].customer_id)
            if account is None:
                return PartitionKeyError(
                    f"customer {window[0].customer_id} is not registered; run `gads customers sync`"
                )
            try:
                return self._extract_window(specification, window, account, code_version, dagster_run_id)
            except AuthenticationError:
                raise
            except GadsError as error:
                return error

        windows = list(_windows(keys))
        with ThreadPoolExecutor(_CUSTOMERS_AT_ONCE) as pool:
            for window, outcome in zip(windows, pool.map(extract_window, windows), strict=True):
                if isinstance(outcome, GadsError):
                    failed |= dict.fromkeys(window, outcome)
                else:
                    sealed |= {manifest.key: manifest for manifest in outcome}
        return Extraction(sealed=sealed, failed=failed)

    def _extract_window(
        self,
        specification: QuerySpecification,
        window: list[PartitionKey],
        account: Account,
        code_version: str,
        dagster_run_id: str,
    ) -> list[RunManifest]:
        run_seqs = self.store.allocate_run_seqs(len(window))
        run_ids = [self.new_run_id() for _ in window]
        started_at = self.now()

        def record(error: ExtractionError | RawSinkError | None) -> None:
            finished_at = max(self.now(), started_at)
            self.store.record_extractions(
                ExtractionAttempt(
                    key=key,
                    run_id=run_id,
                    run_seq=run_seq,
                    outcome=ExtractionOutcome.FAILED if error else ExtractionOutcome.SEALED,
                    error_class=error.error_class if error else None,
                    error_message=str(error) if error else None,
                    started_at=started_at,
                    finished_at=finished_at,
                    dagster_run_id=dagster_run_id,
                )
                for key, run_id, run_seq in zip(window, run_ids, run_seqs, strict=True)
            )

        try:
            manifests = extract_days(
                source=self.source,
                source_name=window[0].source,
                sink=self.sink,
                specification=specification,
                account=account,
                days=[key.logical_date for key in window],
                run_seq=iter(run_seqs).__next__,
                new_run_id=iter(run_ids).__next__,
                now=self.now,
                code_version=code_version,
            )
        except (ExtractionError, RawSinkError) as error:
            record(error)
            raise
        record(None)
        return manifests


def _windows(keys: Sequence[PartitionKey]) -> Iterator[list[PartitionKey]]:
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
