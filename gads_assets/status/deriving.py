"""What follows from the folded rows at a moment: which partitions are stale, since when and why, and which are missing.

Staleness is a matter of the moment and of the code, so it is derived when somebody asks. A sweep writes it down for
those who read the rows elsewhere; what is told here never depends on whether it has been.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Engine, RowMapping, TextClause, text
from ulid import ULID

from gads_assets.domain.keys import CustomerId
from gads_assets.domain.partition_status import DisplayStatus, Outcome, StaleReason, display_of
from gads_assets.state.connection import transaction
from gads_assets.state.rows import rows_json
from gads_assets.status.tracking import AssetKind, TrackedAsset, Workspace

_OUTCOMES: Final = (None, Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED)
_REASONS: Final = (None, StaleReason.FRESHNESS_POLICY, StaleReason.UPSTREAM_CHANGED, StaleReason.CODE_CHANGED)
_FIRST_CHARACTER: Final = 0x100
_NO_PARTITION: Final = "-"
_CODES: Final = 128
_LATE: Final = 16 * _REASONS.index(StaleReason.FRESHNESS_POLICY)
_ROWS_AT_ONCE: Final = 20_000

_ASSETS: Final = """
    asset AS MATERIALIZED (
        SELECT a.*, c.since AS code_changed_at
        FROM jsonb_to_recordset(CAST(:assets AS jsonb)) AS a (asset_key text, query_name text, is_published boolean,
                has_days boolean, first_day date, code_version text, settling interval, allowance interval,
                due_ages integer[], reach_days integer)
            LEFT JOIN asset_code AS c ON (c.tenant_id, c.workspace_id, c.asset_key, c.code_version)
                = (:tenant_id, :workspace_id, a.asset_key, a.code_version)
    )
"""

# A partition is expected once its day is open, on the account's own calendar; none of days after an account was closed,
# nor of days that were beyond the API's reach already when it was added.
_EXPECTED: Final = """
    opened AS MATERIALIZED (
        SELECT a.asset_key, a.has_days, c.customer_id, c.name AS customer_name,
            greatest(a.first_day, CAST(c.added_at AT TIME ZONE c.time_zone AS date) - a.reach_days) AS first_day,
            CAST((least(:now, c.closed_at) - a.settling) AT TIME ZONE c.time_zone AS date) - 1 AS last_open,
            CASE WHEN cardinality(a.due_ages) > 0 THEN
                CAST((:now - a.allowance - a.settling) AT TIME ZONE c.time_zone AS date) - 1 END AS last_late
        FROM asset AS a CROSS JOIN customer AS c
        WHERE (CAST(:customer_ids AS text[]) IS NULL OR c.customer_id = ANY (:customer_ids))
            AND (a.has_days OR c.status = 'active' AND CAST(:first AS date) IS NULL AND CAST(:last AS date) IS NULL)
    ), expected AS MATERIALIZED (
        SELECT asset_key, customer_id, customer_name, has_days, greatest(first_day, :first) AS first_day,
            least(last_open, :last) AS last_day,
            CASE WHEN last_late IS NOT NULL THEN least(last_open, :last, last_late) END AS last_late
        FROM opened
    )
"""

# On that calendar, shifted by the time that a day takes to settle, a day has an age. It is due at the next of its due
# ages after that at which its content was extracted, and late `allowance` after that; nothing becomes due of an account
# that is closed. Of several reasons the one that came first is the reason.
_FACTS: Final = f"""
    WITH {_ASSETS}, {_EXPECTED}, due AS (
        SELECT f.ctid AS row_id, f.*, a.code_version AS current_code_version, c.name AS customer_name, c.closed_at,
            (CAST(f.logical_date + a.due_ages[1 + coalesce(width_bucket(
                CAST((f.content_at - a.settling) AT TIME ZONE c.time_zone AS date) - f.logical_date, a.due_ages), 0)]
                AS timestamp) AT TIME ZONE c.time_zone) + a.settling AS due_at,
            a.allowance,
            CASE WHEN f.last_materialization_code_version IS DISTINCT FROM a.code_version
                    AND f.materialization_event IS NOT NULL
                THEN greatest(a.code_changed_at, f.last_materialization_at) END AS code_since,
            f.materialization_event IS NOT NULL AND a.is_published AND (
                EXISTS (
                    SELECT FROM partition_state AS s
                    WHERE (s.source, s.customer_id, s.query_name, s.logical_date)
                        = (:source, f.customer_id, a.query_name, f.logical_date) AND s.status <> 'success')
                OR EXISTS (
                    SELECT FROM demotion AS d
                    WHERE (d.source, d.customer_id, d.query_name, d.logical_date)
                        = (:source, f.customer_id, a.query_name, f.logical_date))) AS is_withdrawn,
            coalesce(f.logical_date BETWEEN e.first_day AND e.last_day, NOT e.has_days) AS is_expected,
            f.logical_date BETWEEN e.first_day AND e.last_late AS is_expected_late
        FROM asset AS a
            JOIN folded_status AS f ON f.asset_key = a.asset_key
            LEFT JOIN customer AS c ON c.customer_id = f.customer_id
            LEFT JOIN expected AS e ON (e.asset_key, e.customer_id) = (f.asset_key, f.customer_id)
        WHERE (f.tenant_id, f.workspace_id) = (:tenant_id, :workspace_id)
            AND (CAST(:customer_ids AS text[]) IS NULL OR f.customer_id = ANY (:customer_ids))
            AND (CAST(:partition_key AS text) IS NULL OR f.partition_key = :partition_key)
            AND (CAST(:first AS date) IS NULL OR f.logical_date >= :first)
            AND (CAST(:last AS date) IS NULL OR f.logical_date <= :last)
    ), stale AS (
        SELECT due.*, upstream_changed_at AS upstream_since,
            CASE WHEN due_at + allowance <= :now AND (closed_at IS NULL OR due_at <= closed_at)
                THEN due_at + allowance END AS late_since
        FROM due
    ), reasoned AS (
        SELECT stale.*, least(late_since, upstream_since, code_since) AS is_stale_since,
            CASE least(late_since, upstream_since, code_since)
                WHEN late_since THEN 1 WHEN upstream_since THEN 2 WHEN code_since THEN 3 ELSE 0 END AS reason
        FROM stale
    ), facts AS (
        SELECT reasoned.*,
            (ARRAY['FRESHNESS_POLICY', 'UPSTREAM_CHANGED', 'CODE_CHANGED'])[reason] AS reason_code,
            CASE WHEN materialization_event IS NULL THEN 0 ELSE 1 END
            + CASE WHEN last_attempt_outcome = 'FAILED' AND attempt_event > materialization_event THEN 2 ELSE 0 END
            + 4 * array_position(ARRAY['SUCCEEDED', 'FAILED', 'CANCELLED'], last_attempt_outcome)
            + 16 * reason + CASE WHEN is_withdrawn THEN 64 ELSE 0 END AS code
        FROM reasoned
    )
"""

# A partition that was never attempted has no row: those are counted by what is expected, less what is there.
_SUMMARY = text(f"""
    {_FACTS}, counted AS MATERIALIZED (
        SELECT asset_key, code, count(*) AS partitions, count(*) FILTER (WHERE is_expected) AS expected,
            count(*) FILTER (WHERE is_expected_late) AS expected_late
        FROM facts GROUP BY asset_key, code
    ), there AS (
        SELECT asset_key, sum(expected) AS expected, sum(expected_late) AS expected_late
        FROM counted GROUP BY asset_key
    ), missing AS (
        SELECT e.asset_key,
            sum(CASE WHEN e.has_days THEN greatest(e.last_day - e.first_day + 1, 0) ELSE 1 END)
                - coalesce(max(there.expected), 0) AS partitions,
            sum(CASE WHEN e.has_days THEN greatest(e.last_late - e.first_day + 1, 0) ELSE 0 END)
                - coalesce(max(there.expected_late), 0) AS late
        FROM expected AS e LEFT JOIN there USING (asset_key)
        GROUP BY e.asset_key
    )
    SELECT asset_key, code, partitions FROM counted
    UNION ALL
    SELECT asset_key, {_LATE}, late FROM missing
    UNION ALL
    SELECT asset_key, 0, partitions - late FROM missing
""")

_PARTITIONS = text(f"""
    {_FACTS}, told AS (
        SELECT asset_key, partition_key, customer_id, customer_name, logical_date, code,
            last_materialization_run_id, last_materialization_at, last_materialization_code_version,
            last_attempt_run_id, last_attempt_at, last_attempt_outcome, is_stale_since, late_since, upstream_since,
            code_since, due_at, due_at + allowance AS deadline, current_code_version
        FROM facts
        UNION ALL
        SELECT e.asset_key, e.customer_id || '|' || to_char(day, 'YYYY-MM-DD'), e.customer_id, e.customer_name,
            CAST(day AS date), CASE WHEN CAST(day AS date) <= e.last_late THEN {_LATE} ELSE 0 END,
            NULL, NULL, NULL, NULL, NULL, NULL, due.late_since, due.late_since, NULL, NULL, due.at,
            due.at + a.allowance, a.code_version
        FROM expected AS e
            JOIN asset AS a USING (asset_key)
            JOIN customer AS c USING (customer_id)
            CROSS JOIN generate_series(e.first_day, e.last_day, interval '1 day') AS day
            CROSS JOIN LATERAL (
                SELECT at, CASE WHEN CAST(day AS date) <= e.last_late THEN at + a.allowance END AS late_since
                FROM (SELECT (CAST(CAST(day AS date) + a.due_ages[1] AS timestamp) AT TIME ZONE c.time_zone)
                    + a.settling AS at) AS due
            ) AS due
        WHERE e.has_days AND NOT EXISTS (
            SELECT FROM folded_status AS f
            WHERE (f.tenant_id, f.workspace_id, f.asset_key, f.partition_key)
                = (:tenant_id, :workspace_id, e.asset_key, e.customer_id || '|' || to_char(day, 'YYYY-MM-DD')))
        UNION ALL
        SELECT e.asset_key, e.customer_id, e.customer_id, e.customer_name, NULL, 0,
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, a.code_version
        FROM expected AS e JOIN asset AS a USING (asset_key)
        WHERE NOT e.has_days AND NOT EXISTS (
            SELECT FROM folded_status AS f
            WHERE (f.tenant_id, f.workspace_id, f.asset_key, f.partition_key)
                = (:tenant_id, :workspace_id, e.asset_key, e.customer_id))
    )
    SELECT * FROM told
    WHERE (CAST(:codes AS integer[]) IS NULL OR code = ANY (:codes))
        AND (CAST(:partition_key AS text) IS NULL OR partition_key = :partition_key)
        AND (CAST(:late_by AS timestamptz) IS NULL OR late_since <= :late_by)
    ORDER BY asset_key, customer_id, logical_date DESC LIMIT :limit
""")

# The cells of a customer that have a row, and which days they are of: to join them with all days takes far longer.
_MATRIX = text(f"""
    {_FACTS}, shown AS (
        SELECT customer_id, array_agg(logical_date - CAST(:first AS date)) AS offsets,
            string_agg(chr({_FIRST_CHARACTER} + code), '') AS cells
        FROM facts GROUP BY customer_id
    )
    SELECT customer_id, coalesce(c.name, customer_id) AS name, coalesce(c.status = 'active', false) AS is_active,
        shown.offsets, shown.cells, e.first_day - CAST(:first AS date) AS first_day,
        e.last_day - CAST(:first AS date) AS last_day, e.last_late - CAST(:first AS date) AS last_late
    FROM shown
        FULL JOIN expected AS e USING (customer_id)
        LEFT JOIN customer AS c USING (customer_id)
    ORDER BY 2, 1
""")

_ROWS = text(f"""
    {_FACTS}
    SELECT tenant_id, workspace_id, asset_key, partition_key,
        last_materialization_run_id, last_materialization_at, last_materialization_code_version,
        last_attempt_run_id, last_attempt_at, last_attempt_outcome,
        is_stale_since AS stale_since, reason_code AS stale_reason_code,
        customer_id, CAST(logical_date AS text) AS logical_date, row_version
    FROM facts ORDER BY asset_key, partition_key
""")

# The rows are found by where they lie: nobody folds meanwhile, so they stay there.
_SWEEP = text(f"""
    {_FACTS}
    UPDATE folded_status AS f
    SET stale_since = is_stale_since, stale_reason_code = reason_code, row_version = :row_version
    FROM facts
    WHERE f.ctid = facts.row_id
        AND (f.stale_since, f.stale_reason_code) IS DISTINCT FROM (facts.is_stale_since, facts.reason_code)
""")

_HOLD_FOLDS = text("""
    SELECT FROM status_cursor WHERE (tenant_id, workspace_id) = (:tenant_id, :workspace_id) FOR UPDATE
""")


class Facts(NamedTuple):
    """What decides how a partition is displayed, and what stands beside that."""

    is_materialized: bool
    has_failed_since: bool
    last_attempt: Outcome | None
    stale_reason: StaleReason | None
    is_withdrawn: bool

    @property
    def display(self) -> DisplayStatus:
        return display_of(
            is_materialized=self.is_materialized,
            has_failed_since=self.has_failed_since,
            is_stale=self.stale_reason is not None,
        )


def facts_of(code: int) -> Facts:
    """The statements pack them into a number, so that what they mean together is decided here alone."""
    return Facts(
        is_materialized=bool(code & 1),
        has_failed_since=bool(code & 2),
        last_attempt=_OUTCOMES[code >> 2 & 3],
        stale_reason=_REASONS[code >> 4 & 3],
        is_withdrawn=bool(code & 64),
    )


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which partitions are asked about; None leaves a choice open. A range of days leaves out what has no days."""

    assets: Sequence[TrackedAsset]
    customer_ids: Sequence[CustomerId] | None = None
    first: date | None = None
    last: date | None = None
    partition_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class MatrixRow:
    """A character a day: "-" where there is no partition, else one that `facts_of_cell` reads."""

    customer_id: CustomerId
    name: str
    is_active: bool
    cells: str


def facts_of_cell(cell: str) -> Facts:
    return facts_of(ord(cell) - _FIRST_CHARACTER)


class Statuses:
    """What is true of a workspace's partitions at a moment."""

    def __init__(self, engine: Engine, workspace: Workspace, *, source: str) -> None:
        self._engine = engine
        self._whose = {
            "tenant_id": workspace.tenant_id,
            "workspace_id": workspace.workspace_id,
            "source": source,
        }

    def summary(self, selection: Selection, *, now: datetime) -> list[tuple[str, Facts, int]]:
        """How many partitions of each asset the same is true of, those that were never attempted among them."""
        rows = self._all(_SUMMARY, selection, now)
        return [(row["asset_key"], facts_of(row["code"]), int(row["partitions"])) for row in rows if row["partitions"]]

    def partitions(
        self,
        selection: Selection,
        *,
        now: datetime,
        limit: int,
        wanted: Callable[[Facts], bool] | None = None,
        late_by: datetime | None = None,
    ) -> list[RowMapping]:
        """Those of which the wanted facts are true, or all; newest days first within an asset and customer. With
        `late_by`, those whose deadline had passed by then, also where something else had made them stale before."""
        codes = None if wanted is None else [code for code in range(_CODES) if wanted(facts_of(code))]
        return self._all(_PARTITIONS, selection, now, codes=codes, limit=limit, late_by=late_by)

    def matrix(self, asset: TrackedAsset, first: date, last: date, *, now: datetime) -> list[MatrixRow]:
        """By the customers' names. Closed accounts of which nothing is there in these days are left out."""
        found = self._all(_MATRIX, Selection(assets=[asset], first=first, last=last), now)
        days = (last - first).days + 1
        rows = [
            MatrixRow(
                customer_id=CustomerId(row["customer_id"]),
                name=row["name"],
                is_active=row["is_active"],
                cells=_cells(row, days),
            )
            for row in found
        ]
        return [row for row in rows if row.is_active or row.cells.strip(_NO_PARTITION)]

    def rows(self, selection: Selection, *, now: datetime) -> Iterator[Sequence[RowMapping]]:
        """ADR-026's rows in batches, by asset and partition; what they say of staleness is of this moment."""
        with transaction(self._engine) as connection:
            found = connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(_ROWS, self._asked(selection, now))
            yield from found.mappings().partitions()

    def sweep(self, selection: Selection, *, now: datetime) -> int:
        """Writes into the rows what is true of them now; returns of how many that was something else."""
        with transaction(self._engine) as connection:
            connection.execute(_HOLD_FOLDS, self._whose)
            swept = connection.execute(_SWEEP, {**self._asked(selection, now), "row_version": str(ULID())})
            return swept.rowcount

    def _all(self, statement: TextClause, selection: Selection, now: datetime, **more: object) -> list[RowMapping]:
        with transaction(self._engine) as connection:
            return list(connection.execute(statement, {**self._asked(selection, now), **more}).mappings())

    def _asked(self, selection: Selection, now: datetime) -> Mapping[str, Any]:
        return {
            **self._whose,
            "assets": rows_json(map(_asset_row, selection.assets)),
            "customer_ids": None if selection.customer_ids is None else list(selection.customer_ids),
            "first": selection.first,
            "last": selection.last,
            "partition_key": selection.partition_key,
            "now": now.astimezone(UTC),
        }


def _cells(row: RowMapping, days: int) -> str:
    cells = [_NO_PARTITION] * days
    if row["first_day"] is not None:
        for offset in range(row["first_day"], row["last_day"] + 1):
            is_late = row["last_late"] is not None and offset <= row["last_late"]
            cells[offset] = chr(_FIRST_CHARACTER + (_LATE if is_late else 0))
    for offset, cell in zip(row["offsets"] or (), row["cells"] or "", strict=True):
        cells[offset] = cell
    return "".join(cells)


def _asset_row(asset: TrackedAsset) -> dict[str, object]:
    return {
        "asset_key": asset.asset_key,
        "query_name": asset.query_name,
        "is_published": asset.kind is AssetKind.TABLE,
        "has_days": asset.has_days,
        "first_day": asset.first_day,
        "code_version": asset.code_version,
        "settling": f"{asset.policy.settling.total_seconds()} s",
        "allowance": f"{asset.policy.allowance.total_seconds()} s",
        "due_ages": list(asset.policy.due_ages),
        "reach_days": asset.policy.reach_days,
    }
