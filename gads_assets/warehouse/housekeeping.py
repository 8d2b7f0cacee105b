"""Tidying the warehouse: pointers and staged rows that nobody can need go, small files are brought together.

Everything that a version of the pointers within the retention names is kept. Whatever moment a run is killed at,
readers see the same rows, and the next run does the rest.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileInfo, FileSelector, PyFileSystem
from pyspark.sql import SparkSession

from gads_assets.catalog.specification import Catalog
from gads_assets.domain.pointer import PointerStatus
from gads_assets.domain.retention import GRACE, LONGEST_RETENTION_HOURS, Upkeep, files_to_compact, version_at
from gads_assets.errors import GadsError
from gads_assets.state.run_records import RunRecords
from gads_assets.warehouse.collecting import compact, delete_stages, set_properties, vacuum
from gads_assets.warehouse.delta_tables import find_table, open_table, readable_delta_errors, select
from gads_assets.warehouse.layout import WarehouseLayout
from gads_assets.warehouse.marks import READABLE_FROM, readable_from, times_collected
from gads_assets.warehouse.marts.tables import MARTS, Mart, refreshing_scope
from gads_assets.warehouse.pointers import pointer_table
from gads_assets.warehouse.publishing import publishing_scope

_MARGIN_HOURS: Final = 1
"""Files are kept for longer than versions: the two are told by different clocks, the writers' and the storage's."""

_PROPERTIES: Final = {
    # The log forgets which files were removed after a week by default, and a vacuum would take all that it forgot.
    "delta.deletedFileRetentionDuration": f"interval {LONGEST_RETENTION_HOURS + _MARGIN_HOURS} hours",
    "delta.logRetentionDuration": f"interval {LONGEST_RETENTION_HOURS + 48} hours",
}

_STAGED: Final = pa.schema([("customer_id", pa.string()), ("logical_date", pa.date32()), ("stage_id", pa.string())])

# The current pointer of a version within the retention is never below what was its partition's highest when the
# retention began; a row that is below is out of every such version's sight, whenever it was appended.
_NEEDED: Final = """
    WITH ranked AS (
        SELECT customer_id, logical_date, state_version, stage_id,
            row_number()
                OVER (PARTITION BY customer_id, logical_date ORDER BY state_version DESC, stage_id DESC) AS place
        FROM before
    ), highest AS (SELECT * FROM ranked WHERE place = 1)
    SELECT pointers.*,
        highest.customer_id IS NULL OR pointers.state_version > highest.state_version
        OR (pointers.state_version = highest.state_version AND pointers.stage_id >= highest.stage_id) AS needed
    FROM pointers LEFT JOIN highest
        ON pointers.customer_id = highest.customer_id AND pointers.logical_date = highest.logical_date
    ORDER BY pointers.logical_date, pointers.customer_id
"""


@dataclass(frozen=True, kw_only=True)
class TidiedQuery:
    """`reason` says why a query could not be tidied; what was done to it until then stands."""

    upkeep: Upkeep
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Files:
    small: int
    expired: int
    expired_bytes: int


@dataclass(frozen=True, kw_only=True)
class _Pointers:
    table: DeltaTable
    oldest: int | None
    """The version that was current when the retention began; None where nothing is that old."""
    needed: pa.Table
    superseded: pa.Table
    files: _Files


@dataclass(frozen=True, kw_only=True)
class _Stage:
    table: DeltaTable
    dead: pa.Table
    superseded: int
    files: _Files

    @property
    def uri(self) -> str:
        return self.table.table_uri

    @property
    def is_tidy(self) -> bool:
        return not (self.dead.num_rows or self.files.small or self.files.expired)


@dataclass(frozen=True, kw_only=True)
class _Found:
    query_name: str
    pointers: _Pointers
    stages: list[_Stage]

    @property
    def upkeep(self) -> Upkeep:
        files = [self.pointers.files, *(stage.files for stage in self.stages)]
        superseded = sum(stage.superseded for stage in self.stages)
        return Upkeep(
            query_name=self.query_name,
            superseded=superseded,
            abandoned=sum(stage.dead.num_rows for stage in self.stages) - superseded,
            pointer_rows=self.pointers.superseded.num_rows,
            small_files=sum(each.small for each in files),
            files=sum(each.expired for each in files),
            bytes=sum(each.expired_bytes for each in files),
        )


@dataclass(frozen=True, kw_only=True)
class Housekeeper:
    """`session` and `records` are asked for once there is something to do."""

    session: Callable[[], SparkSession]
    records: Callable[[], RunRecords]
    layout: WarehouseLayout
    catalog: Catalog
    retention_hours: int
    now: Callable[[], datetime]

    def tidy_all(self, *, dry_run: bool = False) -> Iterator[TidiedQuery]:
        """Every query of the catalog, then every mart that was made; one that cannot be tidied does not keep the
        others."""
        for query_name in self.catalog.queries:
            try:
                yield TidiedQuery(upkeep=self.survey(query_name) if dry_run else self.tidy(query_name))
            except GadsError as error:
                yield TidiedQuery(upkeep=Upkeep(query_name=query_name), reason=str(error))
        for mart in MARTS.values():
            try:
                if found := self.tidy_mart(mart, dry_run=dry_run):
                    yield TidiedQuery(upkeep=found)
            except GadsError as error:
                yield TidiedQuery(upkeep=Upkeep(query_name=self._mart_name(mart)), reason=str(error))

    def survey(self, query_name: str) -> Upkeep:
        """What `tidy` would do now. Changes nothing, and needs neither Spark nor the database."""
        table = pointer_table(self.layout, query_name)
        return self._look(query_name, table).upkeep if table else Upkeep(query_name=query_name)

    def tidy(self, query_name: str) -> Upkeep:
        """Does what there is to do, and says what that was. Of two at once, the second waits and finds little left.

        Publishers of the query wait while rows are deleted, and not while files are compacted and removed.
        """
        if self.survey(query_name).is_nothing:
            return Upkeep(query_name=query_name)
        records, scope = self.records(), publishing_scope(self.layout.source, query_name)
        with records.exclusive(f"housekeeping, {scope}"):
            with records.exclusive(scope) as require_held:
                found = self._look(query_name, _remembering(open_table(self.layout.pointers(query_name))))
                require_held()
                # First: what is about to be deleted must not be named by a version that calls itself readable.
                self._rewrite(found.pointers)
                untidy = [stage for stage in found.stages if not stage.is_tidy]
                for stage in untidy:
                    require_held()
                    self._delete(stage)
            for stage in untidy:
                self._tidy_files(stage)
            if found.pointers.files.expired:
                self._vacuum(found.pointers.table.table_uri)
        return found.upkeep

    def tidy_mart(self, mart: Mart, *, dry_run: bool = False) -> Upkeep | None:
        """Brings small files together, and removes those that no version within the retention has. None where the mart
        was never made. It is not refreshed meanwhile."""
        table = find_table(self.layout.mart(mart.name))
        if table is None:
            return None
        found = self._of_mart(mart, self._readable_files(table)[1])
        if dry_run or found.is_nothing:
            return found
        with self.records().exclusive(refreshing_scope(self.layout.source, mart)) as require_held:
            table = _remembering(open_table(self.layout.mart(mart.name)))
            oldest, files = self._readable_files(table)
            require_held()
            with readable_delta_errors(table.table_uri):
                if files.small:
                    table.optimize.compact()
                if files.expired:
                    _commit_mark(table, _readable_since(oldest.version() if oldest else None))
                    self._vacuum(table.table_uri)
        return self._of_mart(mart, files)

    def _of_mart(self, mart: Mart, files: _Files) -> Upkeep:
        return Upkeep(
            query_name=self._mart_name(mart),
            small_files=files.small,
            files=files.expired,
            bytes=files.expired_bytes,
        )

    def _mart_name(self, mart: Mart) -> str:
        return f"{self.layout.source}_marts.{mart.name}"

    def _look(self, query_name: str, table: DeltaTable) -> _Found:
        pointers = self._pointers(table)
        versions = {version for name, version in self.catalog.schemas if name == query_name}
        # A version that has left the catalog is known to the pointers alone.
        for rows in (pointers.needed, pointers.superseded):
            versions.update(pc.unique(rows["schema_version"]).to_pylist())
        stages = {version: find_table(self.layout.stage(query_name, version)) for version in sorted(versions)}
        return _Found(
            query_name=query_name,
            pointers=pointers,
            stages=[self._stage(stage, version, pointers) for version, stage in stages.items() if stage],
        )

    def _pointers(self, table: DeltaTable) -> _Pointers:
        before, files = self._readable_files(table)
        if before is None:
            rows = _as_written(select(table, "SELECT * FROM this ORDER BY logical_date, customer_id"), table)
            return _Pointers(table=table, oldest=None, needed=rows, superseded=rows.slice(0, 0), files=files)
        with readable_delta_errors(table.table_uri):
            found = QueryBuilder().register("pointers", table).register("before", before).execute(_NEEDED)
            rows = pa.RecordBatchReader.from_stream(found).read_all()
        needed = rows["needed"]
        rows = _as_written(rows.drop_columns("needed"), table)
        return _Pointers(
            table=table,
            oldest=before.version(),
            needed=rows.filter(needed),
            superseded=rows.filter(pc.invert(needed)),
            files=files,
        )

    def _readable_files(self, table: DeltaTable) -> tuple[DeltaTable | None, _Files]:
        """The table as it was when the retention began, from which on every version stays readable, and what there is
        to do about its files; without the first there is no saying which versions would lose theirs."""
        before, files = _table_at(table, self.now() - timedelta(hours=self.retention_hours)), self._files(table)
        if before is None or before.version() < readable_from(table):
            return None, replace(files, expired=0, expired_bytes=0)
        return before, files

    def _stage(self, table: DeltaTable, schema_version: str, pointers: _Pointers) -> _Stage:
        unnamed = _without(_staged(table), _named(pointers.needed, schema_version))
        before = _table_at(table, self.now() - GRACE) if unnamed.num_rows else None
        dead = _among(unnamed, _staged(before)) if before else unnamed.slice(0, 0)
        superseded = _among(dead, _named(pointers.superseded, schema_version)).num_rows
        return _Stage(table=table, dead=dead, superseded=superseded, files=self._files(table))

    def _rewrite(self, pointers: _Pointers) -> None:
        table = pointers.table
        commit = _readable_since(pointers.oldest)
        with readable_delta_errors(table.table_uri):
            if pointers.superseded.num_rows or pointers.files.small:
                # Takes the place of the files that were read, and of no other: a pointer appended meanwhile stays.
                write_deltalake(table, pointers.needed, mode="overwrite", commit_properties=commit)
            elif pointers.files.expired:
                _commit_mark(table, commit)

    def _delete(self, stage: _Stage) -> None:
        spark = self.session()
        if not _remembers(stage.table):
            set_properties(spark, stage.uri, _PROPERTIES)
        if stage.dead.num_rows:
            delete_stages(spark, stage.uri, stage.dead, times_collected=times_collected(stage.table) + 1)

    def _tidy_files(self, stage: _Stage) -> None:
        if stage.files.small:
            compact(self.session(), stage.uri)
        if stage.files.expired:
            vacuum(self.session(), stage.uri, hours=self._hours_of_files)

    def _vacuum(self, uri: str) -> None:
        with readable_delta_errors(uri):
            open_table(uri).vacuum(self._hours_of_files, dry_run=False, enforce_retention_duration=False, full=True)

    def _files(self, table: DeltaTable) -> _Files:
        with readable_delta_errors(table.table_uri):
            expired = table.vacuum(self._hours_of_files, dry_run=True, enforce_retention_duration=False, full=True)
            # It names every removed file of the log, also those that an earlier vacuum took.
            there = {file.path: file.size for file in _listed(table, "")} if expired else {}
            sizes = [there[path] for path in expired if path in there]
            live = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
        return _Files(small=files_to_compact(live), expired=len(sizes), expired_bytes=sum(sizes))

    @property
    def _hours_of_files(self) -> int:
        return self.retention_hours + _MARGIN_HOURS


def _readable_since(version: int | None) -> CommitProperties:
    """Versions before it lose files, or rows that they name."""
    return CommitProperties(app_transactions=[] if version is None else [Transaction(READABLE_FROM, version)])


def _commit_mark(table: DeltaTable, mark: CommitProperties) -> None:
    table.create_write_transaction([], "append", table.schema(), commit_properties=mark)


def _remembers(table: DeltaTable) -> bool:
    return _PROPERTIES.items() <= table.metadata().configuration.items()


def _remembering(table: DeltaTable) -> DeltaTable:
    if not _remembers(table):
        with readable_delta_errors(table.table_uri):
            table.alter.set_table_properties(dict(_PROPERTIES))
    return open_table(table.table_uri)


def _table_at(table: DeltaTable, moment: datetime) -> DeltaTable | None:
    """The version that was current then; None where the log does not reach back, or not with all that it needs."""
    with readable_delta_errors(table.table_uri):
        commits = {
            int(file.base_name.removesuffix(".json")): file.mtime
            for file in _listed(table, "_delta_log")
            if file.base_name.endswith(".json") and file.base_name.removesuffix(".json").isdecimal()
        }
        version = version_at(commits, moment)
        if version is None:
            return None
        try:
            return DeltaTable(table.table_uri, version=min(version, table.version()))
        except DeltaError:
            return None


def _listed(table: DeltaTable, folder: str) -> list[FileInfo]:
    storage = PyFileSystem(DeltaStorageHandler(table.table_uri))
    found: list[FileInfo] = storage.get_file_info(FileSelector(folder))
    return found


def _as_written(rows: pa.Table, table: DeltaTable) -> pa.Table:
    """A query answers with types of its own."""
    return rows.cast(pa.schema(table.schema().to_arrow()))


def _staged(table: DeltaTable) -> pa.Table:
    return select(table, f"SELECT DISTINCT {', '.join(_STAGED.names)} FROM this").cast(_STAGED)  # noqa: S608


def _named(pointers: pa.Table, schema_version: str) -> pa.Table:
    shown = _active(pointers)
    return shown.filter(pc.equal(shown["schema_version"], schema_version)).select(_STAGED.names).cast(_STAGED)


def _active(pointers: pa.Table) -> pa.Table:
    return pointers.filter(pc.equal(pointers["status"], PointerStatus.ACTIVE.value))


def _without(staged: pa.Table, others: pa.Table) -> pa.Table:
    return staged.join(others, _STAGED.names, join_type="left anti")


def _among(staged: pa.Table, others: pa.Table) -> pa.Table:
    return staged.join(others, _STAGED.names, join_type="left semi")
