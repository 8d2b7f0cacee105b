"""The google-ads client, ready to stream: against the emulator, or against Google.

Both use the library's own service client, transport and interceptors, so that what is tested against the emulator is
what runs against Google. For the emulator the channel is made here, with its certificate given to this channel alone:
the library offers only GRPC_DEFAULT_SSL_ROOTS_FILE_PATH, which gRPC reads once, at the first TLS handshake of the
process, and then for every channel: whoever came second, emulator or Google, would not be trusted.
"""

import importlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final

import grpc
import yaml
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.oauth2.credentials import Credentials
from google.protobuf.message import Message

from gads_assets.catalog.fields import installed_api_versions
from gads_assets.domain.keys import CustomerId, parse_customer_id
from gads_assets.errors import AuthenticationError, ExtractionError, PartitionKeyError, SettingsError, TransientApiError
from gads_assets.extract.event_engine import keep_engine
from gads_assets.extract.memory import keep_freed_memory
from gads_assets.extract.translation import TOKEN_FAILURE, authentication_error, translated

EMULATOR: Final = "emulator"
GOOGLE: Final = "google"

_ENDPOINT = re.compile(r"[A-Za-z0-9.\-\[\]:]+:[0-9]{1,5}\Z")
_HEADER = re.compile(r"[!-~]+\Z")
# The library logs requests and responses, with headers and row values; our errors say what is needed.
_LIBRARY_LOGGER = "google.ads.googleads.client"


@dataclass(frozen=True, kw_only=True)
class Patience:
    """In seconds: `deadline` is for a whole call, `silence` for each wait in which nothing arrives.

    A long answer needs a long deadline; a call that has died is found by its silence long before that.
    """

    deadline: float = 3600.0
    silence: float = 300.0


_DEFAULT_PATIENCE = Patience()
# Makes the library's client of the named service, such as GoogleAdsService, whose calls carry this login.
_NewService = Callable[[str, CustomerId], Any]


class GoogleAdsSource:
    """Streams GAQL results of any account, each under the login that may see it; for any number of threads.

    `login_customer_id` is where finding accounts starts. Not to be used across a fork: gRPC does not survive it.
    """

    def __init__(
        self,
        *,
        new_service: _NewService,
        origin: str,
        api_version: str,
        login_customer_id: CustomerId,
        patience: Patience,
    ) -> None:
        keep_freed_memory()
        keep_engine()
        self._new_service = new_service
        self._patience = patience
        self._services: dict[tuple[str, CustomerId], Any] = {}
        self._lock = Lock()
        self.origin = origin
        self.api_version = api_version
        self.login_customer_id = login_customer_id

    def stream(
        self, customer_id: CustomerId, gaql: str, *, login_customer_id: CustomerId
    ) -> Iterator[Sequence[Message]]:
        """Batches of protobuf GoogleAdsRow, as the API sends them; whatever goes wrong is an ExtractionError leaf.

        One call, one API operation; nothing is retried here. Leaving the iteration early ends the call.
        """
        # Being a method of this object, the generator holds the service: collected in mid-stream, it would close
        # the channel.
        service = self._service("GoogleAdsService", login_customer_id)
        patience, started = self._patience, monotonic()
        silence = _SilenceLimit(patience.silence)
        try:
            call = service.search_stream(customer_id=customer_id, query=gaql, timeout=patience.deadline)
            with silence.watching(call):
                while (response := silence.next_of(call)) is not None:
                    yield response.results
        except Exception as error:
            if silence.exceeded:
                raise _silent(customer_id, patience) from error
            failure = translated(error, customer_id=customer_id)
            if failure is None:
                raise
            if isinstance(failure, TransientApiError) and monotonic() - started >= patience.deadline:
                failure = _late(customer_id, patience)
            raise failure from _cause(failure, error)

    def accessible_customers(self) -> list[CustomerId]:
        """The accounts that the credentials reach by themselves, managers and others, without those below them."""
        login = self.login_customer_id
        service = self._service("CustomerService", login)
        try:
            answer = service.list_accessible_customers(timeout=min(self._patience.deadline, self._patience.silence))
        except Exception as error:
            failure = translated(error, customer_id=login)
            if failure is None:
                raise
            raise failure from _cause(failure, error)
        return [parse_customer_id(name.removeprefix("customers/")) for name in answer.resource_names]

    def _service(self, name: str, login_customer_id: CustomerId) -> Any:
        """One channel for each login, made once: the library puts the login into the channel, not into the call."""
        with self._lock:
            key = (name, login_customer_id)
            if key not in self._services:
                service = self._services[key] = self._new_service(name, login_customer_id)
                if name == "GoogleAdsService":
                    # Else api_core waits for the first response inside the call, where nothing could cancel it.
                    service.transport.search_stream._prefetch_first_result_ = False
            return self._services[key]


class _SilenceLimit:
    """Cancels a call when one wait for its next response takes too long; the time between two waits is the caller's."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting_since: float | None = None
        self.exceeded = False

    @contextmanager
    def watching(self, call: Any) -> Iterator[None]:
        ended = Event()
        Thread(target=self._watch, args=(call, ended), daemon=True, name="gads-silence").start()
        try:
            yield
        finally:
            ended.set()
            call.cancel()

    def next_of(self, call: Any) -> Any:
        self._waiting_since = monotonic()
        response = next(call, None)
        self._waiting_since = None
        return response

    def _watch(self, call: Any, ended: Event) -> None:
        left = self._seconds
        while not ended.wait(left):
            since = self._waiting_since
            left = self._seconds if since is None else since + self._seconds - monotonic()
            if left <= 0:
                self.exceeded = True
                call.cancel()
                return


def _cause(failure: ExtractionError, error: Exception) -> Exception | None:
    """A trace shows causes, and what a token server answers may repeat the credentials."""
    return None if isinstance(failure, AuthenticationError) or TOKEN_FAILURE in str(error) else error


def _silent(customer_id: CustomerId, patience: Patience) -> TransientApiError:
    return TransientApiError(
        f"nothing was heard for account {customer_id} in {patience.silence:g} seconds, the call was cancelled; "
        "try again, or raise GADS_API_SILENCE",
        customer_id=customer_id,
    )


def _late(customer_id: CustomerId, patience: Patience) -> TransientApiError:
    return TransientApiError(
        f"the call for account {customer_id} took longer than {patience.deadline:g} seconds and was cancelled; "
        "ask for fewer days, or raise GADS_API_DEADLINE",
        customer_id=customer_id,
    )


def connect_to_emulator(
    endpoint: str,
    ca_path: Path,
    *,
    api_version: str,
    login_customer_id: CustomerId,
    patience: Patience = _DEFAULT_PATIENCE,
) -> GoogleAdsSource:
    _require_installed(api_version)
    _silence_library()
    if not _ENDPOINT.match(endpoint):
        raise SettingsError(f"GADS_GOOGLE_ADS_ENDPOINT {endpoint!r} is not host:port; write it as localhost:50051")
    try:
        authority = ca_path.read_bytes()
    except OSError as error:
        raise SettingsError(
            f"the emulator's certificate {ca_path} cannot be read ({error.strerror}); "
            "start `gads emulator` with the same GADS_HOME"
        ) from None
    library = importlib.import_module("google.ads.googleads.client")
    interceptors = importlib.import_module("google.ads.googleads.interceptors")
    snake_case = importlib.import_module("google.ads.googleads.util").convert_upper_case_to_snake_case

    def new_service(name: str, login: CustomerId) -> Any:
        module = f"google.ads.googleads.{api_version}.services.services.{snake_case(name)}"
        client_class = getattr(importlib.import_module(module), f"{name}Client")
        transport_class = client_class.get_transport_class()
        channel = transport_class.create_channel(
            host=endpoint,
            credentials=Credentials(token="emulator"),  # type: ignore[no-untyped-call]  # noqa: S106  # no stubs; no secret
            ssl_credentials=grpc.ssl_channel_credentials(root_certificates=authority),
            # A proxy set for the world outside must not be asked to reach this machine.
            options=[*library._GRPC_CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)],
        )
        intercepted = grpc.intercept_channel(
            channel,
            interceptors.MetadataInterceptor("emulator", login),
            interceptors.LoggingInterceptor(logging.getLogger(_LIBRARY_LOGGER), api_version, endpoint),
            interceptors.ExceptionInterceptor(api_version, use_proto_plus=False),
        )
        return client_class(transport=transport_class(channel=intercepted))

    return GoogleAdsSource(
        new_service=new_service,
        origin=EMULATOR,
        api_version=api_version,
        login_customer_id=login_customer_id,
        patience=patience,
    )


def connect_to_google(
    configuration: Path | Mapping[str, Any],
    *,
    api_version: str,
    login_customer_id: CustomerId | None = None,
    patience: Patience = _DEFAULT_PATIENCE,
) -> GoogleAdsSource:
    """Uses a google-ads.yaml, or its keys, as Google documents them; its login_customer_id gives way to the argument.

    Asks Google for an access token at once. Raises SettingsError for what cannot be used and AuthenticationError for
    credentials that Google refuses; no message repeats a value of the configuration.
    """
    _require_installed(api_version)
    _silence_library()
    if isinstance(configuration, Path):
        named = f"the google-ads.yaml {configuration}"
        settings = _read_configuration(configuration, named)
    else:
        named = "the GOOGLE_ADS_* variables"
        settings = dict(configuration)
    _require_headers(settings, named)
    # The logging section would reconfigure the whole process, and log what must not be logged.
    settings.pop("logging", None)
    login = login_customer_id or _own_login(settings, named)
    settings |= {"login_customer_id": login, "use_proto_plus": False}
    client_class = importlib.import_module("google.ads.googleads.client").GoogleAdsClient
    try:
        client = client_class.load_from_dict(settings, version=api_version)
    except (DefaultCredentialsError, ValueError, TypeError, OSError, LookupError, AttributeError):
        # The library's sentence may quote a value; the keys it wants are documented, so they are named here.
        raise SettingsError(
            f"{named} cannot be used: it needs developer_token, and either client_id, client_secret and refresh_token, "
            "or json_key_file_path naming a service account's key file, or use_application_default_credentials"
        ) from None
    except GoogleAuthError as error:
        raise authentication_error(error, customer_id=login) from None

    def new_service(name: str, login: CustomerId) -> Any:
        # A client of its own would ask for a token of its own. The source makes its services one at a time.
        client.login_customer_id = login
        return client.get_service(name)

    return GoogleAdsSource(
        new_service=new_service, origin=GOOGLE, api_version=api_version, login_customer_id=login, patience=patience
    )


def _own_login(settings: Mapping[str, Any], named: str) -> CustomerId:
    given = settings.get("login_customer_id")
    if given is None:
        raise SettingsError(
            f"there is no manager account to start from; set GADS_GOOGLE_ADS_LOGIN, or login_customer_id in {named}"
        )
    try:
        return parse_customer_id(str(given))
    except PartitionKeyError:
        # Not repeated: in the wrong line it may be a secret.
        raise SettingsError(f"login_customer_id in {named} is not ten digits; write it as 1234567890") from None


def _require_headers(settings: dict[str, Any], named: str) -> None:
    """gRPC refuses a header that is not plain text with an error that shows all headers of the call."""
    for key in ("developer_token", "ads_assistant"):
        if settings.get(key) is not None:
            settings[key] = text = str(settings[key])
            if not _HEADER.match(text):
                raise SettingsError(f"{key} in {named} has characters that no header may have; copy it again")


def _read_configuration(path: Path, named: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{named} cannot be read ({error.strerror})") from None
    except yaml.YAMLError:
        # PyYAML's message quotes the offending line, which may be a token.
        raise SettingsError(f"{named} is not YAML; write it as `key: value` lines") from None
    if not isinstance(document, dict):
        raise SettingsError(f"{named} is not a mapping; write it as `key: value` lines")
    return document


def _require_installed(api_version: str) -> None:
    """The library's own complaint about a version it no longer has speaks of something else."""
    known = installed_api_versions()
    if api_version not in known:
        raise SettingsError(
            f"API version {api_version!r} is not in the installed google-ads client; use one of {', '.join(known)}"
        )


def _silence_library() -> None:
    logging.getLogger(_LIBRARY_LOGGER).setLevel(logging.CRITICAL + 1)
