"""`gads setup` and `gads doctor`: what this machine needs, made ready or explained."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gads_assets.cli.output import JsonOption, messages, print_json, print_table
from gads_assets.domain.roles import Role
from gads_assets.errors import GadsError, SetupError
from gads_assets.settings import Settings, read_settings
from gads_assets.warehouse.java import Java, fetch_jars, find_jars, find_java

_DATABASE = "database"
_JAVA_PACKAGE = "openjdk-17-jre-headless"


def setup() -> None:
    """Make this machine ready: Java, the Delta JARs, the database. What is there already is left alone."""
    settings = read_settings(os.environ)
    require_writable(settings.home)
    if not settings.spark_remote:
        _jars(settings, _java())
    _database(settings)


def require_writable(home: Path) -> None:
    """Everything a run writes is below the home: better to know before the first stage than after the third."""
    _probe(home, home)


def _require_usable(home: Path) -> Path:
    """As `require_writable`, but makes no home: the folder in which it would be made is tried, and returned."""
    folder = next(folder for folder in (home, *home.parents) if os.path.lexists(folder))
    _probe(home, folder)
    return folder


def _probe(home: Path, folder: Path) -> None:
    """With a file of no fixed name: commands that probe at once would take each other's away."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"x" * 4096)
            probe.flush()
    except OSError as error:
        raise SetupError(
            f"GADS_HOME {home} cannot be written ({error.strerror or error}); "
            "set GADS_HOME to a folder of yours on a disk with free space"
        ) from error


def require_spark(settings: Settings) -> None:
    """Java and the JARs, found before the first stage rather than missed in the third."""
    if not settings.spark_remote:
        find_java(os.environ)
        _found_jars(settings)


def _java() -> Java:
    try:
        return find_java(os.environ)
    except SetupError:
        if os.environ.get("JAVA_HOME") or os.geteuid() != 0 or not shutil.which("apt-get"):
            raise
    messages.print(f"Installing Java ({_JAVA_PACKAGE})")
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", _JAVA_PACKAGE]):
        answer = subprocess.run(["apt-get", "-qq", *arguments], capture_output=True, text=True, check=False)
        if answer.returncode:
            raise SetupError(f"`apt-get {' '.join(arguments)}` failed; install Java 17 or 21 by hand, or set JAVA_HOME")
    return find_java(os.environ)


def _jars(settings: Settings, java: Java) -> None:
    kept = settings.spark_home / "jars"
    try:
        find_jars(given=settings.spark_jars, kept=kept)
    except SetupError:
        if settings.spark_jars:
            raise
        messages.print("Fetching the Delta Lake JARs from Maven Central")
        import pyspark  # noqa: PLC0415

        fetch_jars(java=java, spark_home=Path(pyspark.__file__).parent, kept=kept)


def _database(settings: Settings) -> None:
    from gads_assets.state.migration import migrate, migration_status  # noqa: PLC0415
    from gads_assets.state.server import running_database  # noqa: PLC0415

    if settings.database_url is None and not settings.database_home.exists():
        messages.print(f"Creating the database in {settings.database_home}")
    with running_database(settings.database_home, settings.database_url) as url:
        if not migration_status(url).is_current:
            messages.print("Migrating the database")
        migrate(url)


@dataclass(frozen=True, kw_only=True)
class Finding:
    part: str
    ok: bool
    detail: str


LiveOption = Annotated[
    bool, typer.Option("--live", help="Also ask the Google Ads API: two calls that only read, at most two operations.")
]


def doctor(as_json: JsonOption = False, live: LiveOption = False) -> None:
    """Check each part that a run needs: ok, or how to mend it. Exits 1 if any is not ok. Starts and changes nothing.

    Only --live starts something, for as long as the API is asked: the database, which counts the operations (the
    embedded one is migrated as it starts), and without credentials the emulator. With a database that is not ok the
    API is asked all the same, uncounted.
    """
    settings = read_settings(os.environ)
    findings = [_examine(part, look) for part, look in _parts(settings)]
    if live:
        is_counted = all(finding.ok for finding in findings if finding.part == _DATABASE)
        findings += _live_findings(settings, counted=is_counted)
    if as_json:
        print_json([{"part": finding.part, "ok": finding.ok, "detail": finding.detail} for finding in findings])
    else:
        print_table(
            None,
            ["part", "", "detail"],
            [(finding.part, "ok" if finding.ok else "PROBLEM", finding.detail) for finding in findings],
        )
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def _live_findings(settings: Settings, *, counted: bool) -> list[Finding]:
    from gads_assets.cli.live import COST, CREDENTIALS, live_parts  # noqa: PLC0415
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    messages.print(COST if counted else f"{COST}, not counted without the database", soft_wrap=True)
    findings: list[Finding] = []
    with Workplace(settings) as here:
        for part, look in live_parts(here, datetime.now(UTC).date(), counted=counted):
            findings.append(_examine(part, look))
            if part == CREDENTIALS and not findings[-1].ok:
                break
    return findings


def _parts(settings: Settings) -> list[tuple[str, Callable[[], str]]]:
    return [
        ("home", lambda: _home(settings)),
        *_spark_parts(settings),
        (_DATABASE, lambda: _database_detail(settings)),
        ("catalog", lambda: _catalog_detail(settings)),
        ("google ads", lambda: _api_detail(settings)),
    ]


def _spark_parts(settings: Settings) -> list[tuple[str, Callable[[], str]]]:
    if settings.spark_remote:
        return [("spark", lambda: f"Spark Connect at {settings.spark_address}")]
    return [
        ("java", lambda: f"Java {(java := find_java(os.environ)).major} in {java.home}"),
        ("jars", lambda: ", ".join(jar.name for jar in _found_jars(settings))),
    ]


def _examine(part: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(part=part, ok=True, detail=look())
    except GadsError as error:
        return Finding(part=part, ok=False, detail=str(error))


def _home(settings: Settings) -> str:
    free = shutil.disk_usage(_require_usable(settings.home)).free
    return f"{settings.home}, {free / 2**30:.1f} GiB free"


def _found_jars(settings: Settings) -> list[Path]:
    return find_jars(given=settings.spark_jars, kept=settings.spark_home / "jars")


def _database_detail(settings: Settings) -> str:
    from gads_assets.state.connection import describe, parse_database_url, require_reachable  # noqa: PLC0415
    from gads_assets.state.migration import require_current_schema  # noqa: PLC0415
    from gads_assets.state.server import database_status  # noqa: PLC0415

    url = settings.database_url
    if url:
        require_reachable(url)
    else:
        url = database_status(settings.database_home).url
    if url is None and not settings.database_home.exists():
        raise SetupError("there is no database yet; run `make setup` or `gads setup`")
    if url is None:
        return f"embedded in {settings.database_home}, stopped; commands start it on demand"
    schema = require_current_schema(url)
    for role in Role:
        require_reachable(settings.role_database_urls.get(role, url), role)
    return f"{describe(parse_database_url(url))}, schema {schema}"


def _catalog_detail(settings: Settings) -> str:
    from gads_assets.catalog.loading import load_catalog  # noqa: PLC0415

    catalog = load_catalog(settings.catalog_path)
    return f"{len(catalog.queries)} queries of API {catalog.api_version}"


def _api_detail(settings: Settings) -> str:
    if settings.google_ads_config:
        if not settings.google_ads_config.is_file():
            raise SetupError(f"{settings.google_ads_config} is not a file; name a google-ads.yaml")
        return f"Google, with {settings.google_ads_config}"
    if settings.google_ads_variables:
        return "Google, with the GOOGLE_ADS_* variables"
    if settings.google_ads_endpoint:
        return f"emulator at {settings.google_ads_endpoint}"
    return "emulator, started by each process that needs it"
