from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from gads_assets.domain.roles import Role
from gads_assets.errors import SettingsError
from gads_assets.settings import read_settings


def test_an_empty_environment_keeps_everything_under_one_folder_beside_the_project() -> None:
    settings = read_settings({})
    assert settings.home.name == ".gads"
    for place in (settings.raw_uri, settings.warehouse_uri, settings.database_home, settings.dagster_home):
        assert Path(place).is_relative_to(settings.home)


def test_each_part_can_be_moved_out_on_its_own() -> None:
    settings = read_settings({"GADS_HOME": "/data/gads", "GADS_RAW_URI": "s3://bucket/raw"})
    assert (settings.raw_uri, settings.warehouse_uri) == ("s3://bucket/raw", "/data/gads/warehouse")


def test_raw_files_and_warehouse_stay_where_they_were_put_when_the_current_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "somebody"))
    settings = read_settings({"GADS_RAW_URI": "data/raw", "GADS_WAREHOUSE_URI": "~/warehouse"})
    assert settings.raw_uri == str(tmp_path / "data/raw")
    assert settings.warehouse_uri == str(tmp_path / "somebody/warehouse")


@pytest.mark.parametrize(
    ("master", "folder"),
    [
        ("", "spark_conf"),
        ("local", "spark_conf"),
        ("local[4]", "spark_conf"),
        ("spark://host:7077", "cluster"),
        ("yarn", "cluster"),
        ("k8s://https://host:6443", "cluster"),
    ],
)
def test_a_cluster_gets_the_spark_settings_of_a_cluster(master: str, folder: str) -> None:
    chosen = read_settings({"GADS_SPARK_MASTER": master}).spark_conf_dir
    assert chosen.name == folder
    assert (chosen / "spark-defaults.conf").is_file()


def test_a_spark_connect_server_is_shown_without_its_token() -> None:
    assert read_settings({"GADS_SPARK_REMOTE": "sc://host:1/;token=secret"}).spark_address == "host:1"
    assert read_settings({"GADS_SPARK_REMOTE": "sc://me@host/;token=secret"}).spark_address == "host:15002"


@pytest.mark.parametrize(("text", "allowed"), [("", 15000), ("200", 200), (" 1 ", 1), ("0", None), ("000", None)])
def test_the_days_operations_are_those_of_basic_access_unless_told_otherwise(text: str, allowed: int | None) -> None:
    assert read_settings({"GADS_API_DAILY_OPERATIONS": text}).api_daily_operations == allowed


@pytest.mark.parametrize("text", ["-1", "many", "1e3", "1.5", "\u0661\u0662", "9" * 16])
def test_a_number_of_operations_that_is_none_is_refused_with_the_fix(text: str) -> None:
    with pytest.raises(SettingsError, match=r"GADS_API_DAILY_OPERATIONS .* is not .*; write it as 15000, or 0"):
        read_settings({"GADS_API_DAILY_OPERATIONS": text})


@pytest.mark.parametrize(("text", "calls"), [("", 16), ("1", 1), (" 40 ", 40), ("1000", 1000)])
def test_a_step_makes_sixteen_calls_at_once_unless_told_otherwise(text: str, calls: int) -> None:
    assert read_settings({"GADS_API_CALLS_AT_ONCE": text}).api_calls_at_once == calls


@pytest.mark.parametrize("text", ["0", "-1", "1001", "00016", "many", "1.5", "\u0661\u0662", "9" * 5000])
def test_a_number_of_calls_that_no_step_can_make_is_refused_with_the_fix(text: str) -> None:
    with pytest.raises(SettingsError, match=r"GADS_API_CALLS_AT_ONCE .* from 1 to 1000; write it as 16") as refused:
        read_settings({"GADS_API_CALLS_AT_ONCE": text})
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(("text", "above"), [("", 50), ("0", 0), (" 5 ", 5), ("1000", 1000)])
def test_more_than_fifty_partitions_are_confirmed_by_their_number_unless_told_otherwise(text: str, above: int) -> None:
    assert read_settings({"GADS_CONFIRM_ABOVE": text}).confirm_above == above


@pytest.mark.parametrize("text", ["-1", "1001", "many", "1.5", "9" * 5000])
def test_a_threshold_that_would_let_everything_pass_is_refused_with_the_fix(text: str) -> None:
    with pytest.raises(SettingsError, match=r"GADS_CONFIRM_ABOVE .* from 0 to 1000; write it as 50"):
        read_settings({"GADS_CONFIRM_ABOVE": text})


@pytest.mark.parametrize(("text", "hours"), [("", 168), ("24", 24), (" 48 ", 48), ("720", 720)])
def test_what_was_replaced_is_kept_for_a_week_unless_told_otherwise(text: str, hours: int) -> None:
    assert read_settings({"GADS_RETENTION_HOURS": text}).retention_hours == hours


@pytest.mark.parametrize("text", ["0", "23", "721", "-24", "week", "24.5", "\u0664\u0668", "9" * 5000])
def test_a_retention_shorter_than_a_load_may_last_or_longer_than_the_log_is_refused_with_the_fix(text: str) -> None:
    with pytest.raises(SettingsError, match=r"GADS_RETENTION_HOURS .* from 24 to 720; write it as 168") as refused:
        read_settings({"GADS_RETENTION_HOURS": text})
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(("text", "partitions"), [("", 400), ("1", 1), (" 50 ", 50), ("2000", 2000)])
def test_a_run_holds_four_hundred_partitions_unless_told_otherwise(text: str, partitions: int) -> None:
    assert read_settings({"GADS_BATCH_PARTITIONS": text}).batch_partitions == partitions


@pytest.mark.parametrize("text", ["0", "-1", "2001", "00400", "all", "4e2", "1.5", "\u0664", "9" * 5000])
def test_a_size_of_runs_that_is_none_is_refused_with_the_fix(text: str) -> None:
    with pytest.raises(SettingsError, match=r"GADS_BATCH_PARTITIONS .* from 1 to 2000; write it as 400") as refused:
        read_settings({"GADS_BATCH_PARTITIONS": text})
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(("text", "seconds"), [("", 30), ("2", 2), (" 600 ", 600), ("3600", 3600)])
def test_a_run_passes_for_gone_after_half_a_minute_unless_told_otherwise(text: str, seconds: int) -> None:
    assert read_settings({"GADS_LEASE_SECONDS": text}).lease == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["0", "1", "-90", "3601", "90 s", "1.5", "\u0669\u0660", "9" * 5000])
def test_a_lease_that_no_run_can_keep_or_that_hardly_ever_ends_is_refused_with_the_fix(text: str) -> None:
    with pytest.raises(SettingsError, match=r"GADS_LEASE_SECONDS .* from 2 to 3600; write it as 30") as refused:
        read_settings({"GADS_LEASE_SECONDS": text})
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "address",
    [
        "https://hooks.example.com/services/T0/B0/secret",
        "http://127.0.0.1:8080",
        "http://127.0.0.1:8080/",
        "http://[::1]:8080/alerts?token=secret&to=me",
        "https://hooks.example.com/x#secret",
    ],
)
def test_a_webhook_is_taken_as_it_is_written(address: str) -> None:
    assert read_settings({"GADS_ALERT_WEBHOOK": f" {address} "}).alert_webhook == address


def test_without_a_webhook_nothing_is_posted() -> None:
    assert read_settings({}).alert_webhook is None
    assert read_settings({"GADS_ALERT_WEBHOOK": " "}).alert_webhook is None


@pytest.mark.parametrize(
    "address",
    [
        "hooks.example.com/secret",
        "ftp://hooks.example.com/secret",
        "file:///secret",
        "https://somebody:secret@hooks.example.com/x",
        "https://hooks.example.com/se cret",
        "https://hooks.example.com/secret\u00e9",
        "https://hooks.example.com/secret\nHost: elsewhere",
        "https://hooks.example.com?token=secret",
        "https:///secret",
        "https://:443/secret",
        "http://[::1/secret",
        "http://[nowhere]/secret",
        "http://[]/secret",
        "http://host]/secret",
        "http://host:port/secret",
        "http://host:0/secret",
        "http://host:65536/secret",
        "http://host:-1/secret",
    ],
)
def test_an_address_that_nothing_can_be_posted_to_is_refused_without_its_token(address: str) -> None:
    with pytest.raises(SettingsError, match=r"GADS_ALERT_WEBHOOK is not .*; write it as https://") as refused:
        read_settings({"GADS_ALERT_WEBHOOK": address})
    assert "secret" not in str(refused.value)


def test_a_role_may_have_a_login_of_its_own_and_the_others_keep_the_common_one() -> None:
    common, own = "postgresql://common@h/d", "postgresql://own@h/d"
    settings = read_settings({"GADS_DATABASE_URL": common, "GADS_DATABASE_URL_VALIDATOR": own})
    assert settings.role_database_urls == {Role.VALIDATOR: own}
    assert settings.database_url == common


def test_a_variable_set_to_nothing_counts_as_unset() -> None:
    assert read_settings(
        {"GADS_DATABASE_URL": " ", "GADS_DATABASE_URL_LOADER": " ", "GADS_SPARK_REMOTE": ""}
    ) == read_settings({})


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"GADS_DATABASE_URL": "mysql://u:secret@h/d"}, "GADS_DATABASE_URL"),
        ({"GADS_DATABASE_URL_LOADER": "postgresql://u:secret@h/d"}, "GADS_DATABASE_URL_LOADER.*set that too"),
        (
            {"GADS_DATABASE_URL": "postgresql://h/d", "GADS_DATABASE_URL_OPERATOR": "u:secret@h/d"},
            "GADS_DATABASE_URL_OPERATOR does not name a PostgreSQL server",
        ),
        ({"GADS_SPARK_REMOTE": "localhost:15002/;token=secret"}, "GADS_SPARK_REMOTE"),
        ({"GADS_SPARK_REMOTE": "sc://host:port/;token=secret"}, "GADS_SPARK_REMOTE"),
        ({"GADS_SPARK_REMOTE": "sc:///;token=secret"}, "GADS_SPARK_REMOTE"),
        ({"GADS_SPARK_REMOTE": "sc://h", "GADS_SPARK_MASTER": "local"}, "GADS_SPARK_MASTER"),
        *(
            ({name: address}, f"{name} is not the address of .* write it as https://host")
            for name in ("GADS_ALERT_WEBHOOK", "GADS_OPENLINEAGE_URL")
            for address in (
                "host/secret",
                "ftp://host/secret",
                "https://u:secret@host",
                "http://h:x/secret",
                "http://:9/secret",
            )
        ),
        *(({"GADS_API_SILENCE": text}, "GADS_API_SILENCE .* write it as 300") for text in ("0", "-1", "1e3", "5 min")),
        ({"GADS_GOOGLE_ADS_CONFIG": "a.yaml", "GADS_GOOGLE_ADS_ENDPOINT": "localhost:1"}, "GADS_GOOGLE_ADS_ENDPOINT"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_name_and_without_secrets(
    environment: dict[str, str], named: str
) -> None:
    with pytest.raises(SettingsError, match=named) as refused:
        read_settings(environment)
    assert "secret" not in str(refused.value)


LIBRARY_VARIABLES = {
    "GOOGLE_ADS_CLIENT_ID": "id",
    "GOOGLE_ADS_CLIENT_SECRET": "secret",
    "GOOGLE_ADS_REFRESH_TOKEN": "secret",
    "GOOGLE_ADS_LOGIN_CUSTOMER_ID": "1234567890",
}


@pytest.mark.parametrize(
    ("environment", "file", "variables"),
    [
        ({}, None, set()),
        ({"GADS_GOOGLE_ADS_CONFIG": "/a.yaml", "GOOGLE_ADS_CONFIGURATION_FILE_PATH": "/b.yaml"}, "/a.yaml", set()),
        ({"GOOGLE_ADS_CONFIGURATION_FILE_PATH": "/b.yaml", **LIBRARY_VARIABLES}, "/b.yaml", set()),
        (LIBRARY_VARIABLES, None, {"client_id", "client_secret", "refresh_token", "login_customer_id"}),
        ({"GADS_GOOGLE_ADS_ENDPOINT": "localhost:1", **LIBRARY_VARIABLES}, None, set()),
        (
            {"GADS_GOOGLE_ADS_ENDPOINT": "localhost:1", "GOOGLE_ADS_CONFIGURATION_FILE_PATH": "/b.yaml"},
            None,
            set(),
        ),
        ({"GOOGLE_ADS_LOGIN_CUSTOMER_ID": "1234567890", "GOOGLE_ADS_HTTP_PROXY": "http://p"}, None, set()),
        ({"GOOGLE_ADS_USE_APPLICATION_DEFAULT_CREDENTIALS": "False"}, None, set()),
        (
            {"GOOGLE_ADS_USE_APPLICATION_DEFAULT_CREDENTIALS": "True"},
            None,
            {"use_application_default_credentials"},
        ),
        ({"GOOGLE_ADS_DEVELOPER_TOKEN": " secret "}, None, {"developer_token"}),
    ],
)
def test_credentials_come_from_one_place_and_the_first_that_is_set(
    environment: dict[str, str], file: str | None, variables: set[str]
) -> None:
    settings = read_settings(environment)
    assert settings.google_ads_config == (Path(file) if file else None)
    assert set(settings.google_ads_variables) == variables
    assert settings.asks_google == bool(file or variables)


def test_every_variable_of_the_library_is_passed_on_under_the_librarys_own_key() -> None:
    library: Any = import_module("google.ads.googleads.config")
    keys = library._KEYS_ENV_VARIABLES_MAP
    given = {name: "secret" for key, name in keys.items() if key != "configuration_file_path"}
    assert read_settings(given).google_ads_variables.keys() == keys.keys() - {"configuration_file_path"}


def test_a_google_ads_yaml_in_the_users_folder_is_not_taken_without_being_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "google-ads.yaml").write_text("developer_token: secret")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not read_settings({}).asks_google
    named = read_settings({"GADS_GOOGLE_ADS_CONFIG": "~/google-ads.yaml"})
    assert named.google_ads_config == tmp_path / "google-ads.yaml"


def test_settings_can_be_printed_without_showing_a_secret() -> None:
    settings = read_settings(
        {
            **LIBRARY_VARIABLES,
            "GADS_DATABASE_URL": "postgresql://u:secret@h/d",
            "GADS_DATABASE_URL_LOADER": "postgresql://l:secret@h/d",
            "GADS_RAW_URI": "s3://key:secret@bucket",
            "GADS_WAREHOUSE_URI": "s3://key:secret@bucket",
            "GADS_SPARK_REMOTE": "sc://h/;token=secret",
            "GADS_ALERT_WEBHOOK": "https://h/secret",
            "GADS_OPENLINEAGE_URL": "https://h/?key=secret",
        }
    )
    assert "secret" not in repr(settings)
