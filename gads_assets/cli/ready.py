"""`gads ready`: which days a consumer may read."""

import os
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

import typer

from gads_assets.catalog.specification import QuerySpecification
from gads_assets.cli.choosing import CustomersOption, require_known, require_order
from gads_assets.cli.output import JsonOption, messages, print_json, print_table
from gads_assets.domain.accounts import last_complete_day
from gads_assets.domain.keys import parse_customer_id, parse_logical_date
from gads_assets.domain.readiness import Readiness
from gads_assets.domain.roles import Role
from gads_assets.domain.state import DayRange
from gads_assets.errors import PartitionKeyError
from gads_assets.raw.layout import run_path
from gads_assets.raw.storage import without_login
from gads_assets.settings import read_settings

_DAYS_SHOWN = 7


def ready(
    query_name: Annotated[str, typer.Argument(metavar="QUERY", help="A query of the catalog, for example campaign.")],
    customer_ids: CustomersOption = None,
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="DAY", help="The first day, YYYY-MM-DD. Default: six days before --to."),
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="DAY", help="The last day. Default: yesterday in UTC.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List which customers' days are safe to read, and from which run; and why not the others.

    Only what the validator accepted is ready. A day without a judgement is not, even where raw files lie.
    """
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    wanted = [parse_customer_id(text) for text in customer_ids or ()]
    settings = read_settings(os.environ)
    with Workplace(settings) as here:
        query = here.catalog.query(query_name)
        days = _days(query, first, last, now=datetime.now(UTC))
        known = here.customers_as(Role.CONSUMER).customers(with_closed=True)
        require_known(wanted, [account.customer_id for account in known])
        # What a closed account published stays readable, and its days since then are not missing.
        asked = wanted or [account.customer_id for account in known if account.is_active]
        found = here.store_as(Role.CONSUMER).readiness(query_name, asked, days, source=here.catalog.source)
    messages.print(
        f"{len(found.ready)} of {len(found.ready) + len(found.waiting)} partitions of {query_name} "
        f"from {days.first} to {days.last} are ready"
    )
    if as_json:
        print_json(_document(query_name, days, found, without_login(settings.raw_uri)))
    else:
        _show(found)


def _days(query: QuerySpecification, first: str | None, last: str | None, *, now: datetime) -> DayRange:
    newest = last_complete_day(now)

    def within(day: date) -> date:
        if query.start_date <= day <= newest:
            return day
        raise PartitionKeyError(
            f"day {day} is outside the days of {query.name}: it must be between {query.start_date}, its start_date in "
            f"the catalog, and {newest}, the last that is over anywhere"
        )

    end = within(parse_logical_date(last) if last else now.date() - timedelta(days=1))
    start = within(parse_logical_date(first)) if first else max(query.start_date, end - timedelta(days=_DAYS_SHOWN - 1))
    require_order(start, end)
    return DayRange(first=start, last=end)


def _document(query_name: str, days: DayRange, found: Readiness, raw_uri: str) -> dict[str, object]:
    return {
        "query": query_name,
        "from": days.first,
        "to": days.last,
        "ready": [
            {
                "customer_id": partition.key.customer_id,
                "logical_date": partition.key.logical_date,
                "run_id": partition.run_id,
                "raw_uri": f"{raw_uri}/{run_path(partition.key, partition.run_id)}",
                "schema_version": partition.schema_version,
                "record_count": partition.record_count,
                "state_version": partition.state_version,
                "updated_at": partition.updated_at.isoformat(),
            }
            for partition in found.ready
        ],
        "not_ready": [
            {
                "customer_id": partition.key.customer_id,
                "logical_date": partition.key.logical_date,
                "status": partition.status,
                "reason": partition.reason,
            }
            for partition in found.waiting
        ],
    }


def _show(found: Readiness) -> None:
    rows = [
        *((each.key, "ready", str(each.record_count), each.run_id) for each in found.ready),
        *((each.key, each.status.value, "", each.reason) for each in found.waiting),
    ]
    print_table(
        None,
        ["customer", "day", "", "rows", "run, or why not"],
        [(key.customer_id, key.logical_date, *shown) for key, *shown in sorted(rows, key=lambda row: row[0])],
    )
