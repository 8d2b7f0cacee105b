"""One pass over the rows of many sealed runs, to tell the clean ones from those that must be looked into."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from gads_assets.catalog.limits import COST_FIELD
from gads_assets.catalog.specification import QuerySchema
from gads_assets.domain.content import ContentDigest, digest_aggregates, digest_from_aggregates, row_hashes
from gads_assets.domain.keys import RunId
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.verdict import Spend
from gads_assets.raw.frames import CUSTOMER, DAY, FILE, RUN
from gads_assets.raw.layout import run_of_file
from gads_assets.validate.conditions import row_conditions

_CHANNEL_FIELD = "campaign.advertising_channel_type"
_LARGEST = 2**63 - 1
_OWN = ("_customer", "_day")


@dataclass(frozen=True, kw_only=True)
class Screening:
    """`suspect`: some row may break a rule. Only a closer look tells, and which."""

    content: ContentDigest
    spend: Spend | None
    suspect: bool


def screen_runs(rows: DataFrame, schema: QuerySchema, runs: Mapping[RunId, RunManifest]) -> dict[RunId, Screening]:
    """By run, of those to which the sealed rows belong; one without rows is not among them."""
    suspicious = " OR ".join(each.condition for each in row_conditions(schema))
    first, second = row_hashes(key=(CUSTOMER, DAY), columns=[column.name for column in schema.report_columns])
    costs = _costs(schema)
    # A run's name takes longer to cut out of each row's path than its rows take to hash.
    place = FILE if all(len(run.files) == 1 for run in runs.values()) else RUN
    # The row's own customer and day stand for those of its place, which take long to cut out of each row's path. Where
    # they are not the run's, the run is suspect, and what was hashed does not count.
    own = {CUSTOMER: f"CAST(`{schema.customer_column}` AS STRING)"}
    if schema.day_expression:
        own[DAY] = schema.day_expression
    # Projected before they are added up, so that each hash is computed once.
    projected = rows.withColumns({name: F.expr(value) for name, value in own.items()}).selectExpr(
        place,
        f"`{schema.customer_column}` AS _customer",
        f"{DAY} AS _day",
        f"{first} AS _first",
        f"{second} AS _second",
        f"xxhash64({', '.join(f'`{name}`' for name in schema.natural_key)}) AS _key",
        f"({suspicious}) AS _suspect",
        *(f"{cost} AS {name}" for name, cost in costs.items()),
    )
    measures = {
        **digest_aggregates("_first", "_second"),
        # As texts: a row may claim a day that Python's calendar does not have.
        **{f"{bound}{name}": f"CAST({bound}({name}) AS STRING)" for name in _OWN for bound in ("min", "max")},
        "suspects": "count_if(_suspect)",
        # Hashes, whose collisions make a run suspect and no more. Grouping by the keys themselves would send every
        # row through a shuffle, which took half as long again as all the rest.
        "keys": "size(collect_set(_key))",
        # Null instead of an overflow, which would end the job for every run.
        **{name: f"try_sum({name})" for name in costs},
    }
    by_place = projected.groupBy(place).agg(*(F.expr(expression).alias(name) for name, expression in measures.items()))
    found = {run_of_file(row[FILE]) if place == FILE else RunId(row[RUN]): row.asDict() for row in by_place.collect()}
    return {run_id: _screening(measured, runs[run_id]) for run_id, measured in found.items()}


def screening_of_no_rows(schema: QuerySchema) -> Screening:
    costs = _costs(schema)
    spend = Spend(micros=0, comparable_micros=0 if "_comparable" in costs else None) if costs else None
    return Screening(content=ContentDigest(rows=0, first=0, second=0), spend=spend, suspect=False)


def _costs(schema: QuerySchema) -> dict[str, str]:
    cost, channel = schema.column_of(COST_FIELD), schema.column_of(_CHANNEL_FIELD)
    if cost is None:
        return {}
    if channel is None:
        return {"_spend": f"`{cost}`"}
    return {"_spend": f"`{cost}`", "_comparable": f"if(`{channel}` <=> 'PERFORMANCE_MAX', 0, `{cost}`)"}


def _screening(found: Mapping[str, Any], run: RunManifest) -> Screening:
    digest = ("rows", "first_low", "first_high", "second_low", "second_high")
    customers = {found["min_customer"], found["max_customer"]}
    days = {found["min_day"], found["max_day"]}
    return Screening(
        content=digest_from_aggregates(**{name: found[name] for name in digest}),
        spend=_spend(found),
        suspect=bool(found["suspects"])
        or found["keys"] < found["rows"]
        or customers != {run.customer_id}
        or days != {run.logical_date.isoformat()},
    )


def _spend(found: Mapping[str, Any]) -> Spend | None:
    spend, comparable = found.get("_spend"), found.get("_comparable")
    sums = [micros for micros in (spend, comparable) if micros is not None]
    # Each of them: where single costs are negative, a part may be so too, or exceed the whole.
    if spend is None or not all(0 <= micros <= _LARGEST for micros in sums):
        return None
    return Spend(micros=int(spend), comparable_micros=None if comparable is None else int(comparable))
