"""`python -m benchmarks`: runs the measurements, keeps results.json, and prints it as a table."""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks import (
    control_plane,
    demo,
    extraction,
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
from benchmarks.results import Result, belongs, document, results_of_others
from benchmarks.workbench import Workbench, jar_folder, open_workbench
from gads_assets.cli.output import print_json, print_table
from gads_assets.errors import GadsError
from gads_assets.settings import Settings, read_settings

RESULTS: Final = Path(__file__).with_name("results.json")

IN_A_WARM_SESSION: Final[dict[str, Callable[[Workbench], list[Result]]]] = {
    "validate_batch": validate_batch.measure,
    "publish_one_partition": publish_one_partition.measure,
    "publish_in_a_row": publish_in_a_row.measure,
    "publish_batch": publish_batch.measure,
    "publish_into_many_pointers": publish_into_many_pointers.measure,
    "read_one_customer_month": reading.measure_one_customer_month,
    "read_everything": reading.measure_everything,
    "load_through_dagster": load_through_dagster.measure,
}
WITHOUT_SPARK: Final[dict[str, Callable[[Path], list[Result]]]] = {
    "extract_stream": extraction.measure_stream,
    "extract_customers": extraction.measure_customers,
    "record_verdicts": record_verdicts.measure,
    "fold_events": partition_status.measure_fold,
    "status_summary": partition_status.measure_summary,
    "status_page": status_page.measure,
    "control_tick": control_plane.measure_tick,
    "retry_many": control_plane.measure_retry,
}
BY_RUNS: Final[dict[str, Callable[..., list[Result]]]] = {
    "demo": demo.measure,
    "scattered_retries": scattered_retries.measure,
}
NAMES: Final = (*BY_RUNS, *WITHOUT_SPARK, *IN_A_WARM_SESSION)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help=f"one of {', '.join(NAMES)}, or one of its results")
    parser.add_argument("--json", action="store_true", help="print the document instead of a table")
    given = parser.parse_args(arguments)
    chosen = [name for name in NAMES if given.only is None or belongs(given.only, name)]
    if not chosen:
        parser.error(f"--only {given.only}: there is no such measurement; there are {', '.join(NAMES)}")
    load = os.getloadavg()[0]
    try:
        results = run(chosen, read_settings(os.environ))
    except GadsError as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return 1
    kept = results_of_others(RESULTS, chosen) if given.only else []
    written = document(results, kept=kept, load=load, now=datetime.now(UTC))
    RESULTS.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if given.json:
        print_json(written)
    else:
        show(written["results"])
    return 0


def run(chosen: Sequence[str], settings: Settings) -> list[Result]:
    """Those that start processes go first, while no session of ours holds memory."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        for name, measure_runs in BY_RUNS.items():
            if name in chosen:
                with _progress(name):
                    results += measure_runs(folder / name, jars=jar_folder(settings))
        for name, measure in WITHOUT_SPARK.items():
            if name in chosen:
                with _progress(name):
                    results += measure(folder / name)
        warm = [name for name in chosen if name in IN_A_WARM_SESSION]
        if warm:
            with open_workbench(settings, folder / "warm") as bench:
                for name in warm:
                    with _progress(name):
                        results += IN_A_WARM_SESSION[name](bench)
    return results


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    print_table(
        None,
        ["measurement", "ours", "peer", "ratio", "goal", "met"],
        [
            (
                row["name"],
                f"{row['ours']:g} {row['unit']}",
                f"{row['peer_value']:g} {row['unit']}, {row['peer']}" if row["peer"] else "-",
                f"{row['ratio']:.2f}" if row["ratio"] is not None else "-",
                f"at {'most' if row['better'] == 'lower' else 'least'} {row['goal']:g}" if row["goal"] else "-",
                {True: "yes", False: "NO", None: "-"}[row["met"]],
            )
            for row in rows
        ],
    )


@contextmanager
def _progress(name: str) -> Iterator[None]:
    sys.stderr.write(f"{name} …")
    sys.stderr.flush()
    started = time.monotonic()
    yield
    sys.stderr.write(f" {time.monotonic() - started:.0f} s\n")


if __name__ == "__main__":
    sys.exit(main())
