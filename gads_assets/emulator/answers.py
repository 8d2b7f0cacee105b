"""The rows of an answer, made as they are asked for and never all held at once (unless they must be ordered)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from functools import partial
from itertools import groupby, islice, product
from typing import Any

from gads_assets.catalog.gaql_query import DATE_FIELD
from gads_assets.emulator.accounts import EmulatedAccount
from gads_assets.emulator.entities import CAMPAIGN, Entity, Lineage, children, is_dark, is_served, stable_number
from gads_assets.emulator.faults import RowFaults
from gads_assets.emulator.plan import CUSTOMER_CLIENT, DATE_SEGMENTS, AnswerPlan
from gads_assets.emulator.rows import RowFacts, Value
from gads_assets.emulator.traffic import Traffic, campaign_traffic, split, total
from gads_assets.emulator.values import SelectedField, segment_values

Values = tuple[Value, ...]
_LIFETIME = "lifetime"
_DailyTraffic = list[tuple[str, Traffic]]


def answer(
    plan: AnswerPlan,
    account: EmulatedAccount,
    accounts: Sequence[EmulatedAccount],
    *,
    row_faults: Callable[[date | None], RowFaults] = lambda _: RowFaults(),
) -> Iterator[Values]:
    """One tuple per row, in the order of `plan.fields`."""
    if plan.resource == CUSTOMER_CLIENT:
        facts = _clients(account, accounts)
    elif account.manager:
        facts = iter([] if plan.chain or plan.segmented else [_facts(account, (), Traffic(), {})])
    else:
        facts = _entities(plan, account)
    matching = (row for row in facts if all(passes(row) for passes in plan.filters))
    sent = _sent(plan, account, matching, row_faults)
    if plan.order_by:
        sent = iter(_ordered(plan, sent))
    return (values for _, values in islice(sent, plan.limit))


def _clients(account: EmulatedAccount, accounts: Sequence[EmulatedAccount]) -> Iterator[RowFacts]:
    """The account itself, and for a manager everything below it."""
    yield RowFacts(account=account, client=account, level=0, lineage=(), traffic=Traffic(), segments={})
    for client in accounts if account.manager else ():
        if client != account:
            yield RowFacts(account=account, client=client, level=1, lineage=(), traffic=Traffic(), segments={})


def _entities(plan: AnswerPlan, account: EmulatedAccount) -> Iterator[RowFacts]:
    combinations = list(product(*map(segment_values, plan.other_segments)))
    for date_values, days in _day_groups(plan):
        for lineage, daily in _walk(plan, account, days):
            traffic = total(part for _, part in daily)
            if not plan.other_segments:
                yield _facts(account, lineage, traffic, date_values)
                continue
            subject = lineage[-1].id if lineage else account.customer_id
            weights = [1 + stable_number("segment", subject, index) % 5 for index in range(len(combinations))]
            for combination, share in zip(combinations, split(traffic, weights), strict=True):
                if share.impressions:
                    others = {field.path: value for field, value in zip(plan.other_segments, combination, strict=True)}
                    yield _facts(account, lineage, share, {**date_values, **others})


def _facts(account: EmulatedAccount, lineage: Lineage, traffic: Traffic, segments: dict[str, Value]) -> RowFacts:
    return RowFacts(account=account, client=account, level=0, lineage=lineage, traffic=traffic, segments=segments)


def _day_groups(plan: AnswerPlan) -> Iterable[tuple[dict[str, Value], list[str]]]:
    """Days whose rows are one row: each day alone under segments.date, whole months under segments.month."""
    if plan.days is None:
        return [({}, [_LIFETIME])]
    days = map(date.fromordinal, plan.days)
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
    if not chain:
        daily = [part for _, parts in campaigns for part in parts]
        if daily or not plan.segmented:
            yield (), daily
        return
    for campaign, daily in campaigns:
        if daily or not plan.segmented:
            yield from _descend(plan, account, (campaign,), daily, chain[1:])


def _campaign_days(account: EmulatedAccount, campaign: Entity, days: list[str]) -> _DailyTraffic:
    return [
        (day, campaign_traffic(account, campaign, day))
        for day in days
        if not is_dark(account, day) and is_served(campaign, day)
    ]


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


def _sent(
    plan: AnswerPlan,
    account: EmulatedAccount,
    rows: Iterable[RowFacts],
    row_faults: Callable[[date | None], RowFaults],
) -> Iterator[tuple[RowFacts, Values]]:
    """The rows with their values, corrupted where that was asked for."""
    for day, rows_of_day in groupby(rows, key=lambda facts: facts.segments.get(DATE_FIELD)):
        faults = row_faults(date.fromisoformat(day) if isinstance(day, str) else None)
        for position, facts in enumerate(rows_of_day):
            values = tuple(field.value(facts) for field in plan.fields)
            if position < faults.wrong_customer:
                values = tuple(_disguised(value, account) for value in values)
            if position < faults.wrong_day and plan.days:
                stray = date.fromordinal(plan.days[-1] + 1).isoformat()
                values = tuple(
                    stray if field.path == DATE_FIELD else value
                    for field, value in zip(plan.fields, values, strict=True)
                )
            yield facts, values
            if position < faults.sent_twice:
                yield facts, values


def _disguised(value: Value, account: EmulatedAccount) -> Value:
    other = str(int(account.customer_id) % 9_000_000_000 + 1_000_000_000)
    if value == int(account.customer_id):
        return int(other)
    return value.replace(account.customer_id, other) if isinstance(value, str) else value


def _ordered(plan: AnswerPlan, rows: Iterable[tuple[RowFacts, Values]]) -> list[tuple[RowFacts, Values]]:
    ordered = list(rows)
    # Sorting is stable: by the last field first, so that the first one has the final word.
    for field, descending in reversed(plan.order_by):
        ordered.sort(key=partial(_sort_key, field), reverse=descending)
    return ordered


def _sort_key(field: SelectedField, row: tuple[RowFacts, Values]) -> tuple[bool, Any]:
    """Rows without a value come first; the rest compare by their one type."""
    value = field.value(row[0])
    return (value is not None, value if isinstance(value, str | int | float) else str(value))
