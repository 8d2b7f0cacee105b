"""What Dagster's pages show about a query, a sealed run, a verdict and a published partition."""

from collections.abc import Mapping
from datetime import date, datetime

import dagster as dg
import pyarrow as pa

from gads_assets.catalog.gaql_query import print_gaql
from gads_assets.catalog.specification import QuerySpecification
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.pointer import Pointer
from gads_assets.validate.recording import Judged
from gads_assets.warehouse.columns import KEY

Metadata = dict[str, dg.MetadataValue]

_PREVIEW_ROWS = 5


def query_metadata(specification: QuerySpecification) -> Metadata:
    return {
        "gaql": dg.MetadataValue.md(f"```sql\n{print_gaql(specification.gaql)}\n```"),
        "schema_version": dg.MetadataValue.text(specification.schema.version),
        "natural_key": dg.MetadataValue.text(", ".join(specification.schema.natural_key)),
    }


def raw_columns(specification: QuerySpecification) -> Metadata:
    columns = [dg.TableColumn(column.name, column.type, column.field) for column in specification.schema.columns]
    return {"dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns))}


def published_columns(specification: QuerySpecification) -> Metadata:
    columns = [dg.TableColumn(column.name, column.type) for column in KEY]
    columns += [
        dg.TableColumn(column.name, column.type, column.field) for column in specification.schema.report_columns
    ]
    return {"dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns))}


def sealed_run(manifest: RunManifest) -> Metadata:
    return {
        "run_id": dg.MetadataValue.text(manifest.run_id),
        "run_seq": dg.MetadataValue.int(manifest.run_seq),
        "schema_version": dg.MetadataValue.text(manifest.schema_version),
        "dagster/row_count": dg.MetadataValue.int(manifest.record_count),
        "bytes": dg.MetadataValue.int(sum(file.bytes for file in manifest.files)),
        "window": dg.MetadataValue.text(f"{manifest.window_start} to {manifest.window_end}"),
        "account_time_zone": dg.MetadataValue.text(manifest.account_time_zone),
        "api": dg.MetadataValue.text(f"{manifest.api_version} ({manifest.api_origin})"),
    }


def verdict(judged: Judged) -> Metadata:
    rules = [
        dg.TableRecord({"rule": finding.rule.value, "passed": finding.passed, "detail": finding.detail})
        for finding in judged.verdict.findings
    ]
    return {
        "rules": dg.MetadataValue.table(rules),
        "outcome": dg.MetadataValue.text(judged.recorded.outcome.value),
        "attempt": dg.MetadataValue.int(judged.recorded.attempt_number),
        "state": dg.MetadataValue.text(judged.recorded.state.status.value),
        "state_version": dg.MetadataValue.int(judged.recorded.state.version),
        **({"run_id": dg.MetadataValue.text(judged.manifest.run_id)} if judged.manifest else {}),
    }


def published_partition(pointer: Pointer, pointer_version: int, preview: pa.Table | None) -> Metadata:
    shown: Metadata = {
        "run_id": dg.MetadataValue.text(pointer.run_id),
        "schema_version": dg.MetadataValue.text(pointer.schema_version),
        "dagster/row_count": dg.MetadataValue.int(pointer.record_count),
        "pointer_version": dg.MetadataValue.int(pointer_version),
        "state_version": dg.MetadataValue.int(pointer.state_version),
        "stage_id": dg.MetadataValue.text(pointer.stage_id),
        "content_digest": dg.MetadataValue.text(pointer.content_digest),
        "loaded_at": dg.MetadataValue.timestamp(pointer.loaded_at),
    }
    if preview is not None and preview.num_rows:
        records = [dg.TableRecord(_plain(row)) for row in preview.slice(0, _PREVIEW_ROWS).to_pylist()]
        shown["preview"] = dg.MetadataValue.table(records)
    return shown


def _plain(row: Mapping[str, object]) -> dict[str, str | int | float | bool | None]:
    """A table cell holds a plain value; the key is in the page's heading already."""
    keys = {column.name for column in KEY}
    return {
        name: value if isinstance(value, str | int | float | bool | None) else _text(value)
        for name, value in row.items()
        if name not in keys
    }


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, date | datetime) else str(value)
