"""Many publishes one after another: what one takes with checkpoints counted in, and whether the last are slower."""

from statistics import mean, median

from benchmarks.results import Result
from benchmarks.timing import side_by_side
from benchmarks.workbench import QUERY, Workbench


def measure(bench: Workbench, *, rows: int = 200, warm_up: int = 30, publishes: int = 200) -> list[Result]:
    runs = bench.judged_runs(warm_up + publishes, rows=rows)
    warming, publisher = bench.publisher("in_a_row_warming"), bench.publisher("in_a_row")
    taken = side_by_side(
        # The session is warmed up on other tables: the first publish of these is the first that counts.
        lambda number: (publisher if number >= warm_up else warming).publish(QUERY, [runs[number].authority]),
        lambda number: bench.append_plainly([runs[number]], "in_a_row_peer" if number >= warm_up else "in_a_row_warm"),
        warm_up=warm_up,
        rounds=publishes,
    )
    ten = min(10, publishes // 2)
    # Not the very first: it creates the tables.
    first, last = taken.ours[1 : ten + 1], taken.ours[-ten:]
    return [
        Result(
            name="publish_in_a_row_mean",
            unit="ms",
            ours=mean(taken.ours),
            peer="mean plain Delta append of the same rows",
            peer_value=mean(taken.peer),
            goal=2.5,
        ),
        Result(
            name="publish_in_a_row_last",
            unit="ms",
            ours=median(last),
            peer=f"the first {ten} of the same {publishes} publishes",
            peer_value=median(first),
            goal=1.3,
        ),
    ]
