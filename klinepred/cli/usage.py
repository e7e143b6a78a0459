"""In: what click finds wrong with the words of a command line. Out: an error with the three parts, code 2."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import click

from klinepred.errors import KlinepredError, UsageError


def explain(error: click.ClickException, *, root: click.Command, words: Sequence[str] = ()) -> KlinepredError:
    """The error of click as one of klinepred's: what the command takes, what was typed, what to type.

    Parameters
    ----------
    root, words
        The outermost command and what was typed after it: click does not always say which command it was parsing.
    """
    if not isinstance(error, click.UsageError):
        return KlinepredError("klinepred", expected="to carry that out", got=_got(error), do="see klinepred --help")
    ctx = error.ctx or _context(root, words)
    if isinstance(error, click.BadOptionUsage):
        return _bad_use(ctx, error.option_name)
    if isinstance(error, click.NoSuchOption):
        return _no_option(ctx, error.option_name)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return _missing(ctx, error.param)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _bad_value(ctx, error.param, error)
    if isinstance(ctx.command, click.Group):
        typed = getattr(error, "command_name", None) or next(iter(re.findall(r"'(.*)'", error.message)), None)
        return no_command(ctx, typed, names=ctx.command.list_commands(ctx))
    usage = " ".join(ctx.get_usage().removeprefix("Usage: ").split())
    return UsageError(ctx.command_path, expected=usage, got=_got(error), do=_help(ctx, "leave that out, or see"))


def no_command(ctx: click.Context, typed: str | None, *, names: Iterable[str]) -> UsageError:
    """A word that is none of the commands of a group; None: there is no word."""
    known = list(names)
    near = _nearest(typed or "", known)
    return UsageError(
        f"{ctx.command_path} {typed or ''}".rstrip(),
        expected=f"one of {', '.join(known)}",
        got="no command" if typed is None else f"the command {typed!r}",
        do=f"did you mean {ctx.command_path} {near}?" if near else _help(ctx),
    )


def _no_option(ctx: click.Context, typed: str) -> UsageError:
    known = [name for parameter in ctx.command.get_params(ctx) for name in (*parameter.opts, *parameter.secondary_opts)]
    near = _nearest(typed, [name for name in known if name.startswith("--")])
    return UsageError(
        f"{ctx.command_path} {typed}",
        expected=f"options of {ctx.command_path}",
        got=f"{typed}, which it does not have",
        do=f"did you mean {near}?" if near else _help(ctx),
    )


def _missing(ctx: click.Context, parameter: click.Parameter) -> UsageError:
    name = _spelt(ctx, parameter)
    return UsageError(
        ctx.command_path,
        expected=name,
        got="none",
        do=f"{'add' if isinstance(parameter, click.Option) else 'name'} {name}; {_help(ctx)}",
    )


def _bad_value(ctx: click.Context, parameter: click.Parameter, error: click.BadParameter) -> UsageError:
    name = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.make_metavar(ctx)
    long = next((option for option in parameter.opts if option.startswith("--")), name)
    do = _help(ctx)
    if isinstance(parameter.type, click.Choice):
        near = _nearest(next(iter(re.findall(r"'(.*?)'", error.message)), ""), map(str, parameter.type.choices))
        do = f"write {long} {near}" if near else do
    return UsageError(f"{ctx.command_path} {long}", expected=_wanted(parameter.type), got=_got(error), do=do)


def _bad_use(ctx: click.Context, option: str) -> UsageError:
    known = ctx.command.get_params(ctx)
    parameter = next((one for one in known if option in (*one.opts, *one.secondary_opts)), None)
    where = f"{ctx.command_path} {option}"
    if parameter is None or getattr(parameter, "is_flag", False):
        do = f"write {option} without a value"
        return UsageError(where, expected=f"{option} alone", got="a value with it", do=do)
    name = _spelt(ctx, parameter)
    return UsageError(where, expected=name, got="no value", do=f"write {name}; {_help(ctx)}")


def _spelt(ctx: click.Context, parameter: click.Parameter) -> str:
    """`--as-of VERSION|TS`, or `MODEL`."""
    metavar = parameter.make_metavar(ctx)
    if not isinstance(parameter, click.Option):
        return metavar
    return f"{max(parameter.opts, key=len)} {metavar}"


def _wanted(kind: click.ParamType[Any, Any]) -> str:
    if isinstance(kind, click.Choice):
        return f"one of {', '.join(map(str, kind.choices))}"
    if isinstance(kind, click.IntRange | click.FloatRange):
        whole = "a whole number" if isinstance(kind, click.IntRange) else "a number"
        low = "" if kind.min is None else f" of at least {kind.min}"
        high = "" if kind.max is None else f"{' and' if low else ' of'} at most {kind.max}"
        return whole + low + high
    if isinstance(kind, click.Path):
        return "a path" if kind.dir_okay else "the path of a file, not of a folder"
    return f"a value of the kind {kind.name}"


def _context(root: click.Command, words: Sequence[str]) -> click.Context:
    """Of the command that `words` name."""
    ctx = click.Context(root, info_name="klinepred")
    for word in words:
        below = ctx.command.get_command(ctx, word) if isinstance(ctx.command, click.Group) else None
        ctx = click.Context(below, info_name=word, parent=ctx) if below else ctx
    return ctx


def _nearest(typed: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(typed, list(known), n=1)), None)


def _help(ctx: click.Context, word: str = "see") -> str:
    return f"{word} {ctx.command_path} --help"


def _got(error: click.ClickException) -> str:
    return " ".join((error.message or error.format_message()).split()).removesuffix(".")
