"""Which fields of a query go together, as far as this emulator knows: resources with few metrics, and conversions."""

from collections.abc import Iterable
from dataclasses import dataclass

from gads_assets.catalog.conversions import uncounted_by_conversion
from gads_assets.catalog.gaql_query import GaqlQuery
from gads_assets.emulator.failures import query_refused


@dataclass(frozen=True, kw_only=True)
class Offer:
    """All the metrics and segments that may be asked for from a resource."""

    metrics: frozenset[str] = frozenset()
    segments: frozenset[str] = frozenset()


# The rest have so many that only Google can list them.
OFFERS = {
    **dict.fromkeys(("customer_client", "change_event", "change_status"), Offer()),
    "click_view": Offer(
        metrics=frozenset({"clicks"}),
        segments=frozenset({"ad_network_type", "click_type", "date", "device", "month_of_year", "slot"}),
    ),
    "conversion_action": Offer(
        metrics=frozenset(
            {
                "all_conversions",
                "all_conversions_value",
                "conversion_last_conversion_date",
                "conversion_last_received_request_date_time",
            }
        ),
        segments=frozenset({"date", "month", "quarter", "week"}),
    ),
}


def require_compatible(query: GaqlQuery) -> None:
    """Raises RefusedCallError for fields that exist and may not be asked for together."""
    if offer := OFFERS.get(query.resource):
        _require_offered(query, "metrics", offer.metrics)
        _require_offered(query, "segments", offer.segments)
    if pair := uncounted_by_conversion(query):
        raise query_refused(
            "PROHIBITED_SEGMENT_WITH_METRIC_IN_SELECT_OR_WHERE_CLAUSE",
            f"Cannot select or filter on the segment {pair[0]} together with the metric {pair[1]}.",
        )


def _require_offered(query: GaqlQuery, group: str, offered: Iterable[str]) -> None:
    for path in query.fields:
        if path.startswith(f"{group}.") and path.removeprefix(f"{group}.") not in offered:
            raise query_refused(
                f"PROHIBITED_{group.upper()[:-1]}_IN_SELECT_OR_WHERE_CLAUSE",
                f"Cannot select or filter on {path}: it does not go with the resource {query.resource}.",
            )
