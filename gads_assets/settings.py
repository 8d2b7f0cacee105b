"""What the environment may change, read in one place and passed down as values.

| variable                      | default                  | what it moves                                             |
|-------------------------------|--------------------------|-----------------------------------------------------------|
| GADS_HOME                     | .gads beside the project | everything a run writes, unless moved by a line below     |
| GADS_DATABASE_URL             | embedded PostgreSQL      | the database: postgresql://user:password@host:port/name   |
| GADS_DATABASE_URL_<ROLE>      | GADS_DATABASE_URL        | the login of one role: _EXTRACTOR, _VALIDATOR, _LOADER,   |
|                               |                          | _CONSUMER, _OPERATOR, _REPORTER                           |
| GADS_RAW_URI                  | <home>/raw               | sealed extractions                                        |
| GADS_WAREHOUSE_URI            | <home>/warehouse         | Delta tables                                              |
| GADS_RETENTION_HOURS          | 168                      | how long housekeeping keeps what was replaced, 24 to 720  |
| GADS_CATALOG                  | the catalog inside       | another google_apis.yaml                                  |
| GADS_TENANT_ID                | default                  | whose partitions they are, in the rows of `gads status`   |
| GADS_WORKSPACE_ID             | default                  | and in which of their workspaces                          |
| GADS_STATUS_URL               | http://127.0.0.1:3010    | where `gads status serve` is reached: Dagster links to it |
| GADS_DAGSTER_URL              | http://127.0.0.1:3000    | where Dagster's page is reached: the status links to it   |
| GADS_SPARK_REMOTE             | none                     | a Spark Connect server: sc://host:port                    |
| GADS_SPARK_MASTER             | spark-defaults.conf      | another Spark master; a cluster's has spark_conf/cluster  |
| GADS_SPARK_JARS               | Ivy, once                | a directory of JARs, for machines without Maven Central   |
| GADS_BATCH_PARTITIONS         | 400                      | how many partitions the control plane puts into one run   |
| GADS_LEASE_SECONDS            | 30                       | a run without a sign of life for so long passes for gone  |
| GADS_CONFIRM_ABOVE            | 50                       | more partitions than that are confirmed by their number   |
| GADS_ALERT_WEBHOOK            | none                     | where alerts are posted to, as JSON: http(s)://host/path  |
| GADS_OPENLINEAGE_URL          | none                     | where OpenLineage events are posted to: http(s)://host,   |
|                               |                          | or with a path, if it is not /api/v1/lineage              |
| GADS_API_DAILY_OPERATIONS     | 15000                    | how many API operations a day may use; 0 for no limit     |
| GADS_GOOGLE_ADS_CONFIG        | none                     | a google-ads.yaml: talk to Google instead of the emulator |
| GOOGLE_ADS_*                  | none                     | the same in the variables of Google's own library         |
| GADS_GOOGLE_ADS_ENDPOINT      | an emulator per process  | an emulator that runs already: localhost:port             |
| GADS_GOOGLE_ADS_LOGIN         | the credentials' own     | the manager account under which customers are found;      |
|                               |                          | the emulator has one, for Google there is no default      |
| GADS_API_CALLS_AT_ONCE        | 16                       | how many calls a step makes at once, from 1 to 1000       |
| GADS_API_DEADLINE             | 3600                     | seconds that one call to the API may take                 |
| GADS_API_SILENCE              | 300                      | seconds in which a call may receive nothing               |
| GADS_EMULATOR_FAULTS          | none                     | failures for the emulator, as `gads emulator --help` lists|

Credentials come from one place, the first of these that is set: the file GADS_GOOGLE_ADS_CONFIG, the file
GOOGLE_ADS_CONFIGURATION_FILE_PATH, the other GOOGLE_ADS_* variables (GOOGLE_ADS_REFRESH_TOKEN and so on). Values of
two places are never mixed. GADS_GOOGLE_ADS_ENDPOINT asks for the emulator, whatever GOOGLE_ADS_* says. The library's
default, google-ads.yaml in the user's folder, is used only if it is named.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from gads_assets.domain.desk import CONFIRMED_ABOVE
from gads_assets.domain.retention import LONGEST_RETENTION_HOURS, RETENTION_HOURS, SHORTEST_RETENTION_HOURS
from gads_assets.domain.roles import Role
from gads_assets.domain.scheduling import DEFAULT_BATCH
from gads_assets.errors import SettingsError

_POSTGRESQL_URL = re.compile(r"postgresql(\+psycopg2?)?://")
_PROJECT = Path(__file__).resolve().parent.parent
_CONNECT_PORT = 15002  # Spark Connect's own default
_BASIC_ACCESS = 15_000  # operations a day for a developer token with basic access
_DIGITS_OF_A_LIMIT = 15
_CALLS_AT_ONCE = 16
_MOST_CALLS_AT_ONCE = 1_000  # each has a thread
STATUS_PORT = 3010

_PAGE = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?\Z")
_RECEIVER = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+(/[!-~]*)?\Z")
_IDENTIFIER = re.compile(r"[A-Za-z0-9._-]{1,63}\Z")
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?\Z")
_LIBRARY_PREFIX = "GOOGLE_ADS_"
_LIBRARY_FILE = "GOOGLE_ADS_CONFIGURATION_FILE_PATH"
# Any of these says that Google is meant. A login or a proxy alone does not.
_CREDENTIAL_KEYS = frozenset(
    {
        "developer_token",
        "client_id",
        "client_secret",
        "refresh_token",
        "json_key_file_path",
        "path_to_private_key_file",
        "use_application_default_credentials",
    }
)
_NO = frozenset({"n", "no", "f", "false", "off", "0"})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may hold a password or a token is left out of the printed form, which ends up in traces."""

    home: Path
    database_url: str | None = field(repr=False)
    raw_uri: str = field(repr=False)
    warehouse_uri: str = field(repr=False)
    retention_hours: int
    catalog_path: Path | None
    tenant_id: str
    workspace_id: str
    status_url: str
    dagster_url: str
    spark_remote: str | None = field(repr=False)
    spark_master: str | None
    spark_jars: Path | None
    batch_partitions: int
    lease: timedelta
    confirm_above: int
    alert_webhook: str | None = field(repr=False)
    openlineage_url: str | None = field(repr=False)
    api_daily_operations: int | None
    api_calls_at_once: int
    google_ads_config: Path | None
    google_ads_endpoint: str | None
    google_ads_login: str | None
    emulator_faults: str | None
    api_deadline: float
    api_silence: float
    role_database_urls: Mapping[Role, str] = field(default_factory=dict, repr=False)
    google_ads_variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The GOOGLE_ADS_* variables by the keys of a google-ads.yaml, if the credentials are there."""

    @property
    def asks_google(self) -> bool:
        """There are credentials; without them the emulator is asked."""
        return bool(self.google_ads_config or self.google_ads_variables)

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
        return _value(environment, name)

    def path(name: str) -> Path | None:
        return _path(environment, name)

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
    config, variables = _credentials(environment)
    return Settings(
        home=home,
        database_url=database_url,
        raw_uri=place("GADS_RAW_URI", home / "raw"),
        warehouse_uri=place("GADS_WAREHOUSE_URI", home / "warehouse"),
        retention_hours=_whole_number(
            environment,
            "GADS_RETENTION_HOURS",
            RETENTION_HOURS,
            lowest=SHORTEST_RETENTION_HOURS,
            highest=LONGEST_RETENTION_HOURS,
        ),
        catalog_path=path("GADS_CATALOG"),
        tenant_id=_identifier("GADS_TENANT_ID", value("GADS_TENANT_ID")),
        workspace_id=_identifier("GADS_WORKSPACE_ID", value("GADS_WORKSPACE_ID")),
        status_url=_page("GADS_STATUS_URL", value("GADS_STATUS_URL") or f"http://127.0.0.1:{STATUS_PORT}"),
        dagster_url=_page("GADS_DAGSTER_URL", value("GADS_DAGSTER_URL") or "http://127.0.0.1:3000"),
        spark_remote=remote,
        spark_master=master,
        spark_jars=path("GADS_SPARK_JARS"),
        batch_partitions=_whole_number(environment, "GADS_BATCH_PARTITIONS", DEFAULT_BATCH, lowest=1, highest=2_000),
        lease=timedelta(seconds=_whole_number(environment, "GADS_LEASE_SECONDS", 30, lowest=2, highest=3_600)),
        confirm_above=_whole_number(environment, "GADS_CONFIRM_ABOVE", CONFIRMED_ABOVE, lowest=0, highest=1_000),
        alert_webhook=_receiver("GADS_ALERT_WEBHOOK", value("GADS_ALERT_WEBHOOK"), "a webhook", "https://host/path"),
        openlineage_url=_receiver(
            "GADS_OPENLINEAGE_URL", value("GADS_OPENLINEAGE_URL"), "an OpenLineage backend", "https://host"
        ),
        api_daily_operations=_daily_operations(value("GADS_API_DAILY_OPERATIONS")),
        api_calls_at_once=_whole_number(
            environment, "GADS_API_CALLS_AT_ONCE", _CALLS_AT_ONCE, lowest=1, highest=_MOST_CALLS_AT_ONCE
        ),
        google_ads_config=config,
        google_ads_endpoint=value("GADS_GOOGLE_ADS_ENDPOINT"),
        google_ads_login=value("GADS_GOOGLE_ADS_LOGIN"),
        emulator_faults=value("GADS_EMULATOR_FAULTS"),
        api_deadline=_seconds(environment, "GADS_API_DEADLINE", 3600.0),
        api_silence=_seconds(environment, "GADS_API_SILENCE", 300.0),
        role_database_urls=role_database_urls,
        google_ads_variables=variables,
    )


def _whole_number(environment: Mapping[str, str], name: str, default: int, *, lowest: int, highest: int) -> int:
    text = _value(environment, name)
    if text is None:
        return default
    if re.fullmatch(r"[0-9]{1,4}", text) and lowest <= int(text) <= highest:
        return int(text)
    raise SettingsError(f"{name} {text[:40]!r} is not a number from {lowest} to {highest}; write it as {default}")


def _receiver(name: str, text: str | None, what: str, example: str) -> str | None:
    """It may hold a token, so it is not quoted."""
    if text is not None and not (_RECEIVER.match(text) and _has_host(text)):
        raise SettingsError(f"{name} is not the address of {what}; write it as {example}")
    return text


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


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


def _identifier(name: str, text: str | None) -> str:
    if text is None:
        return "default"
    if not _IDENTIFIER.match(text):
        raise SettingsError(f"{name} {text[:40]!r} is not a name; write 1 to 63 letters, digits, '.', '_' and '-'")
    return text


def _page(name: str, text: str) -> str:
    """The address that links begin with: neither a query nor a login is part of it."""
    if not _PAGE.match(text):
        raise SettingsError(f"{name} is not the address of a page; write it as http://host:port")
    return text.rstrip("/")


def _value(environment: Mapping[str, str], name: str) -> str | None:
    return environment.get(name, "").strip() or None


def _path(environment: Mapping[str, str], name: str) -> Path | None:
    text = _value(environment, name)
    return Path(text).expanduser().absolute() if text else None


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = _value(environment, name)
    if text is None:
        return default
    if not _SECONDS.match(text) or not float(text):
        raise SettingsError(f"{name} {text[:40]!r} is not a number of seconds above 0; write it as {default:g}")
    return float(text)


def _credentials(environment: Mapping[str, str]) -> tuple[Path | None, dict[str, str]]:
    """The file that holds them, or the variables that do."""
    config, endpoint = _path(environment, "GADS_GOOGLE_ADS_CONFIG"), _value(environment, "GADS_GOOGLE_ADS_ENDPOINT")
    if config and endpoint:
        raise SettingsError("GADS_GOOGLE_ADS_CONFIG and GADS_GOOGLE_ADS_ENDPOINT are both set; keep one")
    if endpoint:
        return None, {}
    config = config or _path(environment, _LIBRARY_FILE)
    return config, {} if config else _library_variables(environment)


def _library_variables(environment: Mapping[str, str]) -> dict[str, str]:
    given = {
        name.removeprefix(_LIBRARY_PREFIX).lower(): value.strip()
        for name, value in environment.items()
        if name.startswith(_LIBRARY_PREFIX) and name != _LIBRARY_FILE and value.strip()
    }
    if given.get("use_application_default_credentials", "").lower() in _NO:
        del given["use_application_default_credentials"]
    return given if given.keys() & _CREDENTIAL_KEYS else {}


def _connect_address(remote: str) -> str | None:
    try:
        parts = urlsplit(remote)
        port = parts.port or _CONNECT_PORT
    except ValueError:
        return None
    return f"{parts.hostname}:{port}" if parts.scheme == "sc" and parts.hostname else None
