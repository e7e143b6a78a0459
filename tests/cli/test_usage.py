"""In: every way to mistype a command line. Out: one message of three parts, code 2, and nothing is run."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from klinepred.cli.usage import explain
from klinepred.errors import KlinepredError, UsageError
from tests.cli.test_main import EVERY
from tests.conftest import Typed

COMMAND = click.Command("train", params=[click.Option(["--epochs"], type=click.IntRange(1))])


def below(kind: type[click.ClickException]) -> Iterator[type[click.ClickException]]:
    yield kind
    for child in kind.__subclasses__():
        yield from below(child)


def one_of(kind: type[click.ClickException], ctx: click.Context) -> click.ClickException:
    if issubclass(kind, click.NoSuchOption | click.FileError):
        return kind("--epoch")
    if issubclass(kind, click.BadOptionUsage):
        return kind("--epochs", "no value")
    if kind is click.exceptions.NoArgsIsHelpError:
        return click.exceptions.NoArgsIsHelpError(ctx)
    return kind("the reason")


@pytest.mark.parametrize("kind", sorted(set(below(click.ClickException)), key=str), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("known", [True, False])
def test_every_kind_of_click_s_errors_gets_the_three_parts(kind: type[click.ClickException], known: bool) -> None:
    ctx = click.Context(COMMAND, info_name="klinepred train")
    error = one_of(kind, ctx)
    if isinstance(error, click.UsageError):
        error.ctx = ctx if known else None
    if isinstance(error, click.BadParameter) and known:
        error.param = COMMAND.params[0]
    told = explain(error, root=COMMAND)
    assert isinstance(told, KlinepredError)
    assert told.exit_code == error.exit_code
    assert "klinepred" in told.summary
    assert all((told.expected, told.got, told.do))


def wrong(name: str, command: click.Command) -> Iterator[tuple[str, ...]]:
    words = tuple(name.split())
    yield *words, "--zzz"
    if isinstance(command, click.Group):
        yield *words, "zzz"
        return
    for parameter in command.params:
        if not isinstance(parameter, click.Option) or "--help" in parameter.opts:
            continue
        option = parameter.opts[-1]
        if parameter.is_flag:
            yield *words, f"{max(parameter.opts, key=len)}=yes"
            continue
        if parameter.flag_value is None or not getattr(
            parameter, "_flag_needs_value", False
        ):  # else it may stand alone
            yield *words, option
        if isinstance(parameter.type, click.Choice | click.IntRange | click.FloatRange):
            yield *words, option, "zzz"
        if getattr(parameter.type, "max", None) is not None:
            yield *words, option, "1e9" if isinstance(parameter.type, click.FloatRange) else "999999999"
    if all(isinstance(parameter, click.Option) or parameter.nargs == 1 for parameter in command.params):
        yield *words, "one", "two", "three"
    if any(parameter.required for parameter in command.params):
        yield words


@pytest.mark.parametrize("name", list(EVERY))
def test_every_mistyped_option_of_every_command_gets_the_three_parts(name: str, typed: Typed) -> None:
    for words in wrong(name, EVERY[name]):
        code, out, err = typed(*words)
        assert (code, out) == (2, ""), words
        assert err.startswith("error: klinepred "), words
        assert [err.count(part) for part in ("expected:", "got:", "do this:")] == [1, 1, 1], (words, err)
        assert len(err.splitlines()) == 4


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("train", "--epoch", "3"), ("--epoch", "options of", "which it does not have", "did you mean --epochs?")),
        (("train", "--epochs"), ("train --epochs", "--epochs INTEGER RANGE", "no value", "klinepred train --help")),
        (("train", "--epochs", "no"), ("train --epochs", "a whole number of at least 1", "'no'", "--help")),
        (("train", "--amp=yes"), ("train --amp", "--amp alone", "a value", "write --amp without a value")),
        (("train", "--precision", "pf16"), ("--precision", "one of auto, fp32", "'pf16'", "write --precision fp16")),
        (("train", "--precision", "8"), ("--precision", "one of auto, fp32", "'8'", "see klinepred train --help")),
        (("train", "AAPL"), ("klinepred train", "klinepred train [OPTIONS]", "AAPL", "leave that out")),
        (("bars", "lst"), ("klinepred bars lst", "list, ", "the command 'lst'", "did you mean klinepred bars list?")),
        (("bars", "restore"), ("klinepred bars restore", "--as-of VERSION|TS", "none", "add --as-of VERSION|TS")),
        (("models", "promote"), ("klinepred models promote", "MODEL", "none", "name MODEL")),
        (("predict", "-o", "."), ("predict --output", "the path of a file", "is a directory", "--help")),
        (("bars", "show", "--last", "0"), ("bars show --last", "at least 1 and at most 1000000", "0 is not", "--help")),
    ],
)
def test_each_part_says_what_belongs_there(words: tuple[str, ...], parts: tuple[str, ...], typed: Typed) -> None:
    code, _, err = typed(*words)
    assert code == 2
    for line, part in zip(err.splitlines(), parts, strict=True):
        assert part in line


def test_an_error_without_a_context_is_told_too() -> None:
    told = explain(click.UsageError("nothing known"), root=COMMAND)
    assert isinstance(told, UsageError)
    assert told.got == "nothing known"
