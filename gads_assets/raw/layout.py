"""Where a run lives. No other module builds a path into the raw sink."""

from gads_assets.domain.keys import PartitionKey, RunId

SEAL = "metadata.json"
PAYLOAD = "part-00000.jsonl.gz"


def partition_path(key: PartitionKey) -> str:
    return f"{key.source}/{key.customer_id}/{key.query_name}/{key.logical_date.isoformat()}"


def run_path(key: PartitionKey, run_id: RunId) -> str:
    return f"{partition_path(key)}/{run_id}"
