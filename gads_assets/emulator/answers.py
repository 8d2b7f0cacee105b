"""The rows of an answer, made as they are asked for and never all held at once (unless they must be ordered)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from functools import cache, partial
from heapq import nsmallest
from itertools import islice
from typing import Any

from gads_assets.catalog.gaql_query import DATE_FIELD
from gads_assets.domain.keys import CustomerId
from gads_assets.emulator.accounts import EmulatedAccount, managers_above
from gads_assets.emulator.entities import (
    CAMPAIGN,
    MOST_COPIES,
    PLACE,
    Entity,
    Lineage,
    children,
    is_dark,
    is_served,
    stable_number,
)
from gads_assets.emulator.failures import query_refused
from gads_assets.emulator.faults import RowFaults
from gads_assets.emulator.plan import CUSTOMER_CLIENT, AnswerPlan
from gads_assets.emulator.rows import RowFacts, Value
from gads_assets.emulator.traffic import Traffic, campaign_traffic, counted, late_share, split, total
from gads_assets.emulator.values import segment_combinations
from gads_assets.emulator.windows import DATE_SEGMENTS

Values = tuple[Value, ...]
RowFaultsOf = Callable[[date | None], RowFaults]
"""By the day, or None for rows that are of no single day."""

MOST_ORDERED = 100_000
"""ORDER BY needs the rows that come first in memory: no more than these, whatever the size of the answer."""

_LIFETIME = "lifetime"
_DailyTraffic = list[tuple[str, Traffic]]
_Group = tuple[date | None, Callable[[], Iterator[RowFacts]]]


def answer(
    plan: AnswerPlan,
    account: EmulatedAccount,
    accounts: Sequence[EmulatedAccount],
    *,
    row_faults: RowFaultsOf = lambda _: RowFaults(),
) -> Iterator[Values]:
    """One tuple per row, in the order of `plan.fields`."""
    for facts in answer_facts(plan, account, accounts, row_faults=row_faults):
        yield tuple(field.value(facts) for field in plan.fields)


def answer_facts(
    plan: AnswerPlan, account: EmulatedAccount, accounts: Sequence[EmulatedAccount], *, row_faults: RowFaultsOf
) -> Iterator[RowFacts]:
    """What each row is about; corrupted where that was asked for."""
    if plan.resource == CUSTOMER_CLIENT:
        groups: Iterable[_Group] = [(None, partial(_clients, account, accounts))]
    elif account.manager:
        own = [] if plan.chain or plan.segmented else [_facts(account, (), Traffic(), {})]
        groups = [(None, partial(iter, own))]
    else:
        groups = _entities(plan, account, row_faults)
    sent = (row for day, facts in groups for row in _sent(plan, facts, row_faults(day)))
    return islice(_ordered(plan, sent) if plan.order_by else sent, plan.limit)


def _clients(account: EmulatedAccount, accounts: Sequence[EmulatedAccount]) -> Iterator[RowFacts]:
    """The account itself, and for a manager everything below it, whatever its status."""
    known: dict[str, EmulatedAccount] = {known.customer_id: known for known in accounts}
    yield RowFacts(account=account, client=account, level=0, lineage=(), traffic=Traffic(), segments={})
    for client in accounts if account.manager else ():
        above = list(managers_above(client, known))
        if account.customer_id in above:
            level = above.index(account.customer_id) + 1
            yield RowFacts(account=account, client=client, level=level, lineage=(), traffic=Traffic(), segments={})


def _entities(plan: AnswerPlan, account: EmulatedAccount, row_faults: RowFaultsOf) -> Iterator[_Group]:
    for date_values, days in _day_groups(plan):
        day = date.fromisoformat(days[0]) if plan.days is not None and len(days) == 1 else None
        size = row_faults(day).size
        if size is None:
            lit = [text for text in days if not is_dark(account, text)]
            yield day, partial(_divided, plan, account, date_values, lit)
        else:
            yield day, partial(_sized, partial(_divided, plan, account, date_values, days), size)


def _sized(facts: Callable[[], Iterator[RowFacts]], size: int) -> Iterator[RowFacts]:
    """The world's own rows first, then copies of them: rows about an account as a whole have none."""
    originals = list(islice(facts(), size))
    yield from originals
    if originals and originals[0].lineage:
        copies = (original.copied(copy) for copy in range(1, MOST_COPIES + 1) for original in originals)
        yield from islice(copies, size - len(originals))


def _divided(
    plan: AnswerPlan, account: EmulatedAccount, date_values: dict[str, Value], days: list[str]
) -> Iterator[RowFacts]:
    @cache
    def combinations(place: int | None) -> list[dict[str, Value]]:
        return segment_combinations(plan.other_segments, account, place)

    late = {day: 0 if day == _LIFETIME else late_share(account, date.fromisoformat(day), plan.today) for day in days}
    by_action = any(field.path.startswith("segments.conversion_action") for field in plan.other_segments)
    for lineage, daily in _walk(plan, account, days):
        if not plan.other_segments:
            yield _facts(account, lineage, total(counted(part, late[day]) for day, part in daily), date_values)
            continue
        parts = combinations(lineage[-1].position if lineage and lineage[-1].kind == PLACE else None)
        subject = lineage[-1].id if lineage else account.customer_id
        weights = [1 + stable_number("segment", subject, index) % 5 for index in range(len(parts))]
        for segments, share in zip(parts, _counted_shares(daily, weights, late), strict=True):
            # As in the API: an action has a row where it happened, whatever else was seen.
            if share.conversions if by_action else share.impressions:
                yield _facts(account, lineage, share, {**date_values, **segments})


def _counted_shares(daily: _DailyTraffic, weights: list[int], late: dict[str, int]) -> list[Traffic]:
    by_day: dict[str, list[Traffic]] = {}
    for day, part in daily:
        by_day.setdefault(day, []).append(part)
    shares = [[counted(share, late[day]) for share in split(total(parts), weights)] for day, parts in by_day.items()]
    return [total(of_one) for of_one in zip(*shares, strict=True)] or [Traffic()] * len(weights)


def _facts(account: EmulatedAccount, lineage: Lineage, traffic: Traffic, segments: dict[str, Value]) -> RowFacts:
    return RowFacts(account=account, client=account, level=0, lineage=lineage, traffic=traffic, segments=segments)


def _day_groups(plan: AnswerPlan) -> Iterable[tuple[dict[str, Value], list[str]]]:
    """Days whose rows are one row: each day alone under segments.date, whole months under segments.month."""
    if plan.days is None:
        return [({}, [_LIFETIME])]
    # Nothing has happened yet after today.
    last = plan.today or date.max
    days = (day for day in map(date.fromordinal, plan.days) if day <= last)
    dated = ((tuple(DATE_SEGMENTS[path](day) for path in plan.date_segments), day.isoformat()) for day in days)
    if DATE_FIELD in plan.date_segments:
        return ((dict(zip(plan.date_segments, values, strict=True)), [day]) for values, day in dated)
    groups: dict[tuple[Value, ...], list[str]] = {}
    for values, day in dated:
        groups.setdefault(values, []).append(day)
    return [(dict(zip(plan.date_segments, values, strict=True)), group) for values, group in groups.items()]


def _walk(plan: AnswerPlan, account: EmulatedAccount, days: list[str]) -> Iterator[tuple[Lineage, _DailyTraffic]]:
    campaigns = [(campaign, _campaign_days(account, campaign, days)) for campaign in children(account, (), CAMPAIGN)]
    chain = plan.chain
    if chain[:1] != (CAMPAIGN,):
        daily = [part for _, parts in campaigns for part in parts]
        if daily or not plan.segmented:
            yield from _descend(plan, account, (), daily, chain)
        return
    for campaign, daily in campaigns:
        if daily or not plan.segmented:
            yield from _descend(plan, account, (campaign,), daily, chain[1:])


def _campaign_days(account: EmulatedAccount, campaign: Entity, days: list[str]) -> _DailyTraffic:
    return [(day, campaign_traffic(account, campaign, day)) for day in days if is_served(campaign, day)]


def _descend(
    plan: AnswerPlan, account: EmulatedAccount, lineage: Lineage, daily: _DailyTraffic, chain: tuple[str, ...]
) -> Iterator[tuple[Lineage, _DailyTraffic]]:
    if not chain:
        yield lineage, daily
        return
    offspring = list(children(account, lineage, chain[0]))
    shares: list[_DailyTraffic] = [[] for _ in offspring]
    for day, traffic in daily:
        weights = [stable_number("weight", child.kind, child.id, day) % 10 for child in offspring]
        for child_days, share in zip(shares, split(traffic, weights), strict=True):
            if share.impressions:
                child_days.append((day, share))
    for child, child_days in zip(offspring, shares, strict=True):
        # As in the API: what nobody saw on a day has no row for that day.
        if child_days or not plan.segmented:
            yield from _descend(plan, account, (*lineage, child), child_days, chain[1:])


def _matching(plan: AnswerPlan, rows: Iterator[RowFacts]) -> Iterator[RowFacts]:
    return (row for row in rows if all(passes(row) for passes in plan.filters)) if plan.filters else rows


def _sent(plan: AnswerPlan, rows: Callable[[], Iterator[RowFacts]], faults: RowFaults) -> Iterator[RowFacts]:
    matching = _matching(plan, rows())
    if faults.missing_percent:
        # Counted by making them all, as they are never held: where a day ends is not known before.
        count = sum(1 for _ in _matching(plan, rows()))
        matching = islice(matching, count * (100 - faults.missing_percent) // 100)
    touched = max(faults.wrong_customer, faults.wrong_day, faults.sent_twice)
    for position, original in enumerate(islice(matching, touched)):
        facts = original
        if position < faults.wrong_customer:
            other = replace(facts.account, customer_id=_other_customer(facts.account.customer_id))
            facts = facts._replace(account=other, client=other, forged=True)
        if position < faults.wrong_day and plan.days and DATE_FIELD in facts.segments:
            stray = date.fromordinal(plan.days[-1] + 1).isoformat()
            facts = facts._replace(segments={**facts.segments, DATE_FIELD: stray}, forged=True)
        yield facts
        if position < faults.sent_twice:
            yield facts
    yield from matching


def _other_customer(customer_id: CustomerId) -> CustomerId:
    return CustomerId(str(int(customer_id) % 9_000_000_000 + 1_000_000_000))


def _ordered(plan: AnswerPlan, rows: Iterator[RowFacts]) -> Iterator[RowFacts]:
    def position(facts: RowFacts) -> list[_SortKey]:
        return [_SortKey(field.value(facts), descending=descending) for field, descending in plan.order_by]

    if plan.limit is not None and plan.limit <= MOST_ORDERED:
        yield from nsmallest(plan.limit, rows, key=position)
        return
    held = list(islice(rows, MOST_ORDERED + 1))
    if len(held) > MOST_ORDERED:
        raise query_refused(
            "QUERY_ERROR",
            f"The emulator orders no more than {MOST_ORDERED} rows: add a LIMIT up to that, or leave ORDER BY out.",
        )
    yield from sorted(held, key=position)


class _SortKey:
    """Rows without a value come first; the rest compare by their one type."""

    __slots__ = ("_descending", "_rank")

    def __init__(self, value: Value, *, descending: bool) -> None:
        self._rank: tuple[bool, Any] = (
            value is not None,
            value if isinstance(value, str | int | float) else str(value),
        )
        self._descending = descending

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SortKey) and self._rank == other._rank

    def __hash__(self) -> int:
        return hash(self._rank)

    def __lt__(self, other: "_SortKey") -> bool:
        return self._rank > other._rank if self._descending else self._rank < other._rank
