"""Sealed runs made by hand, for tests that start after extraction."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from ulid import ULID

from gads_assets.catalog.gaql import parse_gaql
from gads_assets.catalog.specification import Catalog, Column, QuerySchema, QuerySpecification, Terms
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.manifest import PayloadFile, RunManifest
from gads_assets.domain.pointer import Authority
from gads_assets.domain.verdict import Verdict
from gads_assets.raw.sink import RawSink
from gads_assets.raw.writing import RunFacts

QUERY = "campaign"
GAQL = (
    "SELECT customer.id, segments.date, campaign.id, campaign.name, metrics.clicks, metrics.conversions FROM campaign"
)
COLUMNS = (
    Column(name="customer_id", field="customer.id", type="bigint"),
    Column(name="segments_date", field="segments.date", type="date"),
    Column(name="campaign_id", field="campaign.id", type="bigint"),
    Column(name="campaign_name", field="campaign.name", type="string"),
    Column(name="metrics_clicks", field="metrics.clicks", type="bigint"),
    Column(name="metrics_conversions", field="metrics.conversions", type="double"),
)

MANIFEST = RunManifest(
    source="google_ads",
    customer_id=CustomerId("1234567890"),
    query_name="campaign",
    logical_date=date(2024, 6, 1),
    run_id=RunId("01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    run_seq=7,
    schema_version="1",
    record_count=3,
    gaql="SELECT campaign.id FROM campaign",
    gaql_sha256=hashlib.sha256(b"SELECT campaign.id FROM campaign").hexdigest(),
    api_version="v26",
    api_origin="emulator",
    account_time_zone="Europe/Berlin",
    account_currency="EUR",
    window_start=date(2024, 6, 1),
    window_end=date(2024, 6, 7),
    extraction_started_at=datetime(2024, 6, 9, 4, tzinfo=UTC),
    extraction_finished_at=datetime(2024, 6, 9, 4, 1, tzinfo=UTC),
    code_version="abc",
    files=(PayloadFile(name="part-00000.jsonl.gz", bytes=120, sha256="1" * 64),),
)


def schema(version: str = "1", columns: Sequence[Column] = COLUMNS) -> QuerySchema:
    return QuerySchema(
        query_name=QUERY,
        version=version,
        columns=tuple(columns),
        natural_key=("campaign_id",),
        terms=Terms(resource="campaign"),
    )


def catalog(current: QuerySchema | None = None, *older: QuerySchema) -> Catalog:
    current = current or schema()
    specification = QuerySpecification(
        name=QUERY,
        description="campaigns by day",
        gaql=parse_gaql(GAQL),
        schema=current,
        start_date=date(2024, 1, 1),
        settling_delay=timedelta(hours=3),
    )
    return Catalog(
        source="google_ads",
        api_version="v26",
        queries={QUERY: specification},
        schemas={(QUERY, version.version): version for version in (current, *older)},
    )


def key(customer: str = "1234567890", day: str = "2024-06-01") -> PartitionKey:
    return PartitionKey(
        source="google_ads",
        customer_id=CustomerId(customer),
        query_name=QUERY,
        logical_date=date.fromisoformat(day),
    )


def row(partition: PartitionKey, campaign: int, **changes: object) -> dict[str, object]:
    return {
        "customer_id": int(partition.customer_id),
        "segments_date": partition.logical_date.isoformat(),
        "campaign_id": campaign,
        "campaign_name": f"Kampagne №{campaign}",
        "metrics_clicks": campaign * 10,
        "metrics_conversions": campaign / 4,
        **changes,
    }


def as_line(row: Mapping[str, object]) -> bytes:
    """As the extractor writes rows, and also what it never would."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def as_lines(documents: Iterable[bytes]) -> bytes:
    return b"".join(document + b"\n" for document in documents)


def unused_run_id() -> RunId:
    return RunId(str(ULID()))


def run_facts(
    partition: PartitionKey,
    *,
    run_seq: int = 1,
    schema_version: str = "1",
    extracted_at: datetime = datetime(2024, 7, 1, tzinfo=UTC),
) -> RunFacts:
    return RunFacts(
        run_seq=run_seq,
        schema_version=schema_version,
        gaql=GAQL,
        api_version="v26",
        api_origin="emulator",
        account_time_zone="Europe/Berlin",
        account_currency="EUR",
        window_start=partition.logical_date,
        window_end=partition.logical_date,
        extraction_started_at=extracted_at,
        extraction_finished_at=extracted_at,
        code_version="test",
    )


def authority(run: RunManifest, verdict: Verdict, *, state_version: int = 1) -> Authority:
    """What a loader would be told about a run that this verdict accepted."""
    assert verdict.accepted, verdict.error_message
    return Authority(
        key=run.key,
        run_id=run.run_id,
        schema_version=run.schema_version,
        record_count=run.record_count,
        content_digest=str(verdict.content),
        state_version=state_version,
    )


def seal(
    sink: RawSink,
    partition: PartitionKey,
    rows: Sequence[Mapping[str, object]],
    *,
    run_seq: int = 1,
    schema_version: str = "1",
    extracted_at: datetime = datetime(2024, 7, 1, tzinfo=UTC),
) -> RunManifest:
    with sink.begin(partition, unused_run_id()) as writer:
        writer.write(as_lines(map(as_line, rows)))
        return writer.seal(
            run_facts(partition, run_seq=run_seq, schema_version=schema_version, extracted_at=extracted_at)
        )
