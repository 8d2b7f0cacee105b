"""Which rows break which rule, as Spark SQL over the columns of `raw.frames`."""

from dataclasses import dataclass
from typing import Final

from gads_assets.catalog.specification import NUMBER_TYPES, QuerySchema
from gads_assets.domain.verdict import Rule
from gads_assets.raw.frames import CUSTOMER, DAY, LINE, MALFORMED

_HIGHEST_METRIC: Final = 10**18
"""A trillion units of currency in millionths: no account's day comes near it, and sums of it do not overflow."""


@dataclass(frozen=True, kw_only=True)
class RowCondition:
    """`condition` is never null; `what` says it of the rows, after their number."""

    rule: Rule
    condition: str
    what: str


def row_conditions(schema: QuerySchema) -> list[RowCondition]:
    """What can be told from a row's columns alone."""
    return [
        RowCondition(
            rule=Rule.SCHEMA,
            condition=f"`{MALFORMED}` IS NOT NULL",
            what=f"that the columns of schema version {schema.version} cannot hold",
        ),
        RowCondition(rule=Rule.CUSTOMER, condition=f"`{schema.customer_column}` IS NULL", what="of no customer"),
        *_of_day(schema, "{} IS NULL", what="of no day"),
        RowCondition(
            rule=Rule.NATURAL_KEY,
            condition=" OR ".join(f"`{name}` IS NULL" for name in schema.natural_key),
            what=f"without a natural key ({', '.join(schema.natural_key)})",
        ),
        *_bounds(schema),
    ]


def place_conditions(schema: QuerySchema) -> list[RowCondition]:
    """What can be told from a row and the directory it lies in."""
    return [
        RowCondition(
            rule=Rule.CUSTOMER,
            condition=f"coalesce(CAST(`{schema.customer_column}` AS STRING) <> {CUSTOMER}, false)",
            what="of another customer",
        ),
        *_of_day(schema, f"coalesce({{}} <> {DAY}, false)", what="of another day"),
    ]


def line_conditions(schema: QuerySchema) -> list[RowCondition]:
    """What only the row's own bytes tell."""
    members = ", ".join(f"'{name}'" for name in sorted(schema.column_names))
    # Of JSON the reader leaves null what a column cannot hold, and keeps the rest; of anything else it keeps nothing.
    kept = " OR ".join(f"`{name}` IS NOT NULL" for name in schema.column_names)
    converted_in_part = f"`{MALFORMED}` IS NOT NULL AND ({kept})"
    return [
        RowCondition(rule=Rule.SCHEMA, condition=f"NOT is_valid_utf8({LINE})", what="not in UTF-8"),
        RowCondition(
            rule=Rule.SCHEMA, condition=f"NOT startswith(ltrim({LINE}), '{{')", what="other than a JSON object"
        ),
        RowCondition(
            rule=Rule.SCHEMA,
            condition=f"coalesce(array_sort(json_object_keys({LINE})) <> array({members}), false)",
            what=f"with other members than the {len(schema.columns)} of schema version {schema.version}",
        ),
        *(
            RowCondition(
                rule=Rule.SCHEMA,
                condition=f"{converted_in_part} AND `{column.name}` IS NULL "
                f"AND get_json_object({LINE}, '$.{column.name}') IS NOT NULL",
                what=f"whose {column.name} is no {column.type}",
            )
            for column in schema.columns
        ),
    ]


def _of_day(schema: QuerySchema, condition: str, *, what: str) -> list[RowCondition]:
    day = schema.day_expression
    return [RowCondition(rule=Rule.DAY, condition=condition.format(day), what=what)] if day else []


def _bounds(schema: QuerySchema) -> list[RowCondition]:
    metrics = [
        column.name for column in schema.columns if column.field.startswith("metrics.") and column.type in NUMBER_TYPES
    ]
    conditions = [
        RowCondition(
            rule=Rule.BOUNDS,
            condition=" OR ".join(f"coalesce(`{name}` < 0, false)" for name in metrics),
            what="with a negative metric",
        ),
        RowCondition(
            rule=Rule.BOUNDS,
            condition=" OR ".join(f"coalesce(`{name}` > {_HIGHEST_METRIC}, false)" for name in metrics),  # NaN is too
            what=f"with a metric above {_HIGHEST_METRIC:.0e} or not a number",
        ),
    ]
    pairs = [
        RowCondition(
            rule=Rule.BOUNDS,
            condition=f"coalesce(`{name}` > `{limit}`, false)",
            what=f"with more {name} than {limit}",
        )
        for name, limit in schema.terms.never_above
    ]
    return [*(conditions if metrics else ()), *pairs]
