"""metadata.json: the seal of a run directory, and everything later steps need to know about the run."""

import json
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime
from typing import Any

from gads_assets.domain.keys import (
    CustomerId,
    PartitionKey,
    RunId,
    parse_customer_id,
    parse_logical_date,
    parse_run_id,
)
from gads_assets.errors import PartitionKeyError

MANIFEST_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class PayloadFile:
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class RunManifest:
    """One sealed extraction of one customer-day.

    `run_seq` orders extractions: the higher one is newer, whatever the clocks say.
    """

    source: str
    customer_id: CustomerId
    query_name: str
    logical_date: date
    run_id: RunId
    run_seq: int
    schema_version: str
    record_count: int
    gaql: str
    gaql_sha256: str
    api_version: str
    api_origin: str
    account_time_zone: str
    account_currency: str
    window_start: date
    window_end: date
    extraction_started_at: datetime
    extraction_finished_at: datetime
    code_version: str
    files: tuple[PayloadFile, ...]

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(
            source=self.source,
            customer_id=self.customer_id,
            query_name=self.query_name,
            logical_date=self.logical_date,
        )


class ManifestError(ValueError):
    """metadata.json is not a seal; the raw sink turns this into an error that names the run."""


def manifest_to_json(manifest: RunManifest) -> bytes:
    document = {"manifest_version": MANIFEST_VERSION, **asdict(manifest)}
    return json.dumps(document, default=_encode, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def manifest_from_json(content: bytes) -> RunManifest:
    """Strict: a missing, unknown or mistyped member is an error, never a default."""
    try:
        document = json.loads(content)
    except ValueError as error:
        raise ManifestError(f"metadata.json is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ManifestError("metadata.json is not an object")
    version = document.pop("manifest_version", None)
    if version != MANIFEST_VERSION:
        raise ManifestError(f"metadata.json has manifest_version {version!r}; this code reads {MANIFEST_VERSION}")
    expected = {field.name for field in fields(RunManifest)}
    if document.keys() != expected:
        different = ", ".join(sorted(document.keys() ^ expected))
        raise ManifestError(f"metadata.json has missing or unknown members: {different}")
    try:
        return _decode(document)
    except (TypeError, ValueError, PartitionKeyError) as error:
        raise ManifestError(f"metadata.json has a member of the wrong kind: {error}") from None


def _encode(value: object) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no place in metadata.json")


def _decode(document: dict[str, Any]) -> RunManifest:
    counts = {"run_seq", "record_count"}
    for name, value in document.items():
        if name in counts:
            _require_count(name, value)
        elif name != "files" and not isinstance(value, str):
            raise TypeError(f"{name} must be text")
    document["files"] = tuple(PayloadFile(**item) for item in document["files"])
    for file in document["files"]:
        _require_count("files.bytes", file.bytes)
        if not isinstance(file.name, str) or not isinstance(file.sha256, str) or "/" in file.name:
            raise ValueError("files must name plain files with a SHA-256 each")
    for name in ("logical_date", "window_start", "window_end"):
        document[name] = parse_logical_date(document[name])
    for name in ("extraction_started_at", "extraction_finished_at"):
        document[name] = _moment(name, document[name])
    document["customer_id"] = parse_customer_id(document["customer_id"])
    document["run_id"] = parse_run_id(document["run_id"])
    return RunManifest(**document)


def _require_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} must be a whole number, zero or more")


def _moment(name: str, text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{name} must be a time with its zone")
    return moment
