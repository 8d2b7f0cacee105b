"""A YAML file as typed values that remember their line: every complaint names file, line, key and fix.

The file is composed, never constructed: no tag in it can make an object, and what it means is read here by type.
"""

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

import yaml

from gads_assets.catalog.gaql import GaqlQuery, describe_place, parse_gaql
from gads_assets.catalog.gaql_tokens import place_of, shortened
from gads_assets.domain.keys import parse_logical_date
from gads_assets.errors import CatalogFileError, GaqlError, PartitionKeyError

_MAX_BYTES: Final = 1_048_576
_MAX_DEPTH: Final = 20
# What YAML refuses without naming the line, and what ends a line for YAML and not for an editor.
_UNREADABLE: Final = re.compile(r"[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TAG: Final = "tag:yaml.org,2002:"
# libyaml is several times faster than PyYAML's own parser, and every process that loads the definitions waits for it.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A value in the file, with the dotted key that leads to it and the line it stands on."""

    file: str
    content: str
    key: str
    line: int
    node: yaml.Node

    def problem(self, message: str) -> CatalogFileError:
        return CatalogFileError(message, file=self.file, line=self.line, key=self.key)

    def mapping(self, *, known: Collection[str] | None = None, optional: Collection[str] = ()) -> dict[str, "Entry"]:
        """The entries by key. With `known`, each of these must be there, and beside them only optional ones."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.problem("must be a mapping; write its keys indented below it, each as `key: value`")
        entries: dict[str, Entry] = {}
        for key_node, value_node in self.node.value:
            entry = self._entry(key_node, value_node)
            name = key_node.value
            if name in entries:
                raise entry.problem(f"is written twice, first on line {entries[name].line}; keep one")
            if known is not None and name not in (*known, *optional):
                raise entry.problem(_unknown_key(name, (*known, *optional)))
            entries[name] = entry
        missing = [name for name in known or () if name not in entries]
        if missing:
            raise self.problem(f"lacks {', '.join(missing)}; add {'it' if len(missing) == 1 else 'them'}")
        return entries

    def items(self) -> tuple["Entry", ...]:
        if not isinstance(self.node, yaml.SequenceNode) or not self.node.value:
            raise self.problem("must be a list of at least one item; write each as `- item`")
        return tuple(
            self._child(f"{self.key}[{number}]", item.start_mark.line, item)
            for number, item in enumerate(self.node.value)
        )

    def text(self) -> str:
        value = self._scalar("str", 'must be text; write it in quotes: "…"')
        if not value.strip():
            raise self.problem("must not be empty; write a text")
        return value

    def sentence(self) -> str:
        """Text to be shown on one line."""
        value = " ".join(self.text().split())
        if bad := _CONTROL.search(value):
            raise self.problem(f"holds U+{ord(bad.group()):04X}, which would not be shown; remove it")
        return value

    def matching(self, pattern: re.Pattern[str], rule: str) -> str:
        value = self.text()
        if not pattern.match(value):
            raise self.problem(f"{shortened(value)} is not {rule}")
        return value

    def whole_number(self, *, lowest: int, highest: int) -> int:
        rule = f"must be a whole number from {lowest} to {highest}"
        digits = self._scalar("int", rule)
        if not re.match(r"(0|[1-9][0-9]{0,8})\Z", digits) or not lowest <= int(digits) <= highest:
            raise self.problem(f"{rule}, not {digits[:40]}")
        return int(digits)

    def number(self, *, lowest: float, highest: float) -> float:
        rule = f"must be a number from {lowest:g} to {highest:g}"
        digits = self._scalar("float", rule) if self._has_tag("float") else self._scalar("int", rule)
        if not re.match(r"(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})?\Z", digits) or not lowest <= float(digits) <= highest:
            raise self.problem(f"{rule}, not {digits[:40]}")
        return float(digits)

    def day(self) -> date:
        rule = "must be a date; write it as YYYY-MM-DD"
        value = self._scalar("timestamp", rule) if self._has_tag("timestamp") else self._scalar("str", rule)
        try:
            return parse_logical_date(value)
        except PartitionKeyError as error:
            raise self.problem(str(error)) from None

    def gaql(self) -> GaqlQuery:
        text = self.text()
        try:
            return parse_gaql(text)
        except GaqlError as error:
            raise self.problem_at(error.offset, str(error)) from None

    def problem_at(self, offset: int, message: str) -> CatalogFileError:
        """A complaint about one character of this text, as near to it in the file as YAML lets us know."""
        text = self.text()
        place = self._place_in_file(text, offset)
        if place is None:
            line, excerpt = self.line, describe_place(text, offset)
        else:
            line, excerpt = place[0] + 1, describe_place(self.content.split("\n")[place[0]], place[1])
        return CatalogFileError(message, file=self.file, line=line, key=self.key, excerpt=excerpt)

    def problem_with_name(self, name: str, message: str) -> CatalogFileError:
        """A complaint about a field or resource that this GAQL names."""
        return self.problem_at(place_of(self.text(), name), message)

    def _place_in_file(self, text: str, offset: int) -> tuple[int, int] | None:
        """Line and column in the file, from 0; None where YAML folded or unescaped the text on its way here."""
        before = text[:offset].split("\n")
        start = self.node.start_mark
        block = getattr(self.node, "style", None) == "|"
        number = start.line + len(before) - (0 if block else 1)
        lines = self.content.split("\n")
        line = text.split("\n")[len(before) - 1]
        if number >= len(lines):
            return None
        left = lines[number].find(line, 0 if block else start.column)
        return None if left < 0 else (number, left + len(before[-1]))

    def _entry(self, key_node: yaml.Node, value_node: yaml.Node) -> "Entry":
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != f"{_TAG}str":
            line = key_node.start_mark.line + 1
            raise CatalogFileError(
                "holds a key that is not text; write keys as plain words", file=self.file, line=line, key=self.key
            )
        name = shortened(str(key_node.value))[1:-1]
        key = f"{self.key}.{name}" if self.key else name
        return self._child(key, key_node.start_mark.line, value_node)

    def _child(self, key: str, line: int, node: yaml.Node) -> "Entry":
        return Entry(file=self.file, content=self.content, key=key, line=line + 1, node=node)

    def _has_tag(self, kind: str) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag == _TAG + kind

    def _scalar(self, kind: str, rule: str) -> str:
        if not self._has_tag(kind):
            raise self.problem(rule)
        return str(self.node.value)


def read_yaml(path: Path) -> Entry:
    """The whole file as one entry; raises CatalogFileError when it cannot be read or is not YAML."""
    file = str(path)
    content = _read_text(path, file)
    try:
        _require_shallow(content, file)
        node = yaml.compose(content, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else None
        raise CatalogFileError(
            f"is not YAML: {error.problem or error.context}; mend that line: indent with spaces, and quote text that "
            "has special characters",
            file=file,
            line=line,
        ) from None
    if node is None:
        raise CatalogFileError("is empty; write source, api_version and queries", file=file, line=1)
    return Entry(file=file, content=content, key="", line=node.start_mark.line + 1, node=node)


def _read_text(path: Path, file: str) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise CatalogFileError(
            f"cannot be read ({error.strerror}); give a catalog's path as FILE or in GADS_CATALOG", file=file
        ) from None
    if len(content) > _MAX_BYTES:
        raise CatalogFileError(f"is larger than {_MAX_BYTES} bytes; keep the catalog to its queries", file=file)
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise CatalogFileError("is not UTF-8; save the file as UTF-8", file=file, line=line) from None
    if bad := _UNREADABLE.search(text):
        raise CatalogFileError(
            f"holds U+{ord(bad.group()):04X}, which a catalog cannot; remove it",
            file=file,
            line=text.count("\n", 0, bad.start()) + 1,
        )
    return text


def _require_shallow(content: str, file: str) -> None:
    # libyaml composes by recursion in C: deep nesting would end the process, not raise.
    depth = 0
    for event in yaml.parse(content, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            raise CatalogFileError(
                f"nests deeper than {_MAX_DEPTH} levels; a catalog needs four",
                file=file,
                line=event.start_mark.line + 1,
            )


def _unknown_key(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}"
    return f"is not a key of the catalog; {hint}"
