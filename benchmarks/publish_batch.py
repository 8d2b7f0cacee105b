"""A thousand partitions published in one call, beside one plain append of all their rows."""

from statistics import median

from benchmarks.results import Result
from benchmarks.timing import side_by_side
from benchmarks.workbench import QUERY, Workbench


def measure(
    bench: Workbench, *, partitions: int = 1000, rows: int = 50, warm_up: int = 2, rounds: int = 5
) -> list[Result]:
    opening, *batch = bench.judged_runs(1 + partitions, rows=rows)
    publishers = [bench.publisher(f"batch_{number}") for number in range(warm_up + rounds)]
    # Every round has a warehouse of its own, since a batch is published once; creating its tables is not measured.
    for number, publisher in enumerate(publishers):
        publisher.publish(QUERY, [opening.authority])
        bench.append_plainly([opening], f"batch_peer_{number}")
    taken = side_by_side(
        lambda number: publishers[number].publish(QUERY, [run.authority for run in batch]),
        lambda number: bench.append_plainly(batch, f"batch_peer_{number}"),
        warm_up=warm_up,
        rounds=rounds,
    )
    return [
        Result(
            name="publish_batch",
            unit="ms",
            ours=median(taken.ours),
            peer="one plain Delta append of the same rows",
            peer_value=median(taken.peer),
            goal=2.5,
        )
    ]
