"""Plausible values for fields that nothing in the emulated world decides, by their names and protobuf types."""

from collections.abc import Callable
from datetime import date, timedelta

from google.protobuf.descriptor import FieldDescriptor

from gads_assets.emulator.entities import stable_number
from gads_assets.emulator.rows import Value

_WORDS = (
    "Frühling", "bread & butter", "新着", "Größe \"L\"", "пример",
    "c:\\temp", "naïve café", "50% off", "🚲 e-bike", "عرض",
)  # fmt: skip
_FIRST_DAY = date(2019, 1, 1)


def made_up(field: FieldDescriptor, *seed: object) -> Value:
    """The same value for the same field and seed, always; never None."""
    chance = stable_number(field.full_name, *seed)
    if field.is_repeated:
        return [_single(field, chance + index) for index in range(chance % 4)]
    return _single(field, chance)


def left_out(field: FieldDescriptor, *seed: object) -> bool:
    """Whether the API has no value here; only fields that can tell "none" from zero are ever left out."""
    return field.has_presence and stable_number("absent", field.full_name, *seed) % 6 == 0


def _single(field: FieldDescriptor, chance: int) -> Value:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return _message(field, chance)
    if field.type == FieldDescriptor.TYPE_ENUM:
        names = enum_names(field)
        return names[chance % len(names)]
    return _BY_TYPE[field.type](field.name.removesuffix("_"), chance)


def _message(field: FieldDescriptor, chance: int) -> dict[str, Value]:
    """Its first plain fields only: deep enough for JSON text to be worth storing, with no endless nesting."""
    plain = [
        inner
        for inner in (field.message_type.fields if field.message_type else ())
        if inner.type != FieldDescriptor.TYPE_MESSAGE and not inner.is_repeated and not in_choice(inner)
    ]
    return {inner.name: _single(inner, stable_number(inner.name, chance)) for inner in plain[:3]}


def in_choice(field: FieldDescriptor) -> bool:
    """Whether setting the field unsets others; a proto3 `optional` is stored as a choice of one."""
    return field.containing_oneof is not None and len(field.containing_oneof.fields) > 1


def enum_names(field: FieldDescriptor) -> list[str]:
    """The members that mean something: not UNSPECIFIED, which is unset, and not UNKNOWN, which is a newer API's."""
    members = field.enum_type.values if field.enum_type else []
    return [member.name for member in members if member.number > 1] or [members[-1].name]


def _text(name: str, chance: int) -> str:
    day = _FIRST_DAY + timedelta(days=chance % 1500)
    if name.endswith("date_time"):
        return f"{day} {chance % 24:02}:{chance % 60:02}:00"
    if name.endswith("date"):
        return day.isoformat()
    if "url" in name:
        return f"https://www.example.com/{name}/{chance % 1000}?q=ü&lpurl={{lpurl}}"
    return f"{_WORDS[chance % len(_WORDS)]} {chance % 97}"


def _whole(name: str, chance: int) -> int:
    if name.endswith("_micros"):
        # Some that no floating point number can hold.
        return 2**63 - 1 - chance % 1_000 if chance % 16 == 0 else chance % 900 * 10_000
    if name == "id" or name.endswith("_id"):
        return 10**9 + chance % 10**10
    return chance % 10_000


_BY_TYPE: dict[int, Callable[[str, int], Value]] = {
    FieldDescriptor.TYPE_BOOL: lambda _, chance: chance % 2 == 0,
    FieldDescriptor.TYPE_STRING: _text,
    FieldDescriptor.TYPE_BYTES: lambda _, chance: chance.to_bytes(9),
    FieldDescriptor.TYPE_INT64: _whole,
    FieldDescriptor.TYPE_INT32: lambda _, chance: chance % 100,
    FieldDescriptor.TYPE_DOUBLE: lambda _, chance: chance % 10_007 / 10_007,
    # A quarter is exact in 32 bits, so that what is sent is what was meant.
    FieldDescriptor.TYPE_FLOAT: lambda _, chance: chance % 64 / 4,
}
