"""One partition published in a warm session (staged, verified, pointer swapped) beside a plain append of its rows."""

from statistics import median

from benchmarks.results import Result
from benchmarks.timing import side_by_side
from benchmarks.workbench import QUERY, Workbench


def measure(bench: Workbench, *, rows: int = 200, warm_up: int = 30, rounds: int = 31) -> list[Result]:
    runs = bench.judged_runs(warm_up + rounds, rows=rows)
    publisher = bench.publisher("one_partition")
    taken = side_by_side(
        lambda number: publisher.publish(QUERY, [runs[number].authority]),
        lambda number: bench.append_plainly([runs[number]], "one_partition_peer"),
        warm_up=warm_up,
        rounds=rounds,
    )
    return [
        Result(
            name="publish_one_partition",
            unit="ms",
            ours=median(taken.ours),
            peer="plain Delta append of the same rows",
            peer_value=median(taken.peer),
            goal=2.5,
        )
    ]
