"""What the marts were made of against what readers see now, without a JVM and a query at a time."""

from collections.abc import Collection, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.warehouse.delta_tables import find_table, select
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.marts.account_day import LINEAGE, customers_with_currency, performance_queries
from gads_assets.warehouse.marts.tables import ACCOUNT_DAY, FRESHNESS, MARTS
from gads_assets.warehouse.pointers import pointer_table
from gads_assets.warehouse.snapshots import take_snapshot

_NOTHING: Final = pa.schema(
    [("customer_id", pa.string()), ("logical_date", pa.date32()), ("mark", pa.string())]
).empty_table()


def pointer_versions(layout: WarehouseLayout, catalog: Catalog) -> dict[str, int]:
    """Of each query's pointer table; -1 where nothing was published yet."""
    return {name: _version(pointer_table(layout, name)) for name in catalog.queries}


def mart_versions(layout: WarehouseLayout) -> dict[str, int]:
    return {name: _version(find_table(layout.mart(name))) for name in MARTS}


def stale_account_days(layout: WarehouseLayout, catalog: Catalog) -> dict[PartitionKey, str]:
    """Account-days that are not made of what readers see now: something was published, replaced or withdrawn since, or
    the account's currency became known. Beside each, what changes when that is another difference."""
    mart = find_table(layout.mart(ACCOUNT_DAY.name))
    performance = performance_queries(catalog)
    found = [_NOTHING, *(_differences(layout, catalog, mart, name) for name in performance)]
    if mart:
        left = ", ".join(f"'{name}'" for name in performance)
        found.append(_marked(_made_of(mart, f"query_name NOT IN ({left})" if left else "true"), "left"))
        unknown = _made_of(mart, "currency_code IS NULL")
        told = unknown.filter(pc.is_in(unknown["customer_id"], customers_with_currency(layout, catalog)))
        found.append(_marked(told, "currency"))
    differing = pa.concat_tables(found).group_by(["customer_id", "logical_date"]).aggregate([("mark", "list")])
    return {
        PartitionKey(
            source=layout.source,
            customer_id=CustomerId(customer_id),
            query_name=ACCOUNT_DAY.name,
            logical_date=day,
        ): " ".join(sorted(marks))
        for customer_id, day, marks in zip(
            *(differing[name].to_pylist() for name in ("customer_id", "logical_date", "mark_list")), strict=True
        )
    }


def is_freshness_stale(layout: WarehouseLayout, customers: Collection[CustomerId], versions: Mapping[str, int]) -> bool:
    """Whether a row of these customers is missing, or was not made of these versions of the pointers."""
    table = find_table(layout.mart(FRESHNESS.name))
    if table is None:
        return bool(customers)
    rows = select(table, "SELECT customer_id, query_name, pointer_version FROM this")
    made = set(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    return any((customer_id, *made_of) not in made for customer_id in customers for made_of in versions.items())


def _differences(layout: WarehouseLayout, catalog: Catalog, mart: DeltaTable | None, query_name: str) -> pa.Table:
    pointers = take_snapshot(layout, catalog, query_name).pointers
    made_of = _made_of(mart, f"query_name = '{query_name}'") if mart else LINEAGE.empty_table()
    run = ["customer_id", "logical_date", "run_id", "schema_version"]
    new, old = pointers.join(made_of, run, join_type="left anti"), made_of.join(pointers, run, join_type="left anti")
    # A stage id is given once, also where a run is shown, withdrawn and shown again.
    return pa.concat_tables([_marked(new, new["stage_id"]), _marked(old, "gone")])


def _made_of(mart: DeltaTable, condition: str) -> pa.Table:
    # Names in it are ours and the catalog's, which allows no quotes.
    return select(mart, f"SELECT {', '.join(LINEAGE.names)} FROM this WHERE {condition}").cast(LINEAGE)  # noqa: S608


def _marked(rows: pa.Table, mark: pa.ChunkedArray | str) -> pa.Table:
    marks = pc.binary_join_element_wise(rows["run_id"], mark, "/")
    return rows.select(["customer_id", "logical_date"]).append_column("mark", marks)


def _version(table: DeltaTable | None) -> int:
    return table.version() if table else -1
