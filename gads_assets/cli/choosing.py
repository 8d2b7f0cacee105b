"""Which queries, customers and days a command is about: its options, and what their values are checked against."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from gads_assets.cli.usage import wrong_usage
from gads_assets.domain.accounts import last_complete_day
from gads_assets.domain.desk import REJECTED, PartitionChoice
from gads_assets.domain.keys import CustomerId, parse_customer_id, parse_logical_date
from gads_assets.domain.ledger_news import Disposition
from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionStatus
from gads_assets.errors import PartitionKeyError, error_classes

if TYPE_CHECKING:
    from gads_assets.orchestration.workplace import Workplace

QueriesOption = Annotated[
    list[str] | None,
    typer.Option("--query", help="A query of the catalog, for example campaign; may be repeated. Default: all."),
]
CustomersOption = Annotated[
    list[str] | None,
    typer.Option("--customer-id", help="As 123-456-7890; may be repeated. Default: every registered customer."),
]
CustomersOnRecordOption = Annotated[
    list[str] | None,
    typer.Option("--customer-id", help="As 123-456-7890; may be repeated. Default: all on record."),
]
DayOption = Annotated[
    str | None, typer.Option("--logical-date", metavar="DAY", help="One day, YYYY-MM-DD, in place of --from and --to.")
]
FirstDayOption = Annotated[str | None, typer.Option("--from", metavar="DAY", help="The first day, YYYY-MM-DD.")]
LastDayOption = Annotated[str | None, typer.Option("--to", metavar="DAY", help="The last day.")]
StatusesOption = Annotated[
    list[PartitionStatus] | None,
    typer.Option("--status", help="Those with this status; may be repeated.", case_sensitive=False),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="Show so many at most.")]
ErrorClassOption = Annotated[
    str | None,
    typer.Option(
        "--error-class", metavar="CLASS", help="Those whose last try failed so: rejected, quota, transient, customer, …"
    ),
]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was chosen on the command line, read and not yet held against the catalog and the register."""

    queries: Sequence[str]
    customer_ids: Sequence[CustomerId]
    first: date | None
    last: date | None
    error_class: str | None = None
    statuses: Sequence[PartitionStatus] | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.queries or self.customer_ids or self.first or self.last or self.error_class or self.statuses)


def read_asked(
    *,
    queries: Sequence[str] | None,
    customer_ids: Iterable[str] | None,
    day: str | None = None,
    first: str | None = None,
    last: str | None = None,
    error_class: str | None = None,
    statuses: Sequence[PartitionStatus] | None = None,
    now: datetime | None = None,
) -> Asked:
    """Before anything is opened: most mistakes show here. Without `now` days may be in the future."""
    if day is not None and (first is not None or last is not None):
        wrong_usage("--logical-date is one day, and --from and --to are a range; give one or the other")
    if error_class is not None and error_class not in (known := sorted({REJECTED, *error_classes()})):
        wrong_usage(f"error class {error_class[:40]!r} does not exist; there are {', '.join(known)}")
    days = (parse_logical_date(day),) * 2 if day is not None else read_days(first, last)
    if now is not None:
        _require_past(days, now=now)
    return Asked(
        queries=queries or (),
        customer_ids=[parse_customer_id(text) for text in customer_ids or ()],
        first=days[0],
        last=days[1],
        error_class=error_class,
        statuses=statuses or None,
    )


def read_days(first: str | None, last: str | None) -> tuple[date | None, date | None]:
    start, end = (None if text is None else parse_logical_date(text) for text in (first, last))
    require_order(start, end)
    return start, end


def require_order(start: date | None, end: date | None) -> None:
    if start and end and start > end:
        raise PartitionKeyError(f"--from {start} is after --to {end}; give the earlier day first")


def _require_past(days: Iterable[date | None], *, now: datetime) -> None:
    newest = last_complete_day(now)
    for day in days:
        if day and day > newest:
            when = "not over yet" if (day - newest).days == 1 else "in the future"
            raise PartitionKeyError(
                f"day {day} is {when}; give {newest}, the last that is over anywhere, or an earlier one"
            )


def choose(here: "Workplace", asked: Asked, *, dispositions: Sequence[Disposition] | None = None) -> PartitionChoice:
    """Raises CatalogError for a query that there is not, PartitionKeyError for a customer of which nothing is known."""
    queries = [here.catalog.query(name).name for name in asked.queries]
    if asked.customer_ids:
        _require_known_or_on_record(here, asked.customer_ids)
    return PartitionChoice(
        queries=queries or list(here.catalog.queries),
        customer_ids=asked.customer_ids or None,
        first=asked.first,
        last=asked.last,
        error_class=asked.error_class,
        statuses=asked.statuses,
        dispositions=dispositions,
    )


def _require_known_or_on_record(here: "Workplace", wanted: Collection[CustomerId]) -> None:
    known = {account.customer_id for account in here.customers_as(Role.OPERATOR).customers(with_closed=True)}
    unknown = sorted(set(wanted) - known)
    if unknown and (missing := sorted(set(unknown) - here.desk.customers_on_record(unknown))):
        raise PartitionKeyError(
            f"customer {missing[0]} is not registered, and nothing is on record of it; run `gads customers sync`, or "
            "check the id"
        )


def require_known(wanted: Collection[CustomerId], known: Collection[CustomerId]) -> None:
    if not known:
        raise PartitionKeyError("no customer is registered; run `gads customers sync`")
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        those = f"customer {unknown[0]} is" if len(unknown) == 1 else f"customers {', '.join(unknown)} are"
        raise PartitionKeyError(f"{those} not registered; run `gads customers sync`, or check the id")


def given_options(context: typer.Context) -> list[str]:
    """Options before the name of a command."""
    options = {parameter.name: parameter.opts[-1] for parameter in context.command.params}
    sources = {name: context.get_parameter_source(str(name)) for name in options}
    return [options[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"]
