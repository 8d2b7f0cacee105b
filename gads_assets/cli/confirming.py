"""Who changes something, why, and whether they mean it."""

import os
import pwd
import sys
from typing import Annotated, Final, TextIO

import typer

from gads_assets.cli.output import number_of
from gads_assets.cli.usage import wrong_usage
from gads_assets.errors import ActionRefusedError

_LONGEST_REASON: Final = 500
_LONGEST_NAME: Final = 64
_INTERRUPTED: Final = 130

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
ExpectOption = Annotated[
    int | None,
    typer.Option(
        "--expect",
        metavar="N",
        min=1,
        help="With --yes: how many partitions; needed above GADS_CONFIRM_ABOVE (50).",
    ),
]
ReasonOption = Annotated[
    str | None,
    typer.Option("--reason", help="Why, for whoever reads the log of overrides. Required, but for --dry-run."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")]


def acting_user() -> str:
    """The name that the log has for whoever runs this: the system's, since variables say what anybody wants."""
    user_id = os.getuid()
    try:
        name = pwd.getpwuid(user_id).pw_name
    except KeyError:
        name = ""
    if not _is_name(name):
        name = f"uid {user_id}"
    before = os.environ.get("SUDO_USER", "")
    return f"{name} (sudo by {before})" if _is_name(before) and before != name else name


def _is_name(text: str) -> bool:
    return text.isprintable() and bool(text.strip()) and len(text) <= _LONGEST_NAME


def read_reason(text: str | None, *, dry_run: bool) -> str:
    """Empty for a rehearsal without one: nothing is logged of it."""
    if text is None:
        if dry_run:
            return ""
        wrong_usage('--reason is missing: every override is logged with why; add --reason "…"')
    reason = text.strip()
    if not reason:
        wrong_usage("--reason is empty; write why, in a few words")
    if len(reason) > _LONGEST_REASON:
        wrong_usage(f"--reason has {len(reason)} characters, and {_LONGEST_REASON} are allowed; shorten it")
    if not reason.isprintable():
        wrong_usage("--reason has a line break or a character that cannot be printed; write it in one line")
    return reason


def require_both(*, yes: bool, expect: int | None) -> None:
    if expect is not None and not yes:
        wrong_usage("--expect says what --yes agrees to; give both, or neither")


def require_expected(count: int, expect: int | None) -> None:
    if expect is None or expect == count:
        return
    then = f"look at the plan, then repeat with --expect {count}" if count else "nothing is left to agree to"
    raise ActionRefusedError(
        f"--expect {expect} is not the plan's number, which is {count}; nothing was changed: {then}"
    )


def confirm(count: int, *, verb: str, name: str | None, above: int, yes: bool, expect: int | None) -> None:
    """Returns if so many partitions may change: more of them than a glance takes in must be named by their number.
    `name` is what the only one is called."""
    must_be_counted = count > above
    require_expected(count, expect)
    if yes and must_be_counted and expect is None:
        raise ActionRefusedError(
            f"the plan has {number_of(count, 'partition')}, more than {above}, for which --yes is not enough; nothing "
            f"was changed: repeat with --yes --expect {count}"
        )
    if yes:
        return
    which = name or number_of(count, "partition")
    require_terminal(
        f"{which} {'waits' if count == 1 else 'wait'} for a yes",
        f"--yes --expect {count}" if must_be_counted else "--yes",
    )
    if must_be_counted:
        answer = _ask(f"Type their number to {verb.lower()} {number_of(count, 'partition')}: ")
        if answer != str(count):
            raise ActionRefusedError(f"{answer[:40]!r} is not {count}; nothing was changed")
    else:
        require_yes(f"{verb} {which}?")


def require_terminal(waits: str, with_options: str) -> None:
    """Standard input is nothing at all where whoever started us had closed it."""
    standard_input: TextIO | None = sys.stdin
    if standard_input is None or standard_input.closed or not standard_input.isatty():
        raise ActionRefusedError(f"{waits}, and there is no terminal to ask on; repeat with {with_options}")


def require_yes(question: str) -> None:
    if _ask(f"{question} [y/N] ").casefold() not in {"y", "yes"}:
        raise ActionRefusedError("not confirmed; nothing was changed")


def _ask(question: str) -> str:
    """On standard error: standard output is for facts."""
    try:
        sys.stderr.write(question)
        sys.stderr.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        sys.stderr.write("\ngads: interrupted; nothing was changed\n")
        raise typer.Exit(_INTERRUPTED) from None
    if not answer:
        sys.stderr.write("\n")
        raise ActionRefusedError("no answer was given; nothing was changed")
    return answer.strip()
