"""`gads doctor --live`: the API itself, asked as cheaply as it can be and without changing anything."""

from collections.abc import Callable
from datetime import date

from gads_assets.catalog.api_versions import describe_sunset, sunset_passed
from gads_assets.errors import CustomerUnavailableError, SetupError
from gads_assets.orchestration.workplace import Workplace

COST = "asking the API: two read-only calls, at most two operations of the quota"
CREDENTIALS = "credentials"
_ITSELF = "SELECT customer.id FROM customer LIMIT 1"


def live_parts(here: Workplace, today: date) -> list[tuple[str, Callable[[], str]]]:
    """The parts after `credentials` cannot be asked without them."""
    return [
        ("api version", lambda: _api_version(here, today)),
        (CREDENTIALS, lambda: _credentials(here)),
        ("accounts", lambda: _accessible_accounts(here)),
        ("login", lambda: _login(here)),
    ]


def _api_version(here: Workplace, today: date) -> str:
    version = here.catalog.api_version
    if sunset_passed(version, today):
        raise SetupError(describe_sunset(version, today))
    return describe_sunset(version, today)


def _credentials(here: Workplace) -> str:
    return f"{here.source.origin} is ready to be asked under login {here.source.login_customer_id}"


def _accessible_accounts(here: Workplace) -> str:
    count = len(here.source.accessible_customers())
    if not count:
        raise SetupError("these credentials reach no account; invite their user to the manager account")
    return f"{count} directly accessible"


def _login(here: Workplace) -> str:
    login = here.source.login_customer_id
    mend = "set GADS_GOOGLE_ADS_LOGIN to an account that these credentials may use"
    try:
        batches = here.source.stream(login, _ITSELF, login_customer_id=login)
        rows = sum(len(batch) for batch in batches)
    except CustomerUnavailableError as error:
        raise SetupError(f"{error}; {mend}") from error
    if rows != 1:
        raise SetupError(f"account {login} answered a question about itself with {rows} rows; {mend}")
    return f"{login} answers queries"
