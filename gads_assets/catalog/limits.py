"""The `limits` of a query in the catalog: what its rows must keep beyond their schema, and what is worth a warning."""

from collections.abc import Iterable, Mapping
from typing import Final

from gads_assets.catalog.fields import column_name
from gads_assets.catalog.gaql import GaqlQuery
from gads_assets.catalog.gaql_tokens import shortened
from gads_assets.catalog.specification import NUMBER_TYPES, Column, Limits
from gads_assets.catalog.yaml_document import Entry
from gads_assets.domain.expectations import SpendPolicy, VolumePolicy

COST_FIELD: Final = "metrics.cost_micros"

_LONGEST_HISTORY_DAYS: Final = 90
_WIDEST_SHARE: Final = 1000.0


def read_limits(entry: Entry, query_name: str) -> Limits:
    entries = _parts(entry)
    return Limits(
        volume=_volume(entries["volume"]) if "volume" in entries else None,
        spend=_spend(entries["spend"], query_name) if "spend" in entries else None,
    )


def read_never_above(entry: Entry, gaql: GaqlQuery) -> tuple[tuple[str, str], ...]:
    entries = _parts(entry)
    return _never_above(entries["never_above"], gaql) if "never_above" in entries else ()


def require_comparable_spend(queries: Mapping[str, tuple[Entry, GaqlQuery, Limits]]) -> None:
    """Both sides of a comparison are in the catalog and know what was spent."""
    for entry, gaql, limits in queries.values():
        if limits.spend is None:
            continue
        place = entry.mapping()["limits"].mapping()["spend"]
        if limits.spend.against not in queries:
            raise place.problem(
                f"against names {shortened(limits.spend.against)}, which is not a query; name one of this file"
            )
        for name, select in (
            ("this query", gaql.select),
            (limits.spend.against, queries[limits.spend.against][1].select),
        ):
            if COST_FIELD not in select:
                raise place.problem(
                    f"compares spend, and {name} does not select {COST_FIELD}; add it, or drop the limit"
                )


def require_numbers(entry: Entry, columns: Iterable[Column]) -> None:
    """The columns of each pair of the query's `never_above` can be compared."""
    types = {column.field: column.type for column in columns}
    limits = entry.mapping().get("limits")
    pairs = limits.mapping().get("never_above") if limits else None
    for field, limit in pairs.mapping().items() if pairs else ():
        for name in (field, limit.text()):
            if types[name] not in NUMBER_TYPES:
                raise limit.problem(f"{name} is not a number but {types[name]}; name two metrics that are numbers")


def _parts(entry: Entry) -> dict[str, Entry]:
    return entry.mapping(known=(), optional=("never_above", "volume", "spend"))


def _never_above(entry: Entry, gaql: GaqlQuery) -> tuple[tuple[str, str], ...]:
    pairs = []
    for field, limit in entry.mapping().items():
        for name in (field, limit.text()):
            if name not in gaql.select or not name.startswith("metrics."):
                raise limit.problem(f"{shortened(name)} is not a metric that the query selects; name two that it does")
        pairs.append((column_name(field), column_name(limit.text())))
    return tuple(pairs)


def _volume(entry: Entry) -> VolumePolicy:
    entries = entry.mapping(known=("days", "lowest", "highest"))
    return VolumePolicy(
        days=entries["days"].whole_number(lowest=3, highest=_LONGEST_HISTORY_DAYS),
        lowest=entries["lowest"].number(lowest=0, highest=1),
        highest=entries["highest"].number(lowest=1, highest=_WIDEST_SHARE),
    )


def _spend(entry: Entry, query_name: str) -> SpendPolicy:
    entries = entry.mapping(known=("against", "highest"), optional=("lowest",))
    against = entries["against"].text()
    if against == query_name:
        raise entries["against"].problem("is the query itself; name the coarser one whose spend it must not exceed")
    return SpendPolicy(
        against=against,
        lowest=entries["lowest"].number(lowest=0, highest=1) if "lowest" in entries else None,
        highest=entries["highest"].number(lowest=1, highest=_WIDEST_SHARE),
    )
