"""What a day is expected to look like, judged by its neighbours: reasons to look twice, never to reject."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from statistics import median
from typing import Final

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.verdict import Finding, Rule, Spend, finding

_FEWEST_DAYS: Final = 3
"""Fewer days before are no history to measure by."""

_ROWS_OF_NO_INTEREST: Final = 10
"""Small reports halve and double from day to day; a difference of so few rows says nothing, but for the last one."""

_MICROS_OF_NO_INTEREST: Final = 10_000
"""A hundredth of a unit of currency, the least that is shown."""


@dataclass(frozen=True, kw_only=True)
class VolumePolicy:
    """Rows as a share of the median of the `days` before, and of the run that was accepted before."""

    days: int
    lowest: float
    highest: float


@dataclass(frozen=True, kw_only=True)
class SpendPolicy:
    """A finer query's spend as a share of what the query `against` spent; `lowest` is of its comparable part.

    `lowest` is None for a query that by its nature holds a part only, as search terms do.
    """

    against: str
    lowest: float | None
    highest: float


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """`recent` are the row counts of the customer's days before; `own` is that of the partition's accepted run;
    `spends` are those of other queries on the same customer's day, by query."""

    recent: tuple[int, ...] = ()
    own: int | None = None
    spends: Mapping[str, Spend] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Row counts and spends of partitions whose run is accepted and current."""

    rows: Mapping[PartitionKey, int]
    spends: Mapping[PartitionKey, Spend]

    def neighbours(self, batch: "Surroundings", *, days: Mapping[str, int]) -> dict[PartitionKey, Neighbours]:
        """For each partition of the batch, whose own numbers count beside these, and before them.

        `days` is how far back a query's rows are compared.
        """
        series: dict[tuple[str, str, str], dict[int, int]] = {}
        for key, rows in (*self.rows.items(), *batch.rows.items()):
            series.setdefault(_series(key), {})[key.logical_date.toordinal()] = rows
        spends: dict[tuple[str, str, date], dict[str, Spend]] = {}
        for key, spend in (*self.spends.items(), *batch.spends.items()):
            spends.setdefault((key.source, key.customer_id, key.logical_date), {})[key.query_name] = spend
        found = {}
        for key in batch.rows:
            known, today = series[_series(key)], key.logical_date.toordinal()
            before = range(today - days.get(key.query_name, 0), today)
            found[key] = Neighbours(
                recent=tuple(known[day] for day in before if day in known),
                own=self.rows.get(key),
                spends=spends.get((key.source, key.customer_id, key.logical_date), {}),
            )
        return found


NOTHING_KNOWN: Final = Surroundings(rows={}, spends={})


def _series(key: PartitionKey) -> tuple[str, str, str]:
    return key.source, key.customer_id, key.query_name


def volume_finding(rows: int, neighbours: Neighbours, policy: VolumePolicy | None) -> Finding:
    if policy is None:
        return _not_asked(Rule.VOLUME)
    compared = list(_bases(neighbours))
    unusual = [where for base, where in compared if _is_unusual(rows, base, policy)]
    shown = unusual or [where for _, where in compared]
    return Finding(
        rule=Rule.VOLUME,
        passed=not unusual,
        detail=f"{rows} rows, " + (" and ".join(shown) or "no history to compare with yet"),
    )


def spend_finding(
    query_name: str, spend: Spend | None, neighbours: Neighbours, policies: Mapping[str, SpendPolicy]
) -> Finding:
    """`policies` are those of all queries: whichever of two is judged later finds that they disagree."""
    concerned = {finer: policy for finer, policy in policies.items() if query_name in (finer, policy.against)}
    if not concerned:
        return _not_asked(Rule.SPEND)
    if spend is None:
        return Finding(rule=Rule.SPEND, passed=True, detail="its cost cannot be told")
    known = {**neighbours.spends, query_name: spend}
    compared = {finer: policy for finer, policy in concerned.items() if finer in known and policy.against in known}
    disagreements = [text for finer, policy in compared.items() for text in _disagreements(finer, policy, known)]
    others = ", ".join(policy.against if finer == query_name else finer for finer, policy in compared.items())
    return finding(
        Rule.SPEND,
        not disagreements,
        good=f"{_money(spend.micros)}, " + (f"in agreement with {others}" if others else "nothing to compare with yet"),
        bad="; ".join(disagreements),
    )


def _bases(neighbours: Neighbours) -> Iterator[tuple[float, str]]:
    days = len(neighbours.recent)
    if days >= _FEWEST_DAYS:
        middle = median(neighbours.recent)
        yield middle, f"against a median of {middle:g} in the {days} accepted days before"
    if neighbours.own is not None:
        yield neighbours.own, f"against {neighbours.own} in the run that was accepted before"


def _is_unusual(rows: int, base: float, policy: VolumePolicy) -> bool:
    if not rows or not base:
        return bool(rows) != bool(base)
    return abs(rows - base) > _ROWS_OF_NO_INTEREST and not policy.lowest * base <= rows <= policy.highest * base


def _disagreements(finer: str, policy: SpendPolicy, known: Mapping[str, Spend]) -> Iterator[str]:
    ours, theirs = known[finer], known[policy.against]
    if ours.micros > policy.highest * theirs.micros + _MICROS_OF_NO_INTEREST:
        yield f"{finer} spent {_money(ours.micros)}, {policy.against} only {_money(theirs.micros)}"
    comparable = theirs.comparable_micros
    if comparable is None or policy.lowest is None:
        return
    if ours.micros < policy.lowest * comparable - _MICROS_OF_NO_INTEREST:
        yield (
            f"{finer} spent only {_money(ours.micros)}, {policy.against} {_money(comparable)} outside Performance Max"
        )


def _money(micros: int) -> str:
    return f"{micros / 1_000_000:,.2f}"


def _not_asked(rule: Rule) -> Finding:
    return Finding(rule=rule, passed=True, detail="the catalog sets no limit for this query")
