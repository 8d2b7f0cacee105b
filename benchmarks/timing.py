"""Timing two ways of doing the same work against each other."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Milliseconds, round by round."""

    ours: list[float]
    peer: list[float]


def side_by_side(
    ours: Callable[[int], object], peer: Callable[[int], object], *, warm_up: int, rounds: int
) -> SideBySide:
    """`in_turns` for two."""
    taken_by_ours, taken_by_peer = in_turns(ours, peer, warm_up=warm_up, rounds=rounds)
    return SideBySide(ours=taken_by_ours, peer=taken_by_peer)


def in_turns(
    *works: Callable[[int], object], warm_up: int, rounds: int, before_each: Callable[[], object] = lambda: None
) -> list[list[float]]:
    """Calls all of them with the number of each round; the milliseconds of each, of the rounds after the warm-up.

    The first mover changes from round to round: whatever else the machine does then falls on all alike. What
    `before_each` takes is not counted.
    """
    taken: list[list[float]] = [[] for _ in works]
    for number in range(warm_up + rounds):
        for turn in range(len(works)):
            place = (number + turn) % len(works)
            before_each()
            milliseconds = timed(partial(works[place], number))
            if number >= warm_up:
                taken[place].append(milliseconds)
    return taken


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000
