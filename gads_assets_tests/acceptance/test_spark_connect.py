"""The same code on a Spark Connect server: a partition is published through it and read back without it."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest

from gads_assets.catalog.loading import load_catalog
from gads_assets.settings import read_settings
from gads_assets.warehouse.arrow import read_published
from gads_assets.warehouse.java import find_jars, find_java
from gads_assets.warehouse.layout import WarehouseLayout

BIN = Path(sys.executable).parent
LABEL = "2145550101|2024-06-01"


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[str]:
    """A server of one's own, started as spark_conf/cluster/spark-defaults.conf says."""
    settings = read_settings(os.environ)
    cluster = replace(settings, spark_master="spark://anywhere:7077").spark_conf_dir
    jars = find_jars(given=settings.spark_jars, kept=settings.spark_home / "jars")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--conf", f"spark.connect.grpc.binding.port={port}", "--jars", ",".join(map(str, jars))),
        *("--conf", f"spark.sql.warehouse.dir={tmp_path / 'spark'}", "spark-internal"),
    ]
    environment = {
        **os.environ,
        "SPARK_CONF_DIR": str(cluster),
        "JAVA_HOME": str(find_java(os.environ).home),
    }
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=tmp_path)
    try:
        deadline = time.monotonic() + 120
        while not _listens(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"sc://localhost:{port}"
    finally:
        server.terminate()
        server.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _run(*command: str | Path, environment: dict[str, str]) -> str:
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=400)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_a_partition_is_published_and_queried_through_a_spark_connect_server(
    connect_server: str, tmp_path: Path
) -> None:
    # No local session may be started in secret: there is neither Java nor a JAR for one.
    home = tmp_path / "home"
    environment = {
        **os.environ,
        "GADS_HOME": str(home),
        "GADS_SPARK_REMOTE": connect_server,
        "GADS_SPARK_JARS": str(tmp_path),
        "JAVA_HOME": str(tmp_path),
    }
    environment |= json.loads(_run(BIN / "gads", "env", "--json", environment=environment))
    try:
        _run(BIN / "gads", "customers", "sync", environment=environment)
        selection = ("--select", "google_ads/raw/campaign,google_ads/campaign", "--partition", LABEL)
        _run(
            BIN / "dagster",
            "asset",
            "materialize",
            *selection,
            "-m",
            "gads_assets.definitions",
            environment=environment,
        )
        sql = "SELECT campaign_id, metrics_clicks, campaign_name FROM google_ads.campaign ORDER BY campaign_id"
        # Views are shared by the sessions of a server: each must answer as of its own moment all the same.
        before = ("--as-of", "2024-06-01T06:00Z")
        with ThreadPoolExecutor() as pool:
            answers = [
                pool.submit(_run, BIN / "gads", "query", sql, "--json", *moment, environment=environment)
                for moment in ((), before)
            ]
        queried, earlier = (json.loads(each.result()) for each in answers)
    finally:
        _run(BIN / "gads", "db", "stop", environment=environment)
    layout = WarehouseLayout(root=str(home / "warehouse"), source="google_ads")
    rows = read_published(layout, load_catalog(), "campaign").select(["campaign_id", "metrics_clicks", "campaign_name"])
    assert queried == rows.sort_by("campaign_id").to_pylist()
    assert len(queried) > 5
    assert earlier == []
