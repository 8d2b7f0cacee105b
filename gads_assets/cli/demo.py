"""`gads demo`: a week of three emulated accounts, extracted, judged and published through Dagster."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from gads_assets.cli.output import JsonOption, messages, print_json, print_table
from gads_assets.cli.setup import require_spark, require_writable
from gads_assets.domain.accounts import Account, FoundAccount
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionState, PartitionStatus
from gads_assets.errors import GadsError, SettingsError
from gads_assets.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gads_assets.orchestration.workplace import Workplace

DAYS: Final = 7
QUERIES: Final = ("campaign", "ad_group", "keyword_view", "search_term_view")
_POLL_SECONDS = 0.5


class DemoFailedError(GadsError):
    pass


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a partition looks like to a consumer: its state, the pointer that readers follow, and whether that load is
    on record (a kill just after the swap leaves it out; publishing once more mends it)."""

    state: PartitionState | None
    pointer: Pointer | None
    recorded: bool

    @property
    def is_published(self) -> bool:
        return (
            self.state is not None
            and self.state.status is PartitionStatus.SUCCESS
            and self.pointer is not None
            and self.pointer.status is PointerStatus.ACTIVE
            and self.pointer.run_id == self.state.current_run_id
            and self.recorded
        )


@dataclass
class Stages:
    """Seconds by stage, in the order in which they ran."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measured(self, name: str, saying: str) -> "Iterator[None]":
        messages.print(saying)
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 2)


def demo(as_json: JsonOption = False) -> None:
    """Publish a week of three emulated accounts. Run it again: what is published stays as it is.

    The database is brought to this version's schema, a server of one's own (GADS_DATABASE_URL) too.
    """
    from gads_assets.orchestration.customers import register_found  # noqa: PLC0415
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415
    from gads_assets.state.migration import migrate  # noqa: PLC0415

    settings = read_settings(os.environ)
    if settings.asks_google:
        raise SettingsError(
            "the demo talks to the emulator; unset GADS_GOOGLE_ADS_CONFIG and the GOOGLE_ADS_* variables"
        )
    stages = Stages()
    reasons: list[str] = []
    with Workplace(replace(settings, google_ads_login=None)) as here:
        _require_queries(here)
        require_writable(settings.home)
        require_spark(settings)
        with stages.measured("services", "Starting the database and the emulated Google Ads API"):
            if settings.database_url:
                migrate(settings.database_url)
            _ = here.database_url  # first, so that a database that is down is found before anything is written
            _ = here.source
        with stages.measured("customers", "Registering the customers"):
            accounts = register_found(here, _enabled, now=datetime.now(UTC)).accounts
        days = closed_days(datetime.now(UTC).date())
        keys = [
            PartitionKey(
                source=here.catalog.source, customer_id=account.customer_id, query_name=query, logical_date=day
            )
            for query in QUERIES
            for account in accounts
            for day in days
        ]
        before = look(here, keys)
        missing = [key for key in keys if not before[key].is_published]
        if missing:
            saying = f"Extracting, judging and publishing {len(missing)} of {len(keys)} partitions"
            with stages.measured("run", saying):
                reasons = _materialize(here, missing)
        after = look(here, keys)
    changed = [key for key in keys if before[key].is_published and _content(before[key]) != _content(after[key])]
    published = [key for key in keys if after[key].is_published]
    if as_json:
        print_json(
            {
                "partitions": len(keys),
                "published": len(published),
                "published_now": len(set(missing) & set(published)),
                "changed": len(changed),
                "stages": stages.seconds,
            }
        )
    else:
        _show(after, accounts, days)
        _conclude(len(keys), len(missing), len(changed))
    if len(published) < len(keys):
        said = f": {reasons[0]}" if reasons else ""
        raise DemoFailedError(
            f"{len(keys) - len(published)} of {len(keys)} partitions were not published{said}; "
            f"Dagster's log is {settings.home / 'logs' / 'demo.log'}, and every reason is on its page: make ui"
        )


def _enabled(found: Sequence[FoundAccount]) -> list[Account]:
    return [each.account for each in found if each.is_enabled]


def _require_queries(here: "Workplace") -> None:
    missing = [query for query in QUERIES if query not in here.catalog.queries]
    if missing:
        raise SettingsError(
            f"GADS_CATALOG {here.settings.catalog_path} lacks {', '.join(missing)}, which the demo publishes; "
            "unset GADS_CATALOG for the demo, or add them"
        )


def closed_days(today: date) -> list[date]:
    """The last seven days that are over, and settled, in every time zone."""
    return [today - timedelta(days=offset) for offset in range(DAYS + 1, 1, -1)]


def look(here: "Workplace", keys: Sequence[PartitionKey]) -> dict[PartitionKey, Shown]:
    from gads_assets.warehouse.publishing import current_state  # noqa: PLC0415

    store = here.store_as(Role.CONSUMER)
    states = store.states(keys)
    recorded = {(record.key, record.run_id) for record in store.load_records(keys)}
    pointers: dict[PartitionKey, Pointer] = {}
    for query in {key.query_name for key in keys}:
        pointers |= current_state(here.layout, query)
    return {
        key: Shown(
            state=states.get(key),
            pointer=(pointer := pointers.get(key)),
            recorded=pointer is not None and (key, pointer.run_id) in recorded,
        )
        for key in keys
    }


def _materialize(here: "Workplace", keys: Sequence[PartitionKey]) -> list[str]:
    """Returns what the steps that failed said."""
    from gads_assets.orchestration.launching import failure_reasons, start_run  # noqa: PLC0415

    started_at = datetime.now(UTC)
    records = here.records_as(Role.OPERATOR)
    log = here.settings.home / "logs" / "demo.log"
    # One emulator serves the whole demo; a run of its own accord would start another.
    process = start_run(here, keys, log=log, environment={"GADS_GOOGLE_ADS_ENDPOINT": here.endpoint})
    try:
        with Progress(
            TextColumn("  {task.description:9}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=messages,
            disable=not messages.is_terminal,
        ) as progress:
            tasks = {name: progress.add_task(name, total=len(keys)) for name in ("extracted", "judged", "published")}
            while process.poll() is None:
                counted = records.progress(since=started_at)
                for name, task in tasks.items():
                    progress.update(task, completed=counted[name])
                time.sleep(_POLL_SECONDS)
            for name, count in records.progress(since=started_at).items():
                progress.update(tasks[name], completed=count)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    return failure_reasons(here, since=started_at) if process.returncode else []


def _content(shown: Shown) -> str | None:
    return shown.pointer.content_digest if shown.pointer and shown.is_published else None


def _show(after: Mapping[PartitionKey, Shown], accounts: Sequence[Account], days: Sequence[date]) -> None:
    by_place = {(key.query_name, key.customer_id, key.logical_date): shown for key, shown in after.items()}
    for query in QUERIES:
        print_table(
            f"google_ads.{query}",
            ["day", *(f"{account.customer_id} {account.name}" for account in accounts)],
            [(day, *(_cell(by_place[query, account.customer_id, day]) for account in accounts)) for day in days],
        )


def _cell(shown: Shown) -> Text:
    if shown.is_published and shown.pointer:
        return Text(f"published, {shown.pointer.record_count} rows", style="green")
    if shown.state is None:
        return Text("pending", style="dim")
    return Text(shown.state.status.value, style="red" if shown.state.status is PartitionStatus.FAILED else "yellow")


def _conclude(total: int, missing: int, changed: int) -> None:
    if not missing:
        messages.print(f"All {total} partitions were published already. No published row changed.")
    elif missing < total:
        messages.print("No published row changed." if not changed else f"{changed} published partitions changed.")
    messages.print("Look next, on the same data:")
    messages.print("  make ui     Dagster's page, to see the assets and launch a partition")
    messages.print('  .venv/bin/gads query "SELECT * FROM google_ads.campaign LIMIT 5"')
