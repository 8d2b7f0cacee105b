"""The partitions of batches that no run has come for."""

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import ARRAY, Engine, Text, bindparam, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.state.connection import transaction
from gads_assets.state.rows import key_from_row

_UNCLAIMED = text("""
    SELECT batch_id, source, customer_id, query_name, logical_date FROM retry_schedule
    WHERE batch_id = ANY (:batch_ids) AND dagster_run_id IS NULL
    ORDER BY batch_id, source, customer_id, query_name, logical_date
""").bindparams(bindparam("batch_ids", type_=ARRAY(Text)))


def unclaimed_keys(engine: Engine, batch_ids: Collection[str]) -> dict[str, list[PartitionKey]]:
    """Of those of these batches that nobody has claimed."""
    found: dict[str, list[PartitionKey]] = defaultdict(list)
    with transaction(engine) as connection:
        for row in connection.execute(_UNCLAIMED, {"batch_ids": list(batch_ids)}).mappings():
            found[row["batch_id"]].append(key_from_row(row))
    return found
