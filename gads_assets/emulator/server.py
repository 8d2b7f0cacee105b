"""The gRPC server: GoogleAdsService over TLS on loopback, for every API version that the client library has."""

import re
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import chain, islice
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, NoReturn
from zoneinfo import ZoneInfo

import grpc

from gads_assets.emulator.accounts import ACCOUNTS, EmulatedAccount, managers_above
from gads_assets.emulator.answers import answer_facts
from gads_assets.emulator.authority import localhost_identity
from gads_assets.emulator.failures import (
    RefusedCallError,
    customer_not_enabled,
    customer_suspended,
    internal_error,
    invalid_argument,
    quota_exhausted,
    trailing_metadata,
    unauthenticated,
    unavailable,
    user_permission_denied,
)
from gads_assets.emulator.faults import CallFaults, Fault, FaultKind, RowFaults, rows_per_day
from gads_assets.emulator.messages import ApiMessages, messages_of
from gads_assets.emulator.operations import Operation, Operations
from gads_assets.emulator.plan import AnswerPlan, plan_answer
from gads_assets.emulator.serializing import RowSerializer, framed
from gads_assets.errors import SetupError

if TYPE_CHECKING:
    _GenericHandler = grpc.GenericRpcHandler[Any, Any]
else:
    # Generic in its stubs only.
    _GenericHandler = grpc.GenericRpcHandler

_METHOD = re.compile(r"/google\.ads\.googleads\.(v[0-9]+)\.services\.(\w+/\w+)")
_REFUSALS: dict[FaultKind, Callable[[float], RefusedCallError]] = {
    FaultKind.TRANSIENT: lambda _: unavailable("The service is currently unavailable."),
    FaultKind.QUOTA: quota_exhausted,
    FaultKind.BAD_AUTH: lambda _: unauthenticated("OAUTH_TOKEN_INVALID", "OAuth token in the header is not valid."),
    FaultKind.INTERNAL: lambda _: internal_error(),
    FaultKind.CUSTOMER_NOT_ENABLED: lambda _: customer_not_enabled(),
    FaultKind.CUSTOMER_SUSPENDED: lambda _: customer_suspended(),
    FaultKind.PERMISSION_DENIED: lambda _: user_permission_denied(),
}
_FROM = re.compile(r"\bFROM\s+(\w+)", re.IGNORECASE)
_STREAM_BATCH = 1_000
_PAGE = 10_000
_OPEN_PAGES = 16
_ROWS_BEFORE_BREAK = 3
_WORKERS = 64


class RunningEmulator:
    """`endpoint` is what a client connects to, trusting the certificate at `ca_path`.

    `operations_path` is the file for `read_operations` in other processes, None if none was asked for.
    """

    def __init__(self, *, endpoint: str, ca_path: Path, operations_path: Path | None, service: "_Service") -> None:
        self.endpoint = endpoint
        self.ca_path = ca_path
        self.operations_path = operations_path
        self._service = service

    @property
    def operations(self) -> int:
        """How many operations the API would have charged: one a query, refused ones too, whatever came back."""
        return self.operations_by().total()

    @property
    def most_calls_at_once(self) -> int:
        """The highest number of queries that were being answered at the same moment."""
        return self._service.operations.most_at_once

    def operations_by(self) -> Counter[Operation]:
        return self._service.operations.counts()


@contextmanager
def serve_emulator(
    *,
    home: Path,
    port: int = 0,
    faults: Sequence[Fault] = (),
    latency: float = 0.0,
    accounts: Sequence[EmulatedAccount] = ACCOUNTS,
    rows: int | None = None,
    today: date | None = None,
    record_operations: bool = False,
) -> Iterator[RunningEmulator]:
    """Serves until the block is left, answering each call after `latency` seconds. Port 0 means any free one.

    `rows` is how many each day of each resource has where no fault says otherwise; None for as many as the world has.
    `today` decides which conversions have been counted yet, and what DURING means; None for each account's real date.
    With `record_operations` a file beside the certificate lets other processes count operations while it serves.

    Raises SetupError when the port is taken or `home` cannot hold the certificates.
    """
    identity = localhost_identity(home, now=datetime.now(UTC))
    _require_free(port)
    sizes = () if rows is None else (rows_per_day(rows),)
    service = _Service(accounts=accounts, faults=CallFaults((*faults, *sizes)), latency=latency, today=today)
    server = grpc.server(
        ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="gads-emulator"),
        handlers=[service],
        # By default a second server would share the port, and calls would reach one or the other.
        options=[("grpc.so_reuseport", 0)],
    )
    credentials = grpc.ssl_server_credentials([(identity.private_key, identity.certificate)])
    try:
        bound = server.add_secure_port(f"127.0.0.1:{port}", credentials)
    except RuntimeError:
        raise _port_taken(port) from None
    operations_path = home / f"operations-{bound}.jsonl" if record_operations else None
    if operations_path:
        service.operations.record_in(operations_path)
    server.start()
    try:
        yield RunningEmulator(
            endpoint=f"localhost:{bound}", ca_path=identity.ca_path, operations_path=operations_path, service=service
        )
    finally:
        service.stopping.set()
        server.stop(grace=0.5).wait()
        if operations_path:
            operations_path.unlink(missing_ok=True)


def _require_free(port: int) -> None:
    """gRPC finds out by itself, but not without printing its own view of it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            raise _port_taken(port) from None


def _port_taken(port: int) -> SetupError:
    return SetupError(f"port {port} cannot be used for the emulator; choose a free one, or --port 0 for any")


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """An answer's plan and rows, whether it breaks off, and the seconds between its messages."""

    plan: AnswerPlan
    rows: Iterator[bytes]
    breaks: bool
    pause: float


class _OpenPages:
    """Where the last pages of `Search` ended, by version, customer, query and next row: the next goes on from there.

    One that is asked for again, or too late, is made from the first row on.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str, int], Iterator[bytes]] = {}
        self._lock = Lock()

    def keep(self, page: tuple[str, str, str, int], rows: Iterator[bytes]) -> None:
        with self._lock:
            self._rows[page] = rows
            if len(self._rows) > _OPEN_PAGES:
                del self._rows[next(iter(self._rows))]

    def take(self, page: tuple[str, str, str, int]) -> Iterator[bytes] | None:
        with self._lock:
            return self._rows.pop(page, None)


class _Service(_GenericHandler):
    """Finds the method by its full name, so that an API version is imported only when a client speaks it."""

    def __init__(
        self, *, accounts: Sequence[EmulatedAccount], faults: CallFaults, latency: float, today: date | None
    ) -> None:
        self._accounts: dict[str, EmulatedAccount] = {account.customer_id: account for account in accounts}
        self._directly_accessible = [account.customer_id for account in accounts if account.parent is None]
        self._faults = faults
        self._latency = latency
        self._today = today
        self._pages = _OpenPages()
        self.operations = Operations()
        self.stopping = Event()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        called = _METHOD.fullmatch(handler_call_details.method)
        messages = messages_of(called[1]) if called else None
        if called is None or messages is None:
            return None
        version = called[1]
        match called[2]:
            case "GoogleAdsService/SearchStream":
                return grpc.unary_stream_rpc_method_handler(
                    lambda request, context: self._search_stream(request, context, version, messages),
                    request_deserializer=messages.stream_request.FromString,
                    response_serializer=None,
                )
            case "GoogleAdsService/Search":
                return grpc.unary_unary_rpc_method_handler(
                    lambda request, context: self._search(request, context, version, messages),
                    request_deserializer=messages.search_request.FromString,
                    response_serializer=None,
                )
            case "CustomerService/ListAccessibleCustomers":
                return grpc.unary_unary_rpc_method_handler(
                    lambda _, context: self._list_accessible_customers(context, version, messages),
                    request_deserializer=messages.customers_request.FromString,
                    response_serializer=messages.customers_response.SerializeToString,
                )
        return None

    def _search_stream(
        self, request: Any, context: grpc.ServicerContext, version: str, messages: ApiMessages
    ) -> Iterator[bytes]:
        with self.operations.under_way():
            yield from self._streamed(request, context, version, messages)

    def _streamed(
        self, request: Any, context: grpc.ServicerContext, version: str, messages: ApiMessages
    ) -> Iterator[bytes]:
        request_id = uuid.uuid4().hex
        try:
            begun = self._begin(request, context, version, messages, counted=True)
            about = messages.stream_response(request_id=request_id, field_mask={"paths": begun.plan.field_mask})
            rest = about.SerializeToString()
            if begun.breaks:
                yield framed(list(islice(begun.rows, _ROWS_BEFORE_BREAK))) + rest
                raise unavailable("Stream removed")
            # An empty answer is still one response, with nothing in it.
            yield framed(list(islice(begun.rows, _STREAM_BATCH))) + rest
            while batch := list(islice(begun.rows, _STREAM_BATCH)):
                self.stopping.wait(begun.pause)
                yield framed(batch) + rest
        except RefusedCallError as refusal:
            _abort(context, refusal, version, request_id)

    def _search(self, request: Any, context: grpc.ServicerContext, version: str, messages: ApiMessages) -> bytes:
        request_id = uuid.uuid4().hex
        try:
            start = _first_row(request)
            # Further pages of one query cost nothing.
            begun = self._begin(request, context, version, messages, counted=start == 0)
            if begun.breaks:
                raise unavailable("Connection reset by peer")
            question = (version, request.customer_id, request.query)
            rows = self._pages.take((*question, start)) or islice(begun.rows, start, None)
            page = list(islice(rows, _PAGE + 1))
            about = messages.search_response(field_mask={"paths": begun.plan.field_mask})
            if len(page) > _PAGE:
                about.next_page_token = str(start + _PAGE)
                self._pages.keep((*question, start + _PAGE), chain(page[_PAGE:], rows))
            content: bytes = framed(page[:_PAGE]) + about.SerializeToString()
            return content
        except RefusedCallError as refusal:
            _abort(context, refusal, version, request_id)

    def _list_accessible_customers(self, context: grpc.ServicerContext, version: str, messages: ApiMessages) -> Any:
        everywhere, _ = self._faults.delays("", "", None)
        self.stopping.wait(self._latency + everywhere)
        try:
            _require_credentials(context)
            # It is about no customer and no resource: only what strikes all of them strikes here.
            self._strike("", "", None)
        except RefusedCallError as refusal:
            _abort(context, refusal, version, uuid.uuid4().hex)
        names = [f"customers/{customer_id}" for customer_id in self._directly_accessible]
        return messages.customers_response(resource_names=names)

    def _begin(
        self, request: Any, context: grpc.ServicerContext, version: str, messages: ApiMessages, *, counted: bool
    ) -> _Begun:
        if counted:
            source = _FROM.search(request.query)
            self.operations.add(Operation(request.customer_id, source[1] if source else ""))
        self.stopping.wait(self._latency)
        _require_credentials(context)
        account = self._account(request.customer_id, context)
        today = self._today or datetime.now(ZoneInfo(account.time_zone)).date()
        plan = plan_answer(request.query, account, version, today=today)
        latency, pause = self._faults.delays(account.customer_id, plan.resource, plan.days)
        self.stopping.wait(latency)
        breaks = self._strike(account.customer_id, plan.resource, plan.days)

        def row_faults(day: date | None) -> RowFaults:
            return self._faults.rows_of(account.customer_id, plan.resource, day)

        rows = answer_facts(plan, account, tuple(self._accounts.values()), row_faults=row_faults)
        return _Begun(plan=plan, rows=map(RowSerializer(plan, messages.row), rows), breaks=breaks, pause=pause)

    def _strike(self, customer_id: str, resource: str, days: range | None) -> bool:
        """Whether the answer breaks off; raises RefusedCallError if it does not even begin."""
        struck = self._faults.strike(customer_id, resource, days)
        if struck and struck[0] in _REFUSALS:
            kind, delay = struck
            raise _REFUSALS[kind](delay)
        return struck is not None

    def _account(self, customer_id: str, context: grpc.ServicerContext) -> EmulatedAccount:
        account = self._accounts.get(customer_id)
        login = _metadata(context).get("login-customer-id")
        if account is None or login not in self._logins(account):
            raise user_permission_denied()
        if account.status != "ENABLED":
            raise customer_not_enabled()
        return account

    def _logins(self, account: EmulatedAccount) -> Iterator[str | None]:
        """Under which an account may be asked: the managers above it, and itself or none where access is direct."""
        yield from managers_above(account, self._accounts)
        if account.customer_id in self._directly_accessible:
            yield from (account.customer_id, None)


def _first_row(request: Any) -> int:
    if request.page_size:
        raise invalid_argument("request_error", "PAGE_SIZE_NOT_SUPPORTED", "Setting the page size is not supported.")
    if not re.fullmatch("[0-9]{0,18}", request.page_token):
        raise invalid_argument("request_error", "INVALID_PAGE_TOKEN", "Page token is invalid.")
    return int(request.page_token or 0)


def _metadata(context: grpc.ServicerContext) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}


def _require_credentials(context: grpc.ServicerContext) -> None:
    metadata = _metadata(context)
    if not metadata.get("authorization", "").startswith("Bearer "):
        raise unauthenticated("OAUTH_TOKEN_HEADER_INVALID", "The OAuth token header is missing or malformed.")
    if not metadata.get("developer-token"):
        raise unauthenticated("DEVELOPER_TOKEN_INVALID", "The developer token is missing.")


def _abort(context: grpc.ServicerContext, refusal: RefusedCallError, version: str, request_id: str) -> NoReturn:
    context.set_trailing_metadata(trailing_metadata(refusal, api_version=version, request_id=request_id))
    context.abort(refusal.status, str(refusal))
    raise AssertionError("abort always raises")
