"""`gads doctor --live`: the API itself, asked as cheaply as it can be and without changing anything."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from time import sleep
from typing import TYPE_CHECKING

from gads_assets.catalog.api_versions import describe_sunset, sunset_passed
from gads_assets.errors import CustomerUnavailableError, SetupError
from gads_assets.orchestration.workplace import Workplace

if TYPE_CHECKING:
    from gads_assets.extract.pacing import Pacer

COST = "asking the API: two read-only calls, at most two operations of the quota"
CREDENTIALS = "credentials"
_ITSELF = "SELECT customer.id FROM customer LIMIT 1"


def live_parts(here: Workplace, today: date, *, counted: bool) -> list[tuple[str, Callable[[], str]]]:
    """The parts after `credentials` cannot be asked without them.

    Not `counted` they are asked all the same, also in a pause: whoever mends a database wants to know of the rest too.
    """
    return [
        ("api version", lambda: _api_version(here, today)),
        (CREDENTIALS, lambda: _credentials(here)),
        ("accounts", lambda: _accessible_accounts(here, _pacer(here, counted))),
        ("login", lambda: _login(here, _pacer(here, counted))),
    ]


def _pacer(here: Workplace, counted: bool) -> "Pacer":
    """One that waits for nothing: whoever asks how things stand is told at once, for one call."""
    from gads_assets.extract.pacing import Pacer, Uncounted  # noqa: PLC0415

    if counted:
        return replace(here.pacer, longest_wait=timedelta())
    return Pacer(budget=Uncounted(), now=lambda: datetime.now(UTC), sleep=sleep, longest_wait=timedelta())


def _api_version(here: Workplace, today: date) -> str:
    version = here.catalog.api_version
    if sunset_passed(version, today):
        raise SetupError(describe_sunset(version, today))
    return describe_sunset(version, today)


def _credentials(here: Workplace) -> str:
    return f"{here.source.origin} is ready to be asked under login {here.source.login_customer_id}"


def _accessible_accounts(here: Workplace, pacer: "Pacer") -> str:
    count = len(pacer.call(here.source.login_customer_id, here.source.accessible_customers))
    if not count:
        raise SetupError("these credentials reach no account; invite their user to the manager account")
    return f"{count} directly accessible"


def _login(here: Workplace, pacer: "Pacer") -> str:
    login = here.source.login_customer_id
    mend = "set GADS_GOOGLE_ADS_LOGIN to an account that these credentials may use"
    try:
        rows = pacer.call(login, lambda: sum(map(len, here.source.stream(login, _ITSELF, login_customer_id=login))))
    except CustomerUnavailableError as error:
        raise SetupError(f"{error}; {mend}") from error
    if rows != 1:
        raise SetupError(f"account {login} answered a question about itself with {rows} rows; {mend}")
    return f"{login} answers queries"
