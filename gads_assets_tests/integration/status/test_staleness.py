"""What makes a partition stale, since when, and what stands beside it; and which partitions are missing."""

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import product

import pytest
from sqlalchemy import RowMapping, text
from ulid import ULID

from gads_assets.domain.accounts import AccountStatus, day_opens_at
from gads_assets.domain.partition_status import Outcome, Place, StaleReason
from gads_assets.domain.roles import Role
from gads_assets.status.deriving import Facts, Selection, facts_of
from gads_assets.status.telling import summaries, told
from gads_assets_tests.status_desks import (
    BIKES,
    DAY,
    FRESHNESS,
    MART,
    RAW,
    SHOES,
    START,
    TABLE,
    Desk,
    account,
    place,
)

HOUR = timedelta(hours=1)


def extracted(desk: Desk, run_id: str, where: Place, *, at: datetime, content_at: datetime | None = None) -> None:
    """A materialization whose content was extracted at a moment of its own."""
    content = ULID.from_datetime(content_at or at)
    metadata = {desk.asset(where.asset_key).receipt: 1, "run_id": str(content)}
    desk.written.plan(run_id, where)
    desk.written.store([desk.written.materialized(run_id, where, at=at, metadata=metadata)])
    desk.written.end(run_id, Outcome.SUCCEEDED, at=at)


def _place(row: RowMapping) -> Place:
    return Place(row["asset_key"], row["partition_key"])


def test_success_then_failure_then_cancellation_then_new_code_then_a_reload_upstream_are_each_told(desk: Desk) -> None:
    desk.register(account(SHOES))
    where, made_at = place(TABLE), START
    desk.succeed("good", place(RAW), at=made_at)
    desk.succeed("good", where, at=made_at)
    fresh = desk.told(where)
    assert (fresh["display"], fresh["flags"], fresh["staleness"]) == ("Materialized", [], [])
    made = fresh["last_materialization"]
    assert made == {"run_id": "good", "at": made_at.isoformat(), "code_version": desk.asset(TABLE).code_version}

    desk.end_without("retry", [where], Outcome.FAILED, at=START + HOUR)
    failed = desk.told(where)
    assert (failed["display"], failed["flags"]) == ("MaterializedButLastAttemptFailed", ["last_attempt_failed"])
    assert failed["last_materialization"] == made
    assert failed["stale_since"] is None
    assert failed["last_attempt"] == {"run_id": "retry", "at": (START + HOUR).isoformat(), "outcome": "FAILED"}

    desk.end_without("again", [where], Outcome.CANCELLED, at=START + 2 * HOUR)
    cancelled = desk.told(where)
    assert (cancelled["display"], cancelled["flags"]) == ("Materialized", ["last_attempt_cancelled"])
    assert cancelled["last_materialization"] == made

    desk.change_code(TABLE, "schema-2")
    desk.fold()
    with desk.here.engine_as(Role.REPORTER).begin() as connection:
        code = "SELECT since FROM asset_code WHERE asset_key = :asset_key"
        deployed_at = connection.execute(text(code), {"asset_key": TABLE}).scalar_one().astimezone(UTC)
    outdated = desk.told(where)
    assert (outdated["display"], outdated["flags"]) == ("Stale", ["stale", "last_attempt_cancelled"])
    assert outdated["stale_reason_code"] == "CODE_CHANGED"
    assert outdated["stale_since"] == deployed_at.isoformat()
    assert outdated["last_materialization"] == made

    reloaded_at = deployed_at + HOUR
    desk.succeed("reload", place(RAW), at=reloaded_at)
    desk.succeed("reload again", place(RAW), at=reloaded_at + HOUR)
    changed = desk.told(where)
    assert [(each["reason_code"], each["since"]) for each in changed["staleness"]] == [
        ("CODE_CHANGED", deployed_at.isoformat()),
        ("UPSTREAM_CHANGED", reloaded_at.isoformat()),
    ]
    assert changed["stale_reason_code"] == "CODE_CHANGED"

    desk.end_without("third", [where], Outcome.FAILED, at=reloaded_at + 3 * HOUR)
    both = desk.told(where)
    assert both["display"] == "MaterializedButLastAttemptFailed"
    assert both["flags"] == ["stale", "last_attempt_failed"]

    desk.succeed("mended", where, at=reloaded_at + 4 * HOUR, code_version="schema-2")
    mended = desk.told(where)
    assert (mended["display"], mended["flags"], mended["staleness"]) == ("Materialized", [], [])


def test_a_reload_makes_stale_what_is_made_of_it_and_nothing_else(desk: Desk) -> None:
    desk.register(account(SHOES), account(BIKES, name="Bikes"))
    everything = [place(asset, customer) for customer in (SHOES, BIKES) for asset in (RAW, TABLE, MART, FRESHNESS)]
    for each in everything:
        desk.succeed(f"first {each.asset_key} {each.partition_key}", each)
    assert Counter(desk.told(each)["display"] for each in everything) == {"Materialized": 8}
    desk.succeed("reload", place(TABLE, SHOES))
    stale = [each for each in everything if desk.told(each)["stale_reason_code"] == "UPSTREAM_CHANGED"]
    assert stale == [place(MART, SHOES), place(FRESHNESS, SHOES)]


def test_each_day_has_its_own_deadline_and_its_own_ages_at_which_it_is_due_again(desk: Desk) -> None:
    desk.register(account(SHOES))
    where = place(TABLE)
    asset = desk.asset(TABLE)
    desk.assets = [replace(asset, policy=replace(asset.policy, due_ages=(1, 3, 10), allowance=6 * HOUR))]
    opens = day_opens_at("Europe/Berlin", DAY, asset.policy.settling)

    desk.now = opens
    missing = desk.told(where)
    assert (missing["display"], missing["flags"], missing["stale_since"]) == ("NeverMaterialized", [], None)
    desk.now = opens + 6 * HOUR
    overdue = desk.told(where)
    assert (overdue["display"], overdue["flags"]) == ("NeverMaterialized", ["overdue"])
    assert overdue["stale_since"] == (opens + 6 * HOUR).isoformat()

    extracted(desk, "late", where, at=opens + 7 * HOUR)
    assert desk.told(where)["display"] == "Materialized"
    due_again = day_opens_at("Europe/Berlin", DAY + timedelta(days=2), asset.policy.settling)
    desk.now = due_again + 6 * HOUR - timedelta(seconds=1)
    assert desk.told(where)["display"] == "Materialized"
    desk.now = due_again + 6 * HOUR
    stale = desk.told(where)
    assert (stale["display"], stale["stale_reason_code"]) == ("Stale", "FRESHNESS_POLICY")
    assert stale["stale_since"] == desk.now.isoformat()
    desk.now += timedelta(days=30)
    assert desk.told(where)["stale_since"] == stale["stale_since"]

    extracted(desk, "repull", where, at=due_again + HOUR)
    last_due = day_opens_at("Europe/Berlin", DAY + timedelta(days=9), asset.policy.settling)
    assert desk.told(where)["stale_since"] == (last_due + 6 * HOUR).isoformat()
    extracted(desk, "last", where, at=last_due)
    assert desk.told(where)["display"] == "Materialized"


def test_publishing_an_older_extraction_again_makes_it_no_fresher(desk: Desk) -> None:
    desk.register(account(SHOES))
    opens = day_opens_at("Europe/Berlin", DAY, desk.asset(TABLE).policy.settling)
    extracted(desk, "first", place(TABLE), at=opens)
    desk.now = opens + timedelta(days=20)
    before = desk.told(place(TABLE))
    assert before["stale_reason_code"] == "FRESHNESS_POLICY"
    extracted(desk, "load again", place(TABLE), at=desk.now, content_at=opens)
    after = desk.told(place(TABLE))
    assert after["last_materialization"]["run_id"] == "load again"
    assert after["stale_since"] == before["stale_since"]


def test_nothing_is_due_of_an_account_after_it_was_closed(desk: Desk) -> None:
    closed_at = START + timedelta(days=5)
    closed = replace(account(SHOES), status=AccountStatus.INACTIVE, closed_at=closed_at, closed_reason="gone")
    desk.register(closed)
    opens = day_opens_at("Europe/Berlin", DAY, desk.asset(TABLE).policy.settling)
    extracted(desk, "first", place(TABLE), at=opens)
    desk.now = START + timedelta(days=200)
    late = desk.told(place(TABLE))
    assert datetime.fromisoformat(late["stale_since"]) < closed_at + timedelta(hours=24)
    [(_, counted)] = summaries(desk.statuses.summary(desk.selection(TABLE), now=desk.now)).items()
    days = (closed_at.date() - desk.asset(TABLE).first_day).days
    assert abs(counted.partitions - days) <= 1


@pytest.mark.parametrize("seed", range(8))
def test_staleness_is_what_a_plain_calculation_says_of_it(desk: Desk, seed: int) -> None:
    """Days around changes of clocks, in zones far apart, made and missing, asked about at random moments."""
    choose = random.Random(seed)
    zones = choose.sample(["Europe/Berlin", "America/New_York", "Asia/Tokyo", "Pacific/Kiritimati", "Africa/Cairo"], 2)
    desk.register(account(SHOES, time_zone=zones[0]), account(BIKES, time_zone=zones[1], name="Bikes"))
    zone = dict(zip((SHOES, BIKES), zones, strict=True))
    asset = desk.asset(TABLE)
    ages = tuple(sorted(choose.sample(range(2, 40), 3)))
    policy = replace(
        asset.policy, due_ages=(1, *ages), allowance=choose.randint(1, 60) * HOUR, settling=choose.randint(0, 50) * HOUR
    )
    first = choose.choice([date(2026, 3, 20), date(2026, 10, 18)])
    desk.assets = [replace(asset, policy=policy, first_day=first)]
    made: dict[Place, datetime] = {}
    for customer in (SHOES, BIKES):
        for offset in range(0, 30, 3):
            where = place(TABLE, customer, first + timedelta(days=offset))
            opens = day_opens_at(zone[customer], first + timedelta(days=offset), policy.settling)
            if choose.random() < 0.7:
                made[where] = opens + timedelta(hours=choose.randint(0, 900), seconds=choose.choice([0, 1]))
                extracted(desk, f"of {where.partition_key}", where, at=made[where].replace(microsecond=0))
    desk.fold()
    desk.now = datetime.combine(first + timedelta(days=choose.randint(20, 60)), datetime.min.time(), UTC)
    found = [told(row) for row in desk.statuses.partitions(desk.selection(TABLE), now=desk.now, limit=1000)]
    assert len(found) > 40
    for each in found:
        day, time_zone = date.fromisoformat(each["logical_date"]), zone[each["customer_id"]]
        dues = [day_opens_at(time_zone, day + timedelta(days=age - 1), policy.settling) for age in policy.due_ages]
        content = made.get(Place(TABLE, each["partition_key"]))
        missed = [due + policy.allowance for due in dues if content is None or content < due]
        since = min((deadline for deadline in missed if deadline <= desk.now), default=None)
        assert each["stale_since"] == (since and since.isoformat()), each
        assert each["display"] == ("NeverMaterialized" if content is None else "Stale" if since else "Materialized")
    counted = summaries(desk.statuses.summary(desk.selection(TABLE), now=desk.now))[TABLE]
    assert counted.counts == Counter(each["display"] for each in found)
    assert counted.flags == Counter(flag for each in found for flag in each["flags"])


def test_every_row_that_can_be_is_displayed_as_the_decision_is_written(desk: Desk) -> None:
    """Its rule on the columns that others read, whatever the combination, with a failure's clock behind or ahead."""
    desk.register(account(SHOES), account(BIKES, name="Bikes"))
    cases = product((False, True), Outcome, (-1, 0, 1), (False, True))
    for number, (is_made, outcome, hours, is_stale) in enumerate(cases, start=1):
        where = place(MART, day=START.date() - timedelta(days=number))
        if is_made:
            desk.succeed(f"made {where}", where, at=START)
        if is_stale and is_made:
            desk.succeed(f"upstream {where}", Place(TABLE, where.partition_key), at=START)
        desk.end_without(f"try {where}", [where], outcome, at=START + hours * HOUR)
    desk.fold()
    seen = set()
    for row in desk.statuses.partitions(desk.selection(MART), now=START, limit=36):
        made_at, attempt_at = row["last_materialization_at"], row["last_attempt_at"]
        if made_at is None:
            expected = "NeverMaterialized"
        elif row["last_attempt_outcome"] == "FAILED":  # it is the later one in the log, whatever the clocks said
            expected = "MaterializedButLastAttemptFailed"
        elif row["is_stale_since"] is not None:
            expected = "Stale"
        else:
            expected = "Materialized"
        assert facts_of(row["code"]).display.value == expected
        seen.add((made_at is None, row["last_attempt_outcome"], attempt_at, row["is_stale_since"] is None))
    assert len(seen) == 3 * 3 * 3


def test_what_the_sweep_writes_down_is_what_is_told_without_it(desk: Desk) -> None:
    desk.register(account(SHOES), account(BIKES, name="Bikes"))
    desk.succeed("first", place(TABLE), place(MART), place(FRESHNESS), place(MART, BIKES))
    desk.succeed("reload", place(TABLE))
    desk.change_code(MART, "other")
    desk.fold()
    desk.now += timedelta(days=12)
    before = [*desk.statuses.partitions(desk.selection(), now=desk.now, limit=100_000)]
    assert desk.statuses.sweep(desk.selection(), now=desk.now) == 4
    assert desk.statuses.sweep(desk.selection(), now=desk.now) == 0
    assert [*desk.statuses.partitions(desk.selection(), now=desk.now, limit=100_000)] == before
    with desk.here.engine_as(Role.CONSUMER).begin() as connection:
        view = connection.execute(text("SELECT * FROM partition_status")).mappings()
        written = {_place(row): (row["stale_since"], row["stale_reason_code"]) for row in view}
    derived = {
        _place(row): (row["is_stale_since"], facts_of(row["code"]).stale_reason)
        for row in before
        if row["last_attempt_run_id"]
    }
    assert written == derived
    assert {reason for _, reason in written.values()} == {*StaleReason}

    desk.succeed("mended", place(FRESHNESS))
    desk.fold()
    [swept] = [row for row in desk.rows() if _place(row) == place(FRESHNESS)]
    assert (swept["stale_since"], swept["stale_reason_code"]) == (None, None)


def test_staleness_that_ended_without_a_materialization_is_swept_away(desk: Desk) -> None:
    desk.register(account(SHOES))
    desk.succeed("first", place(MART))
    version = desk.asset(MART).code_version
    desk.change_code(MART, "other")
    desk.fold()
    desk.statuses.sweep(desk.selection(), now=desk.now)
    assert desk.rows()[0]["stale_reason_code"] == "CODE_CHANGED"
    desk.change_code(MART, version)
    assert desk.told(place(MART))["display"] == "Materialized"
    desk.statuses.sweep(desk.selection(), now=desk.now)
    assert desk.rows()[0]["stale_reason_code"] is None


def test_days_that_the_api_never_had_for_an_account_are_not_missed(desk: Desk) -> None:
    """Of a snapshot there is no day before the account was added; clicks reach back a while."""
    desk.register(account(SHOES))
    snapshot = desk.asset("google_ads/conversion_action")
    assert snapshot.policy.reach_days == 0
    clicks = replace(snapshot, asset_key="clicks", policy=replace(snapshot.policy, reach_days=90))
    desk.now += timedelta(days=3)
    counted = summaries(desk.statuses.summary(Selection(assets=[snapshot, clicks]), now=desk.now))
    assert counted[snapshot.asset_key].partitions == 3
    assert counted["clicks"].partitions == 93
    assert desk.asset(TABLE).policy.reach_days is None


def test_partitions_that_nobody_ever_tried_are_counted_and_listed(desk: Desk) -> None:
    desk.register(account(SHOES), account(BIKES, name="Bikes", time_zone="Asia/Tokyo"))
    first = START.date() - timedelta(days=4)
    desk.assets = [replace(asset, first_day=first) for asset in desk.assets]
    desk.succeed("one", place(TABLE))
    desk.fold()
    chosen = replace(desk.selection(TABLE, FRESHNESS), customer_ids=None)
    counted = summaries(desk.statuses.summary(chosen, now=desk.now))
    assert counted[TABLE].partitions == 8
    assert counted[TABLE].counts == Counter({"Materialized": 1, "NeverMaterialized": 7})
    assert counted[FRESHNESS].counts == Counter({"NeverMaterialized": 2})
    listed = desk.statuses.partitions(chosen, now=desk.now, limit=100)
    assert Counter(row["asset_key"] for row in listed) == {TABLE: 8, FRESHNESS: 2}
    bikes = Selection(assets=[desk.asset(TABLE)], customer_ids=[BIKES], first=first, last=first)
    assert [row["partition_key"] for row in desk.statuses.partitions(bikes, now=desk.now, limit=9)] == [
        f"{BIKES}|{first}"
    ]
    assert [each for _, _, each in desk.statuses.summary(bikes, now=desk.now)] == [1]


def test_the_matrix_has_a_cell_a_day_that_says_the_same_as_the_list(desk: Desk) -> None:
    desk.register(account(SHOES), account(BIKES, name="Bikes", time_zone="Pacific/Kiritimati"))
    desk.succeed("one", place(TABLE))
    desk.end_without("two", [place(TABLE, BIKES)], Outcome.FAILED)
    desk.fold()
    first, last = DAY - timedelta(days=3), START.date() + timedelta(days=1)
    rows = desk.statuses.matrix(desk.asset(TABLE), first, last, now=desk.now)
    assert [(row.customer_id, row.name) for row in rows] == [(BIKES, "Bikes"), (SHOES, "Shoes")]
    chosen = replace(desk.selection(TABLE), first=first, last=last)
    listed = {row["partition_key"]: row["code"] for row in desk.statuses.partitions(chosen, now=desk.now, limit=99)}
    for row in rows:
        assert len(row.cells) == (last - first).days + 1
        for offset, cell in enumerate(row.cells):
            code = listed.pop(f"{row.customer_id}|{first + timedelta(days=offset)}", None)
            assert cell == ("-" if code is None else chr(0x100 + code))
    assert listed == {}


def test_facts_are_told_apart_in_their_number() -> None:
    assert facts_of(0) == Facts(
        is_materialized=False, has_failed_since=False, last_attempt=None, stale_reason=None, is_withdrawn=False
    )
    assert len({facts_of(code) for code in range(128)}) == 128
