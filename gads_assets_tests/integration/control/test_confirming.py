"""Who changed it, and whether they meant it: names, prompts, rehearsals and thresholds."""

import os
import pwd
from types import SimpleNamespace

import pytest

from gads_assets.cli.confirming import acting_user
from gads_assets_tests.ledgers import KEY
from gads_assets_tests.operators import SHOES, Gads, Office, Terminal, days, document, refused

REASON = "the API was mended"
SELECTION = ("--query", "campaign")
AGREED = (*SELECTION, "--reason", REASON, "--yes")
JUNE = ("--from", "2024-06-01", "--to", "2024-06-10", "--query", "campaign", "--customer-id", SHOES)


@pytest.mark.parametrize(
    ("number", "typed", "code"), [(2, "y", 0), (2, "n", 1), (2, "", 1), (51, "51", 0), (51, "y", 1), (51, "50", 1)]
)
def test_on_a_terminal_few_are_confirmed_with_yes_and_many_with_their_number(
    office: Office, number: int, typed: str, code: int
) -> None:
    office.reject(*days(number))
    before = office.dump()
    terminal = Terminal(office, "state", "retry", *SELECTION, "--reason", REASON)
    terminal.wait_for("[y/N] " if number <= 50 else "Type their number to change 51 partitions: ")
    assert f"retry: {number} to change, 0 refused" in terminal.shown
    assert "rejected" in terminal.shown
    terminal.type(typed)
    assert terminal.finish() == code, terminal.shown
    if code == 0:
        assert len(office.rows("override_log")) == number
    else:
        assert "nothing was changed" in terminal.shown
        assert office.dump() == before
    assert "Traceback" not in terminal.shown


@pytest.mark.parametrize(("key", "said", "code"), [("\x04", "no answer was given", 1), (None, "interrupted", 130)])
def test_who_leaves_the_question_open_is_told_that_nothing_was_changed(
    office: Office, key: str | None, said: str, code: int
) -> None:
    office.reject(KEY)
    before = office.dump()
    terminal = Terminal(office, "state", "retry", *SELECTION, "--reason", REASON)
    terminal.wait_for("Change campaign 1234567890|2024-06-01? [y/N] ")
    if key is None:
        terminal.interrupt()
    else:
        terminal.press(key)
    assert terminal.finish() == code
    assert f"[y/N] \r\ngads: {said}; nothing was changed\r\n" in terminal.shown
    assert office.dump() == before


def test_with_standard_input_closed_there_is_no_terminal_to_ask_on(office: Office) -> None:
    office.reject(KEY)
    before = office.dump()
    process = office.start("state", "retry", *SELECTION, "--reason", REASON, stdin=None, preexec_fn=lambda: os.close(0))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert len(err.splitlines()) == 1
    assert "campaign 1234567890|2024-06-01 waits for a yes, and there is no terminal to ask on" in err
    assert office.dump() == before


@pytest.mark.parametrize(
    ("name", "sudo", "told"),
    [
        ("alice", "", "alice"),
        ("root", "alice", "root (sudo by alice)"),
        ("root", "root", "root"),
        ("root", "evil\x1b[31m", "root"),
        ("root", "two\nlines", "root"),
        ("root", "x" * 65, "root"),
        ("odd\x07", "", "uid 42"),
        (None, "", "uid 42"),
    ],
)
def test_the_log_has_the_name_that_the_system_has_for_the_user(
    monkeypatch: pytest.MonkeyPatch, name: str | None, sudo: str, told: str
) -> None:
    def named(user_id: int) -> SimpleNamespace:
        if name is None:
            raise KeyError(user_id)
        return SimpleNamespace(pw_name=name)

    monkeypatch.setattr(os, "getuid", lambda: 42)
    monkeypatch.setattr(pwd, "getpwuid", named)
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, "control plane")
    monkeypatch.setenv("SUDO_USER", sudo)
    assert acting_user() == told


@pytest.mark.parametrize("action", [("retry",), ("revalidate",), ("terminal", "mark"), ("terminal", "clear")])
def test_a_rehearsal_shows_the_plan_changes_nothing_and_needs_no_reason(
    office: Office, gads: Gads, action: tuple[str, ...]
) -> None:
    office.reject(*days(2))
    office.seal(KEY)
    before = office.dump()
    code, out, err = gads("state", *action, *SELECTION, "--dry-run")
    assert (code, err) == (0, "nothing was changed: this was a rehearsal\n")
    assert "to change" in out
    found = document(gads("state", *action, *SELECTION, "--dry-run", "--json"))
    assert found["dry_run"] is True
    assert len(found["changed"]) + len(found["refused"]) == 2
    refused(gads("state", "retry", *AGREED, "--expect", "3", "--dry-run"), "--expect 3 is not", "which is 2")
    assert office.dump() == before
    assert document(gads("state", "retry", *AGREED, "--json"))["dry_run"] is False


def test_a_rehearsed_backfill_is_none(office: Office, gads: Gads) -> None:
    before = office.dump()
    code, out, err = gads("backfill", *JUNE, "--dry-run")
    assert (code, err) == (0, "nothing was changed: this was a rehearsal\n")
    assert f"backfill: customer {SHOES}, days 2024-06-01 to 06-10" in out
    assert "partitions 10, runs 1" in out
    found = document(gads("backfill", *JUNE, "--dry-run", "--json"))
    assert (found["dry_run"], found["backfill_id"], found["partitions"]) == (True, None, 10)
    assert office.dump() == before


def test_how_many_a_yes_is_enough_for_is_a_setting(office: Office, gads: Gads, monkeypatch: pytest.MonkeyPatch) -> None:
    office.reject(*days(3))
    monkeypatch.setenv("GADS_CONFIRM_ABOVE", "2")
    refused(gads("state", "retry", *AGREED), "3 partitions, more than 2, for which --yes is not enough", "--expect 3")
    monkeypatch.setenv("GADS_CONFIRM_ABOVE", "3")
    assert gads("state", "retry", *AGREED)[0] == 0


def test_the_plan_tells_whose_days_it_is_about(office: Office, gads: Gads) -> None:
    office.reject(*days(3))
    _, out, _ = gads("state", "retry", *SELECTION, "--dry-run")
    assert f"customer {SHOES}, days 2024-06-01 to 06-03" in out
