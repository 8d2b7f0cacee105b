"""The sensor that looks for what was missed, and the checks of the same conditions: a real Dagster log and PostgreSQL,
events and days of our making. Neither Spark nor an API is asked for anything."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from sqlalchemy import Engine, text
from ulid import ULID

from gads_assets.catalog.api_versions import SUNSETS
from gads_assets.catalog.loading import load_catalog
from gads_assets.domain.accounts import AccountStatus, day_opens_at, last_open_day
from gads_assets.domain.desk import Action, PartitionChoice, plan_action
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.partition_status import Outcome, Place
from gads_assets.domain.roles import Role
from gads_assets.orchestration.code_location import code_location
from gads_assets.orchestration.customers import dagster_instance
from gads_assets.orchestration.keys import status_key
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.state.partition_states import StateStore
from gads_assets_tests.ledgers import judgement, new_override_id, record
from gads_assets_tests.status_desks import BIKES, RAW, SHOES, TABLE, Desk, account
from gads_assets_tests.webhooks import TOKEN, Webhook, answering, serve_webhook
from gads_assets_tests.worlds import STATUS_URL, SharedSpark, World

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

SENSOR = "google_ads_watch"
TERMINAL, STALE, API_VERSION = "no_terminal_failures", "nothing_stale_beyond_its_limit", "api_version_is_supported"
QUERIES, SNAPSHOT = list(load_catalog().queries), "conversion_action"
SETTLING, ALLOWANCE, ALERT_AFTER = timedelta(hours=3), timedelta(hours=24), timedelta(hours=48)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
NOW = datetime.now(UTC)
ZONE = f"Etc/GMT{NOW.hour - 12:+d}"
"""Where it is noon: no day opens, or comes to its deadline, while tests run that began before it."""
NEWEST_LATE = last_open_day(ZONE, SETTLING + ALLOWANCE, now=NOW)
NEWEST_TOLD = last_open_day(ZONE, SETTLING + ALLOWANCE + ALERT_AFTER, now=NOW)
SCHEDULED = text("""
    SELECT query_name, customer_id, logical_date, purpose, disposition, backoff_strategy, reason FROM retry_schedule
""")
GIVE_UP = text("""
    INSERT INTO retry_schedule (source, customer_id, query_name, logical_date, purpose, disposition, backoff_strategy,
        reason, scheduled_at)
    VALUES ('google_ads', :customer_id, 'campaign', :day, 'retry', :disposition, :disposition, :reason, now())
""")


@dataclass
class Watched:
    """A home whose log and ledger we write. Its accounts are registered when a test says, in the past."""

    world: World
    desk: Desk
    engine: Engine

    def register(self, customer_id: CustomerId = SHOES, *, days_ago: float) -> datetime:
        """Returns since when it is registered."""
        added_at = NOW - days_ago * DAY
        register = self.world.here.customers_as(Role.OPERATOR)
        register.register_customers([account(customer_id, time_zone=ZONE)], now=added_at)
        return added_at

    def tick(self) -> str:
        requests, told = self.world.tick(SENSOR)
        assert requests == []
        assert told
        assert told.isprintable(), "one line"
        return told

    def scheduled(self) -> dict[tuple[str, CustomerId, date], str]:
        with self.engine.begin() as connection:
            rows = connection.execute(SCHEDULED).mappings()
            return {(row["query_name"], row["customer_id"], row["logical_date"]): row["purpose"] for row in rows}

    def campaign_days(self, customer_id: CustomerId = SHOES) -> dict[date, str]:
        return {
            day: purpose
            for (query, customer, day), purpose in self.scheduled().items()
            if (query, customer) == ("campaign", customer_id)
        }

    def give_up(self, day: date, *, disposition: str = "terminal", reason: str = "rejected 5 times") -> None:
        asked = {"customer_id": SHOES, "day": day, "disposition": disposition, "reason": reason}
        with self.engine.begin() as connection:
            connection.execute(GIVE_UP, asked)

    def mark(self, day: date) -> None:
        desk = self.world.here.desk
        choice = PartitionChoice(queries=["campaign"], first=day, last=day)
        plan = plan_action(Action.MARK, desk.rows(choice))
        desk.carry_out(plan, actor="me", reason="nobody needs it", now=NOW, new_override_id=new_override_id)

    def judge(self, day: date, *, accepted: bool) -> None:
        record(StateStore(self.world.here.engine_as(Role.VALIDATOR)), judgement(accepted=accepted), key(day))

    def extracted(self, asset_key: str, day: date, *, at: datetime, code_version: str = "") -> None:
        """A materialization whose content is of that moment."""
        run_id, where = str(ULID()), Place(asset_key, key(day).label)
        metadata = {self.desk.asset(asset_key).receipt: 1, "run_id": str(ULID.from_datetime(at))}
        written = self.desk.written
        written.plan(run_id, where)
        written.store([written.materialized(run_id, where, at=at, metadata=metadata, code_version=code_version)])
        written.end(run_id, Outcome.SUCCEEDED, at=at)

    def checks(self) -> dict[str, dg.AssetCheckEvaluation]:
        """Of one run of the asset."""
        asset = status_key(self.world.here.catalog)
        job = self.world.definitions.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(instance=self.world.instance, asset_selection=[asset])
        assert result.success
        found = result.get_asset_check_evaluations()
        assert {each.asset_check_key.asset_key for each in found} == {asset}
        return {each.check_name: each for each in found}


@pytest.fixture
def watched(database_url: str, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    environment = {"GADS_HOME": str(tmp_path), "GADS_DATABASE_URL": database_url}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GADS_ALERT_WEBHOOK", raising=False)
    with Workplace(read_settings(environment)) as here, dagster_instance(here) as instance:
        definitions = code_location(load_catalog(), SharedSpark(), status_url=STATUS_URL)
        world = World(here=here, instance=instance, definitions=definitions)
        yield Watched(world, Desk(here, instance, now=NOW), engine)


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    with serve_webhook() as webhook:
        monkeypatch.setenv("GADS_ALERT_WEBHOOK", webhook.url)
        yield webhook


def key(day: date, query_name: str = "campaign") -> PartitionKey:
    return PartitionKey(source="google_ads", customer_id=SHOES, query_name=query_name, logical_date=day)


def local_date(moment: datetime) -> date:
    return moment.astimezone(ZoneInfo(ZONE)).date()


def opened(day: date) -> datetime:
    return day_opens_at(ZONE, day, SETTLING)


def days_between(first: date, last: date) -> list[date]:
    return [first + DAY * number for number in range((last - first).days + 1)]


def late_days(added_at: datetime) -> list[date]:
    """From the day before the account was registered, on its own calendar."""
    return days_between(local_date(added_at) - DAY, NEWEST_LATE)


def told_days(added_at: datetime, query: str = "campaign") -> list[date]:
    """Those that are scheduled once they are late, and whose deadline is long enough ago."""
    late = days_between(local_date(added_at) - DAY, NEWEST_TOLD)
    return [day for day in late if query != SNAPSHOT or day >= local_date(added_at)]


def told_of_all(added_at: datetime) -> set[tuple[str, date]]:
    return {(query, day) for query in QUERIES for day in told_days(added_at, query)}


def on_schedule(query: str, added_at: datetime) -> list[date]:
    """A snapshot could not be had of the day before the account was registered."""
    return [day for day in late_days(added_at) if query != SNAPSHOT or day >= local_date(added_at)]


def test_late_days_that_nothing_scheduled_are_scheduled_once_as_fresh(watched: Watched) -> None:
    """Snapshots too: their try asks nothing of the API, and puts on record that the day stays without one."""
    added_at = watched.register(days_ago=5)
    wanted = {(query, SHOES, day): "fresh" for query in QUERIES for day in on_schedule(query, added_at)}
    assert len(wanted) > 4 * len(QUERIES) - 2

    assert watched.tick().startswith(f"{len(wanted)} late days were scheduled; ")

    assert watched.scheduled() == wanted
    assert watched.tick().startswith("0 late days were scheduled; ")
    with watched.engine.begin() as connection:
        rows = connection.execute(SCHEDULED).mappings().all()
    assert Counter((row["disposition"], row["backoff_strategy"], row["reason"]) for row in rows) == {
        ("due", "late", "its deadline has passed"): len(wanted)
    }


def test_two_daemons_at_once_schedule_each_day_once(watched: Watched) -> None:
    added_at = watched.register(days_ago=5)
    number = sum(len(on_schedule(query, added_at)) for query in QUERIES)
    with ThreadPoolExecutor() as pool:
        told = [each.result(120) for each in [pool.submit(watched.tick) for _ in range(2)]]
    assert sum(int(each.split()[0]) for each in told) == number == len(watched.scheduled())


def test_a_day_that_is_open_and_not_late_is_left_to_the_control_plane(watched: Watched) -> None:
    watched.register(days_ago=0.01)
    assert watched.tick() == "0 late days were scheduled; 0 alerts are open, and GADS_ALERT_WEBHOOK is not set"


def test_what_is_missing_longer_than_a_fortnight_is_history_that_somebody_asks_for(watched: Watched) -> None:
    watched.register(days_ago=40)
    watched.tick()
    assert sorted(watched.campaign_days()) == days_between((NOW - 14 * DAY).date(), NEWEST_LATE)


def test_published_days_past_the_deadline_of_their_restatement_are_scheduled_once_as_restatement(
    watched: Watched,
) -> None:
    watched.register(days_ago=40)
    recent, old, current = (NEWEST_LATE - number * DAY for number in (8, 28, 9))
    for day, at in ((recent, opened(recent) + HOUR), (old, opened(old) + HOUR), (current, NOW)):
        watched.extracted(RAW, day, at=at)
        watched.judge(day, accepted=True)

    watched.tick()

    campaigns = watched.campaign_days()
    assert {day for day, purpose in campaigns.items() if purpose == "restatement"} == {recent, old}
    assert current not in campaigns
    assert watched.tick().startswith("0 late days were scheduled; ")


def test_a_day_that_other_code_made_is_late_all_the_same(watched: Watched) -> None:
    """It was stale for another reason before its deadline passed."""
    watched.register(days_ago=40)
    day = NEWEST_LATE - 8 * DAY
    watched.extracted(RAW, day, at=opened(day) + HOUR, code_version="of old")
    watched.desk.fold()
    with watched.engine.begin() as connection:
        connection.execute(text("UPDATE asset_code SET since = :at"), {"at": opened(day) + 2 * HOUR})
    assert watched.desk.told(Place(RAW, key(day).label))["stale_reason_code"] == "CODE_CHANGED"
    watched.tick()
    assert watched.campaign_days()[day] == "restatement"


def test_days_from_before_the_account_was_registered_are_not_scheduled(watched: Watched) -> None:
    added_at = watched.register(days_ago=3)
    published = local_date(added_at) - 4 * DAY
    watched.extracted(RAW, published, at=opened(published) + HOUR)
    watched.judge(published, accepted=True)
    watched.tick()
    assert min(watched.campaign_days()) == local_date(added_at) - DAY


def test_nothing_of_a_closed_account_is_scheduled_or_told(watched: Watched) -> None:
    watched.register(days_ago=9)
    closed = replace(
        account(SHOES, time_zone=ZONE),
        status=AccountStatus.INACTIVE,
        closed_at=NOW - DAY,
        closed_reason="cancelled in Google Ads",
    )
    watched.world.here.customers_as(Role.OPERATOR).register_customers([closed], now=NOW)
    assert watched.tick() == "0 late days were scheduled; 0 alerts are open, and GADS_ALERT_WEBHOOK is not set"
    assert watched.scheduled() == {}


def test_what_failed_is_given_up_or_is_in_a_run_is_left_alone(watched: Watched) -> None:
    days = late_days(watched.register(days_ago=9))
    failed, terminal, blocked, marked, leased, *others = days
    for day in (failed, marked):
        watched.judge(day, accepted=False)
    watched.mark(marked)
    watched.give_up(terminal)
    watched.give_up(blocked, disposition="blocked")
    leases = watched.world.here.leases_as(Role.EXTRACTOR)
    leases.take("by hand", [key(leased)])

    watched.tick()

    given_up = dict.fromkeys((terminal, blocked, marked), "retry")
    assert watched.campaign_days() == given_up | dict.fromkeys(others, "fresh")
    leases.release("by hand")
    assert watched.tick().startswith("1 late days were scheduled; ")
    assert watched.campaign_days()[leased] == "fresh"


def test_each_condition_is_posted_once_by_the_sensor(watched: Watched, webhook: Webhook) -> None:
    added_at = watched.register(days_ago=6)
    days, stale = told_days(added_at), told_of_all(added_at)
    watched.give_up(days[0])
    watched.give_up(days[1], disposition="blocked", reason="the account is closed")

    assert watched.tick().endswith(f"; {2 + len(stale)} alerts were posted")
    assert watched.tick() == "0 late days were scheduled; 0 alerts were posted"

    assert len(webhook.posts) == 1
    assert {(alert["query"], alert["logical_date"]) for alert in webhook.told if alert["kind"] == "stale"} == {
        (query, day.isoformat()) for query, day in stale
    }
    by_kind = {alert["kind"]: alert for alert in webhook.told if alert["kind"] != "stale"}
    assert {kind: (each["logical_date"], each["reason"]) for kind, each in by_kind.items()} == {
        "terminal": (days[0].isoformat(), "rejected 5 times"),
        "blocked": (days[1].isoformat(), "the account is closed"),
    }
    due_by = opened(days[0]) + ALLOWANCE
    assert f"it should have been current by {due_by:%Y-%m-%d %H:%M} UTC" in {
        alert["reason"] for alert in webhook.told if alert["logical_date"] == days[0].isoformat()
    }


def test_a_day_that_is_published_at_last_ends_its_alert(watched: Watched, webhook: Webhook) -> None:
    days = told_days(watched.register(days_ago=6))
    watched.tick()
    watched.extracted(TABLE, days[0], at=NOW)
    watched.tick()
    with watched.engine.begin() as connection:
        over = connection.execute(text("SELECT query_name, logical_date FROM alert WHERE over_at IS NOT NULL")).all()
    assert [tuple(each) for each in over] == [("campaign", days[0])]
    assert len(webhook.posts) == 1


def test_a_rejected_restatement_does_not_hide_that_the_published_day_is_late(
    watched: Watched, webhook: Webhook
) -> None:
    """The extraction that was rejected is newer than what is published, and that came before the deadline."""
    watched.register(days_ago=40)
    day = NEWEST_TOLD - 8 * DAY
    watched.extracted(RAW, day, at=opened(day) + HOUR)
    watched.extracted(TABLE, day, at=opened(day) + HOUR)
    watched.extracted(RAW, day, at=opened(day) + 5 * HOUR)
    assert watched.desk.told(Place(TABLE, key(day).label))["stale_reason_code"] == "UPSTREAM_CHANGED"
    while watched.tick().endswith(" 500 alerts were posted"):
        pass
    assert ("campaign", day.isoformat()) in {(alert["query"], alert["logical_date"]) for alert in webhook.told}


def test_what_an_operator_marked_is_not_told_as_stale_either(watched: Watched, webhook: Webhook) -> None:
    added_at = watched.register(days_ago=6)
    days = told_days(added_at)
    watched.judge(days[0], accepted=False)
    watched.mark(days[0])
    watched.tick()
    told = {alert["logical_date"] for alert in webhook.told if alert["query"] == "campaign"}
    assert told == {day.isoformat() for day in days[1:]}
    left = len(told_of_all(added_at)) - 1
    assert watched.checks()[STALE].description == f"{left} partitions have been stale for too long"


def test_days_are_scheduled_though_the_webhook_fails_and_its_token_is_in_no_message(
    watched: Watched, webhook: Webhook
) -> None:
    watched.register(days_ago=6)
    webhook.answer = answering(500)
    told = watched.tick()
    assert told.endswith("; the webhook at 127.0.0.1 answered 500; alerts wait until it takes them")
    assert TOKEN not in told
    assert watched.scheduled()
    webhook.answer = answering(200)
    watched.tick()
    assert webhook.posts[0] == webhook.posts[1]


def test_a_database_that_does_not_answer_is_one_line(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GADS_DATABASE_URL", "postgresql://somebody:secret@127.0.0.1:1/nowhere")
    told = watched.tick()
    assert "cannot be reached" in told
    assert "secret" not in told


def test_a_setting_that_cannot_be_used_is_one_line(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GADS_ALERT_WEBHOOK", f"nowhere/{TOKEN}")
    told = watched.tick()
    assert told == "GADS_ALERT_WEBHOOK is not the address of a webhook; write it as https://host/path"


def test_the_checks_pass_where_nothing_is_wrong(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUNSETS, "v26", NOW.date() + 61 * DAY)
    watched.register(days_ago=0.01)
    checks = watched.checks()
    assert {name: (each.passed, each.description) for name, each in checks.items()} == {
        TERMINAL: (True, "0 partitions wait for an operator"),
        STALE: (True, "0 partitions have been stale for too long"),
        API_VERSION: (True, f"v26, until {NOW.date() + 61 * DAY:%B %Y}"),
    }


def test_the_checks_fail_with_the_numbers_and_name_the_partitions(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SUNSETS, "v26", NOW.date() + 60 * DAY)
    added_at = watched.register(days_ago=8)
    days, number = told_days(added_at), len(told_of_all(added_at))
    watched.give_up(days[0])
    watched.give_up(days[1])
    watched.give_up(days[2], disposition="blocked", reason="the account is closed")

    checks = watched.checks()

    assert {name: each.passed for name, each in checks.items()} == dict.fromkeys((TERMINAL, STALE, API_VERSION), False)
    assert checks[TERMINAL].description == "3 partitions wait for an operator"
    assert checks[STALE].description == f"{number} partitions have been stale for too long"
    assert "v26 ends in" in str(checks[API_VERSION].description)
    assert "in 60 days or a little later; raise api_version" in str(checks[API_VERSION].description)
    assert {name: each.severity for name, each in checks.items()} == {
        TERMINAL: dg.AssetCheckSeverity.ERROR,
        STALE: dg.AssetCheckSeverity.ERROR,
        API_VERSION: dg.AssetCheckSeverity.WARN,
    }
    listed = checks[TERMINAL].metadata["first"].value
    assert [row.data for row in listed.records] == [  # type: ignore[union-attr]
        {"query": "campaign", "partition": key(day).label, "kind": kind, "reason": reason}
        for day, kind, reason in (
            (days[0], "terminal", "rejected 5 times"),
            (days[1], "terminal", "rejected 5 times"),
            (days[2], "blocked", "the account is closed"),
        )
    ]
    assert checks[STALE].metadata["partitions"].value == number


def test_what_the_checks_say_of_is_what_the_sensor_posts(watched: Watched, webhook: Webhook) -> None:
    days = told_days(watched.register(days_ago=8))
    watched.register(BIKES, days_ago=0.01)
    watched.give_up(days[0])
    checks = watched.checks()
    watched.tick()
    assert Counter(alert["kind"] for alert in webhook.told) == {
        "terminal": checks[TERMINAL].metadata["partitions"].value,
        "stale": checks[STALE].metadata["partitions"].value,
    }
