from collections import Counter
from datetime import datetime
from zoneinfo import ZoneInfo

from gads_assets.domain.keys import parse_customer_id
from gads_assets.emulator.accounts import ACCOUNTS, MANAGER_CUSTOMER_ID, EmulatedAccount, made_up_accounts
from gads_assets.emulator.answers import answer
from gads_assets.emulator.plan import plan_answer

AGENCY = made_up_accounts(200)
CLIENTS = [account for account in AGENCY if not account.manager]


def listed(asked: EmulatedAccount) -> list[tuple[object, ...]]:
    gaql = (
        "SELECT customer_client.id, customer_client.level, customer_client.manager, customer_client.status, "
        "customer_client.time_zone, customer_client.currency_code, customer_client.hidden FROM customer_client"
    )
    return [values[:7] for values in answer(plan_answer(gaql, asked, "v26"), asked, AGENCY)]


def test_an_agency_is_the_same_every_time_and_larger_ones_begin_like_it() -> None:
    assert made_up_accounts(200) == AGENCY
    assert set(made_up_accounts(40)) < set(AGENCY)
    assert made_up_accounts(1)[0] == ACCOUNTS[0]


def test_every_client_has_an_id_of_its_own_and_a_manager_of_no_more_than_twenty() -> None:
    many = made_up_accounts(5_000)
    assert len({parse_customer_id(account.customer_id) for account in many}) == len(many)
    teams = Counter(account.parent for account in CLIENTS)
    assert set(teams.values()) == {20}
    assert {account.parent for account in AGENCY if account.customer_id in teams} == {MANAGER_CUSTOMER_ID}


def test_every_fiftieth_client_is_suspended_and_others_are_closed_or_cancelled() -> None:
    assert [index for index, account in enumerate(CLIENTS) if account.status == "SUSPENDED"] == [49, 99, 149, 199]
    assert {account.status for account in CLIENTS[:49]} == {"ENABLED"}
    assert {account.status for account in CLIENTS} == {"ENABLED", "SUSPENDED", "CLOSED", "CANCELED"}


def test_time_zones_have_half_hours_and_reach_both_ends_of_the_day() -> None:
    january = datetime(2024, 1, 15)  # noqa: DTZ001  # each zone gives its own offset
    offsets = {january.replace(tzinfo=ZoneInfo(account.time_zone)).utcoffset() for account in CLIENTS}
    hours = {offset.total_seconds() / 3600 for offset in offsets if offset}
    assert {-10, 13, 14, 5.5, 5.75} <= hours


def test_a_manager_lists_all_below_it_with_their_levels_whatever_their_status() -> None:
    by_id = {int(account.customer_id): account for account in AGENCY}
    rows = listed(ACCOUNTS[0])
    assert len(rows) == len(AGENCY)
    for number, level, *facts in rows:
        account = by_id[int(str(number))]
        depth = 0 if account.parent is None else 1 if account.manager else 2
        assert level == depth
        expected = [account.manager, account.status, account.time_zone, account.currency, account.hidden]
        assert facts == expected


def test_a_team_lists_its_own_clients_only() -> None:
    team = AGENCY[1]
    rows = listed(team)
    assert [row[1] for row in rows] == [0] + [1] * 20
    assert {str(row[0]) for row in rows[1:]} == {account.customer_id for account in CLIENTS[:20]}
