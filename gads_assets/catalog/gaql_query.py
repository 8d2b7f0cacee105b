"""A GAQL query as values, and those values as text again."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

DATE_FIELD: Final = "segments.date"
CHANGE_TIME_FIELDS: Final = {
    "change_event": "change_event.change_date_time",
    "change_status": "change_status.last_change_date_time",
}
_DATE_FIELDS: Final = frozenset(
    {
        DATE_FIELD,
        "segments.week",
        "segments.month",
        "segments.quarter",
        "segments.year",
        *CHANGE_TIME_FIELDS.values(),
    }
)


class Operand(Enum):
    """What stands after an operator."""

    NOTHING = "nothing"
    ONE = "one literal of any kind"
    TEXT = "one quoted text"
    DATE_RANGE = "one of the named date ranges"
    BOUNDS = "two literals with AND between them"
    LIST = "one or more literals of one kind, in parentheses"


class Operator(Enum):
    EQUALS = "="
    NOT_EQUALS = "!="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    IN = "IN"
    NOT_IN = "NOT IN"
    LIKE = "LIKE"
    NOT_LIKE = "NOT LIKE"
    CONTAINS_ANY = "CONTAINS ANY"
    CONTAINS_ALL = "CONTAINS ALL"
    CONTAINS_NONE = "CONTAINS NONE"
    IS_NULL = "IS NULL"
    IS_NOT_NULL = "IS NOT NULL"
    DURING = "DURING"
    BETWEEN = "BETWEEN"
    REGEXP_MATCH = "REGEXP_MATCH"
    NOT_REGEXP_MATCH = "NOT REGEXP_MATCH"

    @property
    def operand(self) -> Operand:
        return _OPERANDS.get(self, Operand.ONE)


_OPERANDS: Final = {
    Operator.IS_NULL: Operand.NOTHING,
    Operator.IS_NOT_NULL: Operand.NOTHING,
    Operator.BETWEEN: Operand.BOUNDS,
    Operator.IN: Operand.LIST,
    Operator.NOT_IN: Operand.LIST,
    Operator.CONTAINS_ANY: Operand.LIST,
    Operator.CONTAINS_ALL: Operand.LIST,
    Operator.CONTAINS_NONE: Operand.LIST,
    Operator.DURING: Operand.DATE_RANGE,
    Operator.LIKE: Operand.TEXT,
    Operator.NOT_LIKE: Operand.TEXT,
    Operator.REGEXP_MATCH: Operand.TEXT,
    Operator.NOT_REGEXP_MATCH: Operand.TEXT,
}


class LiteralKind(Enum):
    TEXT = "text"
    NUMBER = "number"
    WORD = "word"
    """Unquoted: an enum's name, TRUE, a date range."""


@dataclass(frozen=True, kw_only=True)
class Literal:
    """`source` is kept as written: the API gets the author's own quotes and escapes, not our idea of them."""

    kind: LiteralKind
    source: str

    @property
    def value(self) -> str | int | float:
        match self.kind:
            case LiteralKind.TEXT:
                # Only quotes and the backslash are escaped; any other backslash belongs to a regular expression.
                return re.sub(r"\\([\\'\"])", r"\1", self.source[1:-1])
            case LiteralKind.NUMBER:
                return float(self.source) if "." in self.source else int(self.source)
            case LiteralKind.WORD:
                return self.source
            case _:
                assert_never(self.kind)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """How many `values` there are follows from `operator.operand`: none, one, two bounds, or a list."""

    field: str
    operator: Operator
    values: tuple[Literal, ...]


@dataclass(frozen=True, kw_only=True)
class Ordering:
    field: str
    descending: bool


@dataclass(frozen=True, kw_only=True)
class Parameter:
    name: str
    value: Literal


@dataclass(frozen=True, kw_only=True)
class GaqlQuery:
    select: tuple[str, ...]
    resource: str
    conditions: tuple[Condition, ...] = ()
    order_by: tuple[Ordering, ...] = ()
    limit: int | None = None
    parameters: tuple[Parameter, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Every field that it names, in whatever clause, in reading order."""
        filtered = (condition.field for condition in self.conditions)
        return (*self.select, *filtered, *(ordering.field for ordering in self.order_by))

    @property
    def date_conditions(self) -> tuple[Condition, ...]:
        """Those that choose the days. That is a partition's business, so a catalog query has none."""
        return tuple(condition for condition in self.conditions if condition.field in _DATE_FIELDS)


def quoted(value: str) -> Literal:
    return Literal(kind=LiteralKind.TEXT, source="'" + re.sub(r"([\\'])", r"\\\1", value) + "'")


def print_gaql(query: GaqlQuery) -> str:
    """One line; parsing it gives the same query again."""
    clauses = [f"SELECT {', '.join(query.select)}", f"FROM {query.resource}"]
    if query.conditions:
        clauses.append("WHERE " + " AND ".join(map(print_condition, query.conditions)))
    if query.order_by:
        orderings = (f"{order.field} DESC" if order.descending else order.field for order in query.order_by)
        clauses.append("ORDER BY " + ", ".join(orderings))
    if query.limit is not None:
        clauses.append(f"LIMIT {query.limit}")
    if query.parameters:
        clauses.append("PARAMETERS " + ", ".join(map(print_parameter, query.parameters)))
    return " ".join(clauses)


def print_parameter(parameter: Parameter) -> str:
    return f"{parameter.name}={parameter.value.source}"


def print_condition(condition: Condition) -> str:
    sources = [literal.source for literal in condition.values]
    match condition.operator.operand:
        case Operand.NOTHING:
            return f"{condition.field} {condition.operator.value}"
        case Operand.LIST:
            operand = f"({', '.join(sources)})"
        case Operand.BOUNDS:
            operand = " AND ".join(sources)
        case Operand.ONE | Operand.TEXT | Operand.DATE_RANGE:
            operand = sources[0]
        case unknown:
            assert_never(unknown)
    return f"{condition.field} {condition.operator.value} {operand}"
