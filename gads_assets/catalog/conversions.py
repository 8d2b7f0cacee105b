"""Which metrics Google counts by conversion. Beside a segment that is about conversions it refuses all others."""

import re
from typing import Final

from gads_assets.catalog.gaql_query import GaqlQuery

_SEGMENT: Final = re.compile(r"segments\.(conversion_|external_conversion_source)")
# Conversions, what they are worth, and what was in their carts.
_METRIC: Final = re.compile(
    r"metrics\..*(conversion|lifetime_value|value_adjustment|order|cart|revenue|profit|cost_of_goods|units_sold)"
)


def uncounted_by_conversion(query: GaqlQuery) -> tuple[str, str] | None:
    """The first segment about conversions with the first metric that cannot be divided by it, wherever they stand."""
    segment = next(filter(_SEGMENT.match, query.fields), None)
    metric = next((path for path in query.fields if path.startswith("metrics.") and not _METRIC.match(path)), None)
    return (segment, metric) if segment and metric else None
