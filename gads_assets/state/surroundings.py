"""What the ledger knows around partitions that are being judged: their customers' days before, their day's spends."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import Connection, and_, text

from gads_assets.domain.expectations import Surroundings
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.state import AttemptOutcome, PartitionStatus
from gads_assets.domain.verdict import Spend
from gads_assets.state.rows import key_from_row, keys_json, rows_json, select_by_keys
from gads_assets.state.tables import KEY_COLUMNS, partition_attempt, partition_state

_ROWS = text("""
    SELECT s.source, s.customer_id, s.query_name, s.logical_date, s.record_count
    FROM jsonb_to_recordset(CAST(:series AS jsonb))
            AS w (source text, customer_id text, query_name text, first date, last date)
        JOIN partition_state AS s ON (s.source, s.customer_id, s.query_name) = (w.source, w.customer_id, w.query_name)
            AND s.logical_date BETWEEN w.first AND w.last
    WHERE s.status = 'success'
""")

# A run that was accepted more than once was measured the same each time: its bytes are sealed.
_SPENDS = (
    select_by_keys(partition_state)
    .with_only_columns(
        *(partition_state.c[name] for name in KEY_COLUMNS),
        partition_attempt.c.spend_micros,
        partition_attempt.c.comparable_spend_micros,
    )
    .join(
        partition_attempt,
        and_(
            *(partition_attempt.c[name] == partition_state.c[name] for name in KEY_COLUMNS),
            partition_attempt.c.run_id == partition_state.c.current_run_id,
            partition_attempt.c.outcome == AttemptOutcome.ACCEPTED,
            partition_attempt.c.spend_micros.is_not(None),
        ),
    )
    .where(partition_state.c.status == PartitionStatus.SUCCESS)
)


def read_surroundings(
    connection: Connection, keys: Collection[PartitionKey], *, days: Mapping[str, int], queries: Iterable[str]
) -> Surroundings:
    """`days` is how far back each query's rows are compared; `queries` are those whose spends are."""
    rows = connection.execute(_ROWS, {"series": rows_json(_series(keys, days))}).mappings()
    same_day = {replace(key, query_name=query) for key in keys for query in queries}
    spends = connection.execute(_SPENDS, {"keys": keys_json(same_day)}).mappings()
    return Surroundings(
        rows={key_from_row(row): row["record_count"] for row in rows},
        spends={
            key_from_row(row): Spend(micros=row["spend_micros"], comparable_micros=row["comparable_spend_micros"])
            for row in spends
        },
    )


def _series(keys: Iterable[PartitionKey], days: Mapping[str, int]) -> Iterable[dict[str, object]]:
    """One stretch of days for each customer and query."""
    dates: dict[tuple[str, str, str], list[PartitionKey]] = {}
    for key in keys:
        dates.setdefault((key.source, key.customer_id, key.query_name), []).append(key)
    for (source, customer_id, query_name), series in dates.items():
        first, last = min(key.logical_date for key in series), max(key.logical_date for key in series)
        yield {
            "source": source,
            "customer_id": customer_id,
            "query_name": query_name,
            "first": first - timedelta(days=days.get(query_name, 0)),
            "last": last,
        }
