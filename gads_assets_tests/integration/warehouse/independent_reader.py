"""The published rows of one query, by somebody who has docs/reading.md, deltalake and nothing of ours."""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

CURRENT = """
    SELECT customer_id, logical_date, stage_id, schema_version, record_count, stage_commit
    FROM (
        SELECT *, row_number() OVER (
            PARTITION BY customer_id, logical_date ORDER BY state_version DESC, stage_id DESC
        ) AS place
        FROM pointers
    ) AS placed
    WHERE place = 1 AND status = 'active'
"""


def read(query: Path) -> list[dict[str, Any]]:
    """`query` is the folder <warehouse>/<source>/<query>."""
    pointers = DeltaTable(query / "pointers")
    shown = _answer(CURRENT, pointers=pointers)
    rows: list[dict[str, Any]] = []
    for version in {pointer["schema_version"] for pointer in shown if pointer["record_count"]}:
        stage = DeltaTable(query / f"stage_v{version}")
        named = [pointer for pointer in shown if pointer["schema_version"] == version]
        assert all(stage.version() >= pointer["stage_commit"] for pointer in named)
        found = _answer(
            f"SELECT stage.*, '{version}' AS schema_version FROM stage JOIN ({CURRENT}) AS shown "
            "ON stage.customer_id = shown.customer_id AND stage.logical_date = shown.logical_date "
            f"AND stage.stage_id = shown.stage_id WHERE shown.schema_version = '{version}'",
            pointers=pointers,
            stage=stage,
        )
        assert len(found) == sum(pointer["record_count"] for pointer in named)
        rows += [{name: value for name, value in row.items() if name != "stage_id"} for row in found]
    return rows


def _answer(sql: str, **tables: DeltaTable) -> list[dict[str, Any]]:
    builder = QueryBuilder()
    for name, table in tables.items():
        builder.register(name, table)
    answer: list[dict[str, Any]] = pa.RecordBatchReader.from_stream(builder.execute(sql)).read_all().to_pylist()
    return answer


if __name__ == "__main__":
    ours = [name for name in sys.modules if name.startswith("gads")]
    answers = {query.name: read(query) for query in Path(sys.argv[1]).iterdir()}
    sys.stdout.write(json.dumps({"ours": ours, "rows": answers}, default=str))
