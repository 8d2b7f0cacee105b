"""`gads status`: which partitions are current, which are stale, missing or failed, and why."""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer
from rich.progress import Progress
from rich.text import Text

from gads_assets.cli.choosing import (
    CustomersOption,
    FirstDayOption,
    LastDayOption,
    QueriesOption,
    given_options,
    read_days,
    require_known,
)
from gads_assets.cli.output import JsonOption, messages, print_json, print_table
from gads_assets.cli.ui import require_free
from gads_assets.domain.keys import parse_customer_id
from gads_assets.domain.partition_status import DisplayStatus, StaleReason
from gads_assets.domain.roles import Role
from gads_assets.errors import CatalogError
from gads_assets.settings import STATUS_PORT, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gads_assets.orchestration.status import StatusDesk
    from gads_assets.orchestration.workplace import Workplace
    from gads_assets.status.deriving import Selection
    from gads_assets.status.telling import Document, Summary
    from gads_assets.status.tracking import TrackedAsset

_LISTED: Final = 1_000
_REASONS: Final = {
    StaleReason.FRESHNESS_POLICY: "stale by their deadline",
    StaleReason.UPSTREAM_CHANGED: "stale since what they are made of changed",
    StaleReason.CODE_CHANGED: "stale since the code changed",
}

status_app = typer.Typer(
    help="Show which partitions are current, and why not the others.", invoke_without_command=True, add_completion=False
)


@status_app.callback()
def status(
    context: typer.Context,
    *,
    queries: QueriesOption = None,
    assets: Annotated[
        list[str] | None,
        typer.Option("--asset", help="An asset, for example google_ads/raw/campaign; may be repeated."),
    ] = None,
    customer_ids: CustomersOption = None,
    first: FirstDayOption = None,
    last: LastDayOption = None,
    displays: Annotated[
        list[DisplayStatus] | None,
        typer.Option(
            "--status", help="List the partitions that are displayed so; may be repeated.", case_sensitive=False
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List partitions instead of counting them.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="List so many at most.")] = _LISTED,
    parquet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the rows of ADR-026 to a Parquet file.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page to one file that needs no server.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Count the partitions that are current, stale, missing or failed since; or list them, with the reason.

    Dagster's events tell what happened; a failed or cancelled retry never hides the good data from before it. Without
    --query and --asset all assets are counted; `gads status serve` shows the same as a page, day by day.
    """
    from gads_assets.orchestration.customers import dagster_instance  # noqa: PLC0415
    from gads_assets.orchestration.status import StatusDesk  # noqa: PLC0415
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415
    from gads_assets.status.telling import summaries, told  # noqa: PLC0415

    if context.invoked_subcommand:
        if given := given_options(context):
            raise typer.BadParameter(f"{given[0]} says what to show here; the page has filters of its own")
        return
    if (parquet or html) and (displays or listed or as_json):
        raise typer.BadParameter("a file holds every status; leave out --status, --list and --json")
    now = datetime.now(UTC)
    with Workplace(read_settings(os.environ)) as here, dagster_instance(here) as instance:
        desk = StatusDesk(here, instance)
        selection = _selection(
            here,
            desk,
            queries=queries or (),
            assets=assets or (),
            customer_ids=customer_ids or (),
            first=first,
            last=last,
        )
        _fold(desk)
        if parquet:
            from gads_assets.status.exporting import write_parquet  # noqa: PLC0415

            written = write_parquet(str(parquet.absolute()), desk.statuses.rows(selection, now=now))
            messages.print(f"{written} rows in {parquet}", soft_wrap=True)
        if html:
            from gads_assets.status.snapshot import write_page  # noqa: PLC0415

            size = write_page(html, desk.board, selection)
            messages.print(f"the page is in {html}, {size / 1e6:.1f} MB", soft_wrap=True)
        if parquet or html:
            return
        counted = summaries(desk.statuses.summary(selection, now=now))
        wanted = displays or ([*DisplayStatus] if listed else None)
        found = None
        if wanted:
            rows = desk.statuses.partitions(
                selection, now=now, wanted=lambda facts: facts.display in wanted, limit=limit
            )
            found = [told(row) for row in rows]
    if as_json:
        print_json(_document(desk, selection, counted, found, now=now))
    elif found is None:
        _show_summary(selection.assets, counted)
    else:
        _show_partitions(found, limit)


@status_app.command()
def serve(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where the page answers.")] = STATUS_PORT,
) -> None:
    """Serve the page on this machine until interrupted. It only reads, and follows runs while they go on."""
    from gads_assets.orchestration.customers import dagster_instance  # noqa: PLC0415
    from gads_assets.orchestration.status import StatusDesk  # noqa: PLC0415
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415
    from gads_assets.status.serving import StatusServer, status_app  # noqa: PLC0415

    settings = read_settings(os.environ)
    require_free(port, "gads status serve --port 3011")
    with Workplace(settings) as here, dagster_instance(here) as instance:
        desk = StatusDesk(here, instance)
        _fold(desk)
        hosts = {f"127.0.0.1:{port}", f"localhost:{port}", _host(settings.status_url)}
        messages.print(f"The status page is on http://127.0.0.1:{port}; stop it with Ctrl-C", soft_wrap=True)
        StatusServer(status_app(desk.board, hosts=hosts), port=port).run()


def _host(url: str) -> str:
    """As browsers name it, which leave out the port that goes with the scheme."""
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}[parts.scheme]
    return parts.hostname or "" if parts.port in (None, usual) else f"{parts.hostname}:{parts.port}"


def _selection(
    here: "Workplace",
    desk: "StatusDesk",
    *,
    queries: Sequence[str],
    assets: Sequence[str],
    customer_ids: Sequence[str],
    first: str | None,
    last: str | None,
) -> "Selection":
    from gads_assets.status.deriving import Selection  # noqa: PLC0415

    start, end = read_days(first, last)
    wanted = [parse_customer_id(text) for text in customer_ids]
    if wanted:
        known = here.customers_as(Role.REPORTER).customers(with_closed=True)
        require_known(wanted, [account.customer_id for account in known])
    return Selection(
        assets=_chosen(here, desk, queries, assets),
        customer_ids=wanted or None,
        first=start,
        last=end,
    )


def _chosen(
    here: "Workplace", desk: "StatusDesk", queries: Sequence[str], assets: Sequence[str]
) -> "list[TrackedAsset]":
    names = {here.catalog.query(name).name for name in queries}
    known = {asset.asset_key: asset for asset in desk.assets}
    for asset_key in assets:
        if asset_key not in known:
            raise CatalogError(f"asset {asset_key[:80]!r} is not known; there are {', '.join(sorted(known))}")
    if not names and not assets:
        return desk.assets
    return [asset for asset in desk.assets if asset.query_name in names or asset.asset_key in assets]


def _fold(desk: "StatusDesk") -> None:
    with Progress(console=messages, transient=True, disable=not messages.is_terminal) as bar:
        task = bar.add_task("reading Dagster's events", total=None)
        desk.folder.fold(desk.log, progress=lambda done, total: bar.update(task, completed=done, total=total))


def _document(
    desk: "StatusDesk",
    selection: "Selection",
    counted: "Mapping[str, Summary]",
    found: "Sequence[Document] | None",
    *,
    now: datetime,
) -> "Document":
    document: Document = {
        "tenant_id": desk.workspace.tenant_id,
        "workspace_id": desk.workspace.workspace_id,
        "at": now.isoformat(),
        "assets": [{"asset_key": asset.asset_key, **counted[asset.asset_key].document()} for asset in selection.assets],
    }
    if found is not None:
        document["partitions"] = list(found)
    return document


def _show_summary(assets: "Sequence[TrackedAsset]", counted: "Mapping[str, Summary]") -> None:
    rows = []
    for asset in assets:
        summary = counted[asset.asset_key]
        remarks = [f"{number} {words}" for number, words in _remarks(summary) if number]
        rows.append(
            (
                asset.asset_key,
                summary.counts[DisplayStatus.MATERIALIZED],
                _marked(summary.counts[DisplayStatus.STALE], "yellow"),
                _marked(summary.counts[DisplayStatus.LAST_ATTEMPT_FAILED], "red"),
                summary.counts[DisplayStatus.NEVER_MATERIALIZED],
                ", ".join(remarks),
            )
        )
    print_table(None, ["asset", "materialized", "stale", "failed since", "never there", "of these"], rows)


def _remarks(summary: "Summary") -> "Iterator[tuple[int, str]]":
    """What the four columns leave unsaid: a failure may be stale too, and what never was may be overdue."""
    yield from ((summary.stale[reason], _REASONS[reason]) for reason in StaleReason)
    yield summary.flags["overdue"], "overdue"
    yield summary.flags["last_attempt_cancelled"], "with a cancelled last attempt"
    yield summary.flags["withdrawn"], "withdrawn"


def _show_partitions(found: "Sequence[Document]", limit: int) -> None:
    print_table(
        None,
        ["asset", "partition", "status", "since", "why", "last attempt", "run"],
        [
            (
                each["asset_key"],
                each["partition_key"],
                each["display"],
                _minute(each["stale_since"]),
                _why(each),
                _attempt(each),
                (each["last_attempt"] or {}).get("run_id", "")[:8],
            )
            for each in found
        ],
    )
    if len(found) == limit:
        messages.print(f"no more than {limit} are listed; narrow them down, or raise --limit", soft_wrap=True)


def _why(told: "Document") -> str:
    reasons = [f"{each['reason_code']} ({each['explanation']})" for each in told["staleness"]]
    return "; ".join([*reasons, *(["withdrawn"] if "withdrawn" in told["flags"] else [])])


def _attempt(told: "Document") -> str:
    attempt = told["last_attempt"]
    return f"{attempt['outcome']} {_minute(attempt['at'])}" if attempt else ""


def _minute(moment: str | None) -> str:
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M}" if moment else ""


def _marked(number: int, style: str) -> Text:
    return Text(str(number), style=style if number else "")
