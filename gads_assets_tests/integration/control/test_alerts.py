"""Alerts against a real database and a real webhook: each condition is posted once, and none is lost."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from threading import Thread

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError
from ulid import ULID

from gads_assets.control import webhook as posting
from gads_assets.control.webhook import post_alerts
from gads_assets.domain.alerting import Alert, AlertKind, Condition
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.roles import Role
from gads_assets.errors import AlertError
from gads_assets.state.alerts import Alerts
from gads_assets.state.rows import keys_json
from gads_assets_tests.integration.conftest import wait_until, waiting_for_locks
from gads_assets_tests.ledgers import KEY, NOW, neighbour
from gads_assets_tests.webhooks import (
    TOKEN,
    Answer,
    Webhook,
    answering,
    hanging_up,
    repeating_the_request,
    saying_nothing,
    serve_webhook,
)

MOST = 500
GIVE_UP = text("""
    INSERT INTO retry_schedule (source, customer_id, query_name, logical_date, purpose, disposition, next_run_at,
        backoff_strategy, reason, scheduled_at)
    SELECT source, customer_id, query_name, logical_date, 'retry', :disposition,
        CASE WHEN :disposition = 'due' THEN now() END, :strategy, :reason, now()
    FROM jsonb_to_recordset(CAST(:keys AS jsonb))
        AS k (source text, customer_id text, query_name text, logical_date date)
""")
HOSTILE = 'it\'s "quoted" \\ back\nnext line\r\ttab 🧯 ünï \u2028 </script> %s {0} $1 :now \x7f'


@dataclass
class Daemon:
    """One of those that look again and again; what is stale it is told."""

    alerts: Alerts
    url: str
    stale: list[Condition] = field(default_factory=list)

    def note(self) -> None:
        self.alerts.note(lambda: [*self.alerts.waiting(), *self.stale], now=NOW, new_alert_id=lambda: str(ULID()))

    def tick(self) -> int:
        self.note()
        return self.alerts.tell(partial(post_alerts, self.url), now=NOW, most=MOST)


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with serve_webhook() as webhook:
        yield webhook


@pytest.fixture
def make_daemon(acting: Callable[[Role], Engine], webhook: Webhook) -> Callable[[], Daemon]:
    return lambda: Daemon(Alerts(acting(Role.OPERATOR), source="google_ads"), webhook.url)


@pytest.fixture
def daemon(make_daemon: Callable[[], Daemon]) -> Daemon:
    return make_daemon()


@pytest.fixture
def give_up(engine: Engine) -> Callable[..., None]:
    """As the control plane's decision does, or an operator's mark."""

    def give_up(
        *keys: PartitionKey,
        disposition: str = "terminal",
        strategy: str = "terminal",
        reason: str = "rejected 5 times",
    ) -> None:
        asked = {"keys": keys_json(keys), "disposition": disposition, "strategy": strategy, "reason": reason}
        with engine.begin() as connection:
            connection.execute(GIVE_UP, asked)

    return give_up


@pytest.fixture
def mend(engine: Engine) -> Callable[..., None]:
    def mend(key: PartitionKey = KEY) -> None:
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM retry_schedule WHERE logical_date = :day"), {"day": key.logical_date})

    return mend


def days(number: int) -> list[PartitionKey]:
    return [neighbour(offset) for offset in range(number)]


def stale(key: PartitionKey = KEY, reason: str = "it should have been current by then") -> Condition:
    return Condition(kind=AlertKind.STALE, key=key, reason=reason)


def ids(alerts: Iterable[dict[str, str]]) -> list[str]:
    return [alert["id"] for alert in alerts]


def test_every_condition_is_posted_once_however_often_somebody_looks(
    daemon: Daemon, webhook: Webhook, give_up: Callable[..., None]
) -> None:
    give_up(neighbour(0), reason="rejected 5 times, and 5 are allowed")
    give_up(neighbour(1), disposition="blocked", strategy="blocked", reason="the account is closed")
    daemon.stale = [stale(neighbour(2))]

    assert [daemon.tick() for _ in range(5)] == [3, 0, 0, 0, 0]

    assert len(webhook.posts) == 1
    assert {(alert["kind"], alert["logical_date"], alert["reason"]) for alert in webhook.told} == {
        ("terminal", "2024-06-01", "rejected 5 times, and 5 are allowed"),
        ("blocked", "2024-06-02", "the account is closed"),
        ("stale", "2024-06-03", "it should have been current by then"),
    }
    assert daemon.alerts.open() == 3


def test_a_partition_that_is_terminal_and_stale_is_two_alerts(
    daemon: Daemon, webhook: Webhook, give_up: Callable[..., None]
) -> None:
    give_up(KEY)
    daemon.tick()
    daemon.stale = [stale()]
    daemon.tick()
    assert [alert["kind"] for alert in webhook.told] == ["terminal", "stale"]


def test_what_is_new_is_posted_alone_and_nothing_of_what_is_tried_again(
    daemon: Daemon, webhook: Webhook, give_up: Callable[..., None]
) -> None:
    give_up(neighbour(0))
    daemon.tick()
    give_up(neighbour(1))
    give_up(neighbour(2), disposition="due", strategy="exponential, try 2", reason="rejected once")
    daemon.tick()
    assert [[alert["logical_date"] for alert in post["alerts"]] for post in webhook.posts] == [
        ["2024-06-01"],
        ["2024-06-02"],
    ]


def test_the_document_has_these_members_and_no_others(
    daemon: Daemon, webhook: Webhook, give_up: Callable[..., None]
) -> None:
    give_up(KEY, reason="rejected 5 times, and 5 are allowed: two rows share a key")
    daemon.tick()
    [document] = webhook.posts
    alert_id = document["alerts"][0]["id"]
    assert str(ULID.from_str(alert_id)) == alert_id
    assert document == {
        "alerts": [
            {
                "id": alert_id,
                "kind": "terminal",
                "source": "google_ads",
                "query": "campaign",
                "customer_id": "1234567890",
                "logical_date": "2024-06-01",
                "reason": "rejected 5 times, and 5 are allowed: two rows share a key",
                "raised_at": "2024-07-01T12:00:00+00:00",
            }
        ]
    }
    [headers] = webhook.headers
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    assert headers["User-Agent"] == "gads_assets"
    assert webhook.paths == [f"/hooks/{TOKEN}?to=me"]


def test_a_condition_that_ends_and_comes_back_is_another_alert(
    daemon: Daemon, webhook: Webhook, give_up: Callable[..., None], mend: Callable[..., None]
) -> None:
    for _ in range(3):
        give_up(KEY)
        daemon.tick()
        assert daemon.alerts.open() == 1
        mend()
        daemon.tick()
        assert daemon.alerts.open() == 0
    assert len(webhook.posts) == 3
    assert len(set(ids(webhook.told))) == 3


def test_a_condition_that_is_over_before_anybody_heard_of_it_is_not_posted(
    daemon: Daemon, webhook: Webhook, give_up: Callable[..., None], mend: Callable[..., None]
) -> None:
    give_up(KEY)
    daemon.note()
    mend()
    assert daemon.tick() == 0
    assert webhook.posts == []


def test_what_an_operator_marked_is_no_alert_and_ends_the_one_there_was(
    daemon: Daemon, webhook: Webhook, give_up: Callable[..., None], engine: Engine
) -> None:
    give_up(neighbour(0), strategy="manual", reason="left the agency")
    give_up(neighbour(1), reason="rejected 5 times")
    assert daemon.alerts.marked() == {neighbour(0)}
    daemon.tick()
    with engine.begin() as connection:
        connection.execute(text("UPDATE retry_schedule SET backoff_strategy = 'manual'"))
    daemon.tick()
    assert [alert["logical_date"] for alert in webhook.told] == ["2024-06-02"]
    assert daemon.alerts.open() == 0
    assert daemon.alerts.marked() == {neighbour(0), neighbour(1)}


def test_two_daemons_at_once_post_each_condition_once_while_more_come(
    make_daemon: Callable[[], Daemon], webhook: Webhook, give_up: Callable[..., None]
) -> None:
    daemons = [make_daemon(), make_daemon()]
    keys = days(60)
    with ThreadPoolExecutor() as pool:
        for first in range(0, len(keys), 6):
            ticks = [pool.submit(daemon.tick) for daemon in daemons for _ in range(2)]
            give_up(*keys[first : first + 6])
            for tick in ticks:
                tick.result(60)
    while any(daemon.tick() for daemon in daemons):
        pass
    told = [alert["logical_date"] for alert in webhook.told]
    assert sorted(told) == [key.logical_date.isoformat() for key in keys]
    assert len(set(ids(webhook.told))) == len(keys)


def test_a_daemon_that_looked_before_does_not_end_what_another_has_raised_since(
    make_daemon: Callable[[], Daemon], webhook: Webhook, give_up: Callable[..., None], engine: Engine
) -> None:
    slow, fast = make_daemon(), make_daemon()
    other = Thread(target=fast.tick)

    def look() -> list[Condition]:
        seen = slow.alerts.waiting()
        give_up(KEY)
        other.start()
        wait_until(lambda: waiting_for_locks(engine, "advisory") == 1 or not other.is_alive())
        return seen

    slow.alerts.note(look, now=NOW, new_alert_id=lambda: str(ULID()))
    other.join()
    assert [slow.tick(), fast.tick(), slow.tick()] == [0, 0, 0]
    assert len(webhook.told) == 1


def test_a_daemon_leaves_to_another_what_that_one_is_posting(
    make_daemon: Callable[[], Daemon], webhook: Webhook, give_up: Callable[..., None]
) -> None:
    first, second = make_daemon(), make_daemon()
    give_up(KEY)
    first.note()

    def post(alerts: Iterable[Alert]) -> None:
        assert second.alerts.tell(partial(post_alerts, second.url), now=NOW, most=MOST) == 0
        post_alerts(first.url, list(alerts))

    assert first.alerts.tell(post, now=NOW, most=MOST) == 1
    assert len(webhook.told) == 1


ANSWERS = {
    "500": (answering(500), "answered 500; alerts wait until it takes them"),
    "404": (answering(404), "answered 404"),
    "429": (answering(429, **{"Retry-After": "60"}), "answered 429"),
    "304": (answering(304), "answered 304"),
    "301": (answering(301, Location=f"/elsewhere/{TOKEN}"), "answered 301"),
    "302": (answering(302, Location=f"/elsewhere/{TOKEN}"), "answered 302"),
    "303": (answering(303, Location=f"/elsewhere/{TOKEN}"), "answered 303"),
    "307": (answering(307, Location=f"/elsewhere/{TOKEN}"), "answered 307"),
    "308": (answering(308, Location=f"/elsewhere/{TOKEN}"), "answered 308"),
    "to no address": (answering(302, Location=f"http://[{TOKEN}"), "alerts wait until it"),
    "to a file": (answering(302, Location=f"file:///{TOKEN}"), "answered 302"),
    "to nowhere": (answering(302), "answered 302"),
    "hangs up": (hanging_up, "does not answer (Remote end closed connection without response); alerts wait"),
    "says nothing": (saying_nothing, "does not answer (timed out); alerts wait until it does"),
    "speaks something else": (repeating_the_request, "does not speak HTTP (BadStatusLine); alerts wait until it does"),
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "_PATIENCE_SECONDS", 0.3)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("answer", "said"), ANSWERS.values(), ids=ANSWERS.keys())
def test_a_webhook_that_does_not_take_them_leaves_alerts_untold_and_is_one_line_without_its_token(
    daemon: Daemon, webhook: Webhook, give_up: Callable[..., None], answer: Answer, said: str
) -> None:
    give_up(*days(3))
    taken, webhook.answer = webhook.answer, answer
    for _ in range(2):
        with pytest.raises(AlertError) as refused:
            daemon.tick()
        message = str(refused.value)
        assert message.startswith("the webhook at 127.0.0.1 ")
        assert said in message
        assert message.isprintable(), "one line"
        assert TOKEN not in message
        assert refused.value.__cause__ is None
    assert set(webhook.paths) == {f"/hooks/{TOKEN}?to=me"}, "nothing else was asked for"

    webhook.answer = taken
    assert [daemon.tick(), daemon.tick()] == [3, 0]
    assert [ids(post["alerts"]) for post in webhook.posts] == [ids(webhook.posts[0]["alerts"])] * 3


def test_where_nobody_listens_alerts_wait(daemon: Daemon, webhook: Webhook, give_up: Callable[..., None]) -> None:
    give_up(KEY)
    listening, daemon.url = daemon.url, f"http://127.0.0.1:1/hooks/{TOKEN}"
    with pytest.raises(AlertError, match=r"the webhook at 127\.0\.0\.1 does not answer \(.*refused\)") as refused:
        daemon.tick()
    assert TOKEN not in str(refused.value)
    daemon.url = listening
    assert daemon.tick() == 1


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_any_answer_of_success_counts_as_delivered(
    daemon: Daemon, webhook: Webhook, give_up: Callable[..., None], status: int
) -> None:
    webhook.answer = answering(status)
    give_up(KEY)
    assert [daemon.tick(), daemon.tick()] == [1, 0]


def test_more_than_fit_into_a_post_go_into_the_next_ones_oldest_first(
    daemon: Daemon, webhook: Webhook, give_up: Callable[..., None]
) -> None:
    old, new = days(700), [replace(key, query_name="ad_group") for key in days(550)]
    give_up(*old)
    daemon.note()
    give_up(*new)
    daemon.alerts.note(daemon.alerts.waiting, now=NOW + timedelta(hours=1), new_alert_id=lambda: str(ULID()))

    assert [daemon.tick() for _ in range(4)] == [500, 500, 250, 0]

    assert [len(post["alerts"]) for post in webhook.posts] == [500, 500, 250]
    assert len(set(ids(webhook.told))) == 1250
    assert [alert["query"] for alert in webhook.told] == ["campaign"] * 700 + ["ad_group"] * 550


def test_a_process_that_dies_after_it_has_posted_posts_again_with_the_same_ids(
    daemon: Daemon, webhook: Webhook, give_up: Callable[..., None]
) -> None:
    give_up(*days(3))
    daemon.note()

    def post_and_die(alerts: Iterable[Alert]) -> None:
        post_alerts(daemon.url, list(alerts))
        raise SystemExit

    for _ in range(2):
        with pytest.raises(SystemExit):
            daemon.alerts.tell(post_and_die, now=NOW, most=MOST)
    assert [daemon.tick(), daemon.tick()] == [3, 0]
    assert [ids(post["alerts"]) for post in webhook.posts] == [ids(webhook.posts[0]["alerts"])] * 3


def test_whatever_a_reason_holds_arrives_as_it_was(
    daemon: Daemon, webhook: Webhook, give_up: Callable[..., None]
) -> None:
    long = "рекламная кампания 🧯 " * 2_000
    give_up(neighbour(0), reason=HOSTILE)
    daemon.stale = [stale(neighbour(1), HOSTILE), stale(neighbour(2), long)]
    daemon.tick()
    assert {alert["logical_date"]: alert["reason"] for alert in webhook.told} == {
        "2024-06-01": HOSTILE,
        "2024-06-02": HOSTILE,
        "2024-06-03": long,
    }


def test_what_postgresql_cannot_store_is_replaced_and_the_rest_arrives(daemon: Daemon, webhook: Webhook) -> None:
    daemon.stale = [stale(reason="a\x00b\ud83dc")]
    daemon.tick()
    assert [alert["reason"] for alert in webhook.told] == ["a\ufffdb?c"]


def test_alerts_of_another_source_are_left_alone(
    daemon: Daemon, webhook: Webhook, acting: Callable[[Role], Engine], give_up: Callable[..., None]
) -> None:
    give_up(replace(KEY, source="other_ads"))
    others = Daemon(Alerts(acting(Role.OPERATOR), source="other_ads"), webhook.url)
    others.note()
    assert daemon.tick() == 0
    assert (daemon.alerts.open(), others.alerts.open()) == (0, 1)
    assert others.tick() == 1
    assert [alert["source"] for alert in webhook.told] == ["other_ads"]


WRITES = (
    "INSERT INTO alert SELECT * FROM alert",
    "UPDATE alert SET told_at = now()",
    "UPDATE alert SET over_at = now()",
    "UPDATE alert SET reason = 'nothing'",
    "DELETE FROM alert",
    "TRUNCATE alert",
)


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.OPERATOR])
@pytest.mark.parametrize("statement", ["SELECT * FROM alert", *WRITES])
def test_nobody_but_the_operator_may_touch_alerts(acting: Callable[[Role], Engine], role: Role, statement: str) -> None:
    with pytest.raises(DBAPIError, match="permission denied"), acting(role).begin() as connection:
        connection.execute(text(statement))


@pytest.mark.parametrize("statement", WRITES[3:])
def test_the_operator_may_neither_rewrite_nor_remove_one(acting: Callable[[Role], Engine], statement: str) -> None:
    with pytest.raises(DBAPIError, match="permission denied"), acting(Role.OPERATOR).begin() as connection:
        connection.execute(text(statement))
