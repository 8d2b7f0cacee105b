"""Three thousand sealed runs judged in one call, beside Spark reading the same files and counting their rows."""

from statistics import median

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from benchmarks.results import Result
from benchmarks.timing import side_by_side, timed
from benchmarks.workbench import Workbench
from gads_assets.validate.judging import judge_runs


def measure(
    bench: Workbench, *, partitions: int = 3000, rows: int = 200, warm_up: int = 5, rounds: int = 7
) -> list[Result]:
    runs = bench.sealed_runs(partitions, rows=rows)
    uris = [uri for run in runs for uri in bench.sink.payload_uris(run)]
    columns = bench.schema.column_names

    def judge(_: int) -> None:
        verdicts = judge_runs(lambda: bench.spark, bench.sink, bench.catalog, {run.key: run.run_id for run in runs})
        if not all(run.verdict.accepted for run in verdicts.judged.values()):
            raise AssertionError("a good run was rejected, so this measured something else")

    def read(_: int) -> None:
        bench.spark.read.json(uris).count()

    def count() -> None:
        bench.spark.read.schema(bench.schema.ddl).json(uris).count()

    def read_columns() -> None:
        # Given the schema, a bare count() lets Spark convert no column, which no reader of rows can do without.
        bench.spark.read.schema(bench.schema.ddl).json(uris).agg(*(F.count(name) for name in columns)).collect()

    taken = side_by_side(judge, read, warm_up=warm_up, rounds=rounds)
    whole, bare = ([timed(peer) for _ in range(warm_up + rounds)][warm_up:] for peer in (read_columns, count))
    return [
        Result(
            name="validate_batch",
            unit="ms",
            ours=median(taken.ours),
            peer="spark.read.json(files).count() on the same files",
            peer_value=median(taken.peer),
            goal=1.5,
        ),
        Result(
            name="validate_batch_columns",
            unit="ms",
            ours=median(taken.ours),
            peer="the same, given the schema, every column converted",
            peer_value=median(whole),
        ),
        Result(
            name="validate_batch_bare",
            unit="ms",
            ours=median(taken.ours),
            peer="the same, given the schema, no column converted",
            peer_value=median(bare),
        ),
    ]
