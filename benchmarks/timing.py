"""Timing two ways of doing the same work against each other."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Milliseconds, round by round."""

    ours: list[float]
    peer: list[float]


def side_by_side(
    ours: Callable[[int], object], peer: Callable[[int], object], *, warm_up: int, rounds: int
) -> SideBySide:
    """Calls both with the number of each round, and keeps the times of those after the warm-up.

    Each round runs both, and the first mover changes: whatever else the machine does then falls on both alike.
    """
    taken = SideBySide(ours=[], peer=[])
    for number in range(warm_up + rounds):
        pair = [(ours, taken.ours), (peer, taken.peer)]
        for work, times in pair if number % 2 else reversed(pair):
            milliseconds = timed(lambda work=work, number=number: work(number))  # type: ignore[misc]
            if number >= warm_up:
                times.append(milliseconds)
    return taken


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000
