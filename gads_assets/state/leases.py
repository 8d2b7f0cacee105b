"""Who has which partitions: a run has each of its own, for as long as it says that it lives."""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Engine, text

from gads_assets.domain.keys import PartitionKey
from gads_assets.errors import StateStoreError
from gads_assets.state.connection import NOW, transaction
from gads_assets.state.rows import key_from_row, keys_json
from gads_assets.state.run_records import HELD_SCOPES

LEASE: Final = timedelta(seconds=30)
"""From a run's last sign of life until it passes for gone."""

_TRIES: Final = 10

PROCESS_SCOPE: Final = "process of run "
"""With its id after it: the scope that a run's process holds as long as it is there (`RunRecords.shared`)."""

# One that is only stopped says nothing, and goes on with what it has when it wakes: it still holds its session. While
# the database was away nobody could say anything: all that were there before have the time of a lease from its start.
LIVES: Final = f"""
    (held.lease_until > {NOW}
        OR hashtextextended('{PROCESS_SCOPE}' || held.dagster_run_id, 0) IN ({HELD_SCOPES})
        OR held.taken_at < pg_postmaster_start_time() AND {NOW} >= pg_postmaster_start_time()
            AND {NOW} < pg_postmaster_start_time() + held.lasts)
"""
"""Whether the run of a row of run_lease, named held, lives; `clock` is the moment, or NULL for the database's own."""

LIVING_LEASE: Final = f"""
    SELECT FROM partition_lease AS l JOIN run_lease AS held USING (dagster_run_id)
    WHERE (l.source, l.customer_id, l.query_name, l.logical_date)
            = ({{0}}.source, {{0}}.customer_id, {{0}}.query_name, {{0}}.logical_date)
        AND {LIVES}
"""
"""Whether a run that lives has the partition of a row of that name."""

_EXTEND = text(f"""
    INSERT INTO run_lease AS l (dagster_run_id, lease_until, taken_at, lasts)
    SELECT :run_id, clock + :lasts, clock, :lasts FROM {NOW} AS clock
    ON CONFLICT (dagster_run_id) DO UPDATE SET lease_until = greatest(l.lease_until, excluded.lease_until)
""")

_COUNT = text("SELECT count(*) FROM partition_lease WHERE dagster_run_id = :run_id")

_KEYS = """
    jsonb_to_recordset(CAST(:keys AS jsonb)) AS k (source text, customer_id text, query_name text, logical_date date)
"""

# Runs that had some of the partitions and are gone stay so until this transaction ends: none comes back, and nobody
# else takes from them or removes them. In the order of names, this run's among them: nobody waits in a circle.
_GONE = text(f"""
    SELECT dagster_run_id FROM run_lease AS held
    WHERE dagster_run_id = :run_id
        OR NOT {LIVES} AND dagster_run_id IN (
            SELECT l.dagster_run_id
            FROM partition_lease AS l JOIN {_KEYS} USING (source, customer_id, query_name, logical_date))
    ORDER BY dagster_run_id FOR UPDATE
""")

# In the order of keys, so that two runs with overlapping partitions wait for each other instead of deadlocking. What
# another has is not even locked: it may be about to release it.
_TAKE_FREE = text(f"""
    INSERT INTO partition_lease (source, customer_id, query_name, logical_date, dagster_run_id)
    SELECT source, customer_id, query_name, logical_date, :run_id FROM {_KEYS}
    ORDER BY source, customer_id, query_name, logical_date
    ON CONFLICT (source, customer_id, query_name, logical_date) DO NOTHING
""")

# From those whose rows are locked, not from all that seem to be gone: a lease that was committed after this statement
# began shows here, but the run that it is of does not.
_TAKE_OVER = text(f"""
    UPDATE partition_lease AS l SET dagster_run_id = :run_id FROM {_KEYS}
    WHERE (l.source, l.customer_id, l.query_name, l.logical_date)
            = (k.source, k.customer_id, k.query_name, k.logical_date)
        AND l.dagster_run_id = ANY (:gone)
""")

_HELD = text(f"""
    SELECT k.*, l.dagster_run_id FROM {_KEYS}
        JOIN partition_lease AS l USING (source, customer_id, query_name, logical_date)
        JOIN run_lease AS held USING (dagster_run_id)
    WHERE {LIVES}
""")

_ALL_HELD = text(f"""
    SELECT l.* FROM partition_lease AS l JOIN run_lease AS held USING (dagster_run_id)
    WHERE l.source = :source AND {LIVES}
""")

_RELEASE = text("DELETE FROM run_lease WHERE dagster_run_id = :run_id")

_LIVING = text(f"""
    SELECT dagster_run_id FROM run_lease AS held WHERE dagster_run_id = ANY (:run_ids) AND {LIVES}
""")

_EXPIRED = text(f"SELECT dagster_run_id FROM run_lease AS held WHERE NOT {LIVES} ORDER BY lease_until")

_REMOVE_EXPIRED = text(f"DELETE FROM run_lease AS held WHERE dagster_run_id = :run_id AND NOT {LIVES}")


class Leases:
    """By the database's clock, unless `clock` gives another: a process whose own is wrong neither loses what it has nor
    takes what others have."""

    def __init__(
        self, engine: Engine, *, lasts: timedelta = LEASE, clock: Callable[[], datetime] | None = None
    ) -> None:
        self.lasts = lasts
        self._engine = engine
        self._clock = clock

    def extend(self, run_id: str) -> int:
        """The run lives; returns how many partitions it has. One that passed for gone meanwhile has fewer than it took,
        and may take what is free."""
        asked = self._asked(run_id=run_id)
        with transaction(self._engine) as connection:
            connection.execute(_EXTEND, asked)
            number: int = connection.execute(_COUNT, asked).scalar_one()
            return number

    def take(self, run_id: str, keys: Iterable[PartitionKey]) -> dict[PartitionKey, str]:
        """Gives the run all of these that no other run has; returns the others, with the run that has them. What it
        has already it keeps."""
        wanted = set(keys)
        others: dict[PartitionKey, str] = {}
        for _ in range(_TRIES):
            held = self._take(run_id, wanted)
            others |= {key: holder for key, holder in held.items() if holder != run_id}
            wanted -= held.keys()
            if not wanted:  # otherwise some were released, or ran out, while they were asked for
                return others
        raise StateStoreError(f"run {run_id} cannot take {min(wanted)}: it changes hands again and again; try again")

    def _take(self, run_id: str, keys: Collection[PartitionKey]) -> dict[PartitionKey, str]:
        asked = self._asked(run_id=run_id, keys=keys_json(keys))
        with transaction(self._engine) as connection:
            gone = [each for each in connection.execute(_GONE, asked).scalars() if each != run_id]
            connection.execute(_EXTEND, asked)
            connection.execute(_TAKE_FREE, asked)
            if gone:
                connection.execute(_TAKE_OVER, {**asked, "gone": gone})
            rows = connection.execute(_HELD, asked).mappings()
            return {key_from_row(row): row["dagster_run_id"] for row in rows}

    def release(self, run_id: str) -> None:
        """All that the run has."""
        with transaction(self._engine) as connection:
            connection.execute(_RELEASE, {"run_id": run_id})

    def held(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, str]:
        """Those of them that a living run has, with that run."""
        with transaction(self._engine) as connection:
            rows = connection.execute(_HELD, self._asked(keys=keys_json(keys))).mappings()
            return {key_from_row(row): row["dagster_run_id"] for row in rows}

    def all_held(self, source: str) -> set[PartitionKey]:
        with transaction(self._engine) as connection:
            rows = connection.execute(_ALL_HELD, self._asked(source=source)).mappings()
            return {key_from_row(row) for row in rows}

    def living(self, run_ids: Collection[str]) -> set[str]:
        with transaction(self._engine) as connection:
            return set(connection.execute(_LIVING, self._asked(run_ids=list(run_ids))).scalars())

    def expired(self) -> list[str]:
        """Runs that have shown no sign of life for too long, the longest first."""
        with transaction(self._engine) as connection:
            return list(connection.execute(_EXPIRED, self._asked()).scalars())

    def remove_expired(self, run_id: str) -> bool:
        """False where it shows signs of life again, or somebody else was first."""
        with transaction(self._engine) as connection:
            return connection.execute(_REMOVE_EXPIRED, self._asked(run_id=run_id)).rowcount == 1

    def _asked(self, **more: Any) -> dict[str, Any]:
        return {"clock": self._clock() if self._clock else None, "lasts": self.lasts, **more}
