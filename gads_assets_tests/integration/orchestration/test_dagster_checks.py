"""Each rule is a check of its own in Dagster; the gate is the verdict over them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import text

from gads_assets.domain.roles import Role
from gads_assets.domain.state import PartitionStatus
from gads_assets.domain.verdict import Rule
from gads_assets.orchestration.dagster_internals import AssetCheckEvaluation
from gads_assets.orchestration.runs import JUDGES, UNJUDGED
from gads_assets.state.connection import transaction
from gads_assets_tests.ledgers import extraction
from gads_assets_tests.sealed_runs import seal
from gads_assets_tests.worlds import BERLIN, NEW_YORK, RAW, VERDICT, World, key, step_failure

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

RULES = {rule.value for rule in Rule}


def by_rule(result: dg.ExecuteInProcessResult, partition: str | None = None) -> Mapping[str, AssetCheckEvaluation]:
    return {
        evaluation.check_name: evaluation
        for evaluation in result.get_asset_check_evaluations()
        if evaluation.partition == partition and evaluation.check_name != VERDICT.name
    }


def table(evaluation: AssetCheckEvaluation, name: str) -> list[Mapping[str, object]]:
    value = evaluation.metadata[name]
    assert isinstance(value, dg.TableMetadataValue)
    return [record.data for record in value.records]


def test_a_run_of_one_partition_evaluates_every_rule_by_name(make_world: Callable[..., World]) -> None:
    world = make_world()
    result = world.run(f"{NEW_YORK}|2024-06-01")
    rules = by_rule(result)
    assert rules.keys() == RULES
    assert all(evaluation.passed for evaluation in rules.values())
    assert all(
        evaluation.description is not None and evaluation.description.startswith(f"{NEW_YORK}|2024-06-01: ")
        for evaluation in rules.values()
    )
    assert {rule for rule, evaluation in rules.items() if evaluation.severity is dg.AssetCheckSeverity.WARN} == {
        "volume",
        "spend",
    }
    for rule in RULES:
        [execution] = world.instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(RAW, rule), limit=10
        )
        assert execution.status.value == "SUCCEEDED", "nothing stays planned"


def test_the_rule_that_a_partition_breaks_fails_with_the_rows_to_look_at_on_the_page_and_on_record(
    make_world: Callable[..., World],
) -> None:
    label = f"{BERLIN}|2024-06-03"
    world = make_world(f"duplicated_rows@{BERLIN}/campaign/2024-06-03:3")

    result = world.run(label)

    rules = by_rule(result)
    assert {rule for rule, evaluation in rules.items() if not evaluation.passed} == {"natural_key"}
    assert rules["natural_key"].severity is dg.AssetCheckSeverity.ERROR
    assert "3 rows with the natural key of another" in str(rules["natural_key"].description)
    shown = table(rules["natural_key"], "sample_rows")
    assert len(shown) == 3
    assert all(str(row["row"]).startswith('{"customer_id":') for row in shown)
    with transaction(world.here.engine_as(Role.VALIDATOR)) as connection:
        results = connection.execute(text("SELECT rule_results FROM partition_attempt")).scalar_one()
    [broken] = [found for found in results if not found["passed"]]
    assert (broken["rule"], broken["severity"]) == ("natural_key", "error")
    assert broken["samples"] == [row["row"] for row in shown]


def test_a_run_of_many_tells_each_rule_once_and_again_for_each_partition_that_breaks_it(
    make_world: Callable[..., World],
) -> None:
    bad = f"{BERLIN}|2024-06-02"
    world = make_world(f"duplicated_rows@{BERLIN}/campaign/2024-06-02")

    result = world.run(f"{NEW_YORK}|2024-06-01", f"{BERLIN}|2024-06-03")

    summary = by_rule(result)
    assert summary.keys() == RULES
    assert {rule for rule, evaluation in summary.items() if not evaluation.passed} == {"natural_key"}
    assert str(summary["natural_key"].description).startswith(f"1 of 6 partitions break it, first {bad}: 1 row")
    assert table(summary["natural_key"], "broken_partitions") == [
        {"partition": bad, "detail": "1 row with the natural key of another"}
    ]
    assert str(summary["bounds"].description) == "6 partitions keep it"
    [(rule, evaluation)] = by_rule(result, bad).items()
    assert (rule, evaluation.passed) == ("natural_key", False)
    assert len(table(evaluation, "sample_rows")) == 1
    assert len(result.get_asset_check_evaluations()) == 6 + len(RULES) + 1


def test_a_day_with_far_fewer_rows_than_those_before_is_accepted_with_a_warning(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    world.run(f"{NEW_YORK}|2024-06-06", f"{NEW_YORK}|2024-06-09")
    [newest] = world.here.sink.sealed_runs(key(f"{NEW_YORK}|2024-06-09"))
    usual = list(world.here.sink.rows(world.here.sink.manifest(key(f"{NEW_YORK}|2024-06-09"), newest)))
    few = key(f"{NEW_YORK}|2024-06-10")
    seal(world.here.sink, few, [row | {"segments_date": "2024-06-10"} for row in usual[:3]], run_seq=10**6)

    result = world.check_alone(few.label)

    assert result.success
    volume = by_rule(result)["volume"]
    assert (volume.passed, volume.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert f"{few.label}: 3 rows, against a median of" in str(volume.description)
    [verdict] = [found for found in result.get_asset_check_evaluations() if found.check_name == VERDICT.name]
    assert verdict.passed
    assert str(verdict.description).startswith("volume: 3 rows")
    assert world.status(few.label) is PartitionStatus.SUCCESS


def test_the_verdict_run_alone_judges_by_all_rules_and_answers_for_itself(make_world: Callable[..., World]) -> None:
    label = f"{NEW_YORK}|2024-06-01"
    world = make_world()
    world.run(label)

    result = world.check_alone(label, "verdict_alone")

    assert result.success
    [evaluation] = result.get_asset_check_evaluations()
    assert (evaluation.asset_check_key, evaluation.partition, evaluation.passed) == (VERDICT, label, True)
    assert world.attempts(label) == 2


def test_a_run_tagged_for_what_was_never_judged_leaves_the_authority_alone(make_world: Callable[..., World]) -> None:
    label = f"{NEW_YORK}|2024-06-01"
    world = make_world()
    world.run(label)
    tags = {JUDGES: UNJUDGED}

    nothing = world.check_alone(label, "verdict_alone", tags=tags)

    assert "waits for a verdict" in step_failure(nothing, "google_ads__raw__campaign__validator")
    assert world.attempts(label) == 1
    [published] = world.here.sink.sealed_runs(key(label))
    rows = list(world.here.sink.rows(world.here.sink.manifest(key(label), published)))
    left = seal(world.here.sink, key(label), rows, run_seq=10**6)
    attempt = replace(extraction(), key=key(label), run_id=left.run_id, run_seq=10**6, dagster_run_id="crashed")
    world.here.store_as(Role.EXTRACTOR).record_extractions([attempt])
    assert world.check_alone(label, "verdict_alone", tags=tags).success
    assert world.here.store_as(Role.CONSUMER).states([key(label)])[key(label)].current_run_id == left.run_id


def test_a_rule_run_alone_says_that_partitions_are_judged_by_the_verdict(make_world: Callable[..., World]) -> None:
    label = f"{NEW_YORK}|2024-06-01"
    world = make_world()

    result = world.check_alone(label, "bounds_alone")

    assert not result.success
    assert "run the check `verdict` on a partition" in step_failure(result, "google_ads__raw__campaign__validator")
    assert world.status(label) is None


def test_a_run_that_cannot_be_read_fails_the_rule_that_says_so_and_answers_no_other(
    make_world: Callable[..., World],
) -> None:
    label = f"{NEW_YORK}|2024-06-01"
    world = make_world()
    world.run(label)
    [run_id] = world.here.sink.sealed_runs(key(label))
    [payload] = world.here.sink.payload_uris(world.here.sink.manifest(key(label), run_id))
    Path(payload).write_bytes(b"")

    result = world.check_alone(label)

    assert not result.success
    assert {rule: evaluation.passed for rule, evaluation in by_rule(result).items()} == {"seal": False}
