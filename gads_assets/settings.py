"""What the environment may change, read in one place and passed down as values.

| variable                      | default                  | what it moves                                             |
|-------------------------------|--------------------------|-----------------------------------------------------------|
| GADS_HOME                     | .gads beside the project | everything a run writes, unless moved by a line below     |
| GADS_DATABASE_URL             | embedded PostgreSQL      | the database: postgresql://user:password@host:port/name   |
| GADS_DATABASE_URL_<ROLE>      | GADS_DATABASE_URL        | the login of one role: _EXTRACTOR, _VALIDATOR, _LOADER,   |
|                               |                          | _CONSUMER, _OPERATOR                                      |
| GADS_RAW_URI                  | <home>/raw               | sealed extractions                                        |
| GADS_WAREHOUSE_URI            | <home>/warehouse         | Delta tables                                              |
| GADS_CATALOG                  | the catalog inside       | another google_apis.yaml                                  |
| GADS_SPARK_REMOTE             | none                     | a Spark Connect server: sc://host:port                    |
| GADS_SPARK_MASTER             | spark-defaults.conf      | another Spark master; a cluster's has spark_conf/cluster  |
| GADS_SPARK_JARS               | Ivy, once                | a directory of JARs, for machines without Maven Central   |
| GADS_API_DAILY_OPERATIONS     | 15000                    | how many API operations a day may use; 0 for no limit     |
| GADS_GOOGLE_ADS_CONFIG        | none                     | a google-ads.yaml: talk to Google instead of the emulator |
| GADS_GOOGLE_ADS_ENDPOINT      | an emulator per process  | an emulator that runs already: localhost:port             |
| GADS_GOOGLE_ADS_LOGIN         | the credentials' own     | the manager account under which customers are found;      |
|                               |                          | the emulator has one, for Google there is no default      |
| GADS_EMULATOR_FAULTS          | none                     | failures for the emulator, as `gads emulator --help` lists|
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from gads_assets.domain.roles import Role
from gads_assets.errors import SettingsError

_POSTGRESQL_URL = re.compile(r"postgresql(\+psycopg2?)?://")
_PROJECT = Path(__file__).resolve().parent.parent
_CONNECT_PORT = 15002  # Spark Connect's own default
_BASIC_ACCESS = 15_000  # operations a day for a developer token with basic access
_DIGITS_OF_A_LIMIT = 15


@dataclass(frozen=True, kw_only=True)
class Settings:
    home: Path
    database_url: str | None
    raw_uri: str
    warehouse_uri: str
    catalog_path: Path | None
    spark_remote: str | None
    spark_master: str | None
    spark_jars: Path | None
    api_daily_operations: int | None
    google_ads_config: Path | None
    google_ads_endpoint: str | None
    google_ads_login: str | None
    emulator_faults: str | None
    role_database_urls: Mapping[Role, str] = field(default_factory=dict)

    @property
    def database_home(self) -> Path:
        return self.home / "postgres"

    @property
    def dagster_home(self) -> Path:
        return self.home / "dagster"

    @property
    def emulator_home(self) -> Path:
        return self.home / "emulator"

    @property
    def spark_home(self) -> Path:
        """Where Spark's own files go: the JARs it resolved, its scratch space, its log."""
        return self.home / "spark"

    @property
    def spark_conf_dir(self) -> Path:
        folder = _PROJECT / "spark_conf"
        on_this_machine = self.spark_master is None or self.spark_master.startswith("local")
        return folder if on_this_machine else folder / "cluster"

    @property
    def spark_address(self) -> str | None:
        """Host and port of the Spark Connect server: all of it that may be shown, for the rest may hold a token."""
        return _connect_address(self.spark_remote) if self.spark_remote else None


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Raises SettingsError naming the variable; touches neither disk nor network."""

    def value(name: str) -> str | None:
        return environment.get(name, "").strip() or None

    def path(name: str) -> Path | None:
        text = value(name)
        return Path(text).expanduser().absolute() if text else None

    def place(name: str, default: Path) -> str:
        text = value(name) or str(default)
        return text if "://" in text else str(Path(text).expanduser().absolute())

    def postgresql(name: str) -> str | None:
        url = value(name)
        if url and not _POSTGRESQL_URL.match(url):
            raise SettingsError(
                f"{name} does not name a PostgreSQL server; write it as postgresql://user:password@host:port/name"
            )
        return url

    home = path("GADS_HOME") or _PROJECT / ".gads"
    database_url = postgresql("GADS_DATABASE_URL")
    given = {role: postgresql(f"GADS_DATABASE_URL_{role.upper()}") for role in Role}
    role_database_urls = {role: url for role, url in given.items() if url}
    if role_database_urls and not database_url:
        raise SettingsError(
            f"GADS_DATABASE_URL_{min(role_database_urls).upper()} is a login to the server that GADS_DATABASE_URL "
            "names; set that too"
        )
    remote = value("GADS_SPARK_REMOTE")
    if remote and not _connect_address(remote):
        raise SettingsError("GADS_SPARK_REMOTE is not a Spark Connect address; write it as sc://host:port")
    master = value("GADS_SPARK_MASTER")
    if remote and master:
        raise SettingsError("GADS_SPARK_REMOTE and GADS_SPARK_MASTER are both set; keep one")
    config, endpoint = path("GADS_GOOGLE_ADS_CONFIG"), value("GADS_GOOGLE_ADS_ENDPOINT")
    if config and endpoint:
        raise SettingsError("GADS_GOOGLE_ADS_CONFIG and GADS_GOOGLE_ADS_ENDPOINT are both set; keep one")
    return Settings(
        home=home,
        database_url=database_url,
        raw_uri=place("GADS_RAW_URI", home / "raw"),
        warehouse_uri=place("GADS_WAREHOUSE_URI", home / "warehouse"),
        catalog_path=path("GADS_CATALOG"),
        spark_remote=remote,
        spark_master=master,
        spark_jars=path("GADS_SPARK_JARS"),
        api_daily_operations=_daily_operations(value("GADS_API_DAILY_OPERATIONS")),
        google_ads_config=config,
        google_ads_endpoint=endpoint,
        google_ads_login=value("GADS_GOOGLE_ADS_LOGIN"),
        emulator_faults=value("GADS_EMULATOR_FAULTS"),
        role_database_urls=role_database_urls,
    )


def _daily_operations(text: str | None) -> int | None:
    """Google's own limit for basic access, unless told otherwise."""
    if text is None:
        return _BASIC_ACCESS
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_OF_A_LIMIT):
        raise SettingsError(
            f"GADS_API_DAILY_OPERATIONS {text!r} is not a number of operations; write it as {_BASIC_ACCESS}, or 0 for "
            "no limit"
        )
    return int(text) or None


def _connect_address(remote: str) -> str | None:
    try:
        parts = urlsplit(remote)
        port = parts.port or _CONNECT_PORT
    except ValueError:
        return None
    return f"{parts.hostname}:{port}" if parts.scheme == "sc" and parts.hostname else None
