"""What a walk through the accounts makes of those that are known: decided without an API or a database."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gads_assets.domain.accounts import Account, AccountStatus, FoundAccount, SyncPlan, plan_sync, require_active
from gads_assets.domain.keys import CustomerId
from gads_assets.errors import CustomerUnavailableError

NOW = datetime(2024, 7, 1, 12, tzinfo=UTC)
EARLIER = NOW - timedelta(days=30)
LOGIN, OTHER_LOGIN = CustomerId("9000000000"), CustomerId("9000000001")
CLOSED = ("CANCELED", "SUSPENDED", "CLOSED")


def account(number: int, *, login: CustomerId = LOGIN, origin: str = "google", name: str = "Shoes") -> Account:
    return Account(
        customer_id=CustomerId(f"{number:010d}"),
        name=name,
        time_zone="Europe/Berlin",
        currency="EUR",
        login_customer_id=login,
        origin=origin,
        login_path=(login,),
    )


def closed(known: Account, reason: str, since: datetime = NOW) -> Account:
    return replace(known, status=AccountStatus.INACTIVE, closed_at=since, closed_reason=reason)


def met(number: int, status: str = "ENABLED", *, name: str = "Shoes") -> FoundAccount:
    return FoundAccount(account=account(number, name=name), api_status=status)


def planned(found: list[FoundAccount], known: list[Account], now: datetime = NOW) -> SyncPlan:
    return plan_sync(found, known, origin="google", login_customer_id=LOGIN, now=now)


def test_enabled_accounts_are_new_changed_or_as_they_were() -> None:
    plan = planned([met(3), met(1), met(2, name="Boots")], [account(2), account(1)])
    assert plan == SyncPlan(new=(account(3),), changed=(account(2, name="Boots"),), unchanged=(account(1),))
    assert plan.to_write == (account(3), account(2, name="Boots"))
    assert plan.accounts == (account(1), account(2, name="Boots"), account(3))


@pytest.mark.parametrize("status", CLOSED)
def test_an_account_that_the_api_calls_closed_is_closed_with_since_and_reason_and_keeps_what_is_known(
    status: str,
) -> None:
    plan = planned([met(1, status, name=""), met(2)], [account(1), account(2)])
    assert plan == SyncPlan(closed=(closed(account(1), f"{status.lower()} in Google Ads"),), unchanged=(account(2),))


@pytest.mark.parametrize("status", CLOSED)
def test_an_account_that_was_closed_before_it_was_known_is_not_registered(status: str) -> None:
    assert planned([met(1, status)], []) == SyncPlan()


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../etc/passwd"])
def test_an_account_whose_time_zone_nobody_knows_is_closed_for_that_and_stops_no_other(zone: str) -> None:
    odd = [FoundAccount(account=replace(account(number), time_zone=zone), api_status="ENABLED") for number in (1, 2)]
    plan = planned([*odd, met(3)], [account(2), account(3)])
    reason = f"its time zone {zone!r} is not in the tz database"
    assert plan.new == (closed(replace(account(1), time_zone="UTC"), reason),)
    assert plan.closed == (closed(account(2), reason),)
    assert plan.unchanged == (account(3),)


def test_an_account_that_vanished_from_below_its_login_is_closed() -> None:
    plan = planned([met(2)], [account(1), account(2)])
    assert plan.closed == (closed(account(1), f"no longer below manager {LOGIN}"),)


def test_a_closed_account_keeps_the_moment_it_was_first_found_closed() -> None:
    suspended = closed(account(1), "suspended in Google Ads", EARLIER)
    assert planned([met(1, "SUSPENDED")], [suspended]).unchanged == (suspended,)
    assert planned([], [suspended]).unchanged == (suspended,)
    cancelled = planned([met(1, "CANCELED")], [suspended])
    assert cancelled.changed == (closed(account(1), "canceled in Google Ads", EARLIER),)


def test_an_account_that_is_enabled_again_is_reopened() -> None:
    plan = planned([met(1, name="Boots")], [closed(account(1), "suspended in Google Ads", EARLIER)])
    assert plan == SyncPlan(reopened=(account(1, name="Boots"),))


def test_an_account_of_another_login_or_of_the_other_api_is_left_alone() -> None:
    others = [account(1, login=OTHER_LOGIN), account(2, origin="emulator")]
    assert planned([], others) == SyncPlan()


def test_an_account_found_below_another_login_moves_there() -> None:
    assert planned([met(1)], [account(1, login=OTHER_LOGIN)]).changed == (account(1),)


@pytest.mark.parametrize("status", ["UNKNOWN", "UNSPECIFIED"])
def test_a_status_that_we_do_not_know_changes_nothing(status: str) -> None:
    suspended = closed(account(2), "suspended in Google Ads", EARLIER)
    plan = planned([met(1, status), met(2, status), met(3, status)], [account(1), suspended])
    assert plan == SyncPlan(unchanged=(account(1), suspended))


@pytest.mark.parametrize(
    ("active", "closing", "is_most"), [(1, 1, True), (2, 1, False), (3, 1, False), (3, 2, True), (4, 2, False)]
)
def test_closing_more_than_half_of_the_active_accounts_is_noticed(active: int, closing: int, is_most: bool) -> None:
    known = [account(number) for number in range(active)]
    # Neither new accounts nor closed ones count: they were not active before.
    known += [closed(account(number), "gone", EARLIER) for number in range(50, 60)]
    found = [met(number) for number in range(closing, active)] + [met(number) for number in range(100, 110)]
    plan = planned(found, known)
    assert (len(plan.closed), plan.closes_most) == (closing, is_most)


def test_nothing_known_and_nothing_found_is_no_mass_closing() -> None:
    assert not planned([], []).closes_most


_NUMBERS = st.integers(0, 6)
_FOUND = st.lists(
    st.builds(met, _NUMBERS, st.sampled_from(["ENABLED", *CLOSED, "UNKNOWN"]), name=st.sampled_from(["a", "b"])),
    unique_by=lambda each: each.account.customer_id,
)
_ACTIVE = st.builds(account, _NUMBERS, login=st.sampled_from([LOGIN, OTHER_LOGIN]), origin=st.just("google"))
_KNOWN = st.lists(
    st.one_of(_ACTIVE, st.builds(closed, _ACTIVE, st.just("gone"), st.just(EARLIER))),
    unique_by=lambda each: each.customer_id,
)


@given(found=_FOUND, known=_KNOWN)
def test_the_same_walk_a_second_time_changes_nothing(found: list[FoundAccount], known: list[Account]) -> None:
    first = planned(found, known)
    ids = [each.customer_id for each in first.accounts]
    assert len(ids) == len(set(ids))
    after = {each.customer_id: each for each in [*known, *first.to_write]}
    second = planned(found, list(after.values()), now=NOW + timedelta(days=1))
    assert second.to_write == ()
    assert second.unchanged == first.accounts
    enabled = {each.account.customer_id for each in found if each.is_enabled}
    assert {each.customer_id for each in first.accounts if each.is_active} >= enabled


def test_a_closed_account_is_refused_with_since_when_and_why() -> None:
    require_active(account(1))
    with pytest.raises(CustomerUnavailableError) as refusal:
        require_active(closed(account(1), "suspended in Google Ads"))
    assert str(refusal.value) == (
        "account 0000000001 is closed since 2024-07-01 (suspended in Google Ads); its history stays, and "
        "`gads customers sync` reopens it once it is enabled again"
    )
    assert refusal.value.customer_id == "0000000001"
