"""What one row of an answer is about, before any field of it was asked for."""

from collections.abc import Mapping
from dataclasses import dataclass

from gads_assets.emulator.accounts import EmulatedAccount
from gads_assets.emulator.entities import Lineage
from gads_assets.emulator.traffic import Traffic

Value = bool | int | float | str | bytes | list["Value"] | dict[str, "Value"] | None
"""A field's value: enums by name, messages as mappings, None where the API leaves the field out."""


@dataclass(frozen=True, kw_only=True)
class RowFacts:
    """`client` and `level` are the account a customer_client row speaks of, and its distance from `account`."""

    account: EmulatedAccount
    client: EmulatedAccount
    level: int
    lineage: Lineage
    traffic: Traffic
    segments: Mapping[str, Value]
