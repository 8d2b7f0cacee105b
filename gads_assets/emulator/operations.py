"""How many operations the API would have charged, by customer and resource; in this process and for others to read."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from gads_assets.errors import SetupError


class Operation(NamedTuple):
    """`resource` is that of the FROM clause, empty for a query that has none."""

    customer_id: str
    resource: str


class Operations:
    """Counts calls as they come, from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[Operation] = Counter()
        self._path: Path | None = None
        self._lock = Lock()
        self._under_way = 0
        self._most_at_once = 0

    def record_in(self, path: Path) -> None:
        """From now on each operation is also a line of this file, which begins anew."""
        try:
            path.write_bytes(b"")
        except OSError as error:
            raise SetupError(
                f"the emulator cannot count its operations in {path} ({error.strerror or error}); "
                "set GADS_HOME to a writable place with free space"
            ) from None
        self._path = path

    def add(self, operation: Operation) -> None:
        with self._lock:
            self._counts[operation] += 1
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(operation._asdict()) + "\n")

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """For as long as a call is being answered."""
        with self._lock:
            self._under_way += 1
            self._most_at_once = max(self._most_at_once, self._under_way)
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1

    @property
    def most_at_once(self) -> int:
        with self._lock:
            return self._most_at_once

    def counts(self) -> Counter[Operation]:
        with self._lock:
            return self._counts.copy()


def read_operations(path: Path) -> Counter[Operation]:
    """What an emulator in another process has counted so far. A line that is still being written is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return Counter(Operation(**json.loads(line)) for line in lines if line.endswith("\n"))
