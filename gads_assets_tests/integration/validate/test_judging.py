"""Verdicts on real sealed runs, one Spark job for all of them."""

import gzip
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gads_assets.catalog.specification import Terms
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.verdict import Rule, Verdict
from gads_assets.raw.sink import RawSink
from gads_assets.validate.judging import judge_runs
from gads_assets_tests.sealed_runs import as_lines, catalog, key, row, run_facts, schema, seal, unused_run_id

# The rule that is broken, then what is changed in each row of an otherwise good run.
BROKEN: Sequence[tuple[Rule, list[dict[str, object]]]] = (
    (Rule.NATURAL_KEY, [{}, {}]),
    (Rule.NATURAL_KEY, [{"campaign_id": None}]),
    (Rule.CUSTOMER, [{}, {"campaign_id": 2, "customer_id": 1111111111}]),
    (Rule.DAY, [{"segments_date": "2024-07-07"}]),
    (Rule.DAY, [{"segments_date": None}]),
    (Rule.BOUNDS, [{"metrics_clicks": -1}]),
    (Rule.BOUNDS, [{"metrics_conversions": float("nan")}]),
    (Rule.SCHEMA, [{"metrics_clicks": "many"}]),
    (Rule.SCHEMA, [{"metrics_clicks": 2**70}]),
)


@pytest.fixture
def sink(tmp_path: Path) -> RawSink:
    return RawSink(str(tmp_path / "raw"))


def _judge(spark: SparkSession, sink: RawSink, *runs: RunManifest) -> dict[PartitionKey, Verdict]:
    verdicts = judge_runs(lambda: spark, sink, catalog(), {run.key: run.run_id for run in runs})
    return {partition: judged.verdict for partition, judged in verdicts.judged.items()}


def _broken(verdict: Verdict) -> set[Rule]:
    return {finding.rule for finding in verdict.findings if not finding.passed}


def _seal_lines(sink: RawSink, partition: PartitionKey, lines: Sequence[bytes]) -> RunManifest:
    with sink.begin(partition, unused_run_id()) as writer:
        writer.write(as_lines(lines))
        return writer.seal(run_facts(partition))


def test_each_run_of_a_batch_is_judged_on_its_own(spark: SparkSession, sink: RawSink) -> None:
    good, empty = key(day="2024-06-01"), key(day="2024-06-02")
    broken: dict[PartitionKey, Rule] = {}
    runs = [seal(sink, good, [row(good, 1), row(good, 2)]), seal(sink, empty, [])]
    for day, (rule, changes) in enumerate(BROKEN, start=3):
        partition = key(day=f"2024-06-{day:02d}")
        broken[partition] = rule
        runs.append(seal(sink, partition, [row(partition, 1, **change) for change in changes]))

    verdicts = _judge(spark, sink, *runs)

    assert verdicts[good].accepted
    assert verdicts[empty].accepted
    assert {partition: _broken(verdicts[partition]) for partition in broken} == {
        partition: {rule} for partition, rule in broken.items()
    }


@pytest.mark.parametrize("line", [b"not json", b"[1, 2]", b'{"campaign_id": 1', b'"text"', b"\xff\xfe\x00"])
def test_a_line_that_is_no_row_rejects_its_run(spark: SparkSession, sink: RawSink, line: bytes) -> None:
    verdict = _judge(spark, sink, _seal_lines(sink, key(), [line]))[key()]
    assert not verdict.accepted
    assert verdict.error_message


def test_a_count_that_differs_from_the_seal_rejects_the_run(spark: SparkSession, sink: RawSink) -> None:
    run = _seal_lines(sink, key(), [b""])
    assert run.record_count == 1
    assert _broken(_judge(spark, sink, run)[key()]) == {Rule.RECORD_COUNT}


def test_a_run_extracted_before_its_day_had_ended_is_rejected(spark: SparkSession, sink: RawSink) -> None:
    noon = datetime(2024, 6, 1, 12, tzinfo=UTC)
    run = seal(sink, key(), [row(key(), 1)], extracted_at=noon)
    assert _broken(_judge(spark, sink, run)[key()]) == {Rule.DAY_OVER}


def test_a_damaged_run_is_rejected_without_disturbing_the_others(spark: SparkSession, sink: RawSink) -> None:
    damaged, missing, good = (key(day=f"2024-06-0{day}") for day in (1, 2, 3))
    runs = [seal(sink, partition, [row(partition, 1)]) for partition in (damaged, missing, good)]
    Path(sink.payload_uris(runs[0])[0]).write_bytes(gzip.compress(b"{}"))
    Path(sink.payload_uris(runs[1])[0]).unlink()

    verdicts = _judge(spark, sink, *runs)

    assert _broken(verdicts[damaged]) == _broken(verdicts[missing]) == {Rule.SEAL}
    assert verdicts[good].accepted


def test_a_run_that_says_what_nobody_can_know_is_rejected_alone(spark: SparkSession, sink: RawSink) -> None:
    good, version, zone, unread = (key(day=f"2024-06-0{day}") for day in (1, 2, 3, 4))
    odd_zone = replace(run_facts(zone), account_time_zone="Mars/Olympus")
    with sink.begin(zone, unused_run_id()) as writer:
        in_odd_zone = writer.seal(odd_zone)
    runs = [seal(sink, good, [row(good, 1)]), seal(sink, version, [], schema_version="99"), in_odd_zone]
    unreachable = replace(unread, query_name="q" * 300)

    verdicts = judge_runs(
        lambda: spark, sink, catalog(), {**{run.key: run.run_id for run in runs}, unreachable: unused_run_id()}
    )

    assert {partition: _broken(judged.verdict) for partition, judged in verdicts.judged.items()} == {
        good: set(),
        version: {Rule.SCHEMA},
        zone: {Rule.DAY_OVER},
    }
    assert "cannot be read" in verdicts.unread[unreachable]


def test_a_run_is_judged_by_the_hard_rules_of_its_own_version(spark: SparkSession, sink: RawSink) -> None:
    rule = (("metrics_clicks", "metrics_conversions"),)
    strict = replace(schema("1"), terms=Terms(resource="campaign", never_above=rule))
    lenient = schema("2")
    keys = {version: key(day=f"2024-06-0{version}") for version in "12"}
    runs = {each: seal(sink, each, [row(each, 1)], schema_version=version).run_id for version, each in keys.items()}

    for current, older in ((strict, lenient), (lenient, strict)):
        verdicts = judge_runs(lambda: spark, sink, catalog(current, older), runs)
        broken = {version: _broken(verdicts.judged[each].verdict) for version, each in keys.items()}
        assert broken == {"1": {Rule.BOUNDS}, "2": set()}


def test_the_digest_depends_on_the_rows_and_not_on_their_order_or_batch(spark: SparkSession, sink: RawSink) -> None:
    one, two = key(day="2024-06-01"), key(day="2024-06-02")
    rows = [row(one, number) for number in range(20)]
    forwards, backwards = seal(sink, one, rows), seal(sink, one, rows[::-1])
    other = seal(sink, one, [*rows[:-1], row(one, 19, metrics_clicks=0)])
    slid = seal(sink, one, [*rows[:-1], row(one, 19, metrics_clicks=None, metrics_conversions=190.0)])

    contents = [
        _judge(spark, sink, run, seal(sink, two, []))[one].content for run in (forwards, backwards, other, slid)
    ]

    assert contents[0] == contents[1]
    assert len({str(content) for content in contents}) == 3
