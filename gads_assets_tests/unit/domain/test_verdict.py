from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gads_assets.domain.content import ContentDigest
from gads_assets.domain.verdict import Rule, RunMeasurement, judge, reject_unread
from gads_assets_tests.sealed_runs import MANIFEST

DAY_ENDED_AT = datetime(2024, 6, 1, 22, tzinfo=UTC)
GOOD = RunMeasurement(
    content=ContentDigest(rows=3, first=1, second=2),
    malformed_rows=0,
    foreign_customer_rows=0,
    foreign_day_rows=0,
    keyless_rows=0,
    repeated_key_rows=0,
    out_of_bounds_rows=0,
)


def test_a_run_that_keeps_every_rule_is_accepted_with_the_content_that_was_seen() -> None:
    verdict = judge(MANIFEST, GOOD, day_ended_at=DAY_ENDED_AT)
    assert verdict.accepted
    assert verdict.error_message is None
    assert verdict.content == GOOD.content
    assert {finding.rule for finding in verdict.findings} == set(Rule)


@pytest.mark.parametrize(
    ("measured", "rule"),
    [
        (replace(GOOD, malformed_rows=1), Rule.SCHEMA),
        (replace(GOOD, content=ContentDigest(rows=2, first=1, second=2)), Rule.RECORD_COUNT),
        (replace(GOOD, content=ContentDigest(rows=4, first=1, second=2)), Rule.RECORD_COUNT),
        (replace(GOOD, foreign_customer_rows=1), Rule.CUSTOMER),
        (replace(GOOD, foreign_day_rows=2), Rule.DAY),
        (replace(GOOD, keyless_rows=1), Rule.NATURAL_KEY),
        (replace(GOOD, repeated_key_rows=1), Rule.NATURAL_KEY),
        (replace(GOOD, out_of_bounds_rows=1), Rule.BOUNDS),
    ],
)
def test_each_broken_rule_alone_rejects_the_run_and_is_named(measured: RunMeasurement, rule: Rule) -> None:
    verdict = judge(MANIFEST, measured, day_ended_at=DAY_ENDED_AT)
    assert [finding.rule for finding in verdict.findings if not finding.passed] == [rule]
    assert verdict.error_message is not None
    assert verdict.error_message.startswith(rule.value)


def test_a_run_extracted_before_its_day_ended_is_rejected() -> None:
    too_early = replace(MANIFEST, extraction_started_at=DAY_ENDED_AT - timedelta(seconds=1))
    verdict = judge(too_early, GOOD, day_ended_at=DAY_ENDED_AT)
    assert [finding.rule for finding in verdict.findings if not finding.passed] == [Rule.DAY_OVER]


def test_a_broken_seal_rejects_the_run_and_asks_nothing_else() -> None:
    verdict = reject_unread(MANIFEST.key, Rule.SEAL, "part-00000.jsonl.gz is missing")
    assert not verdict.accepted
    assert verdict.content is None
    assert verdict.error_message == "seal: part-00000.jsonl.gz is missing"
