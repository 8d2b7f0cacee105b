"""Delta tables without a JVM: opening them, and delta-rs' errors in one line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from gads_assets.errors import WarehouseError

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def open_table(uri: str) -> DeltaTable:
    """The table as of now; raises WarehouseError where there is none."""
    with readable_delta_errors(uri):
        return DeltaTable(uri)


def find_table(uri: str) -> DeltaTable | None:
    """The table as of now, or None where there is none yet."""
    with readable_delta_errors(uri):
        try:
            return DeltaTable(uri)
        except TableNotFoundError:
            return None


def select(table: DeltaTable, sql: str, **others: DeltaTable) -> pa.Table:
    """The answer to a query over `this`, the table, and `others`, opening only the files whose statistics fit it."""
    with readable_delta_errors(table.table_uri):
        tables = QueryBuilder().register("this", table)
        for name, other in others.items():
            tables.register(name, other)
        found = tables.execute(sql)
        # Its own read_all raises nothing more telling than Exception.
        return pa.RecordBatchReader.from_stream(found).read_all()


@contextmanager
def readable_delta_errors(uri: str) -> Iterator[None]:
    """delta-rs reports a tree of causes over many lines, in colour; the last one says what is the matter."""
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        lines = _COLOURS.sub("", str(error)).strip().splitlines() or [type(error).__name__]
        reason = lines[-1].strip(" ↳")
        raise WarehouseError(
            f"the table at {uri} cannot be used ({reason}); mend the storage, then run again"
        ) from error


def sql_name(uri: str) -> str:
    """The table as a Spark statement names it."""
    return f"delta.`{uri.replace('`', '``')}`"
