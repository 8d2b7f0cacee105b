"""`gads backfill`: history that somebody wants: what it takes, starting it, and how far it has come."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.progress_bar import ProgressBar
from ulid import ULID

from gads_assets.cli.choosing import (
    CustomersOption,
    FirstDayOption,
    LastDayOption,
    LimitOption,
    QueriesOption,
    given_options,
    read_asked,
)
from gads_assets.cli.confirming import (
    DryRunOption,
    ExpectOption,
    YesOption,
    acting_user,
    confirm,
    require_both,
    require_expected,
    require_terminal,
    require_yes,
)
from gads_assets.cli.output import (
    Column,
    JsonOption,
    facts,
    isoformat,
    messages,
    number_of,
    print_json,
    print_listing,
    say,
    span_of,
    to_the_minute,
)
from gads_assets.cli.proposing import Proposal, left_out_by_reason, propose, show_proposal, told_proposal
from gads_assets.cli.telling import name_of, say_if_cut
from gads_assets.cli.usage import OneLineCommand, OneLineUsage, wrong_usage
from gads_assets.domain.roles import Role
from gads_assets.errors import ActionRefusedError
from gads_assets.settings import read_settings
from gads_assets.state.backfills import Backfill, BackfillStatus

if TYPE_CHECKING:
    from gads_assets.orchestration.workplace import Workplace

_LISTED: Final = 50
_BAR_WIDTH: Final = 24
_ID_PREFIX: Final = re.compile(r"[0-9A-HJKMNP-TV-Z]{1,26}\Z")

# Without a help text of its own, which would hide that of the callback.
backfill_app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    cls=OneLineUsage,
)
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="A backfill's id, or enough of its beginning.")]


@backfill_app.callback()
def backfill(
    context: typer.Context,
    *,
    first: FirstDayOption = None,
    last: LastDayOption = None,
    queries: QueriesOption = None,
    customer_ids: CustomersOption = None,
    yes: YesOption = False,
    expect: ExpectOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Extract the days from --from to --to that are not published, after everything else that is due.

    Before it starts it says what it takes: partitions, runs and API operations, beside what is left of today's. Left
    out is what is published, scheduled, terminal or blocked, so the same command again goes on where it stopped.
    """
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    if context.invoked_subcommand:
        _refuse_options_before(context, context.invoked_subcommand)
        return
    for name, value in (("--from", first), ("--to", last)):
        if value is None:
            wrong_usage(f"{name} is missing: a backfill has a first and a last day; give --from and --to")
    require_both(yes=yes, expect=expect)
    asked = read_asked(queries=queries, customer_ids=customer_ids, first=first, last=last)
    with Workplace(read_settings(os.environ)) as here:
        now = here.schedule_as(Role.OPERATOR).clock()
        proposal = propose(here, asked, now=now)
        backfill_id = None
        if proposal.wanted.keys:
            # With --json standard output is the document's, and only who is asked needs this before.
            if not as_json:
                show_proposal(proposal, facts())
            elif not (yes or dry_run):
                show_proposal(proposal, messages)
        if dry_run or not proposal.wanted.keys:
            require_expected(len(proposal.wanted.keys), expect)
        else:
            backfill_id = _start(here, proposal, yes=yes, expect=expect, now=now)
    say(_came_of(proposal, backfill_id))
    if as_json:
        print_json(told_proposal(proposal, backfill_id, dry_run=dry_run))


def _refuse_options_before(context: typer.Context, command: str) -> None:
    given = given_options(context)
    if not given:
        return
    if given[0] == "--json" and command == status.__name__:
        wrong_usage(f"--json goes after {command}: gads backfill {command} --json")
    if given[0] == "--yes" and command == cancel.__name__:
        wrong_usage(f"--yes goes after {command}: gads backfill {command} ID --yes")
    wrong_usage(f"{given[0]} says what to extract; it does not go with {command}")


def _start(here: "Workplace", proposal: Proposal, *, yes: bool, expect: int | None, now: datetime) -> str:
    keys = proposal.wanted.keys
    confirm(
        len(keys),
        verb="Schedule",
        name=name_of(keys[0]) if len(keys) == 1 else None,
        above=here.settings.confirm_above,
        yes=yes,
        expect=expect,
    )
    backfill_id = str(ULID())
    here.backfills.create(
        backfill_id,
        keys,
        first=proposal.first,
        last=proposal.last,
        operations=proposal.cost.operations,
        actor=acting_user(),
        now=now,
    )
    return backfill_id


def _came_of(proposal: Proposal, backfill_id: str | None) -> str:
    if backfill_id:
        return (
            f"backfill {backfill_id} is scheduled; Dagster's daemon runs it after everything else that is due, and "
            "`make ui` or `dagster-daemon run` starts one; `gads backfill status` shows how far it is"
        )
    if proposal.wanted.keys:
        return "nothing was changed: this was a rehearsal"
    left_out = left_out_by_reason(proposal.left_out)
    told = ", ".join(f"{number} {why}" for why, number in left_out)
    every = number_of(sum(number for _, number in left_out), "partition")
    return f"nothing is left to backfill: of {every} {told}"


@backfill_app.command(cls=OneLineCommand)
def status(
    backfill_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="One of them only, or those that begin so.")
    ] = None,
    limit: LimitOption = _LISTED,
    as_json: JsonOption = False,
) -> None:
    """Show backfills, newest first: how much of each is done, runs, is tried again, or waits for an operator."""
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    prefix = _read_id(backfill_id) if backfill_id is not None else ""
    with Workplace(read_settings(os.environ)) as here:
        every = here.backfills.all(prefix=prefix, most=limit + 1)
    found, truncated = every[:limit], len(every) > limit
    if prefix and not found:
        raise ActionRefusedError(_unknown(prefix))
    if as_json:
        print_json({"limit": limit, "truncated": truncated, "backfills": [_told(each) for each in found]})
        return
    if not found:
        say("there is no backfill; `gads backfill --from DAY --to DAY` starts one")
        return
    bar = [Column(name="", room=_BAR_WIDTH, can_be_left_out=True)] if facts().is_terminal else []
    print_listing(
        None,
        [
            *(Column(name=name) for name in ("backfill", "is", "days")),
            *(Column(name=name, is_number=True) for name in ("done", "%")),
            *bar,
            *(Column(name=name, room=room) for name, room in (("left", 24), ("of", 24), ("by", 28))),
        ],
        [_shown(each, with_bar=bool(bar)) for each in found],
    )
    say_if_cut(truncated, limit)


def _shown(each: Backfill, *, with_bar: bool) -> tuple[object, ...]:
    bar = ProgressBar(total=each.partitions, completed=each.done, width=_BAR_WIDTH)
    return (
        each.backfill_id,
        _condition(each),
        span_of(each.first, each.last),
        f"{each.done}/{each.partitions}",
        _percent(each),
        *([bar] if with_bar else []),
        _left(each),
        _of(each),
        _by(each),
    )


def _condition(each: Backfill) -> str:
    if each.status is BackfillStatus.CANCELLED:
        return each.status
    if each.remaining == 0:
        return "done"
    return "ended" if each.is_over else each.status


def _left(each: Backfill) -> str:
    """Of each kind that there is, how many."""
    counts = {
        "waiting": _waiting(each),
        "queued": each.queued,
        "running": each.running,
        "retrying": each.retrying,
        "terminal": each.terminal,
        "blocked": each.blocked,
        "taken off": each.taken_off,
    }
    return ", ".join(f"{number} {kind}" for kind, number in counts.items() if number > 0)


def _waiting(each: Backfill) -> int:
    """On the schedule, and never dispatched yet."""
    return each.remaining - each.queued - each.running - each.retrying - each.terminal - each.blocked


def _of(each: Backfill) -> str:
    whose = each.customer_ids[0] if len(each.customer_ids) == 1 else f"{len(each.customer_ids)} customers"
    return f"{', '.join(each.queries)}; {whose}"


def _by(each: Backfill) -> str:
    started = f"{each.created_by}, {to_the_minute(each.created_at)} UTC"
    if each.status is BackfillStatus.ACTIVE and each.changed_at == each.created_at:
        return started
    verb = "resumed" if each.status is BackfillStatus.ACTIVE else each.status
    return f"{started}; {verb} by {each.changed_by}, {to_the_minute(each.changed_at)}"


def _percent(each: Backfill) -> int:
    """Rounded down: only all of it is 100."""
    return 100 * each.done // each.partitions


def _told(each: Backfill) -> dict[str, Any]:
    return {
        "backfill_id": each.backfill_id,
        "status": each.status,
        "is_over": each.is_over,
        "from": each.first.isoformat(),
        "to": each.last.isoformat(),
        "queries": list(each.queries),
        "customer_ids": list(each.customer_ids),
        "partitions": each.partitions,
        "operations": each.operations,
        "done": each.done,
        "percent": _percent(each),
        "remaining": each.remaining,
        "taken_off": each.taken_off,
        "queued": each.queued,
        "running": each.running,
        "retrying": each.retrying,
        "terminal": each.terminal,
        "blocked": each.blocked,
        "created_by": each.created_by,
        "created_at": isoformat(each.created_at),
        "changed_by": each.changed_by,
        "changed_at": isoformat(each.changed_at),
    }


@backfill_app.command(cls=OneLineCommand)
def pause(backfill_id: IdArgument) -> None:
    """Dispatch nothing more of a backfill until it is resumed.

    What waits in Dagster's queue is taken back; what a run has come for goes on.
    """
    with _opened(backfill_id) as (here, found):
        _change(here, found, BackfillStatus.PAUSED)
    say(f"backfill {found.backfill_id} is paused: nothing more of it is dispatched until `gads backfill resume`")


@backfill_app.command(cls=OneLineCommand)
def resume(backfill_id: IdArgument) -> None:
    """Go on with a backfill that was paused."""
    with _opened(backfill_id) as (here, found):
        _change(here, found, BackfillStatus.ACTIVE)
    say(f"backfill {found.backfill_id} goes on")


@backfill_app.command(cls=OneLineCommand)
def cancel(backfill_id: IdArgument, *, yes: YesOption = False) -> None:
    """Take what is left of a backfill off the schedule, for good; what a run has come for goes on.

    What failed before is marked terminal, and tried no more. `gads backfill` with the same days starts another.
    """
    with _opened(backfill_id) as (here, found):
        if not yes and found.status is not BackfillStatus.CANCELLED:
            _agree_to_end(found)
        taken_off = _change(here, found, BackfillStatus.CANCELLED)
        [after] = here.backfills.all(prefix=found.backfill_id, most=1)
    say(f"backfill {found.backfill_id} is cancelled: {_what_came_off(found, after, taken_off)}")


def _agree_to_end(found: Backfill) -> None:
    require_terminal(f"the end of backfill {found.backfill_id} waits for a yes", "--yes")
    can_come_off = found.remaining - found.running - found.terminal - found.blocked
    off = _left(replace(found, remaining=can_come_off, running=0, terminal=0, blocked=0, taken_off=0))
    say(
        f"backfill {found.backfill_id} of {span_of(found.first, found.last)} ends for good; off the schedule: "
        f"{off or 'nothing'}; kept: {found.running} running, {found.terminal + found.blocked} given up"
    )
    require_yes(f"Cancel backfill {found.backfill_id}?")


def _what_came_off(before: Backfill, after: Backfill, taken_off: int) -> str:
    marked = max(after.terminal - before.terminal, 0)
    asked_for = after.remaining - after.running - after.terminal - after.blocked
    told = [f"{number_of(taken_off, 'partition is', 'partitions are')} off the schedule"]
    if marked:
        told.append(f"{marked} that had failed {'is' if marked == 1 else 'are'} marked terminal")
    if after.running:
        told.append(f"{after.running} {'runs' if after.running == 1 else 'run'} to the end")
    if asked_for > 0:
        told.append(f"{asked_for} {'stays' if asked_for == 1 else 'stay'}, asked for by hand")
    if waits := before.terminal + before.blocked:
        told.append(f"{waits} {'waits' if waits == 1 else 'wait'} for an operator as before")
    return ", ".join(told)


@contextmanager
def _opened(given: str) -> "Iterator[tuple[Workplace, Backfill]]":
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    prefix = _read_id(given)
    with Workplace(read_settings(os.environ)) as here:
        yield here, _only_one(here, prefix)


def _change(here: "Workplace", found: Backfill, wanted: BackfillStatus) -> int:
    now = here.schedule_as(Role.OPERATOR).clock()
    return here.backfills.change(found.backfill_id, wanted, actor=acting_user(), now=now)


def _read_id(given: str) -> str:
    prefix = given.strip().upper()
    if not _ID_PREFIX.match(prefix):
        raise ActionRefusedError(
            f"backfill id {given[:40]!r} is not the beginning of a ULID; copy it from `gads backfill status`"
        )
    return prefix


def _only_one(here: "Workplace", prefix: str) -> Backfill:
    found = here.backfills.all(prefix=prefix, most=2)
    if not found:
        raise ActionRefusedError(_unknown(prefix))
    if len(found) > 1:
        both = " and ".join(each.backfill_id for each in found)
        raise ActionRefusedError(f"backfill id {prefix} is ambiguous: {both} begin so; give more of it")
    [only] = found
    if only.remaining == 0 and only.status is not BackfillStatus.CANCELLED:
        raise ActionRefusedError(f"backfill {only.backfill_id} is done; there is nothing left of it to change")
    return only


def _unknown(prefix: str) -> str:
    return f"backfill {prefix} does not exist; `gads backfill status` lists those that do"
