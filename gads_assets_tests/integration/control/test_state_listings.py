"""What an operator is shown: all that is on record of partitions, side by side, in terminals of any width."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gads_assets.cli.confirming import acting_user
from gads_assets.domain.roles import Role
from gads_assets.domain.scheduling import Purpose
from gads_assets_tests.ledgers import KEY
from gads_assets_tests.operators import BIKES, Gads, Office, days, document

REASON = "the API was mended"
AGREED = ("--query", "campaign", "--reason", REASON, "--yes")
ONE = ("--query", "campaign", "--customer-id", "123-456-7890", "--logical-date", "2024-06-01")


def test_inspect_shows_the_ledger_the_schedule_and_what_readers_see_side_by_side(office: Office, gads: Gads) -> None:
    run_id = office.publish()
    office.reject(KEY)
    office.fail_to_extract(blocked := replace(KEY, customer_id=BIKES), "customer")
    office.give_up("blocked", blocked)
    office.lease(KEY)
    found = document(gads("state", "inspect", "--json"))
    assert [*found] == ["at", "limit", "truncated", "partitions"]
    published, other = found["partitions"]
    assert [*published] == [
        *("query", "customer_id", "logical_date", "status", "attempts", "attempts_since_baseline"),
        *("failed_extractions", "state_version", "updated_at", "authority", "last_error", "has_sealed_run", "schedule"),
        *("held_by", "waits_in_batch", "shown", "load_record"),
    ]
    assert (published["status"], published["attempts"], published["attempts_since_baseline"]) == ("success", 2, 1)
    assert published["authority"] == {"run_id": run_id, "record_count": 3}
    assert published["last_error"] == {"class": "rejected", "message": "two rows share a key"}
    assert (published["shown"]["run_id"], published["shown"]["status"]) == (run_id, "active")
    assert published["load_record"]["run_id"] == run_id
    assert (published["schedule"], published["held_by"]) == (None, "living run")
    assert (other["status"], other["last_error"]["class"], other["shown"]) == ("pending", "customer", None)
    assert (other["schedule"]["disposition"], other["schedule"]["reason"]) == ("blocked", "too often")
    code, out, err = gads("state", "inspect")
    assert (code, err) == (0, "")
    for words in (
        "success",
        "2 (1)",
        "rejected: two rows share a key",
        "run living run has it",
        "blocked: too often",
        "readers see the same",
    ):
        assert words in out


def test_filters_choose_partitions_by_all_that_is_shown_of_them(office: Office, gads: Gads) -> None:
    office.reject(KEY)
    office.accept(*days(3)[1:])
    office.fail_to_extract(failing := replace(KEY, query_name="ad", customer_id=BIKES), "quota")
    office.give_up("terminal", failing)

    def chosen(*filters: str) -> list[tuple[str, str, str]]:
        found = document(gads("state", "inspect", *filters, "--json"))["partitions"]
        return [(each["query"], each["customer_id"], each["logical_date"][-2:]) for each in found]

    shoes, bikes = KEY.customer_id, BIKES
    all_of_them = [
        ("ad", bikes, "01"),
        ("campaign", shoes, "03"),
        ("campaign", shoes, "02"),
        ("campaign", shoes, "01"),
    ]
    assert chosen() == all_of_them
    assert chosen("--limit", "2") == all_of_them[:2]
    assert chosen("--query", "campaign", "--query", "ad") == all_of_them
    assert chosen("--customer-id", "234-567-8901") == all_of_them[:1]
    assert chosen("--logical-date", "2024-06-02") == all_of_them[2:3]
    assert chosen("--from", "2024-06-02") == all_of_them[1:3]
    assert chosen("--to", "2024-06-01", "--query", "campaign") == all_of_them[3:]
    assert chosen("--status", "success") == all_of_them[1:3]
    assert chosen("--status", "pending") == all_of_them[:1]
    assert chosen("--status", "failed", "--status", "pending") == [all_of_them[0], all_of_them[3]]
    assert chosen("--error-class", "rejected") == all_of_them[3:]
    assert chosen("--error-class", "quota", "--terminal") == all_of_them[:1]
    assert chosen("--error-class", "transient") == []
    _, _, err = gads("state", "inspect", "--error-class", "transient")
    assert err == "nothing is on record of these partitions\n"


def test_history_tells_all_that_happened_newest_first(office: Office, gads: Gads) -> None:
    office.moment -= timedelta(hours=1)
    office.fail_to_extract(KEY, "transient")
    office.moment += timedelta(minutes=1)
    office.publish()
    office.moment += timedelta(minutes=1)
    office.reject(KEY)
    gads("state", "retry", *AGREED)
    found = document(gads("state", "history", *ONE, "--json"))
    events = [(each["kind"], each["attempt_number"] or 0, each["outcome"]) for each in found["events"]]
    assert sorted(events[:3]) == [("extraction", 0, "sealed"), ("override", 0, "retry"), ("verdict", 2, "rejected")]
    assert sorted(events[3:6]) == [("extraction", 0, "sealed"), ("load", 0, "published"), ("verdict", 1, "accepted")]
    assert events[6:] == [("extraction", 0, "failed")]
    [override] = [each for each in found["events"] if each["kind"] == "override"]
    assert (override["reason"], override["change"]) == (REASON, "not scheduled → retry due; attempts count from 2")
    assert (found["events"][-1]["error_class"], found["events"][-1]["error_message"]) == (
        "transient",
        "the API said transient",
    )
    _, out, _ = gads("state", "history", *ONE)
    for words in ("verdict 2", "two rows share a key", "transient: the API said transient", acting_user()):
        assert words in out
    assert len(document(gads("state", "history", *ONE, "--limit", "2", "--json"))["events"]) == 2
    _, _, err = gads("state", "history", *ONE[:-1], "2024-06-02")
    assert "nothing ever happened" in err


def test_overrides_tell_who_when_why_and_what_changed(office: Office, gads: Gads) -> None:
    office.reject(KEY, replace(KEY, customer_id=BIKES))
    gads("state", "retry", *AGREED)
    found = document(gads("state", "overrides", "--json"))["overrides"]
    assert [(each["actor"], each["reason"], each["change"]) for each in found] == [
        (acting_user(), REASON, "failed → pending; not scheduled → retry due; attempts count from 1")
    ] * 2
    assert len(document(gads("state", "overrides", "--customer-id", BIKES, "--json"))["overrides"]) == 1
    assert document(gads("state", "overrides", "--by", "'; DROP TABLE override_log; --", "--json"))["overrides"] == []
    assert len(document(gads("state", "overrides", "--by", acting_user(), "--json"))["overrides"]) == 2
    _, out, _ = gads("state", "overrides")
    assert REASON in out


@pytest.mark.parametrize("width", [80, 120, 160, 240])
def test_nothing_that_has_a_name_is_split_however_narrow_the_terminal(
    office: Office, gads: Gads, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    named = [office.publish(), KEY.customer_id, "2024-06-01", "campaign"]
    office.reject(*days(12), replace(KEY, query_name=(long := "campaign_search_term_view")))
    office.give_up("terminal", replace(KEY, query_name=long))
    office.fail_to_extract(blocked := replace(KEY, customer_id=BIKES), "customer")
    office.give_up("blocked", blocked)
    gads("state", "retry", *AGREED, "--logical-date", "2024-06-01", "--customer-id", KEY.customer_id)
    asked = ("--from", "2024-07-01", "--to", "2024-07-20", "--query", "campaign", "--yes", "--json")
    backfill_id = document(gads("backfill", *asked))["backfill_id"]
    assert office.dispatch(Purpose.BACKFILL, largest=2, batches=1) == 2
    [batch] = office.here.schedule_as(Role.OPERATOR).open_batches()
    monkeypatch.setenv("COLUMNS", str(width))
    shown = {
        ("state", "inspect"): [
            *("query", "customer", "day", "status", "attempts", "runs", "next", "last error", long),
            *(*named, "failed", "success", "two rows share a key", "blocked", BIKES, batch.batch_id),
        ],
        ("state", "terminal", "list"): ["query", "customer", "since (UTC)", "why", "too often", BIKES, "blocked"],
        ("state", "retry", "--query", "campaign", "--dry-run"): [
            *("refused", "why", "for example", KEY.label, "it waits in", batch.batch_id),
            *("query", "status", "last error", "partitions", "rejected"),
        ],
        ("state", "overrides"): ["at (UTC)", "action", "change", "reason", "retry", KEY.customer_id, "2024-06-01"],
        ("state", "history", *ONE): ["at (UTC)", "came to", "verdict 2", "override", named[0]],
        ("backfill", "status"): [
            *("backfill", "days", "done", "left", backfill_id, "2024-07-01 to 07-20"),
            *("waiting", "queued", "0/"),
        ],
    }
    for command, words in shown.items():
        code, out, err = gads(*command)
        assert code == 0, err
        assert max(map(len, out.splitlines())) <= width, out
        for word in words:
            assert word in out, f"{word!r} of {command} at {width}:\n{out}"


def test_an_error_is_told_once_and_not_again_as_the_reason_why_it_was_given_up(office: Office, gads: Gads) -> None:
    office.fail_to_extract(KEY, "customer")
    office.give_up("blocked", KEY)
    office.execute("UPDATE retry_schedule SET reason = 'not extracted 8 times: the API said customer'")
    _, out, _ = gads("state", "inspect")
    assert out.count("the API said customer") == 1
    assert "nothing, it is blocked: not extracted 8 times" in out


def test_runs_that_failed_to_extract_are_counted_since_the_last_that_did_and_since_a_retry(
    office: Office, gads: Gads
) -> None:
    def counted() -> int:
        [found] = document(gads("state", "inspect", "--json"))["partitions"]
        return int(found["failed_extractions"])

    office.fail_to_extract(KEY, "transient")
    office.fail_to_extract(KEY, "transient")
    office.fail_to_extract(KEY, "quota")
    assert counted() == 2
    assert "never loaded; 2 failed extractions since" in gads("state", "inspect")[1]
    office.seal_on_record(KEY)
    assert counted() == 0
    office.fail_to_extract(KEY, "transient")
    assert counted() == 1
    gads("state", "retry", *AGREED)
    assert counted() == 0


def test_what_others_wrote_reaches_no_terminal_as_a_command(office: Office, gads: Gads) -> None:
    office.fail_to_extract(KEY, "customer", "wiped \x1b[2J\x9b2J \u202e")
    for command in (("state", "inspect"), ("state", "history", *ONE), ("state", "inspect", "--json")):
        code, out, err = gads(*command)
        assert code == 0, err
        assert "wiped " in out
        assert not {"\x1b", "\x9b", "\u202e"} & {*out, *err}


def test_only_what_is_cut_is_said_to_be_cut(office: Office, gads: Gads) -> None:
    office.reject(*days(3))
    gads("state", "retry", *AGREED)
    office.give_up("terminal", *days(3, replace(KEY, query_name="ad")))
    for command, key in (
        (("state", "inspect", "--query", "campaign"), "partitions"),
        (("state", "overrides"), "overrides"),
        (("state", "terminal", "list"), "partitions"),
    ):
        for limit, is_cut in (("2", True), ("3", False)):
            found = document(gads(*command, "--limit", limit, "--json"))
            assert (len(found[key]), found["truncated"]) == (int(limit), is_cut)
            assert ("are shown; narrow them down" in gads(*command, "--limit", limit)[2]) is is_cut


def test_a_partition_that_only_waits_tells_what_for(office: Office, gads: Gads) -> None:
    document(gads("backfill", "--from", "2024-06-01", "--to", "2024-06-01", *ONE[:4], "--yes", "--json"))
    code, out, err = gads("state", "history", *ONE)
    assert (code, out) == (0, "")
    assert re.search(r"nothing has happened to google_ads/campaign .* yet; next: backfill \d{4}-", err)
    assert document(gads("state", "history", *ONE, "--json"))["schedule"]["purpose"] == "backfill"
    assert office.dispatch(Purpose.BACKFILL) == 1
    assert "next: it waits in Dagster's queue (tag gads/batch=" in gads("state", "history", *ONE)[2]


def test_a_document_is_one_also_where_the_output_has_no_such_letters(office: Office) -> None:
    office.reject(KEY)
    process = office.start("state", "retry", *AGREED)
    assert process.communicate(timeout=60)[0]
    ascii_only = {**office.environment, "PYTHONIOENCODING": "ascii"}
    process = office.start("state", "overrides", "--json", env=ascii_only)
    [found] = json.loads(process.communicate(timeout=60)[0])["overrides"]
    assert found["change"].startswith("failed → pending")
    process = office.start("state", "overrides", env=ascii_only)
    out, err = process.communicate(timeout=60)
    assert "failed ? pending" in out
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_output_that_cannot_be_written_is_one_line(office: Office, form: list[str]) -> None:
    office.reject(KEY)
    with Path("/dev/full").open("w") as full:
        process = office.start("state", "inspect", *form, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err == "gads: standard output cannot be written: No space left on device; send it elsewhere\n"
