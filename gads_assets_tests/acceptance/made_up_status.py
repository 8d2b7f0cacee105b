"""Statuses that nothing had to happen for: every look of a cell, hostile names, and as many cells as wanted."""

import string
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache, cached_property
from itertools import product
from typing import Any

from gads_assets.domain.keys import partition_key_from_label
from gads_assets.errors import CatalogError, GadsError, PartitionKeyError

LAST_DAY = date(2026, 11, 16)
HOSTILE = "</script><img src=x onerror=alert(1)> & \u2028Söhne"
RUN, OTHER_RUN, DAGSTER_RUN = (
    "01JCTE5Z0V4N8Q6W2R7M3K9XHB",
    "01JCQY3F8T1B5D9G2J4P6S7VZC",
    "5f0c7a3e-1b2d-4c5e-9f80-112233445566",
)
_SHOWN_DAYS = 90
ASSETS = (
    ("google_ads/raw/campaign", "raw"),
    ("google_ads/marts/account_day", "mart"),
    ("google_ads/campaign", "table"),
    ("google_ads/ad_group", "table"),
)

Look = tuple[str, str | None, str | None]
"""display, stale_reason, last_attempt"""

FRESH: Look = ("Materialized", None, "SUCCEEDED")
UPSTREAM_CHANGED: Look = ("Stale", "UPSTREAM_CHANGED", "SUCCEEDED")
LATE: Look = ("Stale", "FRESHNESS_POLICY", "SUCCEEDED")
CODE_CHANGED_CANCELLED: Look = ("Stale", "CODE_CHANGED", "CANCELLED")
FAILED: Look = ("MaterializedButLastAttemptFailed", None, "FAILED")
FAILED_AND_STALE: Look = ("MaterializedButLastAttemptFailed", "UPSTREAM_CHANGED", "FAILED")
CANCELLED: Look = ("Materialized", None, "CANCELLED")
NEVER: Look = ("NeverMaterialized", None, None)
NEVER_FAILED: Look = ("NeverMaterialized", None, "FAILED")
OVERDUE: Look = ("NeverMaterialized", "FRESHNESS_POLICY", None)
OVERDUE_FAILED: Look = ("NeverMaterialized", "FRESHNESS_POLICY", "FAILED")
LOOKS = (
    *(FRESH, UPSTREAM_CHANGED, LATE, CODE_CHANGED_CANCELLED, FAILED, FAILED_AND_STALE),
    *(CANCELLED, NEVER, NEVER_FAILED, OVERDUE, OVERDUE_FAILED),
)
_LETTERS = dict(zip(LOOKS, string.ascii_lowercase, strict=False))

_NAMES = (
    "Harbor Street Bakery",
    "Alpine Cycle Works",
    "Meridian Dental Group",
    "Café Zürich",
    "Blue Fern Garden Centre",
)


@dataclass(kw_only=True)
class MadeUpStatus:
    """Two tables, a raw extraction, a mart by customer and day, and one by customer only."""

    customers: dict[str, str]
    first_day: date = LAST_DAY - timedelta(days=399)
    looks: dict[tuple[str, str, date], Look] = field(default_factory=dict)
    """What differs from `usual_look`, by asset, customer and day."""

    trouble: GadsError | None = None
    troubled: frozenset[str] = frozenset({"version", "overview", "matrix", "partition"})
    """The questions that `trouble` is the answer to."""

    _changes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def change(self, customer_id: str, day: date, look: Look, asset_key: str = "google_ads/campaign") -> None:
        with self._lock:
            self.looks[asset_key, customer_id, day] = look
            self._changes += 1

    def version(self) -> str:
        self._answer_trouble("version")
        return f"v{self._changes}"

    def overview(self) -> dict[str, Any]:
        self._answer_trouble("overview")
        return {
            "tenant_id": "default",
            "workspace_id": "default",
            "source": "google_ads",
            "version": f"v{self._changes}",
            "generated_at": "2026-11-17T18:00:00+00:00",
            "dagster_url": "http://127.0.0.1:3000",
            "assets": [*(self._asset(key, kind) for key, kind in ASSETS), self._freshness()],
        }

    def matrix(self, asset_key: str, first: date | None, last: date | None) -> dict[str, Any]:
        self._answer_trouble("matrix")
        if asset_key not in dict(ASSETS):
            raise CatalogError(f"asset {asset_key!r} is not in the catalog; the overview lists those that are")
        last = min(last or LAST_DAY + timedelta(days=1), LAST_DAY + timedelta(days=1))
        first = max(first or last - timedelta(days=_SHOWN_DAYS - 1), self.first_day)
        days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
        return {
            "asset_key": asset_key,
            "from": str(first),
            "to": str(last),
            "version": f"v{self._changes}",
            "generated_at": "2026-11-17T18:00:00+00:00",
            "legend": {
                letter: {"display": look[0], "stale_reason": look[1], "last_attempt": look[2]}
                for look, letter in _LETTERS.items()
            },
            "rows": [
                {
                    "customer_id": customer_id,
                    "name": name,
                    "is_active": number % 7 != 4,
                    "cells": "".join(self._letter(asset_key, customer_id, day) for day in days),
                }
                for number, (customer_id, name) in enumerate(self.customers.items())
            ],
        }

    def partition(self, asset_key: str, partition_key: str) -> dict[str, Any]:
        self._answer_trouble("partition")
        key = partition_key_from_label(partition_key, source="google_ads", query_name="campaign")
        if key.customer_id not in self.customers:
            raise PartitionKeyError(f"customer {key.customer_id} is not registered; gads customers list shows who is")
        display, reason, attempt = self.look(asset_key, key.customer_id, key.logical_date)
        made = None if display == "NeverMaterialized" else RUN
        day_after = datetime(
            key.logical_date.year, key.logical_date.month, key.logical_date.day, tzinfo=UTC
        ) + timedelta(days=1)
        at = [(day_after + timedelta(hours=hours)).isoformat() for hours in (5, 29, 30, 31, 77)]
        failed = attempt == "FAILED"
        return {
            "asset_key": asset_key,
            "partition_key": partition_key,
            "customer_id": key.customer_id,
            "customer_name": self.customers[key.customer_id],
            "logical_date": str(key.logical_date),
            "display": display,
            "last_materialization": made and {"run_id": made, "at": at[0], "code_version": "campaign/1+6f2c"},
            "last_attempt": attempt and {"run_id": OTHER_RUN if failed else RUN, "at": at[1], "outcome": attempt},
            "stale_since": reason and at[2],
            "stale_reason_code": reason,
            "staleness": [
                {
                    "reason_code": reason,
                    "since": at[2],
                    "explanation": "raw/campaign was extracted again after it was loaded.",
                }
            ]
            if reason
            else [],
            "freshness": {"due_at": at[0], "deadline": at[4]},
            "current_code_version": "campaign/1+9ab0" if reason == "CODE_CHANGED" else "campaign/1+6f2c",
            "state": made
            and {
                "status": "success",
                "current_run_id": made,
                "version": 3,
                "attempt_count": 4,
                "record_count": 1482,
                "schema_version": 1,
                "error_message": None,
                "updated_at": at[0],
            },
            "pointer": made
            and {"run_id": made, "status": "success", "state_version": 3, "record_count": 1482, "loaded_at": at[0]},
            "load_record": made and {"run_id": made, "record_count": 1482, "loaded_at": at[0], "pointer_version": 3},
            "next_retry": {"at": at[3], "why": "the account's quota comes back then"} if failed else None,
            "attempts": [
                *([self._failed_attempt(at[1])] if failed else []),
                *(
                    [_attempt("verdict", at[0], RUN, "accepted"), _attempt("extraction", at[0], RUN, "sealed")]
                    if made
                    else []
                ),
            ],
            "runs": [
                {
                    "run_id": DAGSTER_RUN,
                    "status": "FAILURE" if failed else "SUCCESS",
                    "started_at": at[0],
                    "ended_at": at[1],
                    "url": f"http://127.0.0.1:3000/runs/{DAGSTER_RUN}",
                },
                {
                    "run_id": "00000000-hostile",
                    "status": "SUCCESS",
                    "started_at": at[0],
                    "ended_at": at[0],
                    "url": "javascript:alert(1)",
                },
            ]
            if attempt
            else [],
        }

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {customer_id: number for number, customer_id in enumerate(self.customers)}

    def look(self, asset_key: str, customer_id: str, day: date) -> Look:
        return self.looks.get((asset_key, customer_id, day)) or usual_look(self._numbers[customer_id], day)

    def _letter(self, asset_key: str, customer_id: str, day: date) -> str:
        return "-" if day > LAST_DAY else _LETTERS[self.look(asset_key, customer_id, day)]

    def _asset(self, key: str, kind: str) -> dict[str, Any]:
        looks = _usual_counts(len(self.customers), self.first_day).copy()
        for (asset_key, customer_id, day), look in list(self.looks.items()):
            if asset_key == key:
                looks[usual_look(self._numbers[customer_id], day)] -= 1
                looks[look] += 1
        return {
            "asset_key": key,
            "title": key.removeprefix("google_ads/"),
            "kind": kind,
            "has_days": True,
            "first_day": str(self.first_day),
            "last_day": str(LAST_DAY),
            "partitions": looks.total(),
            "counts": {
                display: sum(number for look, number in looks.items() if look[0] == display)
                for display in ("Materialized", "Stale", "MaterializedButLastAttemptFailed", "NeverMaterialized")
            },
            "flags": {
                "stale": sum(number for look, number in looks.items() if look[1] and look[0] != "NeverMaterialized"),
                "last_attempt_failed": sum(number for look, number in looks.items() if look[2] == "FAILED"),
                "last_attempt_cancelled": sum(number for look, number in looks.items() if look[2] == "CANCELLED"),
                "overdue": looks[OVERDUE] + looks[OVERDUE_FAILED],
            },
        }

    def _freshness(self) -> dict[str, Any]:
        return {
            "asset_key": "google_ads/marts/freshness",
            "title": "marts/freshness",
            "kind": "mart",
            "has_days": False,
            "first_day": None,
            "last_day": None,
            "partitions": len(self.customers),
            "counts": {
                "Materialized": len(self.customers) - 1,
                "Stale": 1,
                "MaterializedButLastAttemptFailed": 0,
                "NeverMaterialized": 0,
            },
            "flags": {"stale": 1, "last_attempt_failed": 0, "last_attempt_cancelled": 0, "overdue": 0},
        }

    def _failed_attempt(self, at: str) -> dict[str, Any]:
        return {
            **_attempt("extraction", at, OTHER_RUN, "failed"),
            "error_class": "quota",
            "error_message": f"the quota is exhausted for {HOSTILE}; waiting 3600 s",
        }

    def _answer_trouble(self, question: str) -> None:
        if self.trouble and question in self.troubled:
            raise self.trouble


def made_up_status(customers: int) -> MadeUpStatus:
    named = {f"{2145550101 + number * 1_000_003}": _name(number) for number in range(customers)}
    return MadeUpStatus(customers=named)


def usual_look(customer: int, day: date) -> Look:
    """Mostly fresh; the newest days in every way there is, spread so that no two customers look alike."""
    age = (LAST_DAY - day).days
    if age < 12 and (age + customer) % 5 == 0:
        return LOOKS[(age * 3 + customer * 5) % len(LOOKS)]
    if customer % 6 == 3 and 20 <= age < 34:
        return UPSTREAM_CHANGED
    if customer % 9 == 5 and age > 60:
        return NEVER
    if (age * 31 + customer * 17) % 97 == 0:
        return FAILED_AND_STALE if age % 2 else FAILED
    return FRESH


@cache
def _usual_counts(customers: int, first_day: date) -> Counter[Look]:
    days = [first_day + timedelta(days=number) for number in range((LAST_DAY - first_day).days + 1)]
    return Counter(usual_look(number, day) for number, day in product(range(customers), days))


def _name(number: int) -> str:
    if number == 5:
        return HOSTILE
    return _NAMES[number] if number < len(_NAMES) else f"{_NAMES[number % len(_NAMES)]} {number // len(_NAMES) + 1}"


def _attempt(kind: str, at: str, run_id: str, outcome: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "at": at,
        "run_id": run_id,
        "dagster_run_id": DAGSTER_RUN,
        "outcome": outcome,
        "error_class": None,
        "error_message": None,
    }
