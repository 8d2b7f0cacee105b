"""What a validator finds out about a sealed run, and what follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, StrEnum

from gads_assets.domain.content import ContentDigest
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.manifest import RunManifest

SAMPLES_PER_RULE = 20
SAMPLE_CHARACTERS = 500


class Severity(StrEnum):
    ERROR = "error"
    """A run that breaks the rule is rejected."""

    WARN = "warn"
    """A run that breaks the rule is accepted, and somebody should look at it."""


class Rule(Enum):
    """What a run is asked; the value is its name in Dagster and in the attempt record."""

    SEAL = "seal"
    DAY_OVER = "day_over"
    SCHEMA = "schema"
    RECORD_COUNT = "record_count"
    CUSTOMER = "customer"
    DAY = "day"
    NATURAL_KEY = "natural_key"
    BOUNDS = "bounds"
    VOLUME = "volume"
    SPEND = "spend"

    @property
    def severity(self) -> Severity:
        return Severity.WARN if self in {Rule.VOLUME, Rule.SPEND} else Severity.ERROR

    @property
    def promise(self) -> str:
        """The rule in one sentence, for people."""
        return _PROMISES[self]


_PROMISES = {
    Rule.SEAL: "Every byte is as it was sealed, and no file came or went.",
    Rule.DAY_OVER: "The account's day had ended when the extraction started.",
    Rule.SCHEMA: "Every row is JSON in UTF-8 whose values fit the columns of the run's schema version; the first has "
    "exactly its members, and all rows of a run are written by one encoder.",
    Rule.RECORD_COUNT: "There are as many rows as the seal says.",
    Rule.CUSTOMER: "Every row belongs to this account.",
    Rule.DAY: "Every row belongs to this day.",
    Rule.NATURAL_KEY: "The natural key is present in every row and names it alone.",
    Rule.BOUNDS: "No metric is negative, absurdly large, not a number, or above its limit in the catalog.",
    Rule.VOLUME: "About as many rows as in the customer's days before, and as in the run accepted before.",
    Rule.SPEND: "The spend of finer queries adds up to what the campaigns spent.",
}


@dataclass(frozen=True, kw_only=True)
class RowFault:
    """Rows that break a rule in one way. `samples` are some of them, as they lie in the payload."""

    rule: Rule
    rows: int
    what: str
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Spend:
    """`comparable` leaves out Performance Max, which no finer query has; None where that cannot be told."""

    micros: int
    comparable_micros: int | None


@dataclass(frozen=True, kw_only=True)
class RunMeasurement:
    """What Spark saw in a run's rows. `spend` is None for a query without a cost."""

    content: ContentDigest
    faults: tuple[RowFault, ...] = ()
    spend: Spend | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    rule: Rule
    passed: bool
    detail: str
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`content` is None when the rows could not be read at all."""

    key: PartitionKey
    findings: tuple[Finding, ...]
    content: ContentDigest | None
    spend: Spend | None = None

    @property
    def accepted(self) -> bool:
        return not self._broken(Severity.ERROR)

    @property
    def error_message(self) -> str | None:
        """Why the run is rejected; None for an accepted one, whatever it is warned of."""
        return "; ".join(self._broken(Severity.ERROR)) or None

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._broken(Severity.WARN)

    def _broken(self, severity: Severity) -> tuple[str, ...]:
        return tuple(
            f"{finding.rule.value}: {finding.detail}"
            for finding in self.findings
            if not finding.passed and finding.rule.severity is severity
        )


def reject_unread(key: PartitionKey, rule: Rule, reason: str) -> Verdict:
    """What the run says about itself is wrong: its rows cannot be judged by it, so nothing else is asked."""
    return Verdict(key=key, findings=(Finding(rule=rule, passed=False, detail=reason),), content=None)


def judge(
    manifest: RunManifest, measured: RunMeasurement, *, day_ended_at: datetime, warnings: Sequence[Finding] = ()
) -> Verdict:
    """The verdict on a run whose seal was verified byte by byte."""
    rows = measured.content.rows
    return Verdict(
        key=manifest.key,
        content=measured.content,
        spend=measured.spend,
        findings=(
            Finding(rule=Rule.SEAL, passed=True, detail=f"every byte of {_counted(len(manifest.files), 'file')}"),
            finding(
                Rule.DAY_OVER,
                manifest.extraction_started_at >= day_ended_at,
                good=f"the day ended {day_ended_at.isoformat()}",
                bad=f"extracted {manifest.extraction_started_at.isoformat()}, before the account's day ended "
                f"{day_ended_at.isoformat()}",
            ),
            _about_rows(Rule.SCHEMA, measured, good=f"fit schema version {manifest.schema_version}"),
            finding(
                Rule.RECORD_COUNT,
                rows == manifest.record_count,
                good=_counted(rows),
                bad=f"{_counted(rows)} found where the seal says {manifest.record_count}",
            ),
            _about_rows(Rule.CUSTOMER, measured, good=f"of customer {manifest.customer_id}"),
            _about_rows(Rule.DAY, measured, good=f"of {manifest.logical_date.isoformat()}"),
            _about_rows(Rule.NATURAL_KEY, measured, good="each with a key of its own"),
            _about_rows(Rule.BOUNDS, measured, good="within bounds"),
            *warnings,
        ),
    )


def reject_altered(verdict: Verdict, differences: Sequence[str]) -> Verdict:
    """A sealed run never changes: what differs from what is on record about it was altered, and sealed again."""
    what = " and ".join(differences)
    altered = Finding(
        rule=Rule.SEAL, passed=False, detail=f"altered and sealed again: {what} is not as it was recorded"
    )
    return replace(verdict, findings=(altered, *(found for found in verdict.findings if found.rule is not Rule.SEAL)))


def finding(rule: Rule, passed: bool, *, good: str, bad: str) -> Finding:
    return Finding(rule=rule, passed=passed, detail=good if passed else bad)


def _about_rows(rule: Rule, measured: RunMeasurement, *, good: str) -> Finding:
    faults = [fault for fault in measured.faults if fault.rule is rule]
    if not faults:
        return Finding(rule=rule, passed=True, detail=f"{_counted(measured.content.rows)} {good}")
    return Finding(
        rule=rule,
        passed=False,
        detail=", ".join(f"{_counted(fault.rows)} {fault.what}" for fault in faults),
        samples=tuple(sample for fault in faults for sample in fault.samples)[:SAMPLES_PER_RULE],
    )


def _counted(number: int, noun: str = "row") -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"
