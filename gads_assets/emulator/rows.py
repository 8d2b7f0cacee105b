"""What one row of an answer is about, before any field of it was asked for."""

from collections.abc import Mapping
from typing import NamedTuple, Self

from gads_assets.emulator.accounts import EmulatedAccount
from gads_assets.emulator.entities import Lineage
from gads_assets.emulator.traffic import Traffic

Value = bool | int | float | str | bytes | list["Value"] | dict[str, "Value"] | None
"""A field's value: enums by name, messages as mappings, None where the API leaves the field out."""

LONG_TAIL = tuple(Traffic(unclicked=1 + rest) for rest in range(10))
"""What copies have, by the last digit of their number: seen a few times, never clicked, so that they cost nothing."""


class RowFacts(NamedTuple):
    """`client` and `level` are the account a customer_client row speaks of, and its distance from `account`.

    A row that is `forged` claims what is not so. One that has an `original` is its copy, made to fill a large day.
    """

    account: EmulatedAccount
    client: EmulatedAccount
    level: int
    lineage: Lineage
    traffic: Traffic
    segments: Mapping[str, Value]
    forged: bool = False
    original: "RowFacts | None" = None

    def copied(self, copy: int) -> Self:
        """Another entity beside this row's own, like it in everything but id, the copy's number and traffic."""
        return type(self)(
            self.account,
            self.client,
            self.level,
            (*self.lineage[:-1], self.lineage[-1].copied(copy)),
            LONG_TAIL[copy % len(LONG_TAIL)],
            self.segments,
            self.forged,
            self,
        )
