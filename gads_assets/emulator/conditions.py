"""WHERE: each condition as a predicate over a field's value."""

import re
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from gads_assets.catalog.gaql_query import Condition, Literal, Operator
from gads_assets.emulator.failures import query_refused
from gads_assets.emulator.made_up import enum_names
from gads_assets.emulator.rows import Value

_NUMBERS = {
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_INT32,
    FieldDescriptor.TYPE_DOUBLE,
    FieldDescriptor.TYPE_FLOAT,
}
_Scalar = str | float


def predicate(condition: Condition, leaf: FieldDescriptor) -> Callable[[Value], bool]:
    """Raises RefusedCallError where the API would refuse the operator or the value for this field.

    A field without a value meets IS NULL and the negative operators, nothing else. DURING is not for here to answer.
    """
    test, negative = _test(condition, leaf)
    if condition.operator is Operator.IS_NULL:
        return lambda value: value is None
    return lambda value: negative if value is None else test(value) != negative


def _test(condition: Condition, leaf: FieldDescriptor) -> tuple[Callable[[Value], bool], bool]:
    """What to try on a value that is there, and whether the condition asks for the opposite."""
    operator, negative = condition.operator, condition.operator in _NEGATIVE
    if leaf.message_type is not None:
        raise query_refused("PROHIBITED_FIELD_IN_WHERE_CLAUSE", f"{condition.field} cannot be filtered by.")
    if (operator in _PATTERNS and leaf.type != FieldDescriptor.TYPE_STRING) or (
        operator in _OF_LISTS and not leaf.is_repeated
    ):
        raise query_refused(
            "OPERATOR_FIELD_MISMATCH", f"The operator {operator.value} does not go with {condition.field}."
        )
    if operator in (Operator.IS_NULL, Operator.IS_NOT_NULL):
        return (lambda _: True), negative
    if operator in _PATTERNS:
        expression = _PATTERNS[operator](str(condition.values[0].value))
        return (lambda value: expression.fullmatch(str(value)) is not None), negative
    compare = _COMPARISONS[operator]
    constants = [_constant(literal, leaf) for literal in condition.values]
    return (lambda value: compare(_items(value), constants)), negative


def _constant(literal: Literal, leaf: FieldDescriptor) -> _Scalar:
    """The literal as the field's own type."""
    text = str(literal.value)
    if leaf.type == FieldDescriptor.TYPE_BOOL:
        if text.upper() not in ("TRUE", "FALSE"):
            raise query_refused("BAD_VALUE", f"{literal.source} is not TRUE or FALSE.")
        return text.upper() == "TRUE"
    if leaf.type in _NUMBERS:
        try:
            return float(text) if "." in text else int(text)
        except ValueError:
            raise query_refused("BAD_NUMBER", f"{literal.source} is not a number.") from None
    if leaf.type == FieldDescriptor.TYPE_ENUM and text not in (*enum_names(leaf), "UNSPECIFIED", "UNKNOWN"):
        raise query_refused("BAD_ENUM_CONSTANT", f"Invalid enum value {literal.source}.")
    return text


def _items(value: Value) -> list[Any]:
    """A list's items, or the single value as a list of one; all of the type that `_constant` gives the other side."""
    return value if isinstance(value, list) else [value]


def _like(pattern: str) -> re.Pattern[str]:
    """A letter in brackets stands for itself: [%] is a percent sign, [[] a bracket."""
    pieces = {"%": ".*", "_": "."}
    letters = re.finditer(r"\[(.)\]|(.)", pattern, re.DOTALL)
    expression = "".join(
        re.escape(found[1]) if found[1] else pieces.get(found[2], re.escape(found[2])) for found in letters
    )
    return re.compile(expression, re.DOTALL | re.IGNORECASE)


def _regexp(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error:
        raise query_refused("BAD_VALUE", f"{pattern} is not a regular expression.") from None


_NEGATIVE = frozenset(
    {Operator.NOT_EQUALS, Operator.NOT_IN, Operator.NOT_LIKE, Operator.NOT_REGEXP_MATCH, Operator.CONTAINS_NONE}
)
_OF_LISTS = frozenset({Operator.CONTAINS_ANY, Operator.CONTAINS_ALL, Operator.CONTAINS_NONE})
_PATTERNS: dict[Operator, Callable[[str], re.Pattern[str]]] = {
    Operator.LIKE: _like,
    Operator.NOT_LIKE: _like,
    Operator.REGEXP_MATCH: _regexp,
    Operator.NOT_REGEXP_MATCH: _regexp,
}


def _any_of(items: list[Any], constants: list[_Scalar]) -> bool:
    return any(item in constants for item in items)


_COMPARISONS: dict[Operator, Callable[[list[Any], list[Any]], bool]] = {
    Operator.EQUALS: _any_of,
    Operator.NOT_EQUALS: _any_of,
    Operator.IN: _any_of,
    Operator.NOT_IN: _any_of,
    Operator.CONTAINS_ANY: _any_of,
    Operator.CONTAINS_NONE: _any_of,
    Operator.CONTAINS_ALL: lambda items, constants: all(constant in items for constant in constants),
    Operator.BETWEEN: lambda items, constants: bool(constants[0] <= items[0] <= constants[1]),
    Operator.GREATER: lambda items, constants: bool(items[0] > constants[0]),
    Operator.GREATER_OR_EQUAL: lambda items, constants: bool(items[0] >= constants[0]),
    Operator.LESS: lambda items, constants: bool(items[0] < constants[0]),
    Operator.LESS_OR_EQUAL: lambda items, constants: bool(items[0] <= constants[0]),
}
