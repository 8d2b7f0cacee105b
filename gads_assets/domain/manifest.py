"""metadata.json: the seal of a run directory, and everything later steps need to know about the run."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime
from typing import Any, Final

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

_LARGEST_RUN_SEQ: Final = 2**63 - 1
_SHA256: Final = re.compile(r"[0-9a-f]{64}\Z")
# Spark reads by name: it passes over `_x` and `.x`, takes `*` for a pattern and anything but .gz for plain text.
_FILE_NAME: Final = re.compile(r"part-[0-9]{5}\.jsonl\.gz\Z")


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


_MEMBERS = frozenset(field.name for field in fields(RunManifest))
_FILE_MEMBERS = frozenset(field.name for field in fields(PayloadFile))


class ManifestError(ValueError):
    """metadata.json is not a seal; the raw sink turns this into an error that names the run."""


def manifest_to_json(manifest: RunManifest) -> bytes:
    document = {"manifest_version": MANIFEST_VERSION, **asdict(manifest)}
    return json.dumps(document, default=_encode, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def manifest_from_json(content: bytes) -> RunManifest:
    """Strict: a missing, unknown or mistyped member is an error, never a default."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"metadata.json is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ManifestError("metadata.json is not an object")
    version = document.pop("manifest_version", None)
    if version is True or version != MANIFEST_VERSION:
        raise ManifestError(f"metadata.json has manifest_version {version!r}; this code reads {MANIFEST_VERSION}")
    if document.keys() != _MEMBERS:
        different = ", ".join(sorted(document.keys() ^ _MEMBERS))
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
    for name, value in document.items():
        if name not in {"run_seq", "record_count", "files"} and not isinstance(value, str):
            raise TypeError(f"{name} must be text")
    _require_count("record_count", document["record_count"])
    _require_count("run_seq", document["run_seq"])
    if not 1 <= document["run_seq"] <= _LARGEST_RUN_SEQ:
        raise ValueError(f"run_seq must be from 1 to {_LARGEST_RUN_SEQ}, as the database gives them")
    document["files"] = _files(document["files"])
    for name in ("logical_date", "window_start", "window_end"):
        document[name] = parse_logical_date(document[name])
    for name in ("extraction_started_at", "extraction_finished_at"):
        document[name] = _moment(name, document[name])
    document["customer_id"] = parse_customer_id(document["customer_id"])
    document["run_id"] = parse_run_id(document["run_id"])
    manifest = RunManifest(**document)
    _require_consistent(manifest)
    return manifest


def _require_consistent(manifest: RunManifest) -> None:
    for name in ("gaql", "schema_version", "api_version", "api_origin", "account_time_zone", "account_currency"):
        if not getattr(manifest, name):
            raise ValueError(f"{name} must not be empty")
    if hashlib.sha256(manifest.gaql.encode()).hexdigest() != manifest.gaql_sha256:
        raise ValueError("gaql_sha256 is not the digest of gaql")
    if not manifest.window_start <= manifest.logical_date <= manifest.window_end:
        raise ValueError(f"window_start to window_end does not hold {manifest.logical_date.isoformat()}")
    if manifest.extraction_finished_at < manifest.extraction_started_at:
        raise ValueError("extraction_finished_at is before extraction_started_at")


def _files(items: object) -> tuple[PayloadFile, ...]:
    if not isinstance(items, list) or not items:
        raise TypeError("files must be a list of at least one file")
    files = tuple(map(_file, items))
    if len({file.name for file in files}) < len(files):
        raise ValueError("files names a file twice")
    return files


def _file(item: object) -> PayloadFile:
    if not isinstance(item, dict) or item.keys() != _FILE_MEMBERS:
        raise TypeError("each of files must have name, bytes and sha256, and nothing else")
    _require_count("files.bytes", item["bytes"])
    for name, pattern, rule in (
        ("name", _FILE_NAME, "name plain files, like part-00000.jsonl.gz"),
        ("sha256", _SHA256, "have a SHA-256 each, of 64 digits"),
    ):
        if not isinstance(item[name], str) or not pattern.match(item[name]):
            raise ValueError(f"files must {rule}, not {item[name]!r}")
    return PayloadFile(**item)


def _require_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} must be a whole number, zero or more")


def _moment(name: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} must be a time in ISO 8601, not {text!r}") from None
    if moment.tzinfo is None:
        raise ValueError(f"{name} must be a time with its zone, not {text!r}")
    return moment
