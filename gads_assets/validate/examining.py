"""The closer look at runs that a screening suspects: how many rows break which rule, and some of them to look at."""

from collections.abc import Sequence
from itertools import groupby

from pyspark.sql import DataFrame, SparkSession

from gads_assets.catalog.specification import QuerySchema
from gads_assets.domain.keys import RunId
from gads_assets.domain.verdict import SAMPLE_CHARACTERS, SAMPLES_PER_RULE, RowFault, Rule
from gads_assets.raw.frames import LINE, RUN, sealed_lines
from gads_assets.validate.conditions import RowCondition, line_conditions, place_conditions, row_conditions


def examine_runs(spark: SparkSession, uris: Sequence[str], schema: QuerySchema) -> dict[RunId, tuple[RowFault, ...]]:
    """By run; one that breaks no rule is not among them. A row that does not fit the schema breaks no other rule:
    whatever else is wrong with it follows from that."""
    conditions = [*line_conditions(schema), *row_conditions(schema), *place_conditions(schema)]
    repeated = RowCondition(rule=Rule.NATURAL_KEY, condition="_repetition > 1", what="with the natural key of another")
    unfit = [condition for condition in conditions if condition.rule is Rule.SCHEMA]
    others = [condition for condition in conditions if condition.rule is not Rule.SCHEMA]
    faults = [*unfit, *others, repeated]
    lines = _with_repetitions(sealed_lines(spark, uris, schema), schema, unfit)
    unfit_cases = " ".join(f"WHEN {condition.condition} THEN {number}" for number, condition in enumerate(unfit))
    broken = ", ".join(
        f"if({condition.condition}, {number}, NULL)" for number, condition in enumerate(faults) if number >= len(unfit)
    )
    found = (
        lines.selectExpr(
            RUN,
            "_number",
            f"left(make_valid_utf8({LINE}), {SAMPLE_CHARACTERS}) AS sample",
            f"if(_fits, array_compact(array({broken})), array(CASE {unfit_cases} END)) AS _faults",
        )
        .selectExpr(RUN, "_number", "sample", "explode(_faults) AS fault")
        .selectExpr(
            RUN,
            "fault",
            "sample",
            f"row_number() OVER (PARTITION BY {RUN}, fault ORDER BY _number) AS place",
            f"count(*) OVER (PARTITION BY {RUN}, fault) AS rows",
        )
        .where(f"place <= {SAMPLES_PER_RULE}")
        .orderBy(RUN, "fault", "place")
    )
    by_run: dict[RunId, tuple[RowFault, ...]] = {}
    for (run, fault), samples in groupby(found.collect(), key=lambda row: (RunId(row[RUN]), row["fault"])):
        shown = list(samples)
        by_run[run] = (
            *by_run.get(run, ()),
            RowFault(
                rule=faults[fault].rule,
                what=faults[fault].what,
                rows=shown[0]["rows"],
                samples=tuple(row["sample"] for row in shown),
            ),
        )
    return by_run


def _with_repetitions(lines: DataFrame, schema: QuerySchema, unfit: Sequence[RowCondition]) -> DataFrame:
    """Beside the row: its number, whether it fits the schema, and its place among those with its natural key."""
    keys = ", ".join(f"`{name}`" for name in schema.natural_key)
    whole = " AND ".join(f"`{name}` IS NOT NULL" for name in schema.natural_key)
    numbered = lines.selectExpr(
        "*",
        "monotonically_increasing_id() AS _number",
        f"NOT ({' OR '.join(condition.condition for condition in unfit)}) AS _fits",
    )
    return numbered.selectExpr(
        "*",
        f"if(_fits AND {whole}, row_number() OVER (PARTITION BY {RUN}, _fits, {keys} ORDER BY _number), 1) "
        "AS _repetition",
    )
