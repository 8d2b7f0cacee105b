"""Three thousand partitions published in one call, beside one plain append of all their rows, and beside delta-rs."""

from statistics import median

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.results import Result
from benchmarks.timing import in_turns
from benchmarks.workbench import QUERY, JudgedRun, Workbench
from gads_assets.warehouse.arrow import read_published

_KEY = "current.customer_id = new.customer_id AND current.logical_date = new.logical_date"


def measure(
    bench: Workbench, *, partitions: int = 3000, rows: int = 200, warm_up: int = 2, rounds: int = 3
) -> list[Result]:
    batch = bench.batch(partitions, rows=rows)
    [opening] = bench.judged_runs(1, rows=rows)
    publishers = [bench.publisher(f"batch_{number}") for number in range(warm_up + rounds)]
    # Every round has a warehouse of its own, since a batch is published once; creating its tables is not measured.
    for number, publisher in enumerate(publishers):
        publisher.publish(QUERY, [opening.authority])
        bench.append_plainly([opening], f"batch_peer_{number}")
    opened = _read(bench, "batch_0")
    filled = bench.publisher("batch_in_memory")
    filled.publish(QUERY, [run.authority for run in batch])
    in_memory = _read(bench, "batch_in_memory")
    for number in range(len(publishers)):
        _append_and_merge(bench, opened, [opening], number)
    ours, plain, delta_rs = in_turns(
        lambda number: publishers[number].publish(QUERY, [run.authority for run in batch]),
        lambda number: bench.append_plainly(batch, f"batch_peer_{number}"),
        lambda number: _append_and_merge(bench, in_memory, batch, number),
        warm_up=warm_up,
        rounds=rounds,
    )
    return [
        Result(
            name="publish_batch",
            unit="ms",
            ours=median(ours),
            peer="one plain Delta append of the same rows",
            peer_value=median(plain),
            goal=1.6,
        ),
        Result(
            name="publish_batch_delta_rs",
            unit="ms",
            ours=median(ours),
            peer="delta-rs: append of the same rows, which it has in memory, and merge of the pointers",
            peer_value=median(delta_rs),
        ),
    ]


def _read(bench: Workbench, warehouse: str) -> pa.Table:
    return read_published(bench.layout(warehouse), bench.catalog, QUERY)


def _append_and_merge(bench: Workbench, rows: pa.Table, runs: list[JudgedRun], number: int) -> None:
    folder = bench.folder / f"batch_delta_rs_{number}"
    write_deltalake(str(folder / "rows"), rows, mode="append")
    pointers = pa.table(
        {
            "customer_id": [run.manifest.customer_id for run in runs],
            "logical_date": [run.manifest.logical_date for run in runs],
            "run_id": [run.manifest.run_id for run in runs],
            "content_digest": [run.authority.content_digest for run in runs],
        }
    )
    place = str(folder / "pointers")
    if not DeltaTable.is_deltatable(place):
        write_deltalake(place, pointers.slice(length=0))
    merge = DeltaTable(place).merge(pointers, _KEY, source_alias="new", target_alias="current")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
