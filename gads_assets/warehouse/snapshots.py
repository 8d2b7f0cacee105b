"""One look at the pointers, from which every reader goes on: what a selection shows, settled once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from gads_assets.catalog.specification import Catalog, Column, QuerySchema
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.errors import ReadError, WarehouseError
from gads_assets.warehouse.as_of import gone, table_as_of
from gads_assets.warehouse.columns import reader_columns, schema_versions
from gads_assets.warehouse.delta_tables import select
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.pointer_order import shown_sql
from gads_assets.warehouse.pointers import pointer_table
from gads_assets.warehouse.selection import EVERYTHING, PublishableStates, Selection

_SHOWN: Final = pa.schema(
    [
        ("customer_id", pa.string()),
        ("logical_date", pa.date32()),
        ("run_id", pa.string()),
        ("stage_id", pa.string()),
        ("schema_version", pa.string()),
        ("record_count", pa.int64()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Whichever engine reads the stages, and however late, these are the partitions it shows.

    The stage tables are opened after it was taken: the other way round, a publish in between would show a pointer whose
    rows the older state of the stage table lacks.
    """

    layout: WarehouseLayout
    query_name: str
    selection: Selection
    schemas: tuple[QuerySchema, ...]
    pointers: pa.Table
    """One row a partition, also for those without rows."""
    stages: tuple[QuerySchema, ...]
    """The schema versions that have rows among them."""
    version: int
    """Of the pointer table; -1 where nothing was published yet."""
    newest: int
    """Its newest version, against which a snapshot of the past tells what was retracted."""

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Raises ReadError where versions that have rows cannot be read together; their pointers still can."""
        return reader_columns(self.schemas, in_use=self.stages)

    @property
    def keys(self) -> frozenset[PartitionKey]:
        """Every partition that is shown, whether or not it has rows."""
        return frozenset(_keys(self.layout, self.query_name, self.pointers))

    def only(self, pointers: pa.Table) -> "Snapshot":
        """The same look, at these of its partitions."""
        keys = frozenset(_keys(self.layout, self.query_name, pointers))
        versions = _with_rows(pointers)
        return replace(
            self,
            selection=replace(self.selection, partitions=keys),
            pointers=pointers,
            stages=tuple(schema for schema in self.stages if schema.version in versions),
        )


def take_snapshot(
    layout: WarehouseLayout, catalog: Catalog, query_name: str, selection: Selection = EVERYTHING
) -> Snapshot:
    """Raises ReadError rather than leave out a partition whose schema version the catalog lacks."""
    schemas = _schemas(catalog, query_name, selection.schema_version)
    newest = pointer_table(layout, query_name)
    table = newest
    if newest and selection.as_of is not None:
        table = table_as_of(newest, selection.as_of, query_name=query_name, now=datetime.now(UTC))
    elif isinstance(selection.as_of, int):
        raise ReadError(f"{query_name} has no pointer version {selection.as_of}: nothing of it was published yet")
    pointers = _shown(table, newest, selection, query_name) if table and newest else _SHOWN.empty_table()
    _require_known(layout, query_name, pointers, schemas)
    if selection.strict:
        pointers = _as_states_say(layout, query_name, pointers, selection.strict)
    with_rows = _with_rows(pointers)
    stages = tuple(schema for schema in schemas if schema.version in with_rows)
    return Snapshot(
        layout=layout,
        query_name=query_name,
        selection=selection,
        schemas=tuple(schemas),
        pointers=pointers,
        stages=stages,
        version=table.version() if table else -1,
        newest=newest.version() if newest else -1,
    )


def _schemas(catalog: Catalog, query_name: str, schema_version: str | None) -> list[QuerySchema]:
    schemas = schema_versions(catalog, query_name)
    if schema_version is None:
        return schemas
    wanted = [schema for schema in schemas if schema.version == schema_version]
    if not wanted:
        known = ", ".join(sorted(schema.version for schema in schemas))
        raise ReadError(f"{query_name} has no schema version {schema_version} in this catalog; it has {known}")
    return wanted


def _shown(table: DeltaTable, newest: DeltaTable, selection: Selection, query_name: str) -> pa.Table:
    past = table.version() < newest.version()
    sql = shown_sql("this", condition=selection.condition, newest="newest" if past else None)
    names = ", ".join(_SHOWN.names)
    version = f" WHERE schema_version = '{selection.schema_version}'" if selection.schema_version else ""
    try:
        found = select(table, f"SELECT {names} FROM ({sql}) AS shown{version}", newest=newest)
    except WarehouseError as error:
        if past and selection.as_of is not None:
            raise gone(query_name, selection.as_of) from error
        raise
    found = found.cast(_SHOWN)
    if selection.partitions is None:
        return found
    wanted = pa.array([f"{key.customer_id} {key.logical_date}" for key in selection.partitions], pa.string())
    places = pc.binary_join_element_wise(found["customer_id"], found["logical_date"].cast(pa.string()), " ")
    return found.filter(pc.is_in(places, wanted))


def _with_rows(pointers: pa.Table) -> set[str]:
    return set(pc.unique(pointers.filter(pc.field("record_count") > 0)["schema_version"]).to_pylist())


def _require_known(
    layout: WarehouseLayout, query_name: str, pointers: pa.Table, schemas: Sequence[QuerySchema]
) -> None:
    known = sorted(schema.version for schema in schemas)
    unknown = pointers.filter(~pc.field("schema_version").isin(known)).slice(length=1)
    for key, version in zip(_keys(layout, query_name, unknown), unknown["schema_version"].to_pylist(), strict=True):
        raise ReadError(
            f"{key} is published under schema version {version}, and this catalog knows {', '.join(known)} of "
            f"{query_name}; read it with the catalog or the version of the program that published it"
        )


def _as_states_say(
    layout: WarehouseLayout, query_name: str, pointers: pa.Table, publishable: PublishableStates
) -> pa.Table:
    keys = list(_keys(layout, query_name, pointers))
    authorities = {state.key: (state.current_run_id, state.schema_version) for state in publishable(keys)}
    runs = zip(pointers["run_id"].to_pylist(), pointers["schema_version"].to_pylist(), strict=True)
    return pointers.filter(
        pa.array([authorities.get(key) == run for key, run in zip(keys, runs, strict=True)], pa.bool_())
    )


def _keys(layout: WarehouseLayout, query_name: str, pointers: pa.Table) -> Iterator[PartitionKey]:
    for customer_id, day in zip(pointers["customer_id"].to_pylist(), pointers["logical_date"].to_pylist(), strict=True):
        yield PartitionKey(
            source=layout.source, customer_id=CustomerId(customer_id), query_name=query_name, logical_date=day
        )
