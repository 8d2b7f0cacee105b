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
    QuotaScope,
    TransientApiError,
)

# Google asks for exponential backoff where it gives no delay; this is where that starts.
_UNSTATED_DELAY = 30.0
_FAILURE_KEY = re.compile(r"google\.ads\.googleads\.(v[0-9]+)\.errors\.googleadsfailure-bin\Z")
_OAUTH_ERROR = re.compile(r"[a-z_]{3,40}\Z")
# gRPC asks for a token before it sends anything, and reports a failure to get one as UNAVAILABLE.
TOKEN_FAILURE = "Getting metadata from plugin failed"  # noqa: S105  # a sentence, not a token
_OAUTH_REFUSAL = re.compile(
    r"\b(invalid_grant|invalid_client|unauthorized_client|invalid_scope|access_denied|disabled_client|deleted_client|"
    r"invalid_rapt|invalid_request|admin_policy_enforced|org_internal)\b"
)
_TRANSIENT_STATUSES = frozenset(
    {"UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "ABORTED", "CANCELLED", "UNKNOWN", "DATA_LOSS"}
)
# gRPC's own word for an answer above the client's limit, under the status that the API uses for quotas.
_TOO_LARGE = re.compile(r"(message|metadata)( size)? (is )?(larger than max|exceeds)")
# What a code means by its category, unless it stands below. Codes newer than the client come as UNKNOWN.
_BY_CATEGORY: dict[str, type[ExtractionError]] = {
    "authentication_error": AuthenticationError,
    "authorization_error": CustomerUnavailableError,
    "quota_error": QuotaExhaustedError,
    "internal_error": TransientApiError,
    "request_error": QueryRefusedError,
    "query_error": QueryRefusedError,
}
_BY_CODE: dict[tuple[str, str], type[ExtractionError]] = {
    # The account asks for more than a password, or is none.
    ("authentication_error", "CLIENT_CUSTOMER_ID_INVALID"): CustomerUnavailableError,
    ("authentication_error", "CUSTOMER_NOT_FOUND"): CustomerUnavailableError,
    ("authentication_error", "TWO_STEP_VERIFICATION_NOT_ENROLLED"): CustomerUnavailableError,
    ("authentication_error", "ADVANCED_PROTECTION_NOT_ENROLLED"): CustomerUnavailableError,
    # The developer token or the Cloud project, and so every account.
    ("authorization_error", "DEVELOPER_TOKEN_NOT_ON_ALLOWLIST"): AuthenticationError,
    ("authorization_error", "DEVELOPER_TOKEN_PROHIBITED"): AuthenticationError,
    ("authorization_error", "DEVELOPER_TOKEN_NOT_APPROVED"): AuthenticationError,
    ("authorization_error", "PROJECT_DISABLED"): AuthenticationError,
    ("authorization_error", "CLOUD_PROJECT_NOT_APPROVED_FOR_PRODUCTION"): AuthenticationError,
    ("authorization_error", "CLOUD_PROJECT_NOT_UNDER_ORGANIZATION"): AuthenticationError,
    ("quota_error", "ACCESS_PROHIBITED"): AuthenticationError,
    ("request_error", "DEVELOPER_TOKEN_PARAMETER_MISSING"): AuthenticationError,
    ("request_error", "CLOUD_PROJECT_NOT_FOUND"): AuthenticationError,
    # The account, or the login that it is asked under.
    ("request_error", "INVALID_CUSTOMER_ID"): CustomerUnavailableError,
    ("request_error", "LOGIN_CUSTOMER_ID_PARAMETER_MISSING"): CustomerUnavailableError,
    ("request_error", "CANNOT_BE_EXECUTED_BY_MANAGER_ACCOUNT"): CustomerUnavailableError,
    ("query_error", "REQUESTED_METRICS_FOR_MANAGER"): CustomerUnavailableError,
    ("request_error", "RPC_DEADLINE_TOO_SHORT"): TransientApiError,
    # A refusal whose name this API version does not know; the same call will be refused again.
    ("internal_error", "ERROR_CODE_NOT_PUBLISHED"): QueryRefusedError,
}
_BY_STATUS: dict[str, type[ExtractionError]] = {
    **dict.fromkeys(_TRANSIENT_STATUSES, TransientApiError),
    "RESOURCE_EXHAUSTED": QuotaExhaustedError,
    "UNAUTHENTICATED": AuthenticationError,
    "PERMISSION_DENIED": CustomerUnavailableError,
}
# Of several errors in one failure the first of these counts: what stops everything comes before what stops less.
_GRAVITY = (
    AuthenticationError,
    QuotaExhaustedError,
    CustomerUnavailableError,
    QueryRefusedError,
    TransientApiError,
)
# Limits on how much one account's queries may cost, whoever asks.
_ACCOUNT_QUOTAS = frozenset(
    {
        "EXCESSIVE_SHORT_TERM_QUERY_RESOURCE_CONSUMPTION",
        "EXCESSIVE_LONG_TERM_QUERY_RESOURCE_CONSUMPTION",
        "PAYMENTS_PROFILE_ACTIVATION_RATE_LIMIT_EXCEEDED",
    }
)
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
    quota_scope: QuotaScope | None = None
    request_id: str | None = None


def classify(failure: ApiFailure, *, customer_id: CustomerId) -> ExtractionError:
    """Which error a failure is. The API's own codes are more precise than gRPC's status, so they decide first."""
    if not failure.errors:
        if TOKEN_FAILURE in failure.message:
            refusal = _OAUTH_REFUSAL.search(failure.message)
            return _token_refused(refusal[0], customer_id) if refusal else _token_server_silent(customer_id)
        if failure.status == "RESOURCE_EXHAUSTED" and _TOO_LARGE.search(failure.message):
            return _too_large(failure, customer_id)
    said = _one_line("; ".join(f"{error.code}: {error.message}" for error in failure.errors) or failure.message)
    request = f" (request {failure.request_id})" if failure.request_id else ""
    leaf = _leaf(failure)
    if leaf is QuotaExhaustedError:
        return _quota_exhausted(failure, f"{said}{request}", customer_id)
    before, after = _SENTENCES[leaf]
    return leaf(
        f"{before.format(customer_id=customer_id)}: {failure.status}: {said}{request}; {after}", customer_id=customer_id
    )


def _leaf(failure: ApiFailure) -> type[ExtractionError]:
    found = {_BY_CODE.get((error.category, error.code)) or _BY_CATEGORY.get(error.category) for error in failure.errors}
    by_status = _BY_STATUS.get(failure.status, QueryRefusedError)
    return next((leaf for leaf in _GRAVITY if leaf in found), by_status)


def _quota_exhausted(failure: ApiFailure, said: str, customer_id: CustomerId) -> QuotaExhaustedError:
    codes = {error.code for error in failure.errors}
    # A quota of unknown extent may be everybody's.
    scope = failure.quota_scope or ("account" if codes and codes <= _ACCOUNT_QUOTAS else "developer")
    delay = _UNSTATED_DELAY if failure.retry_delay is None else failure.retry_delay
    whose = f"the API quota of account {customer_id}" if scope == "account" else "the API quota of all our calls"
    return QuotaExhaustedError(
        f"{whose} is used up, said while asking for account {customer_id}: {said}; try again in {delay:.0f} seconds",
        customer_id=customer_id,
        retry_after=delay,
        scope=scope,
    )


def _too_large(failure: ApiFailure, customer_id: CustomerId) -> ExtractionError:
    return ExtractionError(
        f"one message of the answer for account {customer_id} is larger than the client takes: "
        f"{_one_line(failure.message)}; select fewer fields in the catalog",
        customer_id=customer_id,
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
        quota_scope=_quota_scope(raw.errors),
        request_id=request_id,
    )


def _quota_scope(errors: Iterable[Any]) -> QuotaScope | None:
    scopes = {_enum_name(error.details.quota_error_details, "rate_scope") for error in errors}
    if "DEVELOPER" in scopes:
        return "developer"
    return "account" if "ACCOUNT" in scopes else None


def _enum_name(message: Any, name: str) -> str:
    number = getattr(message, name, 0)
    field = message.DESCRIPTOR.fields_by_name.get(name)
    member = field.enum_type.values_by_number.get(number) if field is not None else None
    return member.name if member else str(number)


def _api_errors(errors: Iterable[Any]) -> Iterable[ApiError]:
    for error in errors:
        category = error.error_code.WhichOneof("error_code") or "unspecified"
        yield ApiError(category=category, code=_enum_name(error.error_code, category), message=error.message)


def _oauth_word(argument: object) -> str | None:
    if isinstance(argument, dict):
        argument = argument.get("error")
    word = str(argument).partition(":")[0].strip()
    return word if _OAUTH_ERROR.match(word) else None


def _one_line(text: str) -> str:
    shortened = " ".join(text.split())
    return shortened if len(shortened) <= 500 else f"{shortened[:499]}…"
