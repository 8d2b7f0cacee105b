"""What a validator finds out about a sealed run, and what follows from it."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from gads_assets.domain.content import ContentDigest
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.manifest import RunManifest


class Rule(Enum):
    """A reason to reject a run; the value is its name in Dagster and in the attempt record."""

    SEAL = "seal"
    """Every byte is as it was when the run was sealed, and no file came or went."""
    DAY_OVER = "day_over"
    """The account's day had ended when the extraction started."""
    SCHEMA = "schema"
    """Every row is a JSON object that fits the columns of the run's schema version."""
    RECORD_COUNT = "record_count"
    """There are as many rows as the seal says."""
    CUSTOMER = "customer"
    """Every row belongs to this account."""
    DAY = "day"
    """Every row belongs to this day."""
    NATURAL_KEY = "natural_key"
    """The natural key is present in every row and names it alone."""
    BOUNDS = "bounds"
    """No metric is negative or not a number."""


@dataclass(frozen=True, kw_only=True)
class RunMeasurement:
    """What one pass over a run's rows counted."""

    content: ContentDigest
    malformed_rows: int
    foreign_customer_rows: int
    foreign_day_rows: int
    keyless_rows: int
    repeated_key_rows: int
    out_of_bounds_rows: int


@dataclass(frozen=True, kw_only=True)
class Finding:
    rule: Rule
    passed: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`content` is None when the rows could not be read at all."""

    key: PartitionKey
    findings: tuple[Finding, ...]
    content: ContentDigest | None

    @property
    def accepted(self) -> bool:
        return all(finding.passed for finding in self.findings)

    @property
    def error_message(self) -> str | None:
        failed = [f"{finding.rule.value}: {finding.detail}" for finding in self.findings if not finding.passed]
        return "; ".join(failed) or None


def reject_unread(key: PartitionKey, rule: Rule, reason: str) -> Verdict:
    """What the run says about itself is wrong: its rows cannot be judged by it, so nothing else is asked."""
    return Verdict(key=key, findings=(Finding(rule=rule, passed=False, detail=reason),), content=None)


def judge(manifest: RunManifest, measured: RunMeasurement, *, day_ended_at: datetime) -> Verdict:
    """The verdict on a run whose seal was verified byte by byte."""
    rows = measured.content.rows
    return Verdict(
        key=manifest.key,
        content=measured.content,
        findings=(
            Finding(rule=Rule.SEAL, passed=True, detail="every byte as sealed"),
            _finding(
                Rule.DAY_OVER,
                manifest.extraction_started_at >= day_ended_at,
                good=f"the day ended {day_ended_at.isoformat()}",
                bad=f"extracted {manifest.extraction_started_at.isoformat()}, before the account's day ended "
                f"{day_ended_at.isoformat()}",
            ),
            _no_rows(Rule.SCHEMA, (measured.malformed_rows, f"not fitting schema version {manifest.schema_version}")),
            _finding(
                Rule.RECORD_COUNT,
                rows == manifest.record_count,
                good=_counted(rows),
                bad=f"{_counted(rows)} found where the seal says {manifest.record_count}",
            ),
            _no_rows(
                Rule.CUSTOMER, (measured.foreign_customer_rows, f"of another customer than {manifest.customer_id}")
            ),
            _no_rows(Rule.DAY, (measured.foreign_day_rows, f"of another day than {manifest.logical_date.isoformat()}")),
            _no_rows(
                Rule.NATURAL_KEY,
                (measured.keyless_rows, "without their natural key"),
                (measured.repeated_key_rows, "with the natural key of another"),
            ),
            _no_rows(Rule.BOUNDS, (measured.out_of_bounds_rows, "with a metric that is negative or not a number")),
        ),
    )


def _no_rows(rule: Rule, *counts: tuple[int, str]) -> Finding:
    broken = [f"{_counted(count)} {what}" for count, what in counts if count]
    return _finding(rule, not broken, good="no row breaks it", bad=", ".join(broken))


def _counted(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"


def _finding(rule: Rule, passed: bool, *, good: str, bad: str) -> Finding:
    return Finding(rule=rule, passed=passed, detail=good if passed else bad)
