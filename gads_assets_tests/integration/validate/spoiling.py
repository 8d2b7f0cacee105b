"""A sealed run that is spoiled on purpose, and the few ways in which that is done."""

import gzip
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from gads_assets.catalog.gaql import parse_gaql
from gads_assets.catalog.specification import Catalog, Column, QuerySchema, Terms
from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.raw.layout import PAYLOAD, SEAL, run_path
from gads_assets.raw.sink import RawSink
from gads_assets_tests.sealed_runs import QUERY, as_line, as_lines, catalog, key, run_facts, unused_run_id

COLUMNS = (
    Column(name="customer_id", field="customer.id", type="bigint"),
    Column(name="segments_date", field="segments.date", type="date"),
    Column(name="campaign_id", field="campaign.id", type="bigint"),
    Column(name="campaign_name", field="campaign.name", type="string"),
    Column(name="campaign_advertising_channel_type", field="campaign.advertising_channel_type", type="string"),
    Column(name="campaign_labels", field="campaign.labels", type="array<string>"),
    Column(name="customer_test_account", field="customer.test_account", type="boolean"),
    Column(name="metrics_impressions", field="metrics.impressions", type="bigint"),
    Column(name="metrics_clicks", field="metrics.clicks", type="bigint"),
    Column(name="metrics_phone_calls", field="metrics.phone_calls", type="int"),
    Column(name="metrics_cost_micros", field="metrics.cost_micros", type="bigint"),
    Column(name="metrics_conversions", field="metrics.conversions", type="double"),
)
ROWS = 3


def strict_catalog() -> Catalog:
    """Every type that a column can have, a cost, and a limit that rejects."""
    schema = QuerySchema(
        query_name=QUERY,
        version="1",
        columns=COLUMNS,
        natural_key=("customer_id", "segments_date", "campaign_id"),
        terms=Terms(resource="campaign", never_above=(("metrics_clicks", "metrics_impressions"),)),
    )
    made = catalog(schema)
    query = replace(
        made.query(QUERY),
        gaql=parse_gaql(f"SELECT {', '.join(column.field for column in COLUMNS)} FROM campaign"),
    )
    return replace(made, queries={QUERY: query})


def full_row(partition: PartitionKey, campaign: int) -> dict[str, Any]:
    return {
        "customer_id": int(partition.customer_id),
        "segments_date": partition.logical_date.isoformat(),
        "campaign_id": campaign,
        "campaign_name": f"Kampagne №{campaign}",
        "campaign_advertising_channel_type": "SEARCH",
        "campaign_labels": ["spring", None],
        "customer_test_account": False,
        "metrics_impressions": campaign * 100,
        "metrics_clicks": campaign * 10,
        "metrics_phone_calls": campaign,
        "metrics_cost_micros": campaign * 1_000_000,
        "metrics_conversions": campaign / 4,
    }


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of one partition; it has `ROWS` good rows until somebody changes them."""

    sink: RawSink
    key: PartitionKey
    run_id: RunId
    run_seq: int

    @property
    def folder(self) -> Path:
        return Path(str(self.sink.root)) / run_path(self.key, self.run_id)

    @property
    def payload(self) -> Path:
        return self.folder / PAYLOAD

    @property
    def metadata(self) -> Path:
        return self.folder / SEAL

    def seal(self, *lines: bytes) -> None:
        with self.sink.begin(self.key, self.run_id) as writer:
            writer.write(as_lines(lines))
            writer.seal(run_facts(self.key, run_seq=self.run_seq))

    def beside(self, days: int = 0, customer: str | None = None) -> "Run":
        """Another good run, sealed: of the same partition, or of a neighbour of it."""
        day = date.fromordinal(self.key.logical_date.toordinal() + days)
        other = replace(self.key, logical_date=day, customer_id=CustomerId(customer or self.key.customer_id))
        run = replace(self, key=other, run_id=unused_run_id())
        run.seal(*run.lines())
        return run

    def lines(self) -> list[bytes]:
        return [as_line(full_row(self.key, campaign)) for campaign in range(1, ROWS + 1)]

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.metadata.read_bytes())
        return document

    def reseal(self, **members: object) -> None:
        """What the seal says about the payload is right again, unless `members` says otherwise."""
        document = {**self.document(), "files": [self.entry()], **members}
        self.metadata.write_text(json.dumps(document), encoding="utf-8")

    def entry(self) -> dict[str, object]:
        """What a seal should say of the payload."""
        content = self.payload.read_bytes()
        return {"name": PAYLOAD, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


Spoil = Callable[[Run], None]


def good(run: Run) -> None:
    run.seal(*run.lines())


def lines(change: Callable[[list[bytes]], list[bytes]]) -> Spoil:
    """The payload is written and sealed by the product, from lines that no extractor would give it."""
    return lambda run: run.seal(*change(run.lines()))


def row(*changes: Mapping[str, object], **everywhere: object) -> Spoil:
    """`changes` go into the rows from the first one on, `everywhere` into all of them."""

    def spoil(run: Run) -> None:
        rows = [full_row(run.key, campaign) for campaign in range(1, ROWS + 1)]
        for target, change in zip(rows, [*changes, *({} for _ in rows)], strict=False):
            target |= {**everywhere, **change}
        run.seal(*map(as_line, rows))

    return spoil


def text(old: str, new: str | bytes) -> Spoil:
    """In the first line, whatever JSON says of it."""

    def change(lines: list[bytes]) -> list[bytes]:
        replaced = lines[0].replace(old.encode(), new if isinstance(new, bytes) else new.encode(), 1)
        assert replaced != lines[0], old
        return [replaced, *lines[1:]]

    return lines(change)


def damage(change: Callable[[bytes], bytes]) -> Spoil:
    """The payload's bytes are changed after the seal."""

    def spoil(run: Run) -> None:
        good(run)
        run.payload.write_bytes(change(run.payload.read_bytes()))

    return spoil


def resealed(change: Callable[[bytes], bytes], **members: object) -> Spoil:
    """The payload's bytes are changed, and the seal vouches for them."""

    def spoil(run: Run) -> None:
        damage(change)(run)
        run.reseal(**members)

    return spoil


def members(**changes: object) -> Spoil:
    """The payload is good; the seal says something else."""

    def spoil(run: Run) -> None:
        good(run)
        run.reseal(**changes)

    return spoil


def without_member(name: str) -> Spoil:
    def spoil(run: Run) -> None:
        good(run)
        run.metadata.write_text(json.dumps({key: value for key, value in run.document().items() if key != name}))

    return spoil


def file_entry(**changes: object) -> Spoil:
    """One member of the seal's only file says something else."""

    def spoil(run: Run) -> None:
        good(run)
        run.reseal(files=[{**run.document()["files"][0], **changes}])

    return spoil


def metadata(change: Callable[[bytes], bytes]) -> Spoil:
    def spoil(run: Run) -> None:
        good(run)
        run.metadata.write_bytes(change(run.metadata.read_bytes()))

    return spoil


def seal_of(other: Callable[[Run], Run]) -> Spoil:
    """The seal of another run lies in this one's place."""

    def spoil(run: Run) -> None:
        good(run)
        run.metadata.write_bytes(other(run).metadata.read_bytes())

    return spoil


def afterwards(change: Callable[[Run], object]) -> Spoil:
    """Something else is done to the directory of a good run."""

    def spoil(run: Run) -> None:
        good(run)
        change(run)

    return spoil


def partition(number: int) -> PartitionKey:
    return key(day=date.fromordinal(date(2020, 1, 1).toordinal() + number).isoformat())


def compressed(*content: bytes) -> bytes:
    return b"".join(gzip.compress(part, mtime=0) for part in content)
