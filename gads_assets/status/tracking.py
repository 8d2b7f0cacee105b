"""The assets whose partitions are followed, as values: what each is made of, and when it is current."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum

from gads_assets.domain.partition_status import Downstream


class AssetKind(StrEnum):
    RAW = "raw"
    """Sealed extractions of a query."""

    TABLE = "table"
    """What is published of a query."""

    MART = "mart"
    """Made of published tables."""


@dataclass(frozen=True, kw_only=True)
class FreshnessPolicy:
    """A day opens `settling` after the account's midnight. It is due at each of the `due_ages`, at the first when it
    opens; what is there passes for current until `allowance` later. Without ages a day never becomes late. Where the
    API has a limit, a day can be asked for until it is `reach_days` before the account's today."""

    settling: timedelta
    allowance: timedelta = timedelta()
    due_ages: tuple[int, ...] = ()
    reach_days: int | None = None


@dataclass(frozen=True, kw_only=True)
class TrackedAsset:
    """`receipt` is the metadata that every materialization of ours carries, and none that somebody reports by hand.
    Without days an asset has a partition a customer."""

    asset_key: str
    title: str
    kind: AssetKind
    query_name: str | None
    first_day: date
    has_days: bool = True
    code_version: str
    receipt: str
    upstream: tuple[str, ...] = ()
    policy: FreshnessPolicy


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Whose partitions they are."""

    tenant_id: str
    workspace_id: str


def downstream_of(assets: Iterable[TrackedAsset]) -> Downstream:
    known: Sequence[TrackedAsset] = [*assets]
    consumers: dict[str, list[str]] = defaultdict(list)
    for asset in known:
        for upstream in asset.upstream:
            consumers[upstream].append(asset.asset_key)
    return Downstream(consumers, by_customer=[asset.asset_key for asset in known if not asset.has_days])
