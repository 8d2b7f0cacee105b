"""`gads quota`: what is left of the day's API operations."""

import os
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from gads_assets.cli.output import JsonOption, messages, print_json
from gads_assets.domain.quota import shown
from gads_assets.domain.roles import Role
from gads_assets.errors import StateStoreError
from gads_assets.settings import read_settings

if TYPE_CHECKING:
    from gads_assets.orchestration.workplace import Workplace

ResumeOption = Annotated[bool, typer.Option("--resume", help="First lift the pause, if there is one, before its end.")]


def quota(as_json: JsonOption = False, resume: ResumeOption = False) -> None:
    """Show how many of the day's API operations are used, and until when and why the API is not asked, if so.

    Every process that uses this database counts here before it asks. The day is Google's, from midnight to midnight
    Pacific time; GADS_API_DAILY_OPERATIONS is what it allows. Asking this costs no operation.
    """
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    with Workplace(read_settings(os.environ)) as here:
        if resume:
            _resume(here)
        status = here.operations_as(Role.CONSUMER).status()
    if as_json:
        print_json({name: _isoformat(value) for name, value in asdict(status).items()})
        return
    allowed = "without a limit" if status.allowed is None else f"of {status.allowed}"
    typer.echo(f"{'used':16} {status.used} {allowed}")
    typer.echo(f"{'resets at':16} {shown(status.resets_at)}")
    paused = "-" if status.paused_until is None else f"{shown(status.paused_until)} ({status.reason})"
    typer.echo(f"{'paused until':16} {paused}")


def _resume(here: "Workplace") -> None:
    budget = here.operations_as(Role.OPERATOR)
    found = budget.status()
    if found.paused_until is None:
        messages.print("nothing was paused")
        return
    described = f"the pause until {shown(found.paused_until)} ({found.reason})"
    if not budget.lift_pause(found.paused_until):
        raise StateStoreError(f"{described} was over or another took its place meanwhile; look with `gads quota`")
    messages.print(f"lifted {described}", soft_wrap=True, markup=False)


def _isoformat(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value
