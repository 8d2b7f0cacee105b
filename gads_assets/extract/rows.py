"""GoogleAdsRows as JSON lines, field by field as the schema version names them."""

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from gads_assets.catalog.fields import resolve_field, row_descriptor
from gads_assets.catalog.gaql_query import DATE_FIELD
from gads_assets.catalog.specification import Column
from gads_assets.errors import CatalogError

_FIELD_MASK: Final = "google.protobuf.FieldMask"

_READ: Final = """
def read(rows):
    day, values = None, []
    for row in rows:
        {body}
        its_day = {day}
        if its_day != day or len(values) == 64:
            if values:
                yield day, _lines(values)
            day, values = its_day, []
        values.append(_Values({values}))
    if values:
        yield day, _lines(values)
"""

_Convert = Callable[[Any], Any]
_Read = Callable[[Iterable[Message]], Iterator[tuple[str | None, bytes]]]


class RowEncoder:
    """The way to each column is worked out once per query, not row by row, nor call by call.

    What the API left out becomes null. Numbers that JSON cannot hold (NaN, infinities) do too.
    """

    def __init__(self, columns: Sequence[Column], api_version: str, *, day_field: str | None = DATE_FIELD) -> None:
        """Raises CatalogError when `day_field` is not among the columns: such rows belong to no day."""
        if day_field and not any(column.field == day_field for column in columns):
            raise CatalogError(f"the query does not select {day_field}; add it, rows are split into days by it")
        self.lines: Final = _compiled(tuple(columns), api_version, day_field)
        """Of rows: what the `day_field` of some holds, as the API wrote it, and their JSON lines; a few dozen rows at a
        time, of one day. Rows without a day have an empty one; without a `day_field` it is None."""


@lru_cache(maxsize=64)
def _compiled(columns: tuple[Column, ...], api_version: str, day_field: str | None) -> _Read:
    """A generator of straight lines, as dataclasses are made: going through a list of columns for each row takes twice
    as long. Its source holds names of descriptors and numbers, nothing that anybody wrote."""
    names: dict[str, Any] = {
        "_Values": msgspec.defstruct("Values", [column.name for column in columns], gc=False),
        "_lines": msgspec.json.Encoder().encode_lines,  # which writes what JSON cannot hold as null
        "_has_row": _has(row_descriptor(api_version)),
    }
    found: dict[tuple[str, ...], str] = {(): "row"}
    body: list[str] = []
    for position, column in enumerate(columns):
        *parents, leaf = resolve_field(column.field, api_version)
        path = tuple(parent.name for parent in parents)
        for depth in range(1, len(path) + 1):
            # Columns that share a message (metrics, campaign) find it once. One that is absent looks empty.
            if path[:depth] not in found:
                found[path[:depth]] = message = f"message{len(found)}"
                names[f"_has_{message}"] = _has(parents[depth - 1].message_type)
                body.append(f"{message} = {found[path[: depth - 1]]}.{path[depth - 1]}")
        parent = found[path[:-1]]
        body += _reading(column, leaf, f"value{position}", found[path], f"_has_{parent}({parent}, {path[-1]!r})")
        names[f"_convert_value{position}"] = _enum_names(leaf) or _converter(leaf)
    fields = [column.field for column in columns]
    day = f'value{fields.index(day_field)} or ""' if day_field else "None"
    values = ", ".join(f"value{position}" for position in range(len(columns)))
    source = _READ.format(body="\n        ".join(body), day=day, values=values)
    exec(compile(source, f"<columns of {api_version}>", "exec"), names)  # noqa: S102
    read: _Read = names["read"]
    return read


def _reading(column: Column, leaf: FieldDescriptor, value: str, message: str, has_message: str) -> list[str]:
    lines = [f"{value} = {message}.{leaf.name}"]
    has_value = f"_has_{message}({message}, {leaf.name!r})" if leaf.has_presence else has_message
    # Most values are not the default, and then they are present. Messages and lists are never false: one has to ask.
    is_absent = f"not {has_value}"
    if leaf.message_type is None and not leaf.is_repeated:
        is_absent = f"not {value} and {is_absent}"
    if column.type == "date":
        # Protobuf gives "" for a date that is not there, which is no date.
        return [f"{value} = {message}.{leaf.name} or None"]
    lines.append(f"if {is_absent}: {value} = None")
    if _enum_names(leaf):
        lines.append(f"else: {value} = _convert_{value}[{value}]")
    elif _converter(leaf):
        lines.append(f"else: {value} = _convert_{value}({value})")
    return lines


def _has(message: Descriptor | None) -> Callable[[Message, str], bool]:
    """HasField of the class: looking for a message's own takes as long as calling it."""
    return GetMessageClass(message).HasField  # type: ignore[arg-type]  # whatever has a field inside is a message


def _enum_names(leaf: FieldDescriptor) -> "_EnumNames | None":
    """Looked up rather than called, where there is one of them."""
    if leaf.enum_type is None or leaf.is_repeated:
        return None
    return _EnumNames({member.number: member.name for member in leaf.enum_type.values})


def _converter(field: FieldDescriptor) -> _Convert | None:
    """None where protobuf's own value is JSON's."""
    single = _single_converter(field)
    if not field.is_repeated:
        return single
    return list if single is None else lambda values: [single(value) for value in values]


def _single_converter(field: FieldDescriptor) -> _Convert | None:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return lambda message: msgspec.json.encode(_plain(message), order="deterministic").decode()
    return _scalar_converter(field)


def _scalar_converter(field: FieldDescriptor) -> _Convert | None:
    if field.enum_type is not None:
        return _EnumNames({member.number: member.name for member in field.enum_type.values}).__getitem__
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode()
    return None


class _EnumNames(dict[int, str]):
    """A member that a newer API has and our descriptors lack is kept by its number."""

    def __missing__(self, number: int) -> str:
        return str(number)


def _plain(message: Message) -> Any:
    """A message as the API documents it: integers as numbers, enums by name, names without Python's underscores.

    protobuf's own JSON writes 64-bit integers as texts and turns a field mask's names into camel case.
    """
    if message.DESCRIPTOR.full_name == _FIELD_MASK:
        mask: Any = message
        return ",".join(mask.paths)
    return {field.name.removesuffix("_"): _plain_value(field, value) for field, value in message.ListFields()}


def _plain_value(field: FieldDescriptor, value: Any) -> Any:
    convert = _plain if field.type == FieldDescriptor.TYPE_MESSAGE else _scalar_converter(field)
    if not field.is_repeated:
        return convert(value) if convert else value
    return [convert(item) for item in value] if convert else list(value)
