from collections.abc import Callable

import pytest
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
from gads_assets.extract.translation import ApiError, ApiFailure, authentication_error, classify, translated

CUSTOMER = CustomerId("2145550101")

# google-auth ships its types without annotating these constructors.
refresh_error: Callable[..., GoogleAuthError] = RefreshError
transport_error: Callable[..., GoogleAuthError] = TransportError
auth_error: Callable[..., GoogleAuthError] = GoogleAuthError


def failed(status: str, *errors: tuple[str, str], retry_delay: float | None = None) -> ApiFailure:
    return ApiFailure(
        status=status,
        message="said by the API",
        errors=tuple(ApiError(category=category, code=code, message="why") for category, code in errors),
        retry_delay=retry_delay,
        request_id="r-1",
    )


@pytest.mark.parametrize(
    ("failure", "leaf"),
    [
        (failed("PERMISSION_DENIED", ("authorization_error", "CUSTOMER_NOT_ENABLED")), CustomerUnavailableError),
        (failed("PERMISSION_DENIED", ("authorization_error", "USER_PERMISSION_DENIED")), CustomerUnavailableError),
        (failed("UNAUTHENTICATED", ("authentication_error", "NOT_ADS_USER")), CustomerUnavailableError),
        (failed("UNAUTHENTICATED", ("authentication_error", "CUSTOMER_NOT_FOUND")), CustomerUnavailableError),
        (failed("INVALID_ARGUMENT", ("query_error", "REQUESTED_METRICS_FOR_MANAGER")), CustomerUnavailableError),
        (failed("PERMISSION_DENIED"), CustomerUnavailableError),
        (failed("UNAUTHENTICATED", ("authentication_error", "OAUTH_TOKEN_EXPIRED")), AuthenticationError),
        (failed("PERMISSION_DENIED", ("authorization_error", "DEVELOPER_TOKEN_NOT_APPROVED")), AuthenticationError),
        (failed("UNAUTHENTICATED"), AuthenticationError),
        (failed("INVALID_ARGUMENT", ("query_error", "UNRECOGNIZED_FIELD")), QueryRefusedError),
        (failed("INVALID_ARGUMENT", ("date_range_error", "AFTER_MAXIMUM_ALLOWABLE_DATE")), QueryRefusedError),
        (failed("UNIMPLEMENTED"), QueryRefusedError),
        (failed("INTERNAL", ("internal_error", "INTERNAL_ERROR")), TransientApiError),
        (failed("INVALID_ARGUMENT", ("internal_error", "TRANSIENT_ERROR")), TransientApiError),
        *(
            (failed(status), TransientApiError)
            for status in ("UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "ABORTED")
        ),
    ],
)
def test_each_failure_is_its_own_kind_of_error(failure: ApiFailure, leaf: type[ExtractionError]) -> None:
    error = classify(failure, customer_id=CUSTOMER)
    assert type(error) is leaf
    assert error.customer_id == CUSTOMER
    assert "request r-1" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("delay", [0.0, 3.5, 43_200.0])
def test_a_stated_retry_delay_is_honoured_whether_seconds_or_half_a_day(delay: float) -> None:
    error = classify(
        failed("RESOURCE_EXHAUSTED", ("quota_error", "RESOURCE_EXHAUSTED"), retry_delay=delay), customer_id=CUSTOMER
    )
    assert isinstance(error, QuotaExhaustedError)
    assert error.retry_after == delay


def test_an_exhausted_quota_without_a_delay_still_means_waiting() -> None:
    error = classify(failed("RESOURCE_EXHAUSTED"), customer_id=CUSTOMER)
    assert isinstance(error, QuotaExhaustedError)
    assert error.retry_after > 0


def test_what_the_api_says_over_many_lines_becomes_one_bounded_line() -> None:
    failure = ApiFailure(status="UNAVAILABLE", message="first\n  second\n" + "x" * 5000)
    message = str(classify(failure, customer_id=CUSTOMER))
    assert "first second" in message
    assert "\n" not in message
    assert len(message) < 700


def test_a_token_that_cannot_be_renewed_in_mid_call_is_about_credentials_not_the_network() -> None:
    said = "Getting metadata from plugin failed with error: ('invalid_grant: Bad Request', {'secret': 'hunter2'})"
    error = classify(ApiFailure(status="UNAVAILABLE", message=said), customer_id=CUSTOMER)
    assert isinstance(error, AuthenticationError)
    assert "(invalid_grant)" in str(error)
    assert "hunter2" not in str(error)


def test_a_silent_token_server_is_worth_another_try() -> None:
    said = "Getting metadata from plugin failed with error: HTTPSConnectionPool(host='x'): timed out"
    assert isinstance(classify(ApiFailure(status="UNAVAILABLE", message=said), customer_id=CUSTOMER), TransientApiError)


@pytest.mark.parametrize(
    ("raised", "leaf", "shown"),
    [
        (
            refresh_error("invalid_grant: Token revoked hunter2", {"error": "invalid_grant"}),
            AuthenticationError,
            "invalid_grant",
        ),
        (refresh_error({"error": "invalid_client", "sent": "hunter2"}), AuthenticationError, "invalid_client"),
        (refresh_error("Hunter2 is not a key", "hunter2!"), AuthenticationError, "refuses the credentials"),
        (refresh_error("internal_failure", retryable=True), TransientApiError, "try again"),
        (transport_error("hunter2.example did not answer"), TransientApiError, "try again"),
        (auth_error("hunter2"), AuthenticationError, "refuses the credentials"),
    ],
)
def test_refused_credentials_are_named_without_being_shown(
    raised: GoogleAuthError, leaf: type[ExtractionError], shown: str
) -> None:
    error = authentication_error(raised, customer_id=CUSTOMER)
    assert type(error) is leaf
    assert shown in str(error)
    assert "hunter2" not in str(error).lower()


def test_a_fault_of_ours_is_not_dressed_up_as_the_apis() -> None:
    assert translated(ZeroDivisionError("ours"), customer_id=CUSTOMER) is None
