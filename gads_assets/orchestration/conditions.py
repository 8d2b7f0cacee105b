"""What is wrong beyond single runs, as checks of the asset that tells the status of partitions."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Final

import dagster as dg
from sqlalchemy import RowMapping

from gads_assets.catalog.api_versions import describe_sunset, is_near_sunset
from gads_assets.catalog.specification import Catalog
from gads_assets.domain.alerting import AlertKind, Condition
from gads_assets.domain.keys import PartitionKey, partition_key_from_label
from gads_assets.domain.roles import Role
from gads_assets.orchestration.workplace import Workplace
from gads_assets.status.deriving import Facts, Selection, Statuses
from gads_assets.status.tracking import AssetKind, TrackedAsset

_TERMINAL: Final = "no_terminal_failures"
_STALE: Final = "nothing_stale_beyond_its_limit"
_API_VERSION: Final = "api_version_is_supported"
_LISTED: Final = 100
_MOST: Final = 50_000


def stale_conditions(
    here: Workplace, statuses: Statuses, assets: Sequence[TrackedAsset], *, now: datetime
) -> Iterator[Condition]:
    """What an account lacked before it was registered is nobody's fault, and what an operator wants left alone is no
    news."""
    first_days = here.customers_as(Role.OPERATOR).first_days()
    marked = here.alerts.marked()
    limits = {
        asset.asset_key: here.catalog.query(asset.query_name).alert_after
        for asset in assets
        if asset.kind is AssetKind.TABLE and asset.query_name
    }
    tables = [asset for asset in assets if asset.asset_key in limits]
    late_by = now - min(limits.values())
    for selection, wanted in (
        (Selection(assets=tables, first=min(first_days.values(), default=now.date())), is_missing),
        (Selection(assets=tables), is_there),
    ):
        for row in statuses.partitions(selection, now=now, wanted=wanted, late_by=late_by, limit=_MOST):
            key, since = key_of(row, assets, source=here.catalog.source), row["late_since"]
            first_day = first_days.get(key.customer_id)
            is_ours = first_day is not None and (wanted is is_there or key.logical_date >= first_day)
            if is_ours and now - since >= limits[row["asset_key"]] and key not in marked:
                yield Condition(
                    kind=AlertKind.STALE,
                    key=key,
                    reason=f"it should have been current by {since.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
                )


def is_missing(facts: Facts) -> bool:
    return not facts.is_materialized


def is_there(facts: Facts) -> bool:
    return facts.is_materialized


def key_of(row: RowMapping, assets: Sequence[TrackedAsset], *, source: str) -> PartitionKey:
    query = next(asset.query_name for asset in assets if asset.asset_key == row["asset_key"])
    return partition_key_from_label(row["partition_key"], source=source, query_name=query or "")


def condition_checks(asset: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    return [
        dg.AssetCheckSpec(
            _TERMINAL,
            asset=asset,
            description="No partition waits for an operator: none was rejected, or not extracted, until no more is "
            "tried. `gads state terminal list` shows them.",
        ),
        dg.AssetCheckSpec(
            _STALE,
            asset=asset,
            description="No published day has been out of date for longer than its query's alert_after_hours.",
        ),
        dg.AssetCheckSpec(
            _API_VERSION,
            asset=asset,
            description="Google answers the catalog's API version for another 60 days at least.",
        ),
    ]


def condition_results(
    catalog: Catalog, waiting: Sequence[Condition], stale: Sequence[Condition], *, today: date
) -> list[dg.AssetCheckResult]:
    return [
        _of_partitions(_TERMINAL, waiting, "wait for an operator"),
        _of_partitions(_STALE, stale, "have been stale for too long"),
        dg.AssetCheckResult(
            check_name=_API_VERSION,
            passed=not is_near_sunset(catalog.api_version, today),
            severity=dg.AssetCheckSeverity.WARN,
            description=describe_sunset(catalog.api_version, today),
        ),
    ]


def _of_partitions(check_name: str, conditions: Sequence[Condition], what: str) -> dg.AssetCheckResult:
    listed = sorted(conditions, key=lambda each: each.key)[:_LISTED]
    return dg.AssetCheckResult(
        check_name=check_name,
        passed=not conditions,
        description=f"{len(conditions)} partitions {what}",
        metadata={
            "partitions": dg.MetadataValue.int(len(conditions)),
            "first": dg.MetadataValue.table(
                [
                    dg.TableRecord(
                        {
                            "query": each.key.query_name,
                            "partition": each.key.label,
                            "kind": each.kind.value,
                            "reason": each.reason,
                        }
                    )
                    for each in listed
                ],
                schema=dg.TableSchema([dg.TableColumn(name) for name in ("query", "partition", "kind", "reason")]),
            ),
        },
    )
