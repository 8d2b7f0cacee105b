"""Wrong usage in one line, for commands whose other refusals are one line too."""

import re
import sys
from collections import Counter
from difflib import get_close_matches
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from gads_assets.cli.output import printable

# The root of what a command line can be wrong in; Typer has no public name for it.
_UsageError: Final[Any] = typer.BadParameter.__base__

_LONG_VALUE: Final = re.compile(r"(?<=')[^']{41,}(?=')|(?<=\()\S{41,}(?=\))|(?<=--)[^\s']{41,}")
_NEAR: Final = 0.75


# Any, because Typer's own types for these are private.
class OneLineCommand(TyperCommand):
    """For a command of such a group: what takes one value is given once. Of two, the first would be forgotten."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _require_each_once(self, ctx, args)
        return super().parse_args(ctx, args)


class OneLineUsage(TyperGroup):
    """For a group: its own wrong usage, and that of every command below it, is a line on standard error, and exit 2."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _require_each_once(self, ctx, args)
        return super().parse_args(ctx, args)

    def make_context(self, *given: Any, **more: Any) -> Any:
        try:
            return super().make_context(*given, **more)
        except _UsageError as error:
            _complain(error, f"gads {self.name}")

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            _complain(error, ctx.command_path)


def wrong_usage(message: str) -> NoReturn:
    """What options cannot say of each other, or of their values."""
    raise _UsageError(message)


def _require_each_once(command: Any, ctx: Any, args: list[str]) -> None:
    try:
        _, _, order = command.make_parser(ctx).parse_args(args=list(args))
    except _UsageError as error:
        error.ctx = error.ctx or ctx
        raise
    given = Counter(each for each in order if each.param_type_name == "option" and not each.multiple)
    for option, times in given.items():
        if times > 1 and not option.is_flag:
            raise _UsageError(f"{option.opts[-1]} is given {times} times and takes one value; give it once", ctx)


def _complain(error: Any, path: str) -> NoReturn:
    message = _reworded(error).rstrip(".").replace("Value error, ", "")
    if not message or "\n" in message:  # the help, which a group without a command shows
        raise error
    if error.ctx:
        path = error.ctx.command_path
    short = _LONG_VALUE.sub(lambda found: f"{found[0][:40]}…", " ".join(message.split()))
    sys.stderr.write(f"gads: {printable(short)}; see `{path} --help`\n")
    raise typer.Exit(2)


def _reworded(error: Any) -> str:
    """Where Typer suggests options that look nothing like the one given, or keeps a wrong number to itself."""
    if possibilities := getattr(error, "possibilities", None):
        error.possibilities = None
        near = get_close_matches(error.option_name, possibilities, n=1, cutoff=_NEAR)
        return str(error.format_message()) + (f"; did you mean {near[0]}?" if near else "")
    option: Any = getattr(error, "param", None)
    if hasattr(error.__cause__, "errors") and getattr(option, "min", None) is not None:
        [problem, *_] = error.__cause__.errors()
        span = f" from {option.min}" + (f" to {option.max}" if option.max is not None else " on")
        return f"{option.opts[-1]} {str(problem['input'])!r} is not a whole number{span}; give one"
    return str(error.format_message())
