"""`gads state`: what is on record of partitions, side by side; what happened to one; and overrides."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gads_assets.cli.choosing import (
    CustomersOnRecordOption,
    DayOption,
    ErrorClassOption,
    FirstDayOption,
    LastDayOption,
    LimitOption,
    QueriesOption,
    StatusesOption,
    choose,
    read_asked,
)
from gads_assets.cli.history import history, overrides
from gads_assets.cli.output import Column, JsonOption, print_json, print_listing, say, to_the_minute
from gads_assets.cli.overriding import HELP, override_command
from gads_assets.cli.telling import (
    attempts_of,
    error_of,
    next_of,
    runs_of,
    say_if_cut,
    state_of,
    told_given_up,
    told_row,
)
from gads_assets.cli.usage import OneLineCommand, OneLineUsage
from gads_assets.domain.desk import Action
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.ledger_news import Disposition
from gads_assets.domain.pointer import Pointer
from gads_assets.settings import read_settings

if TYPE_CHECKING:
    from gads_assets.orchestration.workplace import Workplace

_LISTED: Final = 200
_GIVEN_UP: Final = (Disposition.TERMINAL, Disposition.BLOCKED)

state_app = typer.Typer(
    help="Look at partitions on record, and try them again.",
    no_args_is_help=True,
    add_completion=False,
    cls=OneLineUsage,
)
terminal_app = typer.Typer(
    help="Partitions that nothing tries again: list them, mark some, or clear them.",
    no_args_is_help=True,
    add_completion=False,
    cls=OneLineUsage,
)


@state_app.command(cls=OneLineCommand)
def inspect(
    *,
    queries: QueriesOption = None,
    customer_ids: CustomersOnRecordOption = None,
    day: DayOption = None,
    first: FirstDayOption = None,
    last: LastDayOption = None,
    statuses: StatusesOption = None,
    given_up: Annotated[bool, typer.Option("--terminal", help="Those that are terminal or blocked.")] = False,
    error_class: ErrorClassOption = None,
    limit: LimitOption = _LISTED,
    as_json: JsonOption = False,
) -> None:
    """Show what is on record of partitions: state, attempts, last error, next try, and what readers see.

    Attempts are verdicts, ever, and in brackets those that count towards the limit; failed extractions are counted
    apart, since the last that did not fail. By query and customer, the newest days first. Of a partition that was never
    tried nor scheduled nothing is on record.
    """
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    now = datetime.now(UTC)
    asked = read_asked(
        queries=queries,
        customer_ids=customer_ids,
        day=day,
        first=first,
        last=last,
        error_class=error_class,
        statuses=statuses,
        now=now,
    )
    with Workplace(read_settings(os.environ)) as here:
        choice = choose(here, asked, dispositions=_GIVEN_UP if given_up else None)
        found = here.desk.rows(choice, most=limit + 1)
        rows, truncated = found[:limit], len(found) > limit
        pointers = _pointers(here, [row.key for row in rows])
    if as_json:
        told = [told_row(row, pointers.get(row.key)) for row in rows]
        print_json({"at": now.isoformat(), "limit": limit, "truncated": truncated, "partitions": told})
        return
    if not rows:
        say("nothing is on record of these partitions")
        return
    print_listing(
        None,
        [
            *_key_columns(),
            Column(name="status"),
            Column(name="attempts", is_number=True),
            *(Column(name=name, room=room) for name, room in (("runs", 48), ("next", 32), ("last error", 32))),
        ],
        [
            (
                *_shown_key(row.key),
                row.status,
                attempts_of(row),
                runs_of(row, pointers.get(row.key)),
                next_of(row),
                error_of(row),
            )
            for row in rows
        ],
    )
    say_if_cut(truncated, limit)


def _pointers(here: "Workplace", keys: Sequence[PartitionKey]) -> dict[PartitionKey, Pointer]:
    from gads_assets.warehouse.pointers import pointers_of  # noqa: PLC0415

    found: dict[PartitionKey, Pointer] = {}
    for _, group in groupby(keys, key=lambda key: key.query_name):
        found |= pointers_of(here.layout, list(group))
    return found


def _key_columns() -> list[Column]:
    return [Column(name=name) for name in ("query", "customer", "day")]


def _shown_key(key: PartitionKey) -> tuple[object, ...]:
    return key.query_name, key.customer_id, key.logical_date


@terminal_app.command("list", cls=OneLineCommand)
def list_terminal(
    *,
    queries: QueriesOption = None,
    customer_ids: CustomersOnRecordOption = None,
    day: DayOption = None,
    first: FirstDayOption = None,
    last: LastDayOption = None,
    error_class: ErrorClassOption = None,
    limit: LimitOption = _LISTED,
    as_json: JsonOption = False,
) -> None:
    """List what is terminal or blocked, why, and since when: nothing tries it until somebody retries or clears it."""
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    asked = read_asked(
        queries=queries,
        customer_ids=customer_ids,
        day=day,
        first=first,
        last=last,
        error_class=error_class,
        now=datetime.now(UTC),
    )
    with Workplace(read_settings(os.environ)) as here:
        found = here.desk.rows(choose(here, asked, dispositions=_GIVEN_UP), most=limit + 1)
    rows, truncated = found[:limit], len(found) > limit
    if as_json:
        print_json({"limit": limit, "truncated": truncated, "partitions": [told_given_up(row) for row in rows]})
        return
    if not rows:
        say("nothing of these is terminal or blocked")
        return
    print_listing(
        None,
        [
            *_key_columns(),
            Column(name="is"),
            Column(name="since (UTC)"),
            Column(name="state", room=32),
            Column(name="why", room=40),
        ],
        [
            (
                *_shown_key(row.key),
                row.disposition,
                to_the_minute(row.scheduled_at),
                state_of(row),
                row.reason,
            )
            for row in rows
        ],
    )
    say_if_cut(truncated, limit)


for _command in (history, overrides):
    state_app.command(cls=OneLineCommand)(_command)
for _app, _name, _action in (
    (state_app, "retry", Action.RETRY),
    (state_app, "revalidate", Action.REVALIDATE),
    (terminal_app, "mark", Action.MARK),
    (terminal_app, "clear", Action.CLEAR),
):
    _app.command(_name, help=HELP[_action], cls=OneLineCommand)(override_command(_action))
state_app.add_typer(terminal_app, name="terminal")
