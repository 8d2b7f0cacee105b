"""`gads state history` and `gads state overrides`: what happened, newest first."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gads_assets.cli.choosing import (
    CustomersOnRecordOption,
    DayOption,
    FirstDayOption,
    LastDayOption,
    LimitOption,
    QueriesOption,
    choose,
    read_asked,
)
from gads_assets.cli.output import (
    Column,
    JsonOption,
    isoformat,
    number_of,
    print_json,
    print_listing,
    say,
    to_the_minute,
)
from gads_assets.cli.telling import next_of, say_if_cut, told_key, told_schedule
from gads_assets.cli.usage import wrong_usage
from gads_assets.domain.keys import PartitionKey
from gads_assets.settings import read_settings

if TYPE_CHECKING:
    from sqlalchemy import RowMapping

_LISTED: Final = 200


def history(
    *,
    query: Annotated[str | None, typer.Option("--query", help="A query of the catalog. Required.")] = None,
    customer_id: Annotated[str | None, typer.Option("--customer-id", help="As 123-456-7890. Required.")] = None,
    day: Annotated[
        str | None, typer.Option("--logical-date", metavar="DAY", help="The day, YYYY-MM-DD. Required.")
    ] = None,
    limit: LimitOption = _LISTED,
    as_json: JsonOption = False,
) -> None:
    """Show what happened to one partition, newest first: extractions, verdicts, overrides and loads."""
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    required = {"--query": query, "--customer-id": customer_id, "--logical-date": day}
    if missing := [name for name, value in required.items() if value is None]:
        wrong_usage(
            f"{missing[0]} is missing: a history is of one partition; give --query, --customer-id and --logical-date"
        )
    asked = read_asked(queries=[query or ""], customer_ids=[customer_id or ""], day=day, now=datetime.now(UTC))
    assert asked.first is not None  # noqa: S101  a day was given
    with Workplace(read_settings(os.environ)) as here:
        choice = choose(here, asked)
        key = PartitionKey(
            source=here.catalog.source,
            customer_id=asked.customer_ids[0],
            query_name=choice.queries[0],
            logical_date=asked.first,
        )
        found = here.desk.history(key, most=limit + 1)
        row = next(iter(here.desk.rows(choice)), None)
    events, truncated = found[:limit], len(found) > limit
    if as_json:
        schedule = told_schedule(row) if row else None
        told = [_plain(event) for event in events]
        print_json({**told_key(key), "limit": limit, "truncated": truncated, "schedule": schedule, "events": told})
        return
    following = next_of(row) if row else ""
    if not events:
        say(
            f"nothing has happened to {key} yet; next: {following}"
            if following
            else f"nothing ever happened to {key}; a first extraction is `gads backfill`"
        )
        return
    print_listing(
        str(key),
        [
            *(Column(name=name) for name in ("at (UTC)", "what", "came to", "run")),
            Column(name="by", room=36),
            Column(name="told", room=40),
        ],
        [
            (to_the_minute(event["at"]), _kind(event), event["outcome"], event["run_id"], event["by"], _told(event))
            for event in events
        ],
    )
    if following:
        say(f"next: {following}")
    say_if_cut(truncated, limit)


def _kind(event: "RowMapping") -> str:
    number = event["attempt_number"]
    return f"{event['kind']} {number}" if number is not None else str(event["kind"])


def _told(event: "RowMapping") -> str:
    said = [event["error_class"], event["error_message"], event["reason"], event["change"]]
    if event["record_count"] is not None:
        said.append(number_of(event["record_count"], "row"))
    if event["retry_at"]:
        said.append(f"not before {to_the_minute(event['retry_at'])}")
    return ": ".join(str(each) for each in said if each)


def overrides(
    *,
    queries: QueriesOption = None,
    customer_ids: CustomersOnRecordOption = None,
    day: DayOption = None,
    first: FirstDayOption = None,
    last: LastDayOption = None,
    actor: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Those of one user, or of 'control plane'.")
    ] = None,
    limit: LimitOption = _LISTED,
    as_json: JsonOption = False,
) -> None:
    """Show what was overridden, newest first: who, when, why, and what changed. Nobody can edit this log."""
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    if actor is not None and not actor.strip():
        wrong_usage("--by is empty; give a name as the log shows it, or leave it out for all")
    if actor is not None and not actor.isprintable():
        wrong_usage("--by has a character that cannot be printed; give a name as the log shows it")
    asked = read_asked(
        queries=queries, customer_ids=customer_ids, day=day, first=first, last=last, now=datetime.now(UTC)
    )
    with Workplace(read_settings(os.environ)) as here:
        found = here.desk.overrides(choose(here, asked), actor=actor, most=limit + 1)
    shown, truncated = found[:limit], len(found) > limit
    if as_json:
        print_json({"limit": limit, "truncated": truncated, "overrides": [_plain(each) for each in shown]})
        return
    if not shown:
        say("nothing of these was ever overridden")
        return
    print_listing(
        None,
        [
            *(Column(name=name) for name in ("at (UTC)", "action", "query", "customer", "day")),
            *(Column(name=name, room=room) for name, room in (("by", 12), ("change", 36), ("reason", 24))),
        ],
        [
            (
                to_the_minute(each["logged_at"]),
                *(each[name] for name in ("action", "query_name", "customer_id", "logical_date")),
                *(each[name] for name in ("actor", "change", "reason")),
            )
            for each in shown
        ],
    )
    say_if_cut(truncated, limit)


def _plain(row: "RowMapping | Mapping[str, Any]") -> dict[str, Any]:
    renamed = {"query_name": "query"}
    return {
        renamed.get(name, name): isoformat(value) if isinstance(value, datetime) else value
        for name, value in row.items()
    }
