"""A loader that dies at a named point of a load, by what it is given and what it calls."""

import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, assert_never
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrameWriter
from sqlalchemy import Engine

from gads_assets.domain.roles import Role
from gads_assets.domain.state import LoadRecord
from gads_assets.orchestration.workplace import Workplace
from gads_assets.state.partition_states import StateStore
from gads_assets.warehouse import pointers
from gads_assets.warehouse.loading import Loader

Die = Callable[[], NoReturn]


class Failpoint(StrEnum):
    BEFORE_STAGE = "before_stage"
    STAGE_UNCOMMITTED = "stage_uncommitted"
    """The files of the stage are written, and no commit names them."""
    STAGE_COMMITTED = "stage_committed"
    """The rows are in the stage table, under an id that no pointer will name; nobody has held them against the seal."""
    BEFORE_SWAP = "before_swap"
    SWAP_UNCOMMITTED = "swap_uncommitted"
    """The file of the pointers is written, and no commit names it."""
    SWAP_UNANSWERED = "swap_unanswered"
    """Readers see the new runs, and the loader does not know."""
    BEFORE_RECORD = "before_record"


class DiedError(BaseException):
    """No handler of errors may live on; the rest of this process stands for others."""


def die_alone() -> NoReturn:
    raise DiedError


def die_by_kill() -> NoReturn:
    """With the JVM, and whoever else is in this process's group."""
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("a process went on after kill -9")


@contextmanager
def dying_loader(here: Workplace, failpoint: Failpoint, die: Die) -> Iterator[Loader]:
    """The loader of a process that dies there, if its load stages a row."""
    loader = here.loader
    publisher = loader.publisher
    with pytest.MonkeyPatch.context() as patch:
        match failpoint:
            case Failpoint.BEFORE_STAGE:
                loader = replace(loader, publisher=replace(publisher, new_stage_id=die))
            case Failpoint.STAGE_UNCOMMITTED | Failpoint.STAGE_COMMITTED:
                is_committed = failpoint is Failpoint.STAGE_COMMITTED
                patch.setattr(DataFrameWriter, "save", _dying_save(die, is_committed=is_committed))
            case Failpoint.BEFORE_SWAP:
                loader = replace(loader, publisher=replace(publisher, now=die))
            case Failpoint.SWAP_UNCOMMITTED:
                patch.setattr(pointers, "write_deltalake", uncommitted_write(die))
            case Failpoint.SWAP_UNANSWERED:
                patch.setattr(pointers, "write_deltalake", unanswered(write_deltalake, die))
            case Failpoint.BEFORE_RECORD:
                loader = replace(loader, store=_UnrecordingStore(here.engine_as(Role.LOADER), die))
            case _:
                assert_never(failpoint)
        yield loader


def _dying_save(die: Die, *, is_committed: bool) -> Callable[..., None]:
    save = DataFrameWriter.save

    def dying(writer: DataFrameWriter, path: str, *arguments: Any, **options: Any) -> None:
        if is_committed:
            save(writer, path, *arguments, **options)
        else:
            table = _folder(path)
            aside = table.with_name(uuid4().hex)
            save(writer.format("parquet"), str(aside))
            for file in aside.glob("part-*"):
                file.rename(table / file.name)
            shutil.rmtree(aside)
        die()

    return dying


def uncommitted_write(die: Die) -> Callable[..., None]:
    """Of `write_deltalake`: the file is there, and no commit names it."""

    def dying(uri: str, rows: pa.Table, **_: object) -> None:
        _folder(uri).mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, _folder(uri) / f"part-00001-{uuid4()}-c000.snappy.parquet")
        die()

    return dying


def unanswered(act: Callable[..., object], die: Die) -> Callable[..., None]:
    """It is done, and whoever asked for it never hears of it."""

    def dying(*given: Any, **named: Any) -> None:
        act(*given, **named)
        die()

    return dying


def _folder(uri: str) -> Path:
    return Path(urlsplit(uri).path)


class _UnrecordingStore(StateStore):
    def __init__(self, engine: Engine, die: Die) -> None:
        super().__init__(engine)
        self._die = die

    def record_loads(self, records: Iterable[LoadRecord]) -> None:  # noqa: ARG002
        self._die()
