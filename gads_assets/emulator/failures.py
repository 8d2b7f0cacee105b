"""Refusals in the API's own form, so that the real client raises what it would raise against Google."""

import importlib
from functools import cache
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # ships no stubs


class RefusedCallError(Exception):
    """Ends the call; it never leaves the emulator except as a gRPC status.

    `category` and `code` name a member of GoogleAdsFailure's ErrorCode, such as `query_error` and
    `UNRECOGNIZED_FIELD`; without them the call breaks as the network would break it.
    """

    def __init__(
        self,
        message: str,
        *,
        status: grpc.StatusCode,
        category: str | None = None,
        code: str | None = None,
        retry_delay: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.category = category
        self.code = code
        self.retry_delay = retry_delay


def invalid_argument(category: str, code: str, message: str) -> RefusedCallError:
    return RefusedCallError(message, status=grpc.StatusCode.INVALID_ARGUMENT, category=category, code=code)


def query_refused(code: str, message: str) -> RefusedCallError:
    return invalid_argument("query_error", code, message)


def permission_denied(code: str, message: str) -> RefusedCallError:
    return RefusedCallError(
        message, status=grpc.StatusCode.PERMISSION_DENIED, category="authorization_error", code=code
    )


def unauthenticated(code: str, message: str) -> RefusedCallError:
    return RefusedCallError(message, status=grpc.StatusCode.UNAUTHENTICATED, category="authentication_error", code=code)


def quota_exhausted(retry_delay: float) -> RefusedCallError:
    return RefusedCallError(
        "Too many requests. Retry after the delay.",
        status=grpc.StatusCode.RESOURCE_EXHAUSTED,
        category="quota_error",
        code="RESOURCE_EXHAUSTED",
        retry_delay=retry_delay,
    )


def internal_error() -> RefusedCallError:
    return RefusedCallError(
        "Internal error encountered.",
        status=grpc.StatusCode.INTERNAL,
        category="internal_error",
        code="INTERNAL_ERROR",
    )


def customer_not_enabled() -> RefusedCallError:
    return permission_denied(
        "CUSTOMER_NOT_ENABLED",
        "The customer account can't be accessed because it is not yet enabled or has been deactivated.",
    )


def customer_suspended() -> RefusedCallError:
    return permission_denied(
        "ACTION_NOT_PERMITTED_FOR_SUSPENDED_ACCOUNT", "The action is not permitted for suspended accounts."
    )


def user_permission_denied() -> RefusedCallError:
    return permission_denied(
        "USER_PERMISSION_DENIED",
        "User doesn't have permission to access customer. Note: If you're accessing a client customer, "
        "the manager's customer id must be set in the 'login-customer-id' header.",
    )


def unavailable(message: str) -> RefusedCallError:
    return RefusedCallError(message, status=grpc.StatusCode.UNAVAILABLE)


def trailing_metadata(
    refusal: RefusedCallError, *, api_version: str, request_id: str
) -> tuple[tuple[str, str | bytes], ...]:
    """What Google sends after a failed call: the failure under its version's key, and as a plain gRPC status."""
    if refusal.category is None or refusal.code is None:
        return (("request-id", request_id),)
    failure = _failure_class(api_version)()
    failure.request_id = request_id
    error = failure.errors.add(message=str(refusal))
    members = error.error_code.DESCRIPTOR.fields_by_name[refusal.category].enum_type.values_by_name
    setattr(error.error_code, refusal.category, members[refusal.code].number)
    if refusal.retry_delay is not None:
        details = error.details.quota_error_details
        details.rate_scope = 3  # DEVELOPER
        details.rate_name = "Operations per day"
        details.retry_delay.FromMilliseconds(round(refusal.retry_delay * 1000))
    content = failure.SerializeToString()
    status = Status(code=refusal.status.value[0], message=str(refusal))
    kind = f"type.googleapis.com/google.ads.googleads.{api_version}.errors.GoogleAdsFailure"
    status.details.append(AnyMessage(type_url=kind, value=content))
    return (
        ("request-id", request_id),
        (f"google.ads.googleads.{api_version}.errors.googleadsfailure-bin", content),
        ("grpc-status-details-bin", status.SerializeToString()),
    )


@cache
def _failure_class(api_version: str) -> Any:
    module = importlib.import_module(f"google.ads.googleads.{api_version}.errors.types.errors")
    return module.GoogleAdsFailure.pb()
