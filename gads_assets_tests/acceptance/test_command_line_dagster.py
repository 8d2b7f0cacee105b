"""Plain `dagster` commands on this project, as a shell or CI runs them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gads_assets_tests.acceptance.commands import (
    PROGRAMS,
    PROJECT,
    Home,
    published_content,
    published_partitions,
)

CUSTOMER = "2145550101"

ASSET_KEYS = [
    "google_ads/account",
    "google_ads/account_hourly",
    "google_ads/ad",
    "google_ads/ad_group",
    "google_ads/asset_group",
    "google_ads/campaign",
    "google_ads/campaign_search_term_view",
    "google_ads/conversion",
    "google_ads/conversion_action",
    "google_ads/geographic_view",
    "google_ads/housekeeping",
    "google_ads/keyword_view",
    "google_ads/marts/account_day",
    "google_ads/marts/freshness",
    "google_ads/partition_status",
    "google_ads/raw/account",
    "google_ads/raw/account_hourly",
    "google_ads/raw/ad",
    "google_ads/raw/ad_group",
    "google_ads/raw/asset_group",
    "google_ads/raw/campaign",
    "google_ads/raw/campaign_search_term_view",
    "google_ads/raw/conversion",
    "google_ads/raw/conversion_action",
    "google_ads/raw/geographic_view",
    "google_ads/raw/keyword_view",
    "google_ads/raw/search_term_view",
    "google_ads/search_term_view",
]

CONDITIONS = ["api_version_is_supported", "no_terminal_failures", "nothing_stale_beyond_its_limit"]
CHECKS = [
    "bounds",
    "customer",
    "day",
    "day_over",
    "natural_key",
    "record_count",
    "schema",
    "seal",
    "spend",
    "verdict",
    "volume",
]

# Everything that an import could do to the world outside, by Python's own account of it.
WATCHED_IMPORT = """
import json, os, sys
done = []
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
ACTS = ("socket.", "subprocess.", "os.fork", "os.posix_spawn", "os.exec", "os.system", "os.mkdir", "os.rename",
        "os.remove", "os.link", "os.symlink")
def watch(event, args):
    if event.startswith(ACTS) or (event == "open" and args[2] and args[2] & WRITES):
        done.append([event, str(args[0]), str(args[1]) if len(args) > 1 else ""])
sys.addaudithook(watch)
import gads_assets.definitions as definitions
graph = definitions.defs.resolve_asset_graph()
keys = sorted(key.to_user_string() for key in graph.get_all_asset_keys())
checks = sorted(key.to_user_string() for key in graph.asset_check_keys)
sensors = [sensor.name for sensor in definitions.defs.get_repository_def().sensor_defs]
schedules = [schedule.name for schedule in definitions.defs.get_repository_def().schedule_defs]
# Database drivers and gRPC open theirs below Python, where no hook sees it.
descriptors = "/proc/self/fd" if os.path.exists("/proc/self/fd") else "/dev/fd"
for name in os.listdir(descriptors):
    target = os.path.realpath(os.path.join(descriptors, name))
    if "socket:" in target:
        done.append(["open socket", name, target])
print(json.dumps({"file": definitions.__file__, "done": done, "keys": keys, "checks": checks,
                  "sensors": sensors, "schedules": schedules}))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(path=tmp_path_factory.mktemp("dagster") / "home")
    synchronised = home.gads("customers", "sync")
    assert synchronised.returncode == 0, synchronised.stderr
    yield home
    home.stop()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what a clone has, so that a folder made beside it would show."""
    shutil.copytree(PROJECT / "gads_assets", tmp_path / "gads_assets", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("workspace.yaml", "pyproject.toml"):
        shutil.copy(PROJECT / name, tmp_path)
    return tmp_path


def bare(project: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """With an empty environment: a PATH, and where Python finds the copy."""
    environment = {"PATH": os.defpath, "PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_definitions_are_valid_in_an_empty_environment(project: Path) -> None:
    before = sorted(project.iterdir())
    finished = bare(project, [str(PROGRAMS / "dagster"), "definitions", "validate", "-w", "workspace.yaml"])
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "All code locations passed validation" in finished.stdout + finished.stderr
    assert sorted(project.iterdir()) == before


def test_loading_the_definitions_starts_nothing_connects_nowhere_and_writes_nothing(project: Path) -> None:
    finished = bare(project, [sys.executable, "-c", WATCHED_IMPORT])
    assert finished.returncode == 0, finished.stderr
    seen = json.loads(finished.stdout)
    assert seen["file"] == str(project / "gads_assets" / "definitions.py")
    # The standard library asks `file` what kind of program Python is, for a library that wants to know its platform.
    assert [act for act in seen["done"] if act[1] not in {"file", os.devnull}] == []
    assert seen["keys"] == ASSET_KEYS
    of_raw = [f"{key}:{check}" for key in ASSET_KEYS if "/raw/" in key for check in CHECKS]
    of_status = [f"google_ads/partition_status:{check}" for check in CONDITIONS]
    assert sorted(seen["checks"]) == sorted(of_raw + of_status)
    assert sorted(seen["sensors"]) == [f"google_ads_{name}" for name in ("control", "marts", "reconcile", "watch")]
    assert seen["schedules"] == ["google_ads_housekeeping", "google_ads_partition_status"]
    assert not (project / ".gads").exists()


def test_one_partition_is_published_from_a_shell(home: Home) -> None:
    finished = home.materialize("campaign", f"{CUSTOMER}|2024-06-01")
    assert finished.returncode == 0, finished.stderr
    [(partition, pointer)] = published_partitions(home).items()
    assert partition == ("campaign", CUSTOMER, "2024-06-01")
    assert len(published_content(home)[partition]) == pointer.record_count > 0


def tomorrow() -> str:
    return (datetime.now(UTC).date() + timedelta(days=1)).isoformat()


@pytest.mark.parametrize(
    ("partition", "reason"),
    [
        ("1234567890|2024-06-01", "customer 1234567890 is not registered; run `gads customers sync`"),
        (CUSTOMER, "has no '|'; write it as <customer id>|<YYYY-MM-DD>"),
        (f"2024-06-01|{CUSTOMER}", "customer id '2024-06-01' is not ten digits"),
        ("214-555-0101|2024-06-01", f"is not in its plain form; write '{CUSTOMER}|2024-06-01'"),
        (f"{CUSTOMER}|2024-06-31", "day '2024-06-31' is not in the calendar"),
        (f"{CUSTOMER}|{tomorrow()}", f"day {tomorrow()} is outside the catalog's days"),
    ],
)
def test_a_partition_that_cannot_be_is_refused_with_the_reason_in_one_line(
    home: Home, partition: str, reason: str
) -> None:
    before = published_partitions(home)
    finished = home.materialize("campaign", partition)
    assert finished.returncode == 1
    assert finished.stderr.splitlines()[-1].startswith("Error: ")
    assert reason in finished.stderr.splitlines()[-1]
    assert "Traceback" not in finished.stderr
    assert published_partitions(home) == before
