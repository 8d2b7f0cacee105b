"""A partition's content as one short value that does not depend on row order, files, engine restarts or batch.

Each row is hashed twice to 64 bits, and the hashes are added up. Sums add: the digest of a batch is the sum of its
partitions' digests, so one total taken while writing proves a batch of thousands.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gads_assets.errors import WarehouseError

_MODULUS: Final = 1 << 64
_TEXT = re.compile(r"(\d+)-([0-9a-f]{16})([0-9a-f]{16})\Z")


@dataclass(frozen=True, kw_only=True)
class ContentDigest:
    rows: int
    first: int
    second: int

    def __str__(self) -> str:
        return f"{self.rows}-{self.first:016x}{self.second:016x}"


def parse_content_digest(text: str) -> ContentDigest:
    match = _TEXT.match(text)
    if not match:
        raise WarehouseError(f"{text!r} is not a content digest")
    return ContentDigest(rows=int(match[1]), first=int(match[2], 16), second=int(match[3], 16))


def total(digests: Iterable[ContentDigest]) -> ContentDigest:
    rows = first = second = 0
    for digest in digests:
        rows, first, second = rows + digest.rows, first + digest.first, second + digest.second
    return ContentDigest(rows=rows, first=first % _MODULUS, second=second % _MODULUS)


def row_hashes(*, key: tuple[str, str], columns: Sequence[str]) -> tuple[str, str]:
    """Two Spark SQL expressions, which `digest_aggregates` adds up.

    `key` names the columns of customer and day. They are hashed with every row: rows that change places between two
    partitions of a batch change its digest. A column's nullness is hashed beside it, because the hash passes over
    nulls and a value that slid into the next column would go unseen.
    """
    values = ", ".join(f"isnull(`{name}`), `{name}`" for name in (*key, *columns))
    return f"xxhash64({values})", f"xxhash64('second', {values})"


def digest_aggregates(first: str, second: str) -> dict[str, str]:
    """Spark SQL aggregates over a row's two hashes, by name; `digest_from_aggregates` turns them into a digest.

    The halves are summed apart: a sum of whole hashes overflows at the second row.
    """
    halves = {
        f"{name}_{half}": f"coalesce(sum({expression}), 0)"
        for name, value in (("first", first), ("second", second))
        for half, expression in (("low", f"({value}) & 4294967295L"), ("high", f"shiftrightunsigned({value}, 32)"))
    }
    return {"rows": "count(1)", **halves}


def digest_from_aggregates(
    rows: int, first_low: int, first_high: int, second_low: int, second_high: int
) -> ContentDigest:
    return ContentDigest(
        rows=rows,
        first=(first_low + (first_high << 32)) % _MODULUS,
        second=(second_low + (second_high << 32)) % _MODULUS,
    )
