"""The Spark session: a tuned one of this process, or a Spark Connect server's."""

import logging
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no stubs
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from gads_assets.errors import SetupError
from gads_assets.warehouse.java import Java

SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""What a call into Spark raises; the second where PySpark has no name for what the JVM said."""

_DISK_FULL = "No space left on device"
_NO_PLACE = "DELTA_CANNOT_CREATE_LOG_PATH"
_CLASSES = re.compile(r"^([\w$]+\.)+[\w$]+: ")


@dataclass(frozen=True, kw_only=True)
class LocalSpark:
    """A session in a JVM of this process's own; `conf_dir` holds spark-defaults.conf."""

    java: Java
    jars: Sequence[Path]
    conf_dir: Path
    scratch: Path
    log: Path
    master: str | None = None


def open_local_session(local: LocalSpark) -> SparkSession:
    """Starts (or returns) this process's session. What the JVM prints goes to `local.log`, not to the terminal."""
    conf = (
        SparkConf(loadDefaults=False)
        .set("spark.jars", ",".join(map(str, local.jars)))
        .set("spark.local.dir", str(local.scratch))
        .set("spark.sql.warehouse.dir", str(local.scratch / "warehouse"))
        # Native libraries are unpacked there, and a killed JVM leaves them behind: under the home, not in /tmp.
        .set("spark.driver.defaultJavaOptions", f'"-Djava.io.tmpdir={local.scratch}"')
    )
    if local.master:
        conf = conf.set("spark.master", local.master)
    _silence_client()
    if SparkContext._gateway is None:
        _start_jvm(local, conf)
    try:
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except SPARK_ERRORS as error:
        raise SetupError(f"Spark did not start: {spark_reason(error)}; its log is {local.log}") from error


def connect_session(remote: str, *, address: str) -> SparkSession:
    """A session on a Spark Connect server, which must have Delta; it reads the same storage as this process.

    `address` is its host and port, without what else `remote` may hold.
    """
    _require_listening(address)
    _silence_client()
    session = SparkSession.builder.remote(remote).getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def spark_reason(error: Exception) -> str:
    """Spark's words in one line, without its plan, its stack and its SQLSTATE."""
    text = str(error).strip()
    if _DISK_FULL in text:
        return f"{_DISK_FULL}; free space, then run again"
    # The JVM's message follows a line on which call it was, and begins with the names of its classes.
    words = text.partition("\n: ")[2] or text
    line = _CLASSES.sub("", words).partition("\n")[0].partition(" SQLSTATE")[0].strip()
    return f"{line}; set GADS_WAREHOUSE_URI to a place that can be written" if _NO_PLACE in line else line


def _silence_client() -> None:
    """It logs every refused query, plan and stack included, before it raises the error that we report; and py4j
    every refused connection while the JVM goes down."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _require_listening(address: str) -> None:
    """The client itself would go on trying for many minutes."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5):
            pass
    except OSError:
        raise SetupError(
            f"no Spark Connect server answers at {address}; start it, or unset GADS_SPARK_REMOTE"
        ) from None


def _start_jvm(local: LocalSpark, conf: SparkConf) -> None:
    os.environ["JAVA_HOME"] = str(local.java.home)
    os.environ.setdefault("SPARK_CONF_DIR", str(local.conf_dir))
    try:
        local.scratch.mkdir(parents=True, exist_ok=True)
        local.log.parent.mkdir(parents=True, exist_ok=True)
        with local.log.open("ab") as log:
            gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
    except OSError as error:
        raise SetupError(
            f"Spark cannot use {error.filename or local.scratch} ({error.strerror or error}); "
            "set GADS_HOME to a folder of yours on a disk with free space"
        ) from error
    except PySparkException as error:
        raise SetupError(f"Spark did not start; the reason is in {local.log}") from error
    SparkContext._ensure_initialized(gateway=gateway)
