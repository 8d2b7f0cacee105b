"""One call, many days: a customer's window is asked for once and split into one sealed run per day."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from gads_assets.catalog.gaql_query import print_gaql
from gads_assets.catalog.shapes import Shape, day_field, days_back, for_days
from gads_assets.catalog.specification import QuerySpecification
from gads_assets.domain.accounts import Account, day_opens_at, require_open
from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.errors import ExtractionError, MissedSnapshotError, PartitionKeyError
from gads_assets.extract.client import GoogleAdsSource
from gads_assets.extract.rows import RowEncoder
from gads_assets.raw.sink import RawSink
from gads_assets.raw.writing import RunFacts

_DAY_LENGTH = len("2024-06-01")


def extract_days(
    *,
    source: GoogleAdsSource,
    sink: RawSink,
    specification: QuerySpecification,
    account: Account,
    days: Sequence[date],
    run_seq: Callable[[], int],
    new_run_id: Callable[[], RunId],
    now: Callable[[], datetime],
    code_version: str,
    source_name: str = "google_ads",
) -> Iterator[RunManifest]:
    """Seals one run per day, in the days' order, days without rows included. Costs one API operation, also where other
    days lie between the first and the last: their rows are not kept.

    Nothing is sealed before the whole answer has arrived: if the call fails, no day of the window gets a run, and
    the error says whether trying again can help. What was yielded before a later seal failed stays sealed. Days that
    have not opened, or are out of reach by now, are refused before anything is asked.
    `source_name` is the catalog's, the first part of every partition's key.
    """
    _require_in_order(days)
    started_at = now()
    for day in days:
        require_askable(specification, account, day, now=started_at)
    require_same_origin(account, source.origin)
    first, last = days[0].isoformat(), days[-1].isoformat()
    gaql = print_gaql(for_days(specification.gaql, specification.shape, days[0], days[-1]))
    rows = RowEncoder(specification.schema.columns, source.api_version, day_field=day_field(specification.gaql))
    # Taken before the call: of two extractions the one that started later is the newer, whichever ends first.
    sequence = [run_seq() for _ in days]
    with ExitStack() as unsealed:
        writers = {
            day.isoformat(): unsealed.enter_context(
                sink.begin(
                    PartitionKey(
                        source=source_name,
                        customer_id=account.customer_id,
                        query_name=specification.name,
                        logical_date=day,
                    ),
                    new_run_id(),
                )
            )
            for day in days
        }
        received = 0
        for batch in source.stream(account.customer_id, gaql, login_customer_id=account.login_customer_id):
            received += len(batch)
            for row_day, lines in rows.lines(batch):
                day_text = first if row_day is None else row_day[:_DAY_LENGTH]
                if day_text in writers:
                    writers[day_text].write(lines)
                elif not first < day_text < last:
                    raise _of_another_day(account, days, day_text)
        _require_whole(specification, account, received)
        finished_at = max(now(), started_at)  # a seal whose end is before its start would be refused by every reader
        for writer, number in zip(writers.values(), sequence, strict=True):
            yield writer.seal(
                RunFacts(
                    run_seq=number,
                    schema_version=specification.schema.version,
                    gaql=gaql,
                    api_version=source.api_version,
                    api_origin=source.origin,
                    account_time_zone=account.time_zone,
                    account_currency=account.currency,
                    window_start=days[0],
                    window_end=days[-1],
                    extraction_started_at=started_at,
                    extraction_finished_at=finished_at,
                    code_version=code_version,
                )
            )


def require_askable(specification: QuerySpecification, account: Account, day: date, *, now: datetime) -> None:
    """The day has opened where the account is, and the API still tells it: some it tells for a while only, and a
    snapshot shows nothing but the present."""
    require_open(
        customer_id=account.customer_id,
        time_zone=account.time_zone,
        logical_date=day,
        settling_delay=specification.settling_delay,
        now=now,
    )
    if specification.shape is Shape.SNAPSHOT:
        next_opens_at = day_opens_at(account.time_zone, day + timedelta(days=1), specification.settling_delay)
        if now >= next_opens_at:
            raise MissedSnapshotError(
                f"{specification.name} of account {account.customer_id} was not taken for {day} before "
                f"{next_opens_at:%Y-%m-%d %H:%M} UTC, and shows only what is there now; the day stays without it",
                customer_id=account.customer_id,
            )
        return
    reach = days_back(specification.gaql)
    today = now.astimezone(ZoneInfo(account.time_zone)).date()
    if reach is not None and (today - day).days > reach:
        raise ExtractionError(
            f"day {day} of {specification.name} is out of reach: Google keeps {reach} days of it; choose a later day",
            customer_id=account.customer_id,
        )


def _require_in_order(days: Sequence[date]) -> None:
    if not days:
        raise PartitionKeyError("no days to extract; name at least one")
    if list(days) != sorted(set(days)):
        raise PartitionKeyError(f"days {days[0]} to {days[-1]} are not in order, each once; sort them")


def _of_another_day(account: Account, days: Sequence[date], day: str) -> ExtractionError:
    return ExtractionError(
        f"account {account.customer_id} was asked for {days[0]} to {days[-1]} and answered with a row of day {day!r}; "
        "nothing was sealed, report it if it happens again",
        customer_id=account.customer_id,
    )


def _require_whole(specification: QuerySpecification, account: Account, rows: int) -> None:
    limit = specification.gaql.limit
    if limit is not None and rows >= limit:
        raise ExtractionError(
            f"account {account.customer_id} answered with {rows} rows, the LIMIT of {specification.name}: some may be "
            "missing, so nothing was sealed; ask for fewer days, or raise the LIMIT where Google allows it",
            customer_id=account.customer_id,
        )


def require_same_origin(account: Account, origin: str) -> None:
    if account.origin != origin:
        raise ExtractionError(
            f"account {account.customer_id} was found through {account.origin} and cannot be asked through "
            f"{origin}; run `gads customers sync` against the API you want to use",
            customer_id=account.customer_id,
        )
