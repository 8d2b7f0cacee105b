"""Rows into the bytes of their protobuf messages, many times faster than by filling messages one field at a time.

A message's bytes may be put together from those of its parts, and most parts come again: an entity's attributes are the
same every day, and copies of a row differ from each other in a few bytes at known places.
"""

import re
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from gads_assets.emulator.entities import Entity
from gads_assets.emulator.messages import fill_row
from gads_assets.emulator.plan import AnswerPlan
from gads_assets.emulator.rows import LONG_TAIL, RowFacts, Value
from gads_assets.emulator.values import SelectedField, copy_mark, entity_of, follows_keyword

_MOST_KEPT = 50_000
_METRICS, _SEGMENTS = "metrics", "segments"
_VARINT, _EIGHT_BYTES, _LENGTH = 0, 1, 2
_TRIED, _TRIED_AGAIN = 1_234_560, 987_650


class RowSerializer:
    """One answer's rows as GoogleAdsRow bytes; `row_class` is the plain protobuf class of the API version asked."""

    def __init__(self, plan: AnswerPlan, row_class: Any) -> None:
        self._row_class = row_class
        groups: dict[str, list[SelectedField]] = {}
        # In the order of their numbers, as protobuf itself would write them.
        for field in sorted(plan.fields, key=lambda field: field.descriptors[0].number):
            groups.setdefault(field.group, []).append(field)
        self._parts: dict[str, Callable[[RowFacts], bytes]] = {
            group: self._part(group, fields) for group, fields in groups.items()
        }
        self._templates: dict[int, tuple[RowFacts, bytes | None, list[bytes]]] = {}

    def __call__(self, facts: RowFacts) -> bytes:
        if facts.original is None or facts.forged:
            return self._plainly(facts)
        known = self._templates.get(id(facts.original))
        if known is None:
            if len(self._templates) > _MOST_KEPT:
                self._templates.clear()
            # The original is kept with it: no other object can have its id meanwhile.
            known = self._templates[id(facts.original)] = (facts.original, *self._template(facts.original))
        _, template, metrics = known
        copy = facts.lineage[-1]
        if template is None:
            return self._plainly(facts)
        return template % _changing(copy, metrics[copy.copy % len(metrics)])

    def _plainly(self, facts: RowFacts) -> bytes:
        return b"".join([part(facts) for part in self._parts.values()])

    def _template(self, original: RowFacts) -> tuple[bytes | None, list[bytes]]:
        """A copy's bytes with names for what changes; None if some other field would change too."""
        metrics = [b""] * len(LONG_TAIL)
        if _METRICS in self._parts:
            metrics = [self._parts[_METRICS](original.copied(_TRIED + digit)) for digit in range(len(LONG_TAIL))]
        tried = original.copied(_TRIED)
        entity = tried.lineage[-1]
        number = varint(entity.id)
        places = re.compile(
            b"|".join(map(re.escape, (number, str(entity.id).encode(), copy_mark(entity).encode()))), re.DOTALL
        )

        def named(found: re.Match[bytes]) -> bytes:
            if found[0] == number:
                # The copy's own number is in the lowest 21 bits: three bytes of a varint.
                return b"\0low\0" + number[3:]
            return b"\0mark\0" if found[0] == copy_mark(entity).encode() else b"\0id\0"

        pieces = [
            b"%(metrics)b" if group == _METRICS else _as_format(places.sub(named, part(tried)))
            for group, part in self._parts.items()
        ]
        template = b"".join(pieces)
        again = original.copied(_TRIED_AGAIN)
        if template % _changing(again.lineage[-1], metrics[0]) != self._plainly(again):
            return None, metrics
        return template, metrics

    def _part(self, group: str, fields: list[SelectedField]) -> Callable[[RowFacts], bytes]:
        if group == _METRICS and all(_is_number(field.leaf) for field in fields):
            return _numbers(fields)

        def filled(facts: RowFacts) -> bytes:
            row = self._row_class()
            fill_row(row, fields, [field.value(facts) for field in fields])
            content: bytes = row.SerializeToString()
            return content

        if group == _METRICS:
            return filled
        kept: dict[object, bytes] = {}
        by_keyword = any(follows_keyword(field.path) for field in fields)

        def remembered(facts: RowFacts) -> bytes:
            if facts.forged or facts.original is not None:
                return filled(facts)
            key = subject(facts)
            content = kept.get(key)
            if content is None:
                if len(kept) > _MOST_KEPT:
                    kept.clear()
                content = kept[key] = filled(facts)
            return content

        def subject(facts: RowFacts) -> object:
            if group == _SEGMENTS:
                return (*map(str, facts.segments.values()), facts.lineage if by_keyword else None)
            entity = entity_of(group, facts)
            return entity.id if entity else facts.client.customer_id

        return remembered


def framed(rows: list[bytes]) -> bytes:
    """The rows as the field `results`, number 1 in every response."""
    return b"".join([piece for row in rows for piece in (b"\x0a", _length(len(row)), row)])


@cache
def _length(size: int) -> bytes:
    return varint(size)


def varint(number: int) -> bytes:
    """Protobuf's own form of an int64."""
    rest = number & 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _changing(copy: Entity, metrics: bytes) -> dict[bytes, bytes]:
    number = copy.copy
    return {
        b"low": bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14 | 0x80)),
        b"id": b"%d" % copy.id,
        b"mark": b" %07d" % number,
        b"metrics": metrics,
    }


def _as_format(content: bytes) -> bytes:
    escaped = content.replace(b"%", b"%%")
    for name in (b"low", b"id", b"mark"):
        escaped = escaped.replace(b"\0" + name + b"\0", b"%(" + name + b")b")
    return escaped


def _is_number(leaf: FieldDescriptor) -> bool:
    return leaf.type in (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_DOUBLE) and not leaf.is_repeated


def _numbers(fields: list[SelectedField]) -> Callable[[RowFacts], bytes]:
    """The bytes of a message whose selected fields are all int64 or double."""
    group_tag = _tag(fields[0].descriptors[0], _LENGTH)
    pack = struct.Struct("<d").pack
    encoders: list[tuple[Callable[[RowFacts], Value], bytes, bool, bool]] = []
    for field in sorted(fields, key=lambda field: field.leaf.number):
        whole = field.leaf.type == FieldDescriptor.TYPE_INT64
        tag = _tag(field.leaf, _VARINT if whole else _EIGHT_BYTES)
        encoders.append((field.value, tag, whole, field.leaf.has_presence))

    def content(facts: RowFacts) -> bytes:
        pieces = []
        for value_of, tag, whole, has_presence in encoders:
            value: Any = value_of(facts)
            if value is None or not (value or has_presence):
                continue
            pieces.append(tag)
            pieces.append(varint(value) if whole else pack(value))
        inner = b"".join(pieces)
        return group_tag + _length(len(inner)) + inner if inner else b""

    return content


def _tag(field: FieldDescriptor, wire_type: int) -> bytes:
    return varint(field.number << 3 | wire_type)
