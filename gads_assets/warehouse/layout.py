"""Where tables live. No other module builds a path into the warehouse."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class WarehouseLayout:
    root: str
    source: str

    def pointers(self, query_name: str) -> str:
        return f"{self._query(query_name)}/pointers"

    def stage(self, query_name: str, schema_version: str) -> str:
        return f"{self._query(query_name)}/stage_v{schema_version}"

    def mart(self, name: str) -> str:
        """Beside the folder of the queries, which a catalog names as it likes."""
        return f"{self.root.rstrip('/')}/{self.source}_marts/{name}"

    @property
    def partition_status(self) -> str:
        """Beside the folder of the queries too."""
        return f"{self.root.rstrip('/')}/{self.source}_status/partition_status.parquet"

    def _query(self, query_name: str) -> str:
        return f"{self.root.rstrip('/')}/{self.source}/{query_name}"
