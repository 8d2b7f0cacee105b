"""A GoogleAdsRow as one JSON line, field by field as the schema version names them."""

import base64
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from gads_assets.catalog.fields import resolve_field
from gads_assets.catalog.gaql_query import DATE_FIELD
from gads_assets.catalog.specification import Column
from gads_assets.errors import CatalogError

_Convert = Callable[[Any], Any]
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class RowEncoder:
    """Built once per query: the way to each column is worked out here, not row by row.

    What the API left out becomes null. Numbers that JSON cannot hold (NaN, infinities) do too.
    """

    def __init__(self, columns: Sequence[Column], api_version: str) -> None:
        """Raises CatalogError when segments.date is not among the columns: such rows belong to no day."""
        if not any(column.field == DATE_FIELD for column in columns):
            raise CatalogError(f"the query does not select {DATE_FIELD}; add it, rows are split into days by it")
        self._names = [column.name for column in columns]
        self._day = [column.field for column in columns].index(DATE_FIELD)
        # Columns that share a parent message (metrics, campaign) are read together, so that it is found once.
        groups: dict[tuple[str, ...], list[tuple[int, str, bool, _Convert | None]]] = {}
        for position, column in enumerate(columns):
            *parents, leaf = resolve_field(column.field, api_version)
            # Protobuf gives "" for a date that is not there, which is no date.
            undated = column.type == "date" and not leaf.has_presence
            reader = (position, leaf.name, leaf.has_presence, _text_or_null if undated else _converter(leaf))
            groups.setdefault(tuple(parent.name for parent in parents), []).append(reader)
        self._groups = list(groups.items())

    def line(self, row: Message) -> tuple[str | None, bytes]:
        """The row's own day, as the API wrote it, and its JSON without a line break."""
        values: list[Any] = [None] * len(self._names)
        for parents, readers in self._groups:
            message: Any = row
            for name in parents:
                if not message.HasField(name):
                    break
                message = getattr(message, name)
            else:
                for position, name, has_presence, convert in readers:
                    if has_presence and not message.HasField(name):
                        continue
                    value = getattr(message, name)
                    values[position] = convert(value) if convert else value
        return values[self._day], _encode(dict(zip(self._names, values, strict=True))).encode()


def _text_or_null(value: str) -> str | None:
    return value or None


def _converter(field: FieldDescriptor) -> _Convert | None:
    """None where protobuf's own value is JSON's."""
    single = _single_converter(field)
    if not field.is_repeated:
        return single
    return list if single is None else lambda values: [single(value) for value in values]


def _single_converter(field: FieldDescriptor) -> _Convert | None:
    if field.enum_type is not None:
        names = {member.number: member.name for member in field.enum_type.values}
        # A member that a newer API has and our descriptors lack is kept by its number.
        return lambda number: names.get(number) or str(number)
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return lambda value: value if math.isfinite(value) else None
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return lambda value: json.dumps(
            MessageToDict(value, preserving_proto_field_name=True), ensure_ascii=False, sort_keys=True
        )
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode()
    return None
