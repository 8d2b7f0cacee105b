"""What the library's client sends and how long it waits, seen from a server's side."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime
from importlib import import_module
from pathlib import Path
from threading import Barrier, Event
from time import sleep
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.emulator.accounts import ACCOUNTS, MANAGER_CUSTOMER_ID, EmulatedAccount
from gads_assets.emulator.authority import localhost_identity
from gads_assets.emulator.server import serve_emulator
from gads_assets.errors import CustomerUnavailableError, ExtractionError, SettingsError, TransientApiError
from gads_assets.extract.client import GoogleAdsSource, Patience, connect_to_emulator
from gads_assets.orchestration.workplace import Workplace
from gads_assets.raw.sink import RawSink
from gads_assets.settings import read_settings
from gads_assets.state.server import stop_database
from gads_assets_tests.acceptance.commands import PATIENCE, delta_jars
from gads_assets_tests.google_credentials import (
    EXPIRES_AT_ONCE,
    GRANTED,
    REFUSED,
    TokenServer,
    serving_tokens,
    trusting,
    write_google_ads_yaml,
    write_key_file,
)

if TYPE_CHECKING:
    _GenericHandler = grpc.GenericRpcHandler[Any, Any]
else:
    # Generic in its stubs only.
    _GenericHandler = grpc.GenericRpcHandler

BAKERY = CustomerId("2145550101")
OTHER_MANAGER = CustomerId("1000000007")
NAMES = "SELECT customer.id FROM customer"

PROGRAM = str(Path(sys.executable).parent / "gads")
DAGSTER = str(Path(sys.executable).parent / "dagster")
MATERIALIZE = ["asset", "materialize", "--select", "google_ads/raw/campaign", "-m", "gads_assets.definitions"]
CAMPAIGNS = "SELECT campaign.id, segments.date FROM campaign WHERE segments.date = '2024-06-04'"
SECRET = "hunter2"

# Gets the request and the call, gives the responses.
Answer = Callable[[Any, grpc.ServicerContext], Iterator[Any]]


class Listener(_GenericHandler):
    """Answers every SearchStream with `answer`, and keeps what each call came with."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.headers: list[dict[str, Any]] = []
        self.channels: set[str] = set()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        services = import_module("google.ads.googleads.v26.services.types.google_ads_service")
        self.headers.append(dict(handler_call_details.invocation_metadata))
        return grpc.unary_stream_rpc_method_handler(
            self._answer,
            request_deserializer=services.SearchGoogleAdsStreamRequest.pb().FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _answer(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        self.channels.add(context.peer())
        return self.answer(request, context)


def response() -> Any:
    services = import_module("google.ads.googleads.v26.services.types.google_ads_service")
    return services.SearchGoogleAdsStreamResponse.pb()()


def one_response(_request: Any, _context: grpc.ServicerContext) -> Iterator[Any]:
    yield response()


@contextmanager
def listening(
    home: Path, answer: Answer = one_response, *, deadline: float = 60, silence: float = 60
) -> Iterator[tuple[Listener, GoogleAdsSource]]:
    identity = localhost_identity(home, now=datetime.now(UTC))
    listener = Listener(answer)
    server = grpc.server(ThreadPoolExecutor(8), handlers=[listener])
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(identity.private_key, identity.certificate)])
    )
    server.start()
    try:
        yield (
            listener,
            connect_to_emulator(
                f"localhost:{port}",
                identity.ca_path,
                api_version="v26",
                login_customer_id=MANAGER_CUSTOMER_ID,
                patience=Patience(deadline=deadline, silence=silence),
            ),
        )
    finally:
        server.stop(grace=0.2).wait()


def asked(
    source: GoogleAdsSource, login: CustomerId, customer: CustomerId = BAKERY, gaql: str = NAMES
) -> Sequence[Any]:
    return [row for batch in source.stream(customer, gaql, login_customer_id=login) for row in batch]


def test_each_call_carries_the_login_that_it_was_given_over_one_channel_for_each_login(tmp_path: Path) -> None:
    with listening(tmp_path) as (listener, source):
        logins = [MANAGER_CUSTOMER_ID, OTHER_MANAGER] * 3
        for login in logins:
            asked(source, login)
        assert [headers["login-customer-id"] for headers in listener.headers] == logins
        assert len(listener.channels) == 2


def test_threads_that_ask_for_the_same_login_at_once_share_its_channel(tmp_path: Path) -> None:
    with listening(tmp_path) as (listener, source):
        together = Barrier(6)

        def ask(login: CustomerId) -> None:
            together.wait(timeout=30)
            asked(source, login)

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(ask, [MANAGER_CUSTOMER_ID, OTHER_MANAGER] * 3))
        assert sorted(headers["login-customer-id"] for headers in listener.headers) == [
            *[MANAGER_CUSTOMER_ID] * 3,
            *[OTHER_MANAGER] * 3,
        ]
        assert len(listener.channels) == 2


def test_the_emulator_answers_under_a_manager_and_refuses_under_a_login_that_is_none(tmp_path: Path) -> None:
    other = EmulatedAccount(
        customer_id=OTHER_MANAGER, name="Another manager", time_zone="Europe/London", currency="GBP", manager=True
    )
    with serve_emulator(home=tmp_path, accounts=(*ACCOUNTS, other)) as running:
        source = connect_to_emulator(
            running.endpoint, running.ca_path, api_version="v26", login_customer_id=MANAGER_CUSTOMER_ID
        )
        assert len(asked(source, MANAGER_CUSTOMER_ID)) == 1
        assert len(asked(source, OTHER_MANAGER, OTHER_MANAGER)) == 1
        with pytest.raises(CustomerUnavailableError, match="USER_PERMISSION_DENIED"):
            asked(source, CustomerId("3305550102"))


@pytest.mark.parametrize("responses_before", [0, 2])
def test_a_call_that_falls_silent_is_cancelled_and_says_so(tmp_path: Path, responses_before: int) -> None:
    cancelled = Event()

    def falls_silent(_request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(cancelled.set)
        for _ in range(responses_before):
            yield response()
        cancelled.wait(30)

    with (
        listening(tmp_path, falls_silent, silence=0.5) as (_, source),
        pytest.raises(TransientApiError, match=r"in 0\.5 seconds, the call was cancelled; .* GADS_API_SILENCE"),
    ):
        asked(source, MANAGER_CUSTOMER_ID)
    assert cancelled.wait(30)


def test_a_call_that_keeps_talking_may_take_longer_than_the_silence_allowed(tmp_path: Path) -> None:
    def talks_slowly(_request: Any, _context: grpc.ServicerContext) -> Iterator[Any]:
        for _ in range(14):
            sleep(0.25)
            yield response()

    with listening(tmp_path, talks_slowly, silence=3.0) as (_, source):
        assert len(list(source.stream(BAKERY, NAMES, login_customer_id=MANAGER_CUSTOMER_ID))) == 14


def test_time_that_the_reader_takes_for_itself_is_no_silence(tmp_path: Path) -> None:
    def two_responses(_request: Any, _context: grpc.ServicerContext) -> Iterator[Any]:
        yield response()
        yield response()

    with listening(tmp_path, two_responses, silence=1.5) as (_, source):
        batches = source.stream(BAKERY, NAMES, login_customer_id=MANAGER_CUSTOMER_ID)
        next(batches)
        sleep(3.5)
        assert len(list(batches)) == 1


def test_a_call_past_its_deadline_is_cancelled_although_it_keeps_talking(tmp_path: Path) -> None:
    cancelled = Event()

    def talks_for_ever(_request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(cancelled.set)
        while not cancelled.wait(0.05):
            yield response()

    with (
        listening(tmp_path, talks_for_ever, deadline=0.8) as (_, source),
        pytest.raises(TransientApiError, match=r"took longer than 0\.8 seconds .* raise GADS_API_DEADLINE"),
    ):
        asked(source, MANAGER_CUSTOMER_ID)
    assert cancelled.wait(30)


def test_leaving_the_iteration_early_ends_the_call(tmp_path: Path) -> None:
    cancelled = Event()

    def talks_for_ever(_request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(cancelled.set)
        while not cancelled.wait(0.05):
            yield response()

    with listening(tmp_path, talks_for_ever) as (_, source):
        for _ in source.stream(BAKERY, NAMES, login_customer_id=MANAGER_CUSTOMER_ID):
            break
        assert cancelled.wait(30)


def test_an_answer_above_the_clients_limit_is_neither_a_quota_nor_worth_repeating(tmp_path: Path) -> None:
    def too_large(_request: Any, _context: grpc.ServicerContext) -> Iterator[Any]:
        message = response()
        message.request_id = "x" * (65 * 1024 * 1024)
        yield message

    with (
        listening(tmp_path, too_large) as (_, source),
        pytest.raises(ExtractionError, match=r"larger than the client takes: .* select fewer fields") as refusal,
    ):
        asked(source, MANAGER_CUSTOMER_ID)
    assert not refusal.value.retryable


@pytest.mark.parametrize(
    ("login", "said"),
    [
        ("", "no manager account to start from; set GADS_GOOGLE_ADS_LOGIN, or login_customer_id in "),
        ("login_customer_id: hunter2", "login_customer_id in .* is not ten digits"),
    ],
)
def test_google_is_never_asked_under_a_login_that_nobody_gave(tmp_path: Path, login: str, said: str) -> None:
    path = tmp_path / "google-ads.yaml"
    path.write_text(f"developer_token: hunter2\njson_key_file_path: hunter2.json\n{login}\n")
    settings = read_settings({"GADS_HOME": str(tmp_path), "GADS_GOOGLE_ADS_CONFIG": str(path)})
    with Workplace(settings) as here, pytest.raises(SettingsError, match=said) as refusal:
        _ = here.source
    assert "hunter2" not in str(refusal.value)


def test_a_login_that_is_none_is_refused_by_the_name_of_its_setting(tmp_path: Path) -> None:
    with (
        Workplace(read_settings({"GADS_HOME": str(tmp_path), "GADS_GOOGLE_ADS_LOGIN": "12"})) as here,
        pytest.raises(SettingsError, match="GADS_GOOGLE_ADS_LOGIN cannot be used: customer id '12' is not ten digits"),
    ):
        _ = here.source


def test_finding_accounts_starts_from_the_emulators_manager_unless_another_login_is_set(tmp_path: Path) -> None:
    home = {"GADS_HOME": str(tmp_path)}
    for login, expected in (("", MANAGER_CUSTOMER_ID), ("100-000-0007", OTHER_MANAGER)):
        with Workplace(read_settings({**home, "GADS_GOOGLE_ADS_LOGIN": login})) as here:
            assert here.source.login_customer_id == expected


def run(home: Path, command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, as only its first TLS handshake decides whom the library's channel trusts."""
    foreign = ("GADS_", "GOOGLE_ADS_", "DAGSTER_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return subprocess.run(
        list(command),
        env={**kept, "GADS_HOME": str(home), **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def library_variables(folder: Path, server: TokenServer, endpoint: str) -> dict[str, str]:
    return {
        "GOOGLE_ADS_DEVELOPER_TOKEN": "developer-hunter2",
        "GOOGLE_ADS_JSON_KEY_FILE_PATH": str(write_key_file(folder, server)),
        "GOOGLE_ADS_ENDPOINT": endpoint,
        "GOOGLE_ADS_LOGIN_CUSTOMER_ID": "100-000-0000",
        "GOOGLE_ADS_USE_PROTO_PLUS": "True",
        "GOOGLE_ADS_LOGGING": '{"version": 1, "root": {"level": "DEBUG"}}',
    }


ASK = """
import os
from gads_assets.orchestration.workplace import Workplace
from gads_assets.raw.sink import RawSink
from gads_assets.settings import read_settings
with Workplace(read_settings(os.environ)) as here:
    source = here.source
    rows = source.stream("2145550101", "SELECT customer.id FROM customer", login_customer_id=source.login_customer_id)
    print(source.origin, source.login_customer_id, sum(len(batch) for batch in rows))
"""


ASK_AND_LEAVE = """
import os
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
for _ in range(300):
    with Workplace(read_settings(os.environ)) as here:
        source = here.source
    login = source.login_customer_id
    source.accessible_customers()
    list(source.stream(login, "SELECT customer.id FROM customer", login_customer_id=login))
    del here, source
"""


def test_whoever_asked_the_api_can_leave_at_once(tmp_path: Path) -> None:
    """gRPC's way to end its last channel stops the process now and then: one in ten, asked before."""
    with serve_emulator(home=tmp_path / "emulator") as emulator:
        done = run(tmp_path, [sys.executable, "-c", ASK_AND_LEAVE], GADS_GOOGLE_ADS_ENDPOINT=emulator.endpoint)
    assert (done.returncode, done.stderr) == (0, "")


def test_credentials_in_the_librarys_own_variables_reach_the_api_under_their_own_login(tmp_path: Path) -> None:
    with serve_emulator(home=tmp_path / "emulator") as emulator, serving_tokens(GRANTED) as server:
        variables = library_variables(tmp_path, server, emulator.endpoint)
        done = run(tmp_path, [sys.executable, "-c", ASK], **variables, **trusting(emulator.ca_path))
    assert (done.stdout, done.stderr) == ("google 1000000000 1\n", "")


def test_a_trace_of_a_token_refused_in_mid_life_does_not_repeat_what_was_sent(tmp_path: Path) -> None:
    with serve_emulator(home=tmp_path / "emulator") as emulator, serving_tokens(EXPIRES_AT_ONCE, REFUSED) as server:
        variables = library_variables(tmp_path, server, emulator.endpoint)
        done = run(tmp_path, [sys.executable, "-c", ASK], **variables, **trusting(emulator.ca_path))
    assert "AuthenticationError: Google refuses the credentials (invalid_grant)" in done.stderr
    assert SECRET not in done.stderr


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"GOOGLE_ADS_REFRESH_TOKEN": SECRET}, "the GOOGLE_ADS_\\* variables cannot be used: it needs"),
        ({"GOOGLE_ADS_DEVELOPER_TOKEN": f"{SECRET}\n{SECRET}"}, "developer_token in .* that no header may have"),
        ({"GOOGLE_ADS_ADS_ASSISTANT": f"ü{SECRET}", "GOOGLE_ADS_CLIENT_ID": "1"}, "ads_assistant in .* no header"),
        ({"GOOGLE_ADS_JSON_KEY_FILE_PATH": "KEY_FILE"}, "cannot be used: it needs .* key file"),
    ],
)
def test_variables_that_cannot_be_used_are_one_line_that_shows_none_of_their_values(
    tmp_path: Path, variables: dict[str, str], said: str
) -> None:
    key_file = tmp_path / "key.json"
    key_file.write_text(f'["{SECRET}"]')
    given = {name: value.replace("KEY_FILE", str(key_file)) for name, value in variables.items()}
    settings = read_settings({"GADS_HOME": str(tmp_path), "GADS_GOOGLE_ADS_LOGIN": "1000000000", **given})
    with Workplace(settings) as here, pytest.raises(SettingsError, match=said) as refusal:
        _ = here.source
    assert SECRET not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_no_command_shows_or_keeps_a_credential_not_even_when_it_crashes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with serving_tokens(GRANTED) as server:
        variables = library_variables(tmp_path, server, "localhost:1")
        # An endpoint that is no text makes gRPC fail in a way that nobody foresaw.
        file = write_google_ads_yaml(tmp_path, server, endpoint=5, login_customer_id="1000000000")
        shown = ""
        for given in (variables, {"GOOGLE_ADS_CONFIGURATION_FILE_PATH": str(file)}):
            for command in (["env"], ["doctor"], ["customers", "sync"], ["demo"]):
                done = run(home, [PROGRAM, *command], **given)
                shown += done.stdout + done.stderr
    stop_database(home / "postgres")
    assert f"export GOOGLE_ADS_CONFIGURATION_FILE_PATH={file}" in shown
    assert "Google, with the GOOGLE_ADS_* variables" in shown
    assert "the demo talks to the emulator" in shown
    assert "the trace is in" in shown
    assert SECRET not in shown
    kept = [path for folder in ("logs", "dagster") for path in (home / folder).rglob("*") if path.is_file()]
    assert not [path for path in kept if SECRET in path.read_text(errors="replace")]
    assert [path for path in kept if path.parent.name == "logs"], shown


def test_accounts_are_found_and_a_day_is_sealed_by_the_librarys_own_client_from_its_yaml_on(
    tmp_path: Path, database_url: str
) -> None:
    home = tmp_path / "home"
    with serve_emulator(home=tmp_path / "emulator") as emulator, serving_tokens(GRANTED) as server:
        path = write_google_ads_yaml(tmp_path, server, endpoint=emulator.endpoint, login_customer_id=1000000000)
        given = {
            "GADS_DATABASE_URL": database_url,
            "GADS_GOOGLE_ADS_CONFIG": str(path),
            "GADS_SPARK_JARS": str(delta_jars()),
            **trusting(emulator.ca_path),
        }
        synced = run(home, [PROGRAM, "customers", "sync", "--json"], **given)
        assert synced.returncode == 0, synced.stderr
        accounts = {account["customer_id"]: account for account in json.loads(synced.stdout)}
        assert {(found["origin"], found["login_customer_id"]) for found in accounts.values()} == {
            ("google", MANAGER_CUSTOMER_ID)
        }
        shell = json.loads(run(home, [PROGRAM, "env", "--json"], **given).stdout)
        before = emulator.operations
        done = run(home, [DAGSTER, *MATERIALIZE, "--partition", f"{BAKERY}|2024-06-04"], **(given | shell))
        assert done.returncode == 0, done.stderr
        assert SECRET not in synced.stdout + synced.stderr + done.stdout + done.stderr
        assert emulator.operations == before + 1
        reference = connect_to_emulator(
            emulator.endpoint, emulator.ca_path, api_version="v26", login_customer_id=MANAGER_CUSTOMER_ID
        )
        campaigns = [row.campaign.id for row in asked(reference, MANAGER_CUSTOMER_ID, gaql=CAMPAIGNS)]
    sink = RawSink(str(home / "raw"))
    key = PartitionKey(source="google_ads", customer_id=BAKERY, query_name="campaign", logical_date=date(2024, 6, 4))
    [run_id] = sink.sealed_runs(key)
    manifest = sink.manifest(key, run_id)
    assert manifest.api_origin == "google"
    assert sorted(row["campaign_id"] for row in sink.rows(manifest)) == sorted(campaigns)
