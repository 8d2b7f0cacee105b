from collections.abc import Callable
from importlib import import_module
from typing import Any

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
from gads_assets.extract.translation import (
    ApiError,
    ApiFailure,
    _from_messages,
    authentication_error,
    classify,
    translated,
)

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
        (failed("UNAUTHENTICATED", ("authentication_error", "NOT_ADS_USER")), AuthenticationError),
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


CODES: dict[str, dict[type[ExtractionError], str]] = {
    "authorization_error": {
        CustomerUnavailableError: """
            UNSPECIFIED UNKNOWN USER_PERMISSION_DENIED AUTHORIZATION_ERROR ACTION_NOT_PERMITTED INCOMPLETE_SIGNUP
            CUSTOMER_NOT_ENABLED MISSING_TOS INVALID_LOGIN_CUSTOMER_ID_SERVING_CUSTOMER_ID_COMBINATION
            SERVICE_ACCESS_DENIED ACCESS_DENIED_FOR_ACCOUNT_TYPE METRIC_ACCESS_DENIED
            ACTION_NOT_PERMITTED_FOR_SUSPENDED_ACCOUNT
        """,
        AuthenticationError: """
            DEVELOPER_TOKEN_NOT_ON_ALLOWLIST DEVELOPER_TOKEN_PROHIBITED PROJECT_DISABLED DEVELOPER_TOKEN_NOT_APPROVED
            CLOUD_PROJECT_NOT_APPROVED_FOR_PRODUCTION CLOUD_PROJECT_NOT_UNDER_ORGANIZATION
        """,
    },
    "authentication_error": {
        AuthenticationError: """
            UNSPECIFIED UNKNOWN AUTHENTICATION_ERROR GOOGLE_ACCOUNT_DELETED GOOGLE_ACCOUNT_COOKIE_INVALID
            GOOGLE_ACCOUNT_AUTHENTICATION_FAILED GOOGLE_ACCOUNT_USER_AND_ADS_USER_MISMATCH LOGIN_COOKIE_REQUIRED
            NOT_ADS_USER OAUTH_TOKEN_INVALID OAUTH_TOKEN_EXPIRED OAUTH_TOKEN_DISABLED OAUTH_TOKEN_REVOKED
            OAUTH_TOKEN_HEADER_INVALID LOGIN_COOKIE_INVALID INVALID_EMAIL_ADDRESS USER_ID_INVALID
            ORGANIZATION_NOT_RECOGNIZED ORGANIZATION_NOT_APPROVED ORGANIZATION_NOT_ASSOCIATED_WITH_DEVELOPER_TOKEN
            DEVELOPER_TOKEN_INVALID
        """,
        CustomerUnavailableError: """
            CLIENT_CUSTOMER_ID_INVALID CUSTOMER_NOT_FOUND TWO_STEP_VERIFICATION_NOT_ENROLLED
            ADVANCED_PROTECTION_NOT_ENROLLED
        """,
    },
    "quota_error": {
        QuotaExhaustedError: """
            UNSPECIFIED UNKNOWN RESOURCE_EXHAUSTED RESOURCE_TEMPORARILY_EXHAUSTED
            EXCESSIVE_SHORT_TERM_QUERY_RESOURCE_CONSUMPTION EXCESSIVE_LONG_TERM_QUERY_RESOURCE_CONSUMPTION
            PAYMENTS_PROFILE_ACTIVATION_RATE_LIMIT_EXCEEDED
        """,
        AuthenticationError: "ACCESS_PROHIBITED",
    },
    "internal_error": {
        TransientApiError: "UNSPECIFIED UNKNOWN INTERNAL_ERROR TRANSIENT_ERROR DEADLINE_EXCEEDED",
        QueryRefusedError: "ERROR_CODE_NOT_PUBLISHED",
    },
    "request_error": {
        QueryRefusedError: """
            UNSPECIFIED UNKNOWN RESOURCE_NAME_MISSING RESOURCE_NAME_MALFORMED BAD_RESOURCE_ID OPERATION_REQUIRED
            RESOURCE_NOT_FOUND INVALID_PAGE_TOKEN EXPIRED_PAGE_TOKEN INVALID_PAGE_SIZE PAGE_SIZE_NOT_SUPPORTED
            REQUIRED_FIELD_MISSING IMMUTABLE_FIELD TOO_MANY_MUTATE_OPERATIONS TOO_MANY_ACTION_OPERATIONS
            CANNOT_MODIFY_FOREIGN_FIELD INVALID_ENUM_VALUE VALIDATE_ONLY_REQUEST_HAS_PAGE_TOKEN
            CANNOT_RETURN_SUMMARY_ROW_FOR_REQUEST_WITHOUT_METRICS CANNOT_RETURN_SUMMARY_ROW_FOR_VALIDATE_ONLY_REQUESTS
            INCONSISTENT_RETURN_SUMMARY_ROW_VALUE TOTAL_RESULTS_COUNT_NOT_ORIGINALLY_REQUESTED UNSUPPORTED_VERSION
        """,
        CustomerUnavailableError: """
            INVALID_CUSTOMER_ID CANNOT_BE_EXECUTED_BY_MANAGER_ACCOUNT LOGIN_CUSTOMER_ID_PARAMETER_MISSING
        """,
        AuthenticationError: "DEVELOPER_TOKEN_PARAMETER_MISSING CLOUD_PROJECT_NOT_FOUND",
        TransientApiError: "RPC_DEADLINE_TOO_SHORT",
    },
    "query_error": {
        QueryRefusedError: """
            UNSPECIFIED UNKNOWN QUERY_ERROR BAD_ENUM_CONSTANT BAD_ESCAPE_SEQUENCE BAD_FIELD_NAME BAD_LIMIT_VALUE
            BAD_NUMBER BAD_OPERATOR BAD_PARAMETER_NAME BAD_PARAMETER_VALUE BAD_RESOURCE_TYPE_IN_FROM_CLAUSE BAD_SYMBOL
            BAD_VALUE DATE_RANGE_TOO_WIDE DATE_RANGE_TOO_NARROW EXPECTED_AND EXPECTED_BY
            EXPECTED_DIMENSION_FIELD_IN_SELECT_CLAUSE EXPECTED_FILTERS_ON_DATE_RANGE EXPECTED_FROM EXPECTED_LIST
            EXPECTED_REFERENCED_FIELD_IN_SELECT_CLAUSE EXPECTED_SELECT EXPECTED_SINGLE_VALUE
            EXPECTED_VALUE_WITH_BETWEEN_OPERATOR INVALID_DATE_FORMAT MISALIGNED_DATE_FOR_FILTER INVALID_STRING_VALUE
            INVALID_VALUE_WITH_BETWEEN_OPERATOR INVALID_VALUE_WITH_DURING_OPERATOR INVALID_VALUE_WITH_LIKE_OPERATOR
            OPERATOR_FIELD_MISMATCH PROHIBITED_EMPTY_LIST_IN_CONDITION PROHIBITED_ENUM_CONSTANT
            PROHIBITED_FIELD_COMBINATION_IN_SELECT_CLAUSE PROHIBITED_FIELD_IN_ORDER_BY_CLAUSE
            PROHIBITED_FIELD_IN_SELECT_CLAUSE PROHIBITED_FIELD_IN_WHERE_CLAUSE PROHIBITED_RESOURCE_TYPE_IN_FROM_CLAUSE
            PROHIBITED_RESOURCE_TYPE_IN_SELECT_CLAUSE PROHIBITED_RESOURCE_TYPE_IN_WHERE_CLAUSE
            PROHIBITED_METRIC_IN_SELECT_OR_WHERE_CLAUSE PROHIBITED_SEGMENT_IN_SELECT_OR_WHERE_CLAUSE
            PROHIBITED_SEGMENT_WITH_METRIC_IN_SELECT_OR_WHERE_CLAUSE PROHIBITED_FIELD_OR_SEGMENT_WITH_METRIC
            LIMIT_VALUE_TOO_LOW PROHIBITED_NEWLINE_IN_STRING PROHIBITED_VALUE_COMBINATION_IN_LIST
            PROHIBITED_VALUE_COMBINATION_WITH_BETWEEN_OPERATOR STRING_NOT_TERMINATED TOO_MANY_SEGMENTS
            UNEXPECTED_END_OF_QUERY UNEXPECTED_FROM_CLAUSE UNRECOGNIZED_FIELD UNEXPECTED_INPUT
            FILTER_HAS_TOO_MANY_VALUES REQUIRED_SEGMENT_FIELD_MISSING
        """,
        CustomerUnavailableError: "REQUESTED_METRICS_FOR_MANAGER",
    },
}


@pytest.mark.parametrize("category", CODES)
def test_every_code_that_a_query_can_meet_has_been_given_its_kind(category: str) -> None:
    errors = import_module("google.ads.googleads.v26.errors.types.errors").ErrorCode.pb()
    codes = set(errors.DESCRIPTOR.fields_by_name[category].enum_type.values_by_name)
    listed = [code for names in CODES[category].values() for code in names.split()]
    assert sorted(listed) == sorted(codes)
    for leaf, names in CODES[category].items():
        for code in names.split():
            for status in ("INVALID_ARGUMENT", "INTERNAL", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"):
                assert (code, type(classify(failed(status, (category, code)), customer_id=CUSTOMER))) == (code, leaf)


def test_of_several_errors_the_one_that_stops_most_counts() -> None:
    several = failed(
        "INVALID_ARGUMENT",
        ("query_error", "BAD_VALUE"),
        ("authentication_error", "OAUTH_TOKEN_REVOKED"),
        ("authorization_error", "CUSTOMER_NOT_ENABLED"),
    )
    assert type(classify(several, customer_id=CUSTOMER)) is AuthenticationError


def quota_failure(code: str, rate_scope: str, seconds: int) -> ApiFailure:
    errors: Any = import_module("google.ads.googleads.v26.errors.types.errors")
    failure = errors.GoogleAdsFailure.pb()()
    error = failure.errors.add()
    error.error_code.quota_error = (
        error.error_code.DESCRIPTOR.fields_by_name["quota_error"].enum_type.values_by_name[code].number
    )
    details = error.details.quota_error_details
    details.rate_scope = type(details).QuotaRateScope.Value(rate_scope)
    details.retry_delay.seconds = seconds
    return _from_messages(status="RESOURCE_EXHAUSTED", message="", failure=failure, request_id=None)


@pytest.mark.parametrize(
    ("code", "rate_scope", "scope"),
    [
        ("RESOURCE_EXHAUSTED", "DEVELOPER", "developer"),
        ("RESOURCE_EXHAUSTED", "ACCOUNT", "account"),
        ("RESOURCE_EXHAUSTED", "UNSPECIFIED", "developer"),
        ("RESOURCE_TEMPORARILY_EXHAUSTED", "UNKNOWN", "developer"),
        ("EXCESSIVE_SHORT_TERM_QUERY_RESOURCE_CONSUMPTION", "UNSPECIFIED", "account"),
        ("EXCESSIVE_LONG_TERM_QUERY_RESOURCE_CONSUMPTION", "ACCOUNT", "account"),
    ],
)
def test_a_quota_error_says_whether_one_account_or_everybody_has_to_wait(
    code: str, rate_scope: str, scope: str
) -> None:
    error = classify(quota_failure(code, rate_scope, 7), customer_id=CUSTOMER)
    assert isinstance(error, QuotaExhaustedError)
    assert (error.scope, error.retry_after) == (scope, 7.0)


@pytest.mark.parametrize(
    "said",
    [
        "CLIENT: Received message larger than max (70000000 vs. 67108864)",
        "Received message larger than max (70000000 vs. 67108864)",
        "received metadata size exceeds hard limit (16777300 vs. 16777216)",
    ],
)
def test_an_answer_too_large_for_the_client_is_no_quota_and_not_worth_repeating(said: str) -> None:
    error = classify(ApiFailure(status="RESOURCE_EXHAUSTED", message=said), customer_id=CUSTOMER)
    assert type(error) is ExtractionError
    assert not error.retryable
    assert "select fewer fields" in str(error)


def test_a_transient_error_says_how_soon_to_try_again() -> None:
    error = classify(failed("UNAVAILABLE"), customer_id=CUSTOMER)
    assert isinstance(error, TransientApiError)
    assert 0 < error.retry_after <= 30


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
