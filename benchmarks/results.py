"""What a measurement says, and the file that keeps it: an object of `machine`, `when` and the list `results`."""

import json
import os
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from gads_assets.warehouse.java import find_java


@dataclass(frozen=True, kw_only=True)
class Result:
    """A figure of ours, beside a peer's where there is one. `goal` is a bound on the ratio of ours to the peer's."""

    name: str
    unit: str
    ours: float
    peer: str | None = None
    peer_value: float | None = None
    goal: float | None = None
    better: Literal["lower", "higher"] = "lower"

    @property
    def ratio(self) -> float | None:
        return self.ours / self.peer_value if self.peer_value else None

    @property
    def met(self) -> bool | None:
        if self.ratio is None or self.goal is None:
            return None
        return self.ratio <= self.goal if self.better == "lower" else self.ratio >= self.goal

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": _rounded(self.ours),
            "peer": self.peer,
            "peer_value": _rounded(self.peer_value),
            "ratio": _rounded(self.ratio),
            "goal": self.goal,
            "better": self.better,
            "met": self.met,
        }


def document(
    results: Sequence[Result], *, kept: Sequence[Mapping[str, Any]], load: float, now: datetime
) -> dict[str, Any]:
    """`load` is the machine's before the first measurement; `machine` and `when` are those of the last command, which
    measured every result or, with --only, some of them."""
    return {
        "machine": machine(load),
        "when": now.isoformat(timespec="seconds"),
        "results": [*kept, *(result.as_json() for result in results)],
    }


def results_of_others(path: Path, measurements: Collection[str]) -> list[dict[str, Any]]:
    """What the file holds of measurements that are not run now."""
    if not path.is_file():
        return []
    rows = json.loads(path.read_text(encoding="utf-8"))["results"]
    return [row for row in rows if not any(belongs(row["name"], name) for name in measurements)]


def belongs(result_name: str, measurement: str) -> bool:
    """A measurement's results carry its name, alone or as the first words of theirs."""
    return result_name == measurement or result_name.startswith(f"{measurement}_")


def machine(load: float) -> dict[str, Any]:
    """What the figures depend on; nothing that names the machine."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_before": round(load, 1),
        "python": platform.python_version(),
        "java": find_java(os.environ).major,
        "spark": version("pyspark"),
        "delta": version("delta-spark"),
        "deltalake": version("deltalake"),
        "dagster": version("dagster"),
    }


def _rounded(value: float | None) -> float | None:
    """Three significant digits: more than these measurements repeat."""
    return None if value is None else float(f"{value:.3g}")
