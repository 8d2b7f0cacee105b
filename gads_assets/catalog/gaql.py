"""The Google Ads Query Language: a strict parser for the documented grammar.

What this accepts, the API's own parser reads the same way. What a query *means* (do these fields exist, may they be
selected together) is not decided here.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Final, TypeVar, assert_never

from gads_assets.catalog.gaql_query import (
    Condition,
    GaqlQuery,
    Literal,
    LiteralKind,
    Operand,
    Operator,
    Ordering,
    Parameter,
    print_gaql,
    quoted,
)
from gads_assets.catalog.gaql_tokens import TokenKind, tokens_of
from gads_assets.errors import GaqlError

__all__ = [
    "Condition",
    "GaqlQuery",
    "Literal",
    "LiteralKind",
    "Operand",
    "Operator",
    "Ordering",
    "Parameter",
    "describe_place",
    "parse_gaql",
    "print_gaql",
    "quoted",
]

_T = TypeVar("_T")

_PLACE_WIDTH: Final = 110
_MAX_LIMIT: Final = 2**63 - 1
_DATE_RANGES: Final = (
    "TODAY",
    "YESTERDAY",
    "LAST_7_DAYS",
    "LAST_14_DAYS",
    "LAST_30_DAYS",
    "LAST_BUSINESS_WEEK",
    "LAST_WEEK_MON_SUN",
    "LAST_WEEK_SUN_SAT",
    "THIS_WEEK_MON_TODAY",
    "THIS_WEEK_SUN_TODAY",
    "LAST_MONTH",
    "THIS_MONTH",
)
_OPERATORS: Final = {tuple(operator.value.split()): operator for operator in Operator}
_CLAUSE_WORDS: Final = frozenset(["SELECT", "FROM", "WHERE", "AND", "OR", "ORDER", "BY", "LIMIT", "PARAMETERS", "NULL"])
_RESERVED_WORDS: Final = _CLAUSE_WORDS.union({"ASC", "DESC"}, *_OPERATORS)
_WHERE_FROM_IS_MISSING: Final = frozenset(["WHERE", "ORDER", "LIMIT", "PARAMETERS", ""])
_YEAR: Final = re.compile(r"(?<![0-9])[0-9]{4}\Z")
_MONTH_AND_DAY: Final = re.compile(r"-[0-9]{2}-[0-9]{2}(?![0-9])")
_FIELD: Final = re.compile(r"[a-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*\Z")
_BARE_WORD: Final = re.compile(r"[A-Za-z0-9_]+\Z")
_RESOURCE: Final = re.compile(r"[a-z][A-Za-z0-9_]*\Z")
_LITERAL_KINDS: Final = {
    TokenKind.TEXT: LiteralKind.TEXT,
    TokenKind.NUMBER: LiteralKind.NUMBER,
    TokenKind.WORD: LiteralKind.WORD,
}
_LITERAL_NAMES: Final = {
    None: "a value",
    LiteralKind.TEXT: "a quoted text",
    LiteralKind.NUMBER: "a number",
    LiteralKind.WORD: "an unquoted word",
}


def parse_gaql(text: str) -> GaqlQuery:
    """Raises GaqlError, and nothing else, for any text that is not GAQL."""
    return _Parser(text).query()


def describe_place(text: str, offset: int) -> str:
    """The line of `text` that holds `offset`, and a caret under it: two lines, of bounded width."""
    offset = max(0, min(offset, len(text)))
    start = text.rfind("\n", 0, offset) + 1
    line = text[start:].partition("\n")[0].rstrip("\r")
    column = min(offset - start, len(line))
    if len(line) > _PLACE_WIDTH:
        left = max(0, min(column - _PLACE_WIDTH // 2, len(line) - _PLACE_WIDTH))
        line, column = line[left : left + _PLACE_WIDTH], column - left
    shown = "".join(character if character.isprintable() else " " for character in line)
    return f"{shown}\n{' ' * sum(map(_width, shown[:column]))}^"


def _width(character: str) -> int:
    """How many columns of a terminal it takes."""
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


class _Parser:
    """One token of lookahead. Clauses repeat but never nest, so no input can exhaust the stack."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._token = next(self._tokens)

    def query(self) -> GaqlQuery:
        self._expect("SELECT")
        select = self._separated(self._field)
        if self._token.source.upper() in _WHERE_FROM_IS_MISSING:
            raise self._unexpected("',' or FROM", "; only GoogleAdsFieldService answers without FROM: name a resource")
        self._expect("FROM", "',' or FROM")
        resource = self._name(_RESOURCE, "a resource such as campaign")
        follow = ["WHERE", "ORDER BY", "LIMIT", "PARAMETERS", "the end of the query"]
        conditions: list[Condition] = []
        if self._accept("WHERE"):
            conditions.append(self._condition())
            while self._accept("AND"):
                conditions.append(self._condition())
            follow[0] = "AND"
        order_by: tuple[Ordering, ...] = ()
        if self._accept("ORDER"):
            self._expect("BY")
            order_by = self._separated(self._ordering)
            follow[:2] = ["','"]
        limit = None
        if self._accept("LIMIT"):
            limit = self._limit()
            follow = follow[-2:]
        parameters: tuple[Parameter, ...] = ()
        if self._accept("PARAMETERS"):
            parameters = self._parameters()
            follow = ["','", follow[-1]]
        if self._token.kind is not TokenKind.END:
            raise self._unexpected(_either(follow))
        return GaqlQuery(
            select=select,
            resource=resource,
            conditions=tuple(conditions),
            order_by=order_by,
            limit=limit,
            parameters=parameters,
        )

    def _condition(self) -> Condition:
        field = self._field()
        operator = self._operator()
        values: tuple[Literal, ...]
        match operator.operand:
            case Operand.NOTHING:
                values = ()
            case Operand.ONE:
                values = (self._literal(),)
            case Operand.TEXT:
                values = (self._literal(LiteralKind.TEXT),)
            case Operand.DATE_RANGE:
                values = (self._date_range(),)
            case Operand.BOUNDS:
                low = self._literal()
                self._expect("AND")
                values = (low, self._literal(low.kind))
            case Operand.LIST:
                values = self._list(operator)
            case unknown:
                assert_never(unknown)
        return Condition(field=field, operator=operator, values=values)

    def _operator(self) -> Operator:
        """Word by word, since an operator has up to three and none is the beginning of another."""
        words: tuple[str, ...] = ()
        while words not in _OPERATORS:
            options = sorted({known[len(words)] for known in _OPERATORS if known[: len(words)] == words})
            word = self._token.source.upper()
            if self._token.kind is TokenKind.TEXT or word not in options:
                raise self._unexpected(
                    f"{_either(options)} after {' '.join(words)}" if words else "an operator such as =, IN or BETWEEN"
                )
            words = (*words, word)
            self._advance()
        return _OPERATORS[words]

    def _list(self, operator: Operator) -> tuple[Literal, ...]:
        self._expect("(", f"'(' after {operator.value}")
        literals = [self._literal()]
        while self._accept(","):
            # The grammar has lists of texts, of numbers and of words, but none that mixes them.
            literals.append(self._literal(literals[0].kind))
        self._expect(")", "',' or ')'")
        return tuple(literals)

    def _literal(self, only: LiteralKind | None = None) -> Literal:
        token = self._token
        kind = _LITERAL_KINDS.get(token.kind)
        if kind is LiteralKind.WORD and (not _BARE_WORD.match(token.source) or token.source.upper() in _CLAUSE_WORDS):
            kind = None
        if kind is None or only not in (None, kind):
            raise self._unexpected(_LITERAL_NAMES[only])
        self._advance()
        return Literal(kind=kind, source=token.source)

    def _date_range(self) -> Literal:
        word = self._token.source.upper()
        if word not in _DATE_RANGES:
            raise self._unexpected(_either(_DATE_RANGES) + " after DURING")
        self._advance()
        return Literal(kind=LiteralKind.WORD, source=word)

    def _ordering(self) -> Ordering:
        field = self._field()
        descending = self._accept("DESC")
        if not descending:
            self._accept("ASC")
        return Ordering(field=field, descending=descending)

    def _limit(self) -> int:
        source = self._token.source
        if not re.match(r"[1-9][0-9]*\Z", source) or int(source) > _MAX_LIMIT:
            raise self._unexpected(f"a whole number from 1 to {_MAX_LIMIT} after LIMIT")
        self._advance()
        return int(source)

    def _parameters(self) -> tuple[Parameter, ...]:
        names: set[str] = set()

        def parameter() -> Parameter:
            if self._token.source in names:
                raise self._unexpected("each parameter once")
            name = self._name(_BARE_WORD, "a parameter such as include_drafts")
            names.add(name)
            self._expect("=", f"'=' after {name}")
            return Parameter(name=name, value=self._literal())

        return self._separated(parameter)

    def _field(self) -> str:
        return self._name(_FIELD, "a field such as campaign.id")

    def _name(self, pattern: re.Pattern[str], expected: str) -> str:
        name = self._token.source
        if not pattern.match(name) or name.upper() in _RESERVED_WORDS:
            raise self._unexpected(expected)
        self._advance()
        return name

    def _separated(self, item: Callable[[], _T]) -> tuple[_T, ...]:
        items = [item()]
        while self._accept(","):
            items.append(item())
        return tuple(items)

    def _accept(self, source: str) -> bool:
        # A quoted text keeps its quotes, so it is never taken for a keyword or a symbol.
        if self._token.source.upper() != source:
            return False
        self._advance()
        return True

    def _expect(self, source: str, expected: str | None = None) -> None:
        if not self._accept(source):
            raise self._unexpected(expected or source)

    def _advance(self) -> None:
        self._token = next(self._tokens)

    def _unexpected(self, expected: str, hint: str = "") -> GaqlError:
        found = self._token
        if found.source.upper() == "OR":
            hint = "; GAQL has no OR: use IN, or two queries"
        elif found.source.endswith(".") and self._text.startswith("*", found.offset + len(found.source)):
            hint = "; GAQL has no *: name each field"
        elif _YEAR.search(self._text, max(0, found.offset - 5), found.offset) and _MONTH_AND_DAY.match(
            self._text, found.offset
        ):
            hint = f"; write the date in quotes: '{self._text[found.offset - 4 : found.offset + 6]}'"
        return GaqlError(f"expected {expected}, found {found.shown}{hint}", offset=found.offset)


def _either(options: Iterable[str]) -> str:
    *others, last = options
    return f"{', '.join(others)} or {last}" if others else last
