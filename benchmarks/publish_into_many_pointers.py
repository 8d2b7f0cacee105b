"""A day of a hundred customers published anew, into a warehouse of few pointers and into one of very many."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median

from benchmarks.results import Result
from benchmarks.timing import side_by_side
from benchmarks.workbench import DAYS, QUERY, Workbench, numbered_key
from gads_assets.domain.keys import PartitionKey, RunId, StageId
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.domain.rectangles import MOST_PARTITIONS
from gads_assets.warehouse.pointers import append_pointers


def measure(
    bench: Workbench,
    *,
    partitions: int = 100,
    rows: int = 200,
    few: int = 1_000,
    many: int = 200_000,
    warm_up: int = 3,
    rounds: int = 5,
) -> list[Result]:
    source, days = bench.catalog.source, warm_up + rounds
    by_day = [
        bench.judge(
            bench.seal((numbered_key(source, DAYS * customer + day) for customer in range(partitions)), rows=rows)
        )
        for day in range(days)
    ]
    small, large = bench.publisher("few_pointers"), bench.publisher("many_pointers")
    fill(bench, "few_pointers", [numbered_key(source, DAYS * (number // 10) + number % 10) for number in range(few)])
    fill(bench, "many_pointers", [numbered_key(source, number) for number in range(many)])
    replacing = [[replace(run.authority, state_version=2) for run in runs] for runs in by_day]
    taken = side_by_side(
        lambda number: large.publish(QUERY, replacing[number]),
        lambda number: small.publish(QUERY, replacing[number]),
        warm_up=warm_up,
        rounds=rounds,
    )
    return [
        Result(
            name="publish_into_many_pointers",
            unit="ms",
            ours=median(taken.ours),
            peer=f"the same {partitions} partitions into {few} pointers instead of {many}",
            peer_value=median(taken.peer),
            goal=1.5,
        )
    ]


def fill(bench: Workbench, warehouse: str, keys: Sequence[PartitionKey]) -> None:
    """As many commits as runs of the default size would have made. Of the rows there are none: publishing looks at the
    pointers only."""
    for start in range(0, len(keys), MOST_PARTITIONS):
        append_pointers(bench.layout(warehouse), QUERY, list(_pointers(keys[start : start + MOST_PARTITIONS])))


def _pointers(keys: Sequence[PartitionKey]) -> Iterator[Pointer]:
    now = datetime.now(UTC)
    for key in keys:
        yield Pointer(
            key=key,
            run_id=RunId(f"01HZ{key.customer_id}{key.logical_date:%Y%m%d}0000"),
            stage_id=StageId(f"01HZ{key.customer_id}0000"),
            schema_version="1",
            record_count=200,
            content_digest=f"200-{'0' * 32}",
            state_version=1,
            stage_commit=1,
            status=PointerStatus.ACTIVE,
            loaded_at=now,
        )
