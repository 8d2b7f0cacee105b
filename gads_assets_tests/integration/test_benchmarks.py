import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import (
    control_plane,
    load_through_dagster,
    partition_status,
    publish_batch,
    publish_in_a_row,
    publish_into_many_pointers,
    publish_one_partition,
    reading,
    record_verdicts,
    scattered_retries,
    status_page,
    validate_batch,
)
from benchmarks.__main__ import main
from benchmarks.demo import DemoRun, Step, split_run
from benchmarks.results import Result, document, results_of_others
from benchmarks.workbench import Workbench, jar_folder
from gads_assets.settings import read_settings

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

NOW = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
KEYS = {"name", "unit", "ours", "peer", "peer_value", "ratio", "goal", "better", "met"}


def test_every_measurement_with_spark_gives_our_time_beside_its_peers(spark: SparkSession, tmp_path: Path) -> None:
    bench = Workbench(spark=spark, folder=tmp_path)

    results = [
        *validate_batch.measure(bench, partitions=3, rows=2, warm_up=0, rounds=1),
        *publish_one_partition.measure(bench, rows=2, warm_up=0, rounds=1),
        *publish_in_a_row.measure(bench, rows=2, warm_up=1, publishes=2),
        *publish_batch.measure(bench, partitions=3, rows=2, warm_up=0, rounds=1),
        *publish_into_many_pointers.measure(bench, partitions=2, rows=2, few=2, many=401, warm_up=0, rounds=1),
        *reading.measure_one_customer_month(bench, partitions=3, rows=2, warm_up=0, rounds=1),
        *reading.measure_everything(bench, partitions=3, rows=2, warm_up=0, rounds=1),
        *load_through_dagster.measure(bench, partitions=3, rows=2, warm_up=0, rounds=1),
    ]

    written = json.loads(json.dumps(document(results, kept=[], load=0.5, now=NOW)))
    assert written["when"] == "2026-11-16T09:30:00+00:00"
    assert written["machine"]["spark"] == spark.version
    assert [row["name"] for row in written["results"]] == [
        "validate_batch",
        "validate_batch_columns",
        "validate_batch_bare",
        "publish_one_partition",
        "publish_in_a_row_mean",
        "publish_in_a_row_last",
        "publish_batch",
        "publish_batch_delta_rs",
        "publish_into_many_pointers",
        "read_one_customer_month",
        "read_one_customer_month_delta_rs",
        "read_everything",
        "read_everything_delta_rs",
        "load_through_dagster",
        "load_through_dagster_events",
        "load_through_dagster_mixed",
    ]
    for row in written["results"]:
        assert set(row) == KEYS
        assert row["ours"] > 0
        assert row["ratio"] == pytest.approx(row["ours"] / row["peer_value"], rel=0.02)
        assert row["met"] == (row["ratio"] <= row["goal"] if row["goal"] else None)


def test_recording_verdicts_is_measured_beside_a_copy_and_against_its_allowance(tmp_path: Path) -> None:
    beside, allowed = record_verdicts.measure(tmp_path, verdicts=20, warm_up=0, rounds=1)

    assert (beside.name, allowed.name) == ("record_verdicts", "record_verdicts_total")
    assert beside.ours == allowed.ours > 0
    assert (beside.goal, allowed.goal, allowed.peer_value) == (10.0, 1.0, 1000.0)


def test_the_parts_of_a_demo_add_up_to_its_total() -> None:
    run = DemoRun(
        total=60.0,
        stages={"services": 3.0, "customers": 1.0, "run": 50.0},
        launched=1000.0,
        steps=[
            Step(key="google_ads__raw__campaign", started=1010.0, ended=1012.0),
            Step(key="google_ads__raw__campaign__validator", started=1012.0, ended=1030.0),
            Step(key="google_ads__campaign", started=1031.0, ended=1045.0),
        ],
    )

    parts = split_run(run)

    assert parts == {
        "services": 3.0,
        "customers": 1.0,
        "run_start": 10.0,
        "extraction_steps": 2.0,
        "verdict_steps": 18.0,
        "publish_steps": 14.0,
        "run_end": 5.0,
        "rest": 7.0,
    }
    assert sum(parts.values()) == run.total


def test_measuring_one_thing_keeps_the_results_of_the_others(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    earlier = [Result(name=name, unit="s", ours=1.0) for name in ("demo_total", "demo_rest", "publish_batch")]
    path.write_text(json.dumps(document(earlier, kept=[], load=0.5, now=NOW)))

    kept = results_of_others(path, ["demo"])

    assert [row["name"] for row in kept] == ["publish_batch"]
    assert results_of_others(tmp_path / "absent.json", ["demo"]) == []


def test_a_figure_without_a_peer_claims_no_goal() -> None:
    row = Result(name="demo_rest", unit="s", ours=1.23456).as_json()

    assert row["ours"] == 1.23
    assert [row[name] for name in ("peer", "peer_value", "ratio", "goal", "met")] == [None] * 5


def test_a_goal_that_is_missed_is_said_to_be_missed() -> None:
    slow = Result(name="publish", unit="ms", ours=30.0, peer="append", peer_value=10.0, goal=2.5)
    many = Result(name="rows", unit="rows/s", ours=30.0, peer="copy", peer_value=10.0, goal=2.5, better="higher")

    assert (slow.met, many.met) == (False, True)


def test_an_unknown_measurement_is_refused_with_the_names_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--only", "nonsense"])

    assert refused.value.code == 2
    assert "publish_one_partition" in capsys.readouterr().err


def test_the_control_plane_is_measured_beside_what_it_is_allowed_and_runs_of_one_partition(tmp_path: Path) -> None:
    results = [
        *control_plane.measure_tick(tmp_path / "tick", customers=3, days=4, due=5, warm_up=0, rounds=1),
        *control_plane.measure_retry(tmp_path / "retry", customers=3, days=4, failed=5),
        *scattered_retries.measure(
            tmp_path / "scattered", jars=jar_folder(read_settings(os.environ)), retries=3, singly=1, accounts=4
        ),
    ]
    assert [result.name for result in results] == [
        "control_tick",
        "control_tick_everything",
        "retry_many",
        "scattered_retries",
        "scattered_retries_runs",
    ]
    assert all(result.ours > 0 and result.peer_value for result in results)
    assert results[-1].ours == 1


def test_the_status_is_measured_beside_reading_alone_and_dagsters_own_and_on_the_screen(tmp_path: Path) -> None:
    results = [
        *partition_status.measure_fold(tmp_path / "fold", customers=2, days=2, warm_up=0, rounds=1),
        *partition_status.measure_summary(tmp_path / "summary", customers=2, days=60, warm_up=0, rounds=1),
        *status_page.measure(tmp_path / "page", customers=2, days=60, warm_up=0, rounds=1),
    ]
    assert [result.name for result in results] == [
        "fold_events",
        "fold_events_rate",
        "fold_events_select",
        "fold_events_dagster",
        "status_summary",
        "status_summary_total",
        "status_page",
    ]
    assert all(result.ours > 0 and result.peer_value for result in results)
