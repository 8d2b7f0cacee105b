"""GAQL's words: what a query's text is made of, each with its place."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from gads_assets.errors import GaqlError

MAX_QUERY_CHARACTERS = 65_536
_MAX_NUMBER_CHARACTERS = 40
_SHOWN_CHARACTERS = 40

# A number ends where no word character follows: `7days` and `1.5.2` are words, for the parser to refuse whole.
_TOKEN = re.compile(
    r"""(?P<SPACE>[ \t\r\n]+)
      | (?P<TEXT>'(?:[^'\\]++|\\.)*+' | "(?:[^"\\]++|\\.)*+")
      | (?P<NUMBER>-?[0-9]+(?:\.[0-9]+)?(?![A-Za-z0-9_.]))
      | (?P<WORD>[A-Za-z0-9_][A-Za-z0-9_.]*)
      | (?P<SYMBOL>!=|<=|>=|[=<>(),])""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"--|/\*|//|#")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class TokenKind(Enum):
    WORD = "word"
    """A keyword, a field, a resource or an unquoted literal: only its place tells which."""
    NUMBER = "number"
    TEXT = "text"
    """Quotes and escapes included, as written."""
    SYMBOL = "symbol"
    END = "end"
    """Always last; stands right after the last token, so that a caret points at what is incomplete."""


@dataclass(frozen=True, slots=True)
class Token:
    kind: TokenKind
    source: str
    offset: int

    @property
    def shown(self) -> str:
        """How an error names it: one line, short, whatever the query holds."""
        return "the end of the query" if self.kind is TokenKind.END else shortened(self.source, _SHOWN_CHARACTERS)


def tokens_of(text: str) -> Iterator[Token]:
    """Lazy, so that the first mistake in reading order is the one reported; raises GaqlError."""
    if len(text) > MAX_QUERY_CHARACTERS:
        raise GaqlError(
            f"the query is {len(text)} characters long, expected at most {MAX_QUERY_CHARACTERS}",
            offset=MAX_QUERY_CHARACTERS,
        )
    offset = end = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            raise _unreadable(text, offset)
        if match.lastgroup != "SPACE":
            token = Token(TokenKind[str(match.lastgroup)], match.group(), offset)
            _require_bounds(token)
            yield token
            end = match.end()
        offset = match.end()
    yield Token(TokenKind.END, "", end)


def place_of(text: str, name: str) -> int:
    """Where a field or resource that was read from `text` stands in it first."""
    return next(token.offset for token in tokens_of(text) if token.source == name)


def _unreadable(text: str, offset: int) -> GaqlError:
    character = text[offset]
    if character in "'\"":
        unclosed = shortened(text[offset:], _SHOWN_CHARACTERS)
        message = f"the text {unclosed} is not closed, expected another {character} after it"
    elif character == "*":
        message = "expected a field, found '*': GAQL has no *, name each field"
    elif character == ";":
        message = "expected the query to end without ';', which GAQL does not have; remove it"
    elif comment := _COMMENT.match(text, offset):
        message = f"expected a clause, found {comment.group()!r}: GAQL has no comments, remove it"
    else:
        message = (
            f"expected a word, a number or quoted text, found {character!r} (U+{ord(character):04X}), "
            "which GAQL does not use"
        )
    return GaqlError(message, offset=offset)


def _require_bounds(token: Token) -> None:
    if token.kind is TokenKind.TEXT and (bad := _UNPRINTABLE.search(token.source)):
        raise GaqlError(
            f"the text {token.shown} holds {bad.group()!r}, expected its closing {token.source[0]} on the same line",
            offset=token.offset + bad.start(),
        )
    if token.kind is TokenKind.NUMBER and len(token.source) > _MAX_NUMBER_CHARACTERS:
        raise GaqlError(
            f"expected a number of at most {_MAX_NUMBER_CHARACTERS} characters, found {token.shown}",
            offset=token.offset,
        )


def shortened(source: str, characters: int = 200) -> str:
    """In quotes, on one line, and cut where it is long."""
    return repr(source if len(source) <= characters else source[:characters] + "…")
