from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gads_assets.domain.content import ContentDigest
from gads_assets.domain.verdict import (
    SAMPLES_PER_RULE,
    Finding,
    RowFault,
    Rule,
    RunMeasurement,
    Severity,
    Spend,
    judge,
    reject_unread,
)
from gads_assets_tests.sealed_runs import MANIFEST

DAY_ENDED_AT = datetime(2024, 6, 1, 22, tzinfo=UTC)
GOOD = RunMeasurement(content=ContentDigest(rows=3, first=1, second=2), spend=Spend(micros=5, comparable_micros=5))
WARNINGS = tuple(Finding(rule=rule, passed=True, detail="as always") for rule in (Rule.VOLUME, Rule.SPEND))


def faulty(*faults: RowFault) -> RunMeasurement:
    return replace(GOOD, faults=faults)


def test_a_run_that_keeps_every_rule_is_accepted_with_the_content_that_was_seen() -> None:
    verdict = judge(MANIFEST, GOOD, day_ended_at=DAY_ENDED_AT, warnings=WARNINGS)
    assert verdict.accepted
    assert verdict.error_message is None
    assert verdict.warnings == ()
    assert (verdict.content, verdict.spend) == (GOOD.content, GOOD.spend)
    assert {finding.rule for finding in verdict.findings} == set(Rule)
    assert all(finding.detail for finding in verdict.findings)


@pytest.mark.parametrize(
    ("measured", "rule"),
    [
        (replace(GOOD, content=ContentDigest(rows=2, first=1, second=2)), Rule.RECORD_COUNT),
        (replace(GOOD, content=ContentDigest(rows=4, first=1, second=2)), Rule.RECORD_COUNT),
        *(
            (faulty(RowFault(rule=rule, rows=1, what="that are wrong")), rule)
            for rule in (Rule.SCHEMA, Rule.CUSTOMER, Rule.DAY, Rule.NATURAL_KEY, Rule.BOUNDS)
        ),
    ],
)
def test_each_broken_rule_alone_rejects_the_run_and_is_named(measured: RunMeasurement, rule: Rule) -> None:
    verdict = judge(MANIFEST, measured, day_ended_at=DAY_ENDED_AT)
    assert [finding.rule for finding in verdict.findings if not finding.passed] == [rule]
    assert verdict.error_message is not None
    assert verdict.error_message.startswith(rule.value)


def test_a_rule_that_is_broken_in_two_ways_says_both_and_shows_twenty_rows_at_most() -> None:
    rows = tuple(f"row {number}" for number in range(15))
    measured = faulty(
        RowFault(rule=Rule.NATURAL_KEY, rows=1, what="without a key", samples=rows[:1]),
        RowFault(rule=Rule.NATURAL_KEY, rows=400, what="with the key of another", samples=rows),
        RowFault(rule=Rule.NATURAL_KEY, rows=15, what="of a third kind", samples=rows),
    )
    verdict = judge(MANIFEST, measured, day_ended_at=DAY_ENDED_AT)
    (broken,) = [finding for finding in verdict.findings if not finding.passed]
    assert broken.detail == "1 row without a key, 400 rows with the key of another, 15 rows of a third kind"
    assert broken.samples == (*rows[:1], *rows, *rows)[:SAMPLES_PER_RULE]


def test_a_warning_is_told_and_rejects_nothing() -> None:
    unusual = Finding(rule=Rule.VOLUME, passed=False, detail="3 rows, against 300")
    verdict = judge(MANIFEST, GOOD, day_ended_at=DAY_ENDED_AT, warnings=(unusual,))
    assert (verdict.accepted, verdict.error_message) == (True, None)
    assert verdict.warnings == ("volume: 3 rows, against 300",)


def test_volume_and_spend_warn_and_every_other_rule_rejects() -> None:
    assert {rule for rule in Rule if rule.severity is Severity.WARN} == {Rule.VOLUME, Rule.SPEND}
    assert all(rule.promise for rule in Rule)


def test_a_run_extracted_before_its_day_ended_is_rejected() -> None:
    too_early = replace(MANIFEST, extraction_started_at=DAY_ENDED_AT - timedelta(seconds=1))
    verdict = judge(too_early, GOOD, day_ended_at=DAY_ENDED_AT)
    assert [finding.rule for finding in verdict.findings if not finding.passed] == [Rule.DAY_OVER]


def test_a_broken_seal_rejects_the_run_and_asks_nothing_else() -> None:
    verdict = reject_unread(MANIFEST.key, Rule.SEAL, "part-00000.jsonl.gz is missing")
    assert not verdict.accepted
    assert verdict.content is None
    assert verdict.error_message == "seal: part-00000.jsonl.gz is missing"
