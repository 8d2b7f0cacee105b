"""Whatever is wrong with a command of an operator: one line names it, the exit code tells it apart, nothing changes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gads_assets_tests.databases import copied_database
from gads_assets_tests.integration.control.wrong_uses import BACKFILLING, LOOKING, OVERRIDING, WrongUse
from gads_assets_tests.ledgers import KEY
from gads_assets_tests.operators import CLOSED, Gads, Office, days, in_process, opened_office


@pytest.fixture(scope="module")
def office(postgres_url: str, migrated: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """One for all of them: nothing may change."""
    with (
        copied_database(postgres_url, migrated) as url,
        opened_office(tmp_path_factory.mktemp("office"), url) as made,
    ):
        made.reject(*days(3))
        made.reject(*days(60, replace(KEY, query_name="account")))
        made.fail_to_extract(blocked := replace(KEY, query_name="ad_group"))
        made.give_up("blocked", blocked)
        made.reject(held := replace(KEY, query_name="keyword_view"))
        made.lease(held)
        made.execute("UPDATE run_lease SET lease_until = lease_until + interval '1 hour'")
        made.reject(replace(KEY, query_name="geographic_view", customer_id=CLOSED))
        made.accept(replace(KEY, query_name="conversion"))
        yield made


@pytest.fixture
def gads(office: Office, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gads:
    return in_process(office, monkeypatch, capsys)


@pytest.mark.parametrize("use", [*LOOKING, *OVERRIDING, *BACKFILLING], ids=lambda use: ascii(use.arguments)[:90])
def test_a_wrong_use_is_told_in_one_line_and_changes_nothing(office: Office, gads: Gads, use: WrongUse) -> None:
    before = office.dump()
    code, out, err = gads(*use.words)
    assert code == use.code, err
    assert len(err.splitlines()) == 1, err
    assert err.startswith("gads: ")
    for words in use.said:
        assert words in err
    for bad in ("Traceback", "the trace is in", "psycopg", "sqlalchemy"):
        assert bad not in out + err
    assert office.dump() == before


def test_there_are_many_wrong_uses_and_no_two_are_the_same() -> None:
    uses = [*LOOKING, *OVERRIDING, *BACKFILLING]
    assert len({use.arguments for use in uses}) == len(uses) >= 45
