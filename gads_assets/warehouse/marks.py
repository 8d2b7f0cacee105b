"""What housekeeping has done to a table, written into the table itself: readers and loaders look there, not at clocks.

Each is one of Delta's own transaction numbers, which every commit after it keeps.
"""

from typing import Final

from deltalake import DeltaTable

READABLE_FROM: Final = "gads_assets.readable_from"
"""Of a pointer table: its oldest version whose stages are all still there; of a mart, that has all its files."""

COLLECTED: Final = "gads_assets.collected"
"""Of a stage table: how often rows that no pointer names were deleted from it."""


def readable_from(pointers: DeltaTable) -> int:
    return pointers.transaction_version(READABLE_FROM) or 0


def times_collected(stage: DeltaTable) -> int:
    return stage.transaction_version(COLLECTED) or 0
