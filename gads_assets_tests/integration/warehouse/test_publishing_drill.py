"""A short version of what `make drill` does to loaders while readers look."""

from pathlib import Path

from pyspark.sql import SparkSession

from gads_assets_tests.drills.failpoints import Failpoint
from gads_assets_tests.drills.publishing import Extent, PublishingDrill

SHORT = Extent(
    customers=3,
    days=3,
    replacements=14,
    a_round=6,
    sizes=(1,),
    kills=2,
    elsewhere=0,
    calm=2,
    retractions_a_round=1,
    rounds_to_settle=2,
)


def test_readers_see_one_whole_run_a_partition_while_loaders_crash_at_every_point_and_are_killed(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    report = PublishingDrill(tmp_path, database_url, lambda: spark, SHORT, seed=1).run()

    assert report.damage.sentences() == []
    assert report.facts["replacements"] == 14
    crashes = report.facts["crashes"]
    assert isinstance(crashes, dict)
    assert set(crashes) >= set(Failpoint)
    assert report.kills == 2
    assert all(report.reads.values()), report.reads
