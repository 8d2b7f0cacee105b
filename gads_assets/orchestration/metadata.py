"""What Dagster's pages show about a query, a sealed run, a verdict and a published partition."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Final
from urllib.parse import urlencode

import dagster as dg
import pyarrow as pa

from gads_assets.catalog.gaql_query import GaqlQuery, print_gaql
from gads_assets.catalog.specification import Column, QuerySchema, QuerySpecification
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.pointer import Pointer
from gads_assets.domain.verdict import Finding
from gads_assets.validate.recording import Judged
from gads_assets.warehouse.columns import KEY
from gads_assets.warehouse.marts.tables import Mart

Metadata = dict[str, dg.MetadataValue]

_LISTED: Final = 500

_KEY_DESCRIPTIONS: Final = {
    "customer_id": "the account",
    "logical_date": "the day, in the account's own time zone",
    "run_id": "the extraction that the row came from",
    "schema_version": "the version of the columns that it was extracted under",
}


def status_words(key: dg.AssetKey, status_url: str) -> str:
    """For a description, which Dagster shows as Markdown."""
    return f"[Which partitions are current, and why not the others]({_status_page(key, status_url)})"


def status_link(key: dg.AssetKey, status_url: str) -> Metadata:
    return {"status_page": dg.MetadataValue.url(_status_page(key, status_url))}


def _status_page(key: dg.AssetKey, status_url: str) -> str:
    return f"{status_url}/#{urlencode({'asset': key.to_user_string()})}"


def query_metadata(specification: QuerySpecification) -> Metadata:
    return {
        "gaql": dg.MetadataValue.md(f"```sql\n{_shown_gaql(specification.gaql)}\n```"),
        "schema_version": dg.MetadataValue.text(specification.schema.version),
        "natural_key": dg.MetadataValue.text(", ".join(specification.schema.natural_key)),
    }


def raw_columns(specification: QuerySpecification) -> Metadata:
    return _column_schema(specification.schema.columns, specification.schema)


def published_columns(specification: QuerySpecification) -> Metadata:
    return _column_schema((*KEY, *specification.schema.report_columns), specification.schema)


def mart_columns(mart: Mart) -> Metadata:
    shown = [dg.TableColumn(each.name, each.type, description=each.description) for each in mart.columns]
    return {"dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(shown))}


def refreshed_account_day(inputs: Sequence[Mapping[str, object]]) -> Metadata:
    """What an account-day was made of: a row of its lineage for each query."""
    made_of = {
        str(each["query_name"]): {"run_id": each["run_id"], "schema_version": each["schema_version"]} for each in inputs
    }
    return {"inputs": dg.MetadataValue.json(made_of), "dagster/row_count": dg.MetadataValue.int(len(inputs))}


def refreshed_customer(versions: Mapping[str, int]) -> Metadata:
    """What a customer's freshness was made of: every pointer of each query, as of a version of its table."""
    return {
        "pointer_versions": dg.MetadataValue.json(dict(versions)),
        "dagster/row_count": dg.MetadataValue.int(len(versions)),
    }


def sealed_run(manifest: RunManifest) -> Metadata:
    return {
        "run_id": dg.MetadataValue.text(manifest.run_id),
        "run_seq": dg.MetadataValue.int(manifest.run_seq),
        "schema_version": dg.MetadataValue.text(manifest.schema_version),
        "dagster/row_count": dg.MetadataValue.int(manifest.record_count),
        "extracted_at": dg.MetadataValue.timestamp(manifest.extraction_finished_at),
        "bytes": dg.MetadataValue.int(sum(file.bytes for file in manifest.files)),
        "window": dg.MetadataValue.text(f"{manifest.window_start} to {manifest.window_end}"),
        "account_time_zone": dg.MetadataValue.text(manifest.account_time_zone),
        "api": dg.MetadataValue.text(f"{manifest.api_version} ({manifest.api_origin})"),
    }


def verdict(judged: Judged) -> Metadata:
    findings = judged.verdict.findings
    return {
        "rules": dg.MetadataValue.table(
            [
                dg.TableRecord(
                    {
                        "rule": found.rule.value,
                        "passed": found.passed,
                        "severity": found.rule.severity.value,
                        "detail": found.detail,
                    }
                )
                # What failed comes first: a person looks for that, and the table is taller than the page.
                for found in sorted(findings, key=lambda found: found.passed)
            ]
        ),
        **_folded_samples(findings),
        "outcome": dg.MetadataValue.text(judged.recorded.outcome.value),
        "attempt": dg.MetadataValue.int(judged.recorded.attempt_number),
        "state": dg.MetadataValue.text(judged.recorded.state.status.value),
        "state_version": dg.MetadataValue.int(judged.recorded.state.version),
        **({"run_id": dg.MetadataValue.text(judged.manifest.run_id)} if judged.manifest else {}),
    }


def finding(found: Finding) -> Metadata:
    return _samples([found])


def findings(answers: Mapping[PartitionKey, Finding], broken: Mapping[PartitionKey, Finding]) -> Metadata:
    """For one partition its finding; for many, how many broke the rule, and which."""
    if len(answers) == 1:
        return _samples([*answers.values()])
    shown: Metadata = {
        "partitions": dg.MetadataValue.int(len(answers)),
        "broken": dg.MetadataValue.int(len(broken)),
    }
    if broken:
        shown["broken_partitions"] = dg.MetadataValue.table(
            [
                dg.TableRecord({"partition": key.label, "detail": found.detail})
                for key, found in sorted(broken.items())[:_LISTED]
            ]
        )
    return shown


def _folded_samples(findings: Iterable[Finding]) -> Metadata:
    """Behind a button: beside the partitions there is no room for rows, which the rule's own check shows as a table."""
    samples = {found.rule.value: list(found.samples) for found in findings if found.samples}
    return {"sample_rows": dg.MetadataValue.json(samples)} if samples else {}


def _samples(broken: Iterable[Finding]) -> Metadata:
    rows = [dg.TableRecord({"rule": found.rule.value, "row": sample}) for found in broken for sample in found.samples]
    return {"sample_rows": dg.MetadataValue.table(rows)} if rows else {}


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
        records = [dg.TableRecord(_plain(row)) for row in preview.to_pylist()]
        shown["preview"] = dg.MetadataValue.table(records)
    return shown


def _column_schema(columns: Iterable[Column], schema: QuerySchema) -> Metadata:
    shown = [
        dg.TableColumn(
            column.name,
            column.type,
            description=_description(column),
            constraints=dg.TableColumnConstraints(nullable=False, other=["natural key"])
            if column.name in schema.natural_key
            else None,
        )
        for column in columns
    ]
    return {"dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(shown))}


def _description(column: Column) -> str:
    if column in KEY:
        return _KEY_DESCRIPTIONS[column.name]
    if column.name.endswith("_micros"):
        return f"{column.field}, in millionths of the account's currency"
    return column.field


def _shown_gaql(query: GaqlQuery) -> str:
    """One field a line; the printed query is wider than any page."""
    rest = print_gaql(query).removeprefix(f"SELECT {', '.join(query.select)} ")
    return "SELECT\n  " + ",\n  ".join(query.select) + f"\n{rest}"


def _plain(row: Mapping[str, object]) -> dict[str, str | int | float | bool | None]:
    """A table cell holds a plain value; the partition and its run are beside the table already."""
    keys = {"segments_date", *(column.name for column in KEY)}
    return {
        name: value if isinstance(value, str | int | float | bool | None) else _text(value)
        for name, value in row.items()
        if name not in keys
    }


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, date | datetime) else str(value)
