"""The emulator as a process and as a server: ports, versions, the command, and Google's own way to connect to it."""

import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from zoneinfo import ZoneInfo

import grpc
import pytest
from google.ads.googleads.errors import GoogleAdsException

from gads_assets.catalog.fields import installed_api_versions
from gads_assets.domain.keys import CustomerId
from gads_assets.emulator.accounts import MANAGER_CUSTOMER_ID, EmulatedAccount, made_up_accounts
from gads_assets.emulator.faults import parse_faults
from gads_assets.emulator.operations import Operation, read_operations
from gads_assets.emulator.server import RunningEmulator, serve_emulator
from gads_assets.errors import (
    CustomerUnavailableError,
    GadsError,
    QueryRefusedError,
    SettingsError,
    SetupError,
    TransientApiError,
)
from gads_assets.extract.client import GoogleAdsSource, connect_to_emulator, connect_to_google
from gads_assets_tests.agencies import enabled_accounts
from gads_assets_tests.google_credentials import (
    EXPIRES_AT_ONCE,
    GRANTED,
    REFUSED,
    TokenAnswer,
    serving_tokens,
    trusting,
    write_google_ads_yaml,
)

BAKERY = CustomerId("2145550101")
ITSELF = "SELECT customer.id FROM customer"
DAY = "SELECT campaign.id, segments.date FROM campaign WHERE segments.date = '2024-06-04'"
COMMAND = "import typer; from gads_assets.cli.emulator import emulator; typer.run(emulator)"


def connected(running: RunningEmulator, api_version: str = "v26") -> GoogleAdsSource:
    return connect_to_emulator(
        running.endpoint, running.ca_path, api_version=api_version, login_customer_id=MANAGER_CUSTOMER_ID
    )


def row_count(source: GoogleAdsSource) -> int:
    return sum(len(batch) for batch in source.stream(BAKERY, DAY, login_customer_id=MANAGER_CUSTOMER_ID))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def emulator(home: Path) -> Iterator[RunningEmulator]:
    with serve_emulator(home=home / "emulator") as running:
        yield running


def test_a_port_in_use_is_one_line_with_the_fix(home: Path, emulator: RunningEmulator) -> None:
    port = int(emulator.endpoint.rpartition(":")[2])
    with (
        pytest.raises(SetupError, match=rf"port {port} cannot be used .* choose a free one") as refusal,
        serve_emulator(home=home / "emulator", port=port),
    ):
        pass
    assert "\n" not in str(refusal.value)


def test_only_this_machine_can_reach_it(emulator: RunningEmulator) -> None:
    port = int(emulator.endpoint.rpartition(":")[2])
    listening = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
    ]
    # 127.0.0.1, plain or mapped into IPv6, as the kernel writes it.
    assert listening
    assert all(address.split(":")[0].endswith("0100007F") for address in listening)


@pytest.mark.parametrize("api_version", installed_api_versions())
def test_every_version_that_the_client_has_is_served(emulator: RunningEmulator, api_version: str) -> None:
    assert row_count(connected(emulator, api_version)) > 5


def test_a_version_that_the_client_lacks_is_named_with_those_it_has(emulator: RunningEmulator) -> None:
    with pytest.raises(SettingsError, match=r"'v9' is not in the installed google-ads client; use one of .*v26"):
        connected(emulator, "v9")


def test_a_missing_certificate_or_a_bad_endpoint_says_what_to_do(emulator: RunningEmulator, tmp_path: Path) -> None:
    for endpoint, ca_path, said in (
        (emulator.endpoint, tmp_path / "ca.pem", "start `gads emulator` with the same GADS_HOME"),
        ("localhost", emulator.ca_path, "write it as localhost:50051"),
        ("https://localhost:1/", emulator.ca_path, "write it as localhost:50051"),
    ):
        with pytest.raises(SettingsError, match=said):
            connect_to_emulator(endpoint, ca_path, api_version="v26", login_customer_id=MANAGER_CUSTOMER_ID)


def test_a_proxy_meant_for_the_world_outside_is_not_asked(
    emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert row_count(connected(emulator)) > 5


def test_callers_at_the_same_time_all_get_their_own_answers(emulator: RunningEmulator) -> None:
    source = connected(emulator)
    clients = [account.customer_id for account in enabled_accounts(source)]

    def rows(customer: CustomerId) -> tuple[CustomerId, set[int]]:
        gaql = "SELECT customer.id FROM ad_group WHERE segments.date = '2024-06-04'"
        batches = source.stream(customer, gaql, login_customer_id=MANAGER_CUSTOMER_ID)
        return customer, {row.customer.id for batch in batches for row in batch}  # type: ignore[attr-defined]  # GoogleAdsRow

    with ThreadPoolExecutor(6) as pool:
        for customer, ids in pool.map(rows, clients * 6):
            assert ids == {int(customer)}


def test_latency_delays_every_answer(home: Path) -> None:
    with serve_emulator(home=home / "emulator", latency=0.3) as running:
        source = connected(running)
        row_count(source)
        started = monotonic()
        row_count(source)
        assert monotonic() - started >= 0.3


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        ("internal@*/*/*", TransientApiError, "INTERNAL"),
        ("customer_not_enabled@2145550101/*/*", CustomerUnavailableError, "CUSTOMER_NOT_ENABLED"),
        ("customer_suspended@2145550101/*/*", CustomerUnavailableError, "ACTION_NOT_PERMITTED_FOR_SUSPENDED_ACCOUNT"),
        ("permission_denied@2145550101/*/*", CustomerUnavailableError, "USER_PERMISSION_DENIED"),
    ],
)
@pytest.mark.parametrize("gaql", [DAY, "SELECT campaign.id FROM campaign"])
def test_failures_on_demand_are_told_apart_by_googles_own_codes(
    home: Path, fault: str, error: type[Exception], said: str, gaql: str
) -> None:
    with serve_emulator(home=home / "emulator", faults=parse_faults(fault)) as running:
        source = connected(running)
        with pytest.raises(error, match=said):
            list(source.stream(BAKERY, gaql, login_customer_id=source.login_customer_id))
        other = CustomerId("3305550102")
        if error is CustomerUnavailableError:
            assert list(source.stream(other, gaql, login_customer_id=source.login_customer_id))


def list_customers(running: RunningEmulator) -> list[str]:
    """Through a plain channel, as the client under test never asks for this."""
    channel = grpc.secure_channel(
        running.endpoint,
        grpc.ssl_channel_credentials(running.ca_path.read_bytes()),
        options=[("grpc.enable_http_proxy", 0)],
    )
    customers = importlib.import_module("google.ads.googleads.v26.services.types.customer_service")
    with channel:
        call = channel.unary_unary(
            "/google.ads.googleads.v26.services.CustomerService/ListAccessibleCustomers",
            request_serializer=customers.ListAccessibleCustomersRequest.serialize,
            response_deserializer=customers.ListAccessibleCustomersResponse.deserialize,
        )
        metadata = (("authorization", "Bearer token"), ("developer-token", "token"))
        return list(call(customers.ListAccessibleCustomersRequest(), metadata=metadata, timeout=20).resource_names)


def test_the_list_of_customers_fails_by_what_strikes_all_of_them_and_names_the_top_only(home: Path) -> None:
    faults = parse_faults("bad_auth@2145550101/*/*; transient@*/*/*")
    with serve_emulator(home=home / "emulator", faults=faults, accounts=made_up_accounts(25)) as running:
        with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
            list_customers(running)
        assert list_customers(running) == [f"customers/{MANAGER_CUSTOMER_ID}"]


def test_a_slow_stream_gives_every_row_and_takes_its_time_between_messages(home: Path) -> None:
    faults = parse_faults("slow_stream@*/campaign/*:1; rows@*/campaign/*:1500; latency:200")
    with serve_emulator(home=home / "emulator", faults=faults) as running:
        source = connected(running)
        started = monotonic()
        assert row_count(source) == 1_500
        assert monotonic() - started >= 1.2


def test_a_day_cut_short_ends_like_any_other(home: Path) -> None:
    faults = parse_faults("truncated_day@*/campaign/2024-06-04:40")
    with serve_emulator(home=home / "emulator", faults=faults, rows=1_000) as running:
        assert row_count(connected(running)) == 600


def test_an_account_opens_to_the_managers_above_it_and_to_itself_where_access_is_direct(home: Path) -> None:
    root, team, other_team, *_ = agency = made_up_accounts(30)
    client = next(account for account in agency if account.parent == team.customer_id)
    with serve_emulator(home=home / "emulator", accounts=agency) as running:
        source = connected(running)

        def rows(customer: EmulatedAccount, login: CustomerId, gaql: str = DAY) -> int:
            return sum(len(batch) for batch in source.stream(customer.customer_id, gaql, login_customer_id=login))

        assert rows(client, root.customer_id) == rows(client, team.customer_id) > 5
        assert rows(team, root.customer_id, ITSELF) == rows(root, root.customer_id, ITSELF) == 1
        for customer, stranger in (
            (client, client.customer_id),
            (client, other_team.customer_id),
            (client, agency[-1].customer_id),
            (client, BAKERY),
            (team, team.customer_id),
            (root, team.customer_id),
        ):
            with pytest.raises(CustomerUnavailableError, match="USER_PERMISSION_DENIED"):
                rows(customer, stranger, ITSELF)


YESTERDAY = "segments.date DURING YESTERDAY"
CHANGES = "SELECT change_event.resource_name FROM change_event WHERE change_event.change_date_time"


@pytest.mark.parametrize("api_version", installed_api_versions())
@pytest.mark.parametrize(
    ("gaql", "code"),
    [
        (f"SELECT click_view.gclid FROM click_view WHERE {YESTERDAY}", None),
        ("SELECT click_view.gclid FROM click_view", "EXPECTED_FILTER_ON_A_SINGLE_DAY"),
        ("SELECT click_view.gclid FROM click_view WHERE segments.date = '2020-01-01'", "DATE_TOO_OLD"),
        (f"{CHANGES} DURING LAST_14_DAYS LIMIT 10000", None),
        (f"{CHANGES} DURING LAST_14_DAYS", "LIMIT_NOT_SPECIFIED"),
        (f"{CHANGES} DURING LAST_14_DAYS LIMIT 10001", "INVALID_LIMIT_CLAUSE"),
        (f"{CHANGES} > '2020-01-01' LIMIT 5", "CHANGE_DATE_RANGE_INFINITE"),
        (f"{CHANGES} BETWEEN '2020-01-02' AND '2020-01-01' LIMIT 5", "CHANGE_DATE_RANGE_NEGATIVE"),
        (f"{CHANGES} BETWEEN '2020-01-01' AND '2020-01-02' LIMIT 5", "START_DATE_TOO_OLD"),
        ("SELECT change_status.campaign FROM change_status", "LIMIT_NOT_SPECIFIED"),
        (
            f"SELECT segments.conversion_action, metrics.clicks FROM campaign WHERE {YESTERDAY}",
            "PROHIBITED_SEGMENT_WITH_METRIC_IN_SELECT_OR_WHERE_CLAUSE",
        ),
        ("SELECT campaign.id FROM campaign WHERE segments.month = '2024-06-02'", "MISALIGNED_DATE_FOR_FILTER"),
        ("SELECT campaign.id FROM campaign PARAMETERS include_removed = true", "BAD_PARAMETER_NAME"),
    ],
)
def test_the_client_is_refused_as_by_google_in_every_version(
    emulator: RunningEmulator, api_version: str, gaql: str, code: str | None
) -> None:
    source = connected(emulator, api_version)
    with pytest.raises(QueryRefusedError, match=f" {code}: ") if code else nullcontext():
        list(source.stream(BAKERY, gaql, login_customer_id=MANAGER_CUSTOMER_ID))


def test_the_command_serves_an_agency_of_any_size(home: Path) -> None:
    with running_command(home, "--json", "--accounts", "120") as process:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        login = CustomerId(facts["login_customer_id"])
        source = connect_to_emulator(
            facts["endpoint"], Path(facts["ca_path"]), api_version="v26", login_customer_id=login
        )
        enabled = [account for account in made_up_accounts(120) if account.status == "ENABLED" and not account.manager]
        assert {account.customer_id for account in enabled_accounts(source)} == {
            account.customer_id for account in enabled
        }


def test_today_is_each_accounts_own_real_date_unless_another_is_chosen(home: Path, emulator: RunningEmulator) -> None:
    during = "SELECT campaign.id, segments.date FROM campaign WHERE segments.date DURING LAST_7_DAYS"

    def days(source: GoogleAdsSource) -> set[str]:
        batches = source.stream(BAKERY, during, login_customer_id=source.login_customer_id)
        return {row.segments.date for batch in batches for row in batch}  # type: ignore[attr-defined]  # GoogleAdsRow

    now = datetime.now(ZoneInfo("America/New_York")).date()
    week = {(now - timedelta(days=ago)).isoformat() for ago in range(9)}
    assert days(connected(emulator)) <= week
    with running_command(home, "--json", "--today", "2024-06-08") as process:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        source = connect_to_emulator(
            facts["endpoint"], Path(facts["ca_path"]), api_version="v26", login_customer_id=MANAGER_CUSTOMER_ID
        )
        assert days(source) <= {f"2024-06-0{day}" for day in range(1, 8)}
        assert len(days(source)) > 4


def test_operations_are_counted_by_customer_and_resource_here_and_for_other_processes(home: Path) -> None:
    other = CustomerId("3305550102")
    with serve_emulator(home=home / "emulator", record_operations=True) as running:
        source = connected(running)

        def ask(query: str) -> None:
            for customer in (BAKERY, other, BAKERY):
                list(source.stream(customer, query, login_customer_id=source.login_customer_id))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(ask, [DAY, "SELECT ad_group.id from ad_group"] * 5))
        with pytest.raises(GadsError):
            list(source.stream(BAKERY, "SELECT nothing", login_customer_id=source.login_customer_id))
        expected = Counter(
            {
                Operation(BAKERY, "campaign"): 10,
                Operation(BAKERY, "ad_group"): 10,
                Operation(other, "campaign"): 5,
                Operation(other, "ad_group"): 5,
                Operation(BAKERY, ""): 1,
            }
        )
        assert running.operations_by() == expected
        assert running.operations == 31
        assert 1 <= running.most_calls_at_once <= 4
        assert running.operations_path is not None
        assert read_operations(running.operations_path) == expected
    assert not running.operations_path.exists()


def test_the_command_tells_where_its_operations_can_be_counted(home: Path) -> None:
    with running_command(home, "--json") as process:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        counted = Path(facts["operations_path"])
        assert read_operations(counted).total() == 0
        source = connect_to_emulator(
            facts["endpoint"], Path(facts["ca_path"]), api_version="v26", login_customer_id=MANAGER_CUSTOMER_ID
        )
        row_count(source)
        assert read_operations(counted) == {Operation(BAKERY, "campaign"): 1}
        with counted.open("a") as file:
            file.write('{"customer_id": "21455')
        assert read_operations(counted).total() == 1


def test_search_pages_through_the_same_rows_as_the_stream(emulator: RunningEmulator) -> None:
    source = connected(emulator)
    gaql = (
        "SELECT ad_group.id, segments.date FROM search_term_view "
        "WHERE segments.date BETWEEN '2024-04-01' AND '2024-05-31'"
    )
    streamed = [row for batch in source.stream(BAKERY, gaql, login_customer_id=MANAGER_CUSTOMER_ID) for row in batch]
    before = emulator.operations
    pager = source._service("GoogleAdsService", MANAGER_CUSTOMER_ID).search(customer_id=BAKERY, query=gaql)
    paged = [type(row).pb(row) if hasattr(type(row), "pb") else row for row in pager]
    assert len(paged) > 10_000
    assert emulator.operations == before + 1
    assert [row.SerializeToString() for row in paged] == [row.SerializeToString() for row in streamed]


def test_a_page_of_search_can_be_asked_for_again_and_pages_of_several_callers_do_not_mix(home: Path) -> None:
    gaql = "SELECT ad_group.id, segments.date FROM search_term_view WHERE segments.date = '2024-06-04'"
    with serve_emulator(home=home / "emulator", rows=25_000) as running:
        service = connected(running)._service("GoogleAdsService", MANAGER_CUSTOMER_ID)

        def page(token: str) -> tuple[list[str], str]:
            answer = service.search(request={"customer_id": BAKERY, "query": gaql, "page_token": token})
            first = next(iter(answer.pages))
            return [row.search_term_view.resource_name for row in first.results], first.next_page_token

        first, second, third = page(""), page("10000"), page("20000")
        assert [first[1], second[1], third[1]] == ["10000", "20000", ""]
        assert len({*first[0], *second[0], *third[0]}) == 25_000
        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(page, ["", "10000", "", "20000", "10000"])) == [first, second, first, third, second]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [({"page_token": "next"}, "INVALID_PAGE_TOKEN"), ({"page_size": 10}, "PAGE_SIZE_NOT_SUPPORTED")],
)
def test_search_takes_its_own_page_tokens_and_no_page_size(
    emulator: RunningEmulator, wrong: dict[str, object], code: str
) -> None:
    service = connected(emulator)._service("GoogleAdsService", MANAGER_CUSTOMER_ID)
    with pytest.raises(GoogleAdsException) as refusal:
        service.search(request={"customer_id": BAKERY, "query": DAY, **wrong})
    assert code in str(refusal.value.failure)


@contextmanager
def running_command(home: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        env={**os.environ, "GADS_HOME": str(home), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_told_to_stop_and_then_ends_well(home: Path, number: signal.Signals) -> None:
    with running_command(home, "--json") as process:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        source = connect_to_emulator(
            facts["endpoint"],
            Path(facts["ca_path"]),
            api_version="v26",
            login_customer_id=CustomerId(facts["login_customer_id"]),
        )
        assert row_count(source) > 5
        process.send_signal(number)
        rest, errors = process.communicate(timeout=20)
        assert process.returncode == 0
        assert rest == ""
        assert errors == "stopped after 1 operations\n"


def test_the_command_prints_the_line_that_another_shell_needs(home: Path) -> None:
    with running_command(home) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        endpoint = re.fullmatch(r"export GADS_GOOGLE_ADS_ENDPOINT=localhost:([0-9]+)\n", lines[1])
        assert endpoint
        with socket.create_connection(("127.0.0.1", int(endpoint[1])), timeout=5):
            pass


def test_the_command_takes_faults_from_its_options_or_from_the_environment(home: Path) -> None:
    for arguments, environment in (
        (("--fault", "transient@*/campaign/*", "--fault", "bad_auth@*/ad_group/*"), {}),
        ((), {"GADS_EMULATOR_FAULTS": "transient@*/campaign/*;bad_auth@*/ad_group/*"}),
    ):
        with running_command(home, "--json", *arguments, **environment) as process:
            assert process.stdout is not None
            facts = json.loads(process.stdout.readline())
            source = connect_to_emulator(
                facts["endpoint"],
                Path(facts["ca_path"]),
                api_version="v26",
                login_customer_id=MANAGER_CUSTOMER_ID,
            )
            with pytest.raises(Exception, match="UNAVAILABLE"):
                row_count(source)
            assert row_count(source) > 5
            with pytest.raises(Exception, match="OAUTH_TOKEN_INVALID"):
                list(source.stream(BAKERY, "SELECT ad_group.id FROM ad_group", login_customer_id=MANAGER_CUSTOMER_ID))


# A process of its own, as only its first TLS handshake decides whom the library's channel trusts.
ASK_GOOGLE = """
import sys
from pathlib import Path
from gads_assets.errors import GadsError
from gads_assets.extract.client import connect_to_google
try:
    source = connect_to_google(Path(sys.argv[1]), api_version="v26", login_customer_id="1000000000")
    rows = sum(len(batch) for batch in source.stream("2145550101", sys.argv[2], login_customer_id="1000000000"))
    print(source.origin, rows)
except GadsError as error:
    print(type(error).__name__, error)
"""


def ask_google(emulator: RunningEmulator, folder: Path, *answers: TokenAnswer) -> str:
    with serving_tokens(*answers) as server:
        path = write_google_ads_yaml(folder, server, endpoint=emulator.endpoint)
        done = subprocess.run(
            [sys.executable, "-c", ASK_GOOGLE, str(path), DAY],
            env={**os.environ, **trusting(emulator.ca_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert "hunter2" not in done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_google_ads_yaml_reaches_the_api_through_the_librarys_own_client(
    emulator: RunningEmulator, tmp_path: Path
) -> None:
    origin, rows = ask_google(emulator, tmp_path, GRANTED).split()
    assert origin == "google"
    assert int(rows) == row_count(connected(emulator))


def test_credentials_that_google_refuses_are_reported_without_being_shown(
    emulator: RunningEmulator, tmp_path: Path
) -> None:
    assert ask_google(emulator, tmp_path, REFUSED).startswith(
        "AuthenticationError Google refuses the credentials (invalid_grant)"
    )


def test_a_token_refused_in_mid_life_is_about_credentials_although_grpc_says_unavailable(
    emulator: RunningEmulator, tmp_path: Path
) -> None:
    assert ask_google(emulator, tmp_path, EXPIRES_AT_ONCE, REFUSED).startswith(
        "AuthenticationError Google refuses the credentials (invalid_grant)"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        ("refresh_token: hunter2: : [", "is not YAML"),
        ("hunter2", "is not a mapping"),
        ("refresh_token: hunter2", "it needs developer_token"),
        ("developer_token: hunter2\nclient_id: hunter2", "it needs developer_token"),
        ("developer_token: hunter2\njson_key_file_path: /hunter2/key.json", "naming a service account's key file"),
    ],
)
def test_a_google_ads_yaml_that_cannot_be_used_is_one_line_that_shows_none_of_it(
    tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "google-ads.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError, match=said) as refusal:
        connect_to_google(path, api_version="v26", login_customer_id=MANAGER_CUSTOMER_ID)
    assert "hunter2" not in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert str(path) in str(refusal.value)
