"""What the API and the network throw, as errors that say whether and when trying again can help."""

import importlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.ads.googleads.errors import GoogleAdsException
from google.api_core.exceptions import GoogleAPICallError, RetryError
from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError

from gads_assets.domain.keys import CustomerId
from gads_assets.errors import (
    AuthenticationError,
    CustomerUnavailableError,
    ExtractionError,
    QueryRefusedError,
    QuotaExhaustedError,
    TransientApiError,
)

# Google asks for exponential backoff where it gives no delay; this is where that starts.
_UNSTATED_DELAY = 30.0
_FAILURE_KEY = re.compile(r"google\.ads\.googleads\.(v[0-9]+)\.errors\.googleadsfailure-bin\Z")
_OAUTH_ERROR = re.compile(r"[a-z_]{3,40}\Z")
# gRPC asks for a token before it sends anything, and reports a failure to get one as UNAVAILABLE.
_TOKEN_FAILURE = "Getting metadata from plugin failed"  # noqa: S105  # a sentence, not a token
_OAUTH_REFUSAL = re.compile(
    r"\b(invalid_grant|invalid_client|unauthorized_client|invalid_scope|access_denied|disabled_client)\b"
)
_TRANSIENT_STATUSES = frozenset(
    {"UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "ABORTED", "CANCELLED", "UNKNOWN", "DATA_LOSS"}
)
_CUSTOMER_CODES = frozenset(
    {
        "CUSTOMER_NOT_ENABLED",
        "ACTION_NOT_PERMITTED_FOR_SUSPENDED_ACCOUNT",
        "ACCESS_DENIED_FOR_ACCOUNT_TYPE",
        "USER_PERMISSION_DENIED",
        "CUSTOMER_NOT_FOUND",
        "CLIENT_CUSTOMER_ID_INVALID",
        "INVALID_CUSTOMER_ID",
        "INVALID_LOGIN_CUSTOMER_ID_SERVING_CUSTOMER_ID_COMBINATION",
        "INCOMPLETE_SIGNUP",
        "NOT_ADS_USER",
        "REQUESTED_METRICS_FOR_MANAGER",
    }
)
_TRANSIENT_CODES = frozenset({"TRANSIENT_ERROR", "INTERNAL_ERROR", "DEADLINE_EXCEEDED"})
_CREDENTIAL_CATEGORIES = frozenset({"authentication_error", "authorization_error"})
_SENTENCES: dict[type[ExtractionError], tuple[str, str]] = {
    CustomerUnavailableError: ("account {customer_id} cannot be asked", "the other accounts are not affected"),
    QueryRefusedError: ("the API refuses the query for account {customer_id}", "correct it in the catalog"),
    TransientApiError: ("the call for account {customer_id} broke off", "try again"),
    AuthenticationError: (
        "the API refuses these credentials",
        "mend the google-ads.yaml or the GOOGLE_ADS_* variables, no account will work before that",
    ),
}


@dataclass(frozen=True, kw_only=True)
class ApiError:
    """One error of a GoogleAdsFailure: `category` is the member of ErrorCode that is set, `code` its value's name."""

    category: str
    code: str
    message: str


@dataclass(frozen=True, kw_only=True)
class ApiFailure:
    """A failed call as plain values. `status` is the gRPC status by name."""

    status: str
    message: str
    errors: tuple[ApiError, ...] = ()
    retry_delay: float | None = None
    request_id: str | None = None


def classify(failure: ApiFailure, *, customer_id: CustomerId) -> ExtractionError:
    """Which error a failure is. The API's own codes are more precise than gRPC's status, so they decide first."""
    said = _one_line("; ".join(f"{error.code}: {error.message}" for error in failure.errors) or failure.message)
    request = f" (request {failure.request_id})" if failure.request_id else ""
    codes = {error.code for error in failure.errors}
    categories = {error.category for error in failure.errors}
    if failure.status == "RESOURCE_EXHAUSTED" or "quota_error" in categories:
        delay = _UNSTATED_DELAY if failure.retry_delay is None else failure.retry_delay
        return QuotaExhaustedError(
            f"the API quota is used up, said while asking for account {customer_id}: {said}{request}; "
            f"try again in {delay:.0f} seconds",
            customer_id=customer_id,
            retry_after=delay,
        )
    if _TOKEN_FAILURE in failure.message:
        refusal = _OAUTH_REFUSAL.search(failure.message)
        return _token_refused(refusal[0], customer_id) if refusal else _token_server_silent(customer_id)
    rules: tuple[tuple[object, type[ExtractionError]], ...] = (
        (codes & _CUSTOMER_CODES, CustomerUnavailableError),
        ("query_error" in categories, QueryRefusedError),
        (codes & _TRANSIENT_CODES, TransientApiError),
        (categories & _CREDENTIAL_CATEGORIES or failure.status == "UNAUTHENTICATED", AuthenticationError),
        (failure.status in _TRANSIENT_STATUSES, TransientApiError),
        (failure.status == "PERMISSION_DENIED", CustomerUnavailableError),
    )
    leaf = next((leaf for holds, leaf in rules if holds), QueryRefusedError)
    before, after = _SENTENCES[leaf]
    return leaf(
        f"{before.format(customer_id=customer_id)}: {failure.status}: {said}{request}; {after}", customer_id=customer_id
    )


def translated(error: Exception, *, customer_id: CustomerId) -> ExtractionError | None:
    """None for an exception that is neither the API's nor the network's: a fault of ours, to be seen as such."""
    if isinstance(error, GoogleAuthError):
        return authentication_error(error, customer_id=customer_id)
    failure = read_failure(error)
    return None if failure is None else classify(failure, customer_id=customer_id)


def authentication_error(error: GoogleAuthError, *, customer_id: CustomerId) -> ExtractionError:
    if isinstance(error, TransportError) or getattr(error, "retryable", False):
        return _token_server_silent(customer_id)
    words = [word for word in map(_oauth_word, error.args) if word] if isinstance(error, RefreshError) else []
    return _token_refused(words[0] if words else None, customer_id)


def _token_refused(reason: str | None, customer_id: CustomerId) -> AuthenticationError:
    """Only OAuth's own word for the failure is shown: the rest of its answer may repeat what was sent."""
    said = f" ({reason})" if reason else ""
    return AuthenticationError(
        f"Google refuses the credentials{said}; create new ones for the google-ads.yaml or the GOOGLE_ADS_* variables, "
        "nothing works before that",
        customer_id=customer_id,
    )


def _token_server_silent(customer_id: CustomerId) -> TransientApiError:
    return TransientApiError(
        "the server that renews access tokens does not answer as it should; try again", customer_id=customer_id
    )


def read_failure(error: Exception) -> ApiFailure | None:
    if isinstance(error, GoogleAdsException):
        return _from_messages(
            status=error.error.code().name,
            message=error.error.details() or "",
            failure=error.failure,
            request_id=error.request_id,
        )
    if isinstance(error, RetryError):
        return ApiFailure(status="DEADLINE_EXCEEDED", message=error.message)
    if isinstance(error, GoogleAPICallError):
        # The library leaves INTERNAL and RESOURCE_EXHAUSTED to api_core; the failure is still in the metadata.
        call: Any = next((cause for cause in error.errors if isinstance(cause, grpc.Call)), None)
        status = error.grpc_status_code.name if error.grpc_status_code else "UNKNOWN"
        return _from_call(call, status=status, message=error.message or "")
    if isinstance(error, grpc.RpcError):
        broken: Any = error
        if not isinstance(broken, grpc.Call):
            return ApiFailure(status="UNKNOWN", message=str(error))
        return _from_call(broken, status=broken.code().name, message=broken.details() or "")
    return None


def _from_call(call: Any, *, status: str, message: str) -> ApiFailure:
    metadata: Sequence[tuple[str, str | bytes]] = (call.trailing_metadata() or ()) if call is not None else ()
    request_id = next((str(value) for key, value in metadata if key == "request-id"), None)
    for key, value in metadata:
        if found := _FAILURE_KEY.match(key):
            errors = importlib.import_module(f"google.ads.googleads.{found[1]}.errors.types.errors")
            failure = errors.GoogleAdsFailure.pb().FromString(value)
            return _from_messages(status=status, message=message, failure=failure, request_id=request_id)
    return ApiFailure(status=status, message=message, request_id=request_id)


def _from_messages(*, status: str, message: str, failure: Any, request_id: str | None) -> ApiFailure:
    raw = getattr(failure, "_pb", failure)
    delays = [
        error.details.quota_error_details.retry_delay.ToTimedelta().total_seconds()
        for error in raw.errors
        if error.details.quota_error_details.HasField("retry_delay")
    ]
    return ApiFailure(
        status=status,
        message=message,
        errors=tuple(_api_errors(raw.errors)),
        retry_delay=max(delays, default=None),
        request_id=request_id,
    )


def _api_errors(errors: Iterable[Any]) -> Iterable[ApiError]:
    for error in errors:
        category = error.error_code.WhichOneof("error_code") or "unspecified"
        field = error.error_code.DESCRIPTOR.fields_by_name.get(category)
        number = getattr(error.error_code, category, 0)
        member = field.enum_type.values_by_number.get(number) if field is not None else None
        yield ApiError(category=category, code=member.name if member else str(number), message=error.message)


def _oauth_word(argument: object) -> str | None:
    if isinstance(argument, dict):
        argument = argument.get("error")
    word = str(argument).partition(":")[0].strip()
    return word if _OAUTH_ERROR.match(word) else None


def _one_line(text: str) -> str:
    shortened = " ".join(text.split())
    return shortened if len(shortened) <= 500 else f"{shortened[:499]}…"
