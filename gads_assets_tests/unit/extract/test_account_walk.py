"""The walk through managers and their clients, over hierarchies that are written down here."""

from collections.abc import Iterator, Mapping

import pytest

from gads_assets.domain.keys import CustomerId
from gads_assets.errors import TransientApiError
from gads_assets.extract.accounts import Client, walk

ROOT, NORTH, SOUTH, DEEP, SHUT = (CustomerId(f"900000000{number}") for number in range(5))
NAMES = {ROOT: "root", NORTH: "north", SOUTH: "south", DEEP: "deep", SHUT: "shut"}


def client(customer_id: str, *, is_manager: bool = False, status: str = "ENABLED") -> Client:
    return Client(
        customer_id=CustomerId(customer_id),
        name="Shoes",
        time_zone="Europe/Berlin",
        currency="EUR",
        is_manager=is_manager,
        api_status=status,
    )


def manager(customer_id: str, *, status: str = "ENABLED") -> Client:
    return client(customer_id, is_manager=True, status=status)


class Hierarchy:
    def __init__(self, below: Mapping[CustomerId, list[Client]]) -> None:
        self._below = below
        self.asked: list[CustomerId] = []

    def clients_of(self, asked: CustomerId) -> Iterator[Client]:
        self.asked.append(asked)
        yield manager(asked)
        yield from self._below[asked]

    def paths(self) -> dict[str, str]:
        found = walk(ROOT, self.clients_of, origin="google")
        assert {each.account.login_customer_id for each in found} <= {ROOT}
        assert [each.account.customer_id for each in found] == sorted(each.account.customer_id for each in found)
        return {each.account.customer_id[-1]: "/".join(NAMES[m] for m in each.account.login_path) for each in found}


def test_every_account_has_the_managers_from_the_login_down_to_its_own() -> None:
    hierarchy = Hierarchy(
        {
            ROOT: [manager(SOUTH), client("1000000001"), manager(NORTH)],
            NORTH: [client("1000000002"), manager(DEEP)],
            SOUTH: [client("1000000003")],
            DEEP: [client("1000000004")],
        }
    )
    assert hierarchy.paths() == {"1": "root", "2": "root/north", "3": "root/south", "4": "root/north/deep"}
    assert sorted(hierarchy.asked) == [ROOT, NORTH, SOUTH, DEEP]


def test_an_account_below_two_managers_is_found_once_by_the_shorter_path_and_each_manager_is_asked_once() -> None:
    hierarchy = Hierarchy(
        {
            ROOT: [manager(NORTH), manager(SOUTH)],
            NORTH: [manager(DEEP), client("1000000001")],
            SOUTH: [manager(DEEP), client("1000000001"), client("1000000002")],
            # A manager that leads back up does not send the walk round in circles.
            DEEP: [client("1000000002"), client("1000000003"), manager(ROOT)],
        }
    )
    assert hierarchy.paths() == {"1": "root/north", "2": "root/south", "3": "root/north/deep"}
    assert sorted(hierarchy.asked) == [ROOT, NORTH, SOUTH, DEEP]


def test_closed_accounts_are_found_with_their_status_and_a_closed_manager_is_not_asked() -> None:
    below = {ROOT: [client("1000000001", status="CANCELED"), manager(SHUT, status="SUSPENDED"), client("1000000002")]}
    hierarchy = Hierarchy(below)
    found = walk(ROOT, hierarchy.clients_of, origin="google")
    assert [(each.account.customer_id[-1], each.api_status) for each in found] == [("1", "CANCELED"), ("2", "ENABLED")]
    assert hierarchy.asked == [ROOT]


def test_a_login_that_is_a_client_finds_itself() -> None:
    [found] = walk(ROOT, lambda _: [client(ROOT)], origin="google")
    assert (found.account.customer_id, found.account.login_customer_id, found.account.login_path) == (ROOT, ROOT, ())


def test_a_manager_that_does_not_answer_ends_the_walk_since_its_accounts_would_seem_to_be_gone() -> None:
    def clients_of(asked: CustomerId) -> Iterator[Client]:
        if asked == NORTH:
            raise TransientApiError("no answer", customer_id=NORTH)
        yield from [client("1000000001"), manager(NORTH)]

    with pytest.raises(TransientApiError, match="no answer"):
        walk(ROOT, clients_of, origin="google")
