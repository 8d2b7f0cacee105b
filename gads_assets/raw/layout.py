"""Where a run lives, and what else may lie beside it. No other module builds a path into the raw sink."""

from enum import Enum
from typing import Final

from gads_assets.domain.keys import PartitionKey, RunId, parse_run_id
from gads_assets.errors import PartitionKeyError

SEAL: Final = "metadata.json"
PAYLOAD: Final = "part-00000.jsonl.gz"


class Entry(Enum):
    """What our own code puts into a partition's folder; anything else there is somebody else's."""

    RUN = ("", "")
    """A run directory, sealed or not."""
    DRAFT = (".", f".{SEAL}")
    """A seal being written, on a disk: a file beside its run, never inside it."""
    ASIDE = (".", ".removing")
    """A run directory that is being removed, on a disk."""

    def name_for(self, run_id: RunId) -> str:
        before, after = self.value
        return f"{before}{run_id}{after}"


def partition_path(key: PartitionKey) -> str:
    return f"{key.source}/{key.customer_id}/{key.query_name}/{key.logical_date.isoformat()}"


def run_path(key: PartitionKey, run_id: RunId) -> str:
    return f"{partition_path(key)}/{run_id}"


def run_of_file(uri: str) -> RunId:
    return RunId(uri.rsplit("/", 2)[1])


def read_entry(name: str) -> tuple[Entry, RunId] | None:
    """The inverse of `Entry.name_for`; None for a name that our code never gives."""
    for entry in Entry:
        before, after = entry.value
        inner = name.removeprefix(before).removesuffix(after)
        if name == f"{before}{inner}{after}":
            try:
                return entry, parse_run_id(inner)
            except PartitionKeyError:
                continue
    return None
