"""A run has the partitions that it works on, so that no other run works on them meanwhile."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Final

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.roles import Role
from gads_assets.errors import GadsError
from gads_assets.orchestration.living import present
from gads_assets.orchestration.workplace import Workplace
from gads_assets.state.leases import Leases

_log = logging.getLogger(__name__)

_SIGNS_A_LEASE: Final = 5
"""So many in the time that a lease lasts: a database that restarts, or a step that is busy, costs a few."""

_LOOK_SECONDS: Final = 1.0

_living: Final[dict[str, set[PartitionKey]]] = {}
"""Runs of this process that show signs of life, and what each has taken. One that Dagster runs without our executor, as
tests do, shows none: it respects what others have, and has nothing itself that nobody would free."""


@contextmanager
def sign_of_life(leases: Leases, run_id: str, keep_present: Callable[[], None] = lambda: None) -> Iterator[None]:
    """The run lives as long as the block lasts; then all that it has is free. A thread says so again and again, for
    steps may take longer than a lease, and calls `keep_present` each time.

    A run that was away for so long that others have its partitions ends: its process is interrupted as by a signal from
    outside.
    """
    over = Event()

    def say_so() -> None:
        while not over.wait(leases.lasts.total_seconds() / _SIGNS_A_LEASE):
            # Out of reach, or restarting: the next sign may come through before the lease has ended. Whatever it is:
            # a run whose signs have stopped passes for killed while it goes on.
            had = len(taken)  # before the answer, which may be late: more may be taken meanwhile
            with suppress(Exception):
                if leases.extend(run_id) < had:
                    _log.error("run %s showed no sign of life for too long, and lost its partitions", run_id)
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                keep_present()

    leases.extend(run_id)
    taken = _living[run_id] = set()
    signs = Thread(target=say_so, name="sign of life", daemon=True)
    signs.start()
    try:
        yield
    finally:
        over.set()
        signs.join()
        del _living[run_id]
        with suppress(GadsError):
            leases.release(run_id)


def take_leases(here: Workplace, run_id: str, keys: Sequence[PartitionKey]) -> dict[PartitionKey, str]:
    """Of these partitions, those that another run has, and what to do about it; the others are the run's now.

    Where that other run seems to have been killed, this waits until its lease has ended, or it shows a sign of life.
    """
    if run_id not in _living:
        return leases_of_others(here, keys)
    leases, records = here.leases_as(Role.EXTRACTOR), here.records_as(Role.EXTRACTOR)
    deadline = time.monotonic() + leases.lasts.total_seconds() + _LOOK_SECONDS
    while held := leases.take(run_id, keys):
        others = set(held.values())
        if time.monotonic() > deadline or others <= present(records, others):
            break
        time.sleep(_LOOK_SECONDS)
    _living[run_id].update(key for key in keys if key not in held)
    return _told(held)


def leases_of_others(here: Workplace, keys: Sequence[PartitionKey]) -> dict[PartitionKey, str]:
    """The same, for a run that has none of them and takes none."""
    return _told(here.leases_as(Role.EXTRACTOR).held(keys))


def _told(held: Mapping[PartitionKey, str]) -> dict[PartitionKey, str]:
    return {
        key: f"run {other} has it; a partition is in one run at a time, so wait for that one, or cancel it"
        for key, other in held.items()
    }
