"""What a backfill would take, before it starts: which partitions, what of the API's quota, and what is left out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from gads_assets.catalog.shapes import Shape, days_back
from gads_assets.catalog.specification import Catalog, QuerySpecification
from gads_assets.cli.choosing import Asked, require_known
from gads_assets.cli.output import Column, number_of, print_listing
from gads_assets.cli.telling import scope_of
from gads_assets.control.backfilling import Cost, cost_of, days_of_quota
from gads_assets.control.rules import days_per_call, opening_rule
from gads_assets.domain.accounts import Account, last_open_day, require_active
from gads_assets.domain.quota import BudgetStatus
from gads_assets.domain.roles import Role
from gads_assets.errors import CatalogError, DayNotOpenError, PartitionKeyError
from gads_assets.state.backfills import Wanted

if TYPE_CHECKING:
    from gads_assets.orchestration.workplace import Workplace

_MOST_AT_ONCE: Final = 500_000


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """`left_out` counts by query and why; what waits for an operator is among it."""

    first: date
    last: date
    wanted: Wanted
    left_out: Counter[tuple[str, str]]
    snapshots: Sequence[str]
    cost: Cost
    budget: BudgetStatus


def propose(here: "Workplace", asked: Asked, *, now: datetime) -> Proposal:
    assert asked.first is not None  # noqa: S101  both were given
    assert asked.last is not None  # noqa: S101
    first, last = asked.first, asked.last
    queries, snapshots = _choose_queries(here.catalog, asked.queries)
    accounts = _choose_accounts(here, asked)
    _require_started(queries, first)
    _require_open(queries, accounts, last, now=now)
    most = len(queries) * len(accounts) * ((last - first).days + 1)
    if most > _MOST_AT_ONCE:
        raise PartitionKeyError(
            f"{first} to {last} of {len(accounts)} customers and {len(queries)} queries are {most} partitions, more "
            f"than {_MOST_AT_ONCE} at once; choose fewer days, customers or queries, and repeat with the others"
        )
    rules = [opening_rule(query) for query in queries]
    wanted = here.backfills.wanted(rules, [account.customer_id for account in accounts], first, last, now=now)
    left_out = Counter((key.query_name, why) for key, why in wanted.left_out)
    for query in queries:
        for account in accounts:
            for why, number in _out_of_reach(query, account, first, last, now=now):
                left_out[query.name, why] += number
    if not wanted.keys and not wanted.left_out:
        reasons = ", ".join(f"{number} {why}" for why, number in left_out_by_reason(left_out))
        raise PartitionKeyError(f"none of the days {first} to {last} can be had: {reasons}; choose others")
    return Proposal(
        first=first,
        last=last,
        wanted=wanted,
        left_out=left_out,
        snapshots=snapshots,
        cost=cost_of(
            wanted.keys, last, days_per_call=days_per_call(here.catalog), largest=here.settings.batch_partitions
        ),
        budget=here.operations_as(Role.OPERATOR).status(),
    )


def _choose_queries(catalog: Catalog, names: Sequence[str]) -> tuple[list[QuerySpecification], list[str]]:
    """Those with a past, and the names of the others."""
    chosen = [catalog.query(name) for name in dict.fromkeys(names)] or list(catalog.queries.values())
    snapshots = [query.name for query in chosen if query.shape is Shape.SNAPSHOT]
    dated = [query for query in chosen if query.shape is not Shape.SNAPSHOT]
    if not dated:
        raise CatalogError(
            f"{', '.join(snapshots)}: a snapshot is of the day on which it is taken, and its past cannot be had; "
            "choose other queries"
        )
    return dated, snapshots


def _choose_accounts(here: "Workplace", asked: Asked) -> list[Account]:
    known = {each.customer_id: each for each in here.customers_as(Role.OPERATOR).customers(with_closed=True)}
    require_known(asked.customer_ids, list(known))
    chosen = [known[customer_id] for customer_id in dict.fromkeys(asked.customer_ids)]
    for account in chosen:
        require_active(account)
    active = chosen or [account for account in known.values() if account.is_active]
    if not active:
        raise PartitionKeyError("no registered customer is active; run `gads customers sync`")
    return active


def _require_started(queries: Sequence[QuerySpecification], first: date) -> None:
    earliest = min(queries, key=lambda query: query.start_date)
    if first < earliest.start_date:
        raise PartitionKeyError(
            f"--from {first} is before {earliest.start_date}, the start_date of {earliest.name} in the catalog; give "
            "that day or a later one"
        )


def _require_open(
    queries: Sequence[QuerySpecification], accounts: Sequence[Account], last: date, *, now: datetime
) -> None:
    newest = max(
        last_open_day(zone, settling, now=now)
        for zone in {account.time_zone for account in accounts}
        for settling in {query.settling_delay for query in queries}
    )
    if last > newest:
        raise DayNotOpenError(
            f"--to {last} is not open yet: the last open day is {newest}; give that or an earlier one"
        )


def _out_of_reach(
    query: QuerySpecification, account: Account, first: date, last: date, *, now: datetime
) -> Iterator[tuple[str, int]]:
    """Days of the range that are no partitions of the account, or cannot be asked for."""
    newest = last_open_day(account.time_zone, query.settling_delay, now=now)
    yield "not open yet", max(0, (last - max(first - timedelta(days=1), newest)).days)
    end = min(last, newest)
    starts = max(first, query.start_date)
    yield "before the query's start_date", max(0, (min(starts, end + timedelta(days=1)) - first).days)
    reach = days_back(query.gaql)
    if reach is not None:
        oldest = _today(account, now) - timedelta(days=reach)
        yield f"more than {reach} days back", max(0, (min(oldest, end + timedelta(days=1)) - starts).days)


def _today(account: Account, now: datetime) -> date:
    return last_open_day(account.time_zone, timedelta(0), now=now) + timedelta(days=1)


def left_out_by_reason(left_out: Counter[tuple[str, str]]) -> list[tuple[str, int]]:
    counted: Counter[str] = Counter()
    for (_, why), number in left_out.items():
        counted[why] += number
    return [(why, number) for why, number in counted.most_common() if number]


def show_proposal(proposal: Proposal, console: Console) -> None:
    cost, budget = proposal.cost, proposal.budget
    taken = Counter(key.query_name for key in proposal.wanted.keys)
    names = sorted({*taken, *(query for (query, _), number in proposal.left_out.items() if number)})
    console.print(f"backfill: {scope_of(proposal.wanted.keys)}", soft_wrap=True, markup=False)
    print_listing(
        None,
        [Column(name="query"), Column(name="partitions", is_number=True), Column(name="left out", room=32)],
        [(name, taken[name], _left_out_of(proposal, name)) for name in names],
        console=console,
    )
    console.print(
        f"partitions {cost.partitions}, runs {cost.runs}, API operations {cost.operations} if none has to be made "
        f"again; {_quota(cost.operations, budget)}",
        soft_wrap=True,
        markup=False,
    )
    if proposal.snapshots:
        console.print(
            f"left out, since the past of a snapshot cannot be had: {', '.join(proposal.snapshots)}",
            soft_wrap=True,
            markup=False,
        )


def _left_out_of(proposal: Proposal, name: str) -> str:
    some = [(number, why) for (query, why), number in proposal.left_out.items() if query == name and number]
    return ", ".join(f"{number} {why}" for number, why in some)


def _quota(operations: int, budget: BudgetStatus) -> str:
    if budget.allowed is None:
        return f"{budget.used} are used today, and there is no limit"
    left = max(budget.allowed - budget.used, 0)
    days = days_of_quota(operations, budget)
    return f"{left} of today's {budget.allowed} are left, so it takes {number_of(days, 'day')} of the quota"


def told_proposal(proposal: Proposal, backfill_id: str | None, *, dry_run: bool) -> dict[str, Any]:
    budget = proposal.budget
    return {
        "backfill_id": backfill_id,
        "dry_run": dry_run,
        "from": proposal.first.isoformat(),
        "to": proposal.last.isoformat(),
        "customer_ids": sorted({key.customer_id for key in proposal.wanted.keys}),
        "partitions": proposal.cost.partitions,
        "runs": proposal.cost.runs,
        "operations": proposal.cost.operations,
        "operations_left_today": None if budget.allowed is None else max(budget.allowed - budget.used, 0),
        "days_of_quota": days_of_quota(proposal.cost.operations, budget),
        "left_out": [
            {"query": query, "reason": why, "partitions": number}
            for (query, why), number in sorted(proposal.left_out.items())
            if number
        ],
        "snapshots": list(proposal.snapshots),
    }
