"""Values to rows and back. Rows travel as one JSON array a statement, whatever their number: one round trip, and
PostgreSQL itself converts each member to its column's type."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, date, datetime
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Column, RowMapping, Select, Table, Text, and_, bindparam, cast, column, func, select
from sqlalchemy.dialects.postgresql import JSONB

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.state import DemotionIntent, LoadRecord, PartitionState, PartitionStatus
from gads_assets.state.tables import KEY_COLUMNS, partition_state

Value = TypeVar("Value", PartitionState, DemotionIntent, LoadRecord)

_UNSTORABLE = re.compile(r"\\u(0000|d[89a-f])")

_KEYS = (
    func.jsonb_to_recordset(cast(bindparam("keys", type_=Text), JSONB))
    .table_valued(*(column(name, partition_state.c[name].type) for name in KEY_COLUMNS))
    .render_derived("k", with_types=True)
)


def select_by_keys(table: Table, *names: str) -> Select[tuple[object, ...]]:
    """The table's rows of the keys in the parameter `keys` (see `keys_json`), in key order: whole, or beside the key
    these columns only. An attempt's findings may hold many sample rows, which few callers want."""
    of_a_key = and_(*(table.c[name] == _KEYS.c[name] for name in KEY_COLUMNS))
    chosen = [table.c[name] for name in (*KEY_COLUMNS, *names)] if names else [table]
    return select(*chosen).select_from(table).join(_KEYS, of_a_key).order_by(*key_order(table))


def key_order(table: Table) -> list[Column[object]]:
    return [table.c[name] for name in KEY_COLUMNS]


def keys_json(keys: Iterable[PartitionKey]) -> str:
    return rows_json([key_row(key) for key in sorted(set(keys))])


def rows_json(rows: Iterable[Mapping[str, object]]) -> str:
    """As JSON that PostgreSQL accepts: its texts hold neither NUL nor half a surrogate pair, which quoted data may."""
    given = list(rows)
    try:
        written = msgspec.json.encode(given).decode()
    except (TypeError, UnicodeEncodeError):  # half a surrogate pair, or a type of ours that it does not know
        written = json.dumps(given, default=_written)
    # Cleaning takes longer than all the rest, and the escapes show whether there is anything to clean.
    return json.dumps(_cleaned(given), default=_written) if _UNSTORABLE.search(written) else written


def key_row(key: PartitionKey) -> dict[str, object]:
    return {
        "source": key.source,
        "customer_id": key.customer_id,
        "query_name": key.query_name,
        "logical_date": key.logical_date,
    }


def value_row(value: object) -> dict[str, object]:
    """A dataclass with a `key` becomes its columns."""
    row: dict[str, object] = {}
    for field in fields(value):  # type: ignore[arg-type]  # every caller passes a dataclass; typeshed has no public name for that
        content = getattr(value, field.name)
        row.update(key_row(content) if isinstance(content, PartitionKey) else {field.name: content})
    return row


def _written(value: object) -> object:
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no column of its own")


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {str(_cleaned(str(name))): _cleaned(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(member) for member in value]
    return value


def key_from_row(row: RowMapping) -> PartitionKey:
    return PartitionKey(
        source=row["source"],
        customer_id=CustomerId(row["customer_id"]),
        query_name=row["query_name"],
        logical_date=row["logical_date"],
    )


def state_from_row(row: RowMapping) -> PartitionState:
    return PartitionState(**{**_members(PartitionState, row), "status": PartitionStatus(row["status"])})


def demotion_from_row(row: RowMapping) -> DemotionIntent:
    return DemotionIntent(**_members(DemotionIntent, row))


def load_record_from_row(row: RowMapping) -> LoadRecord:
    return LoadRecord(**_members(LoadRecord, row))


def run_of_row(row: RowMapping) -> tuple[PartitionKey, RunId]:
    return key_from_row(row), RunId(row["run_id"])


def _members(kind: type[Value], row: RowMapping) -> dict[str, Any]:
    """Times come back in UTC whatever the session's zone."""
    members: dict[str, Any] = {"key": key_from_row(row)}
    for field in fields(kind):
        if field.name != "key":
            content = row[field.name]
            members[field.name] = content.astimezone(UTC) if isinstance(content, datetime) else content
    return members
