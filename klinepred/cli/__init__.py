"""In: the words of a command line. Out: a command run, its exit code; errors as one message, never a traceback."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from klinepred import __version__
from klinepred.errors import KlinepredError, out_of_memory
from klinepred.headway import watch

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# name -> (module under klinepred.cli, one line of help). Kept here so that --help imports none of them.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init", "Make a workspace with the shipped pipelines and presets."),
    "ingest": ("ingest", "Take bars in from Yahoo, files, an exchange or the simulated market."),
    "bars": ("bars", "List, check, show, export, delete and restore the stored bars."),
    "features": ("features", "List the features, show their values, bring the kept ones up to date."),
    "dataset": ("dataset", "Say what a pipeline would learn from: parts, sequences, labels left out."),
    "audit": ("audit", "Prove on the stored bars that nothing sees the future."),
    "train": ("train", "Train the LSTM and log the run to MLflow."),
    "tune": ("tune", "Search settings that learn better, judged on validation."),
    "amp-check": ("amp_check", "Try fp32, fp16 and bf16 on a small budget: parity, speed, memory."),
    "evaluate": ("evaluate", "The verdict on the test part, beside naive baselines."),
    "compare": ("compare", "Whether two models differ beyond noise."),
    "predict": ("predict", "Predict the next bar of every symbol."),
    "grade": ("grade", "Grade the live predictions whose bars have come."),
    "drift": ("drift", "Whether the world has moved since a model was trained."),
    "models": ("models", "List, show, promote and export trained models."),
    "serve": ("serve", "Serve the champion over HTTP on 127.0.0.1, by MLflow's model server."),
    "run": ("run", "The whole pipeline: ingest, train, evaluate, predict."),
    "ui": ("ui", "Open the MLflow UI of the workspace on 127.0.0.1."),
    "doctor": ("doctor", "Say what is installed, which device and precision would be used, what is missing."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"klinepred.cli.{COMMANDS[cmd_name][0]}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from klinepred.cli.usage import no_command

            raise no_command(ctx, args[0], names=COMMANDS)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader has seen enough: `klinepred bars show --format csv | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample: klinepred run -p demo   (offline, a few minutes, ends with predictions)",
)
@click.version_option(__version__, prog_name="klinepred")
def root() -> None:
    """5-minute bars in, the next bar of every symbol out.

    Results go to stdout, progress and warnings to stderr. Times are UTC. Each command has its own --help.
    """


def main(args: list[str] | None = None) -> int:
    """Run one command line; returns the exit code (also the console script's)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a letter gets its code instead
            stream.reconfigure(errors="backslashreplace")
    try:
        code = root.main(args=args, prog_name="klinepred", standalone_mode=False)
    except KlinepredError as error:
        return _fail(error)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        from klinepred.cli.usage import explain

        return _fail(explain(error, root=root, words=sys.argv[1:] if args is None else args))
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return 128 + signal.SIGINT
    except OSError as error:
        return _fail(_system(error))
    except RecursionError:
        return _fail(
            KlinepredError(
                "a file of the workspace, or one that was given",
                expected="values in each other to a few levels",
                got="hundreds of levels",
                do="look for a file of JSON or TOML that another program wrote or changed",
            )
        )
    except Exception as error:
        found = _no_memory(error) or _unreadable(error)
        if found is None:
            raise
        return _fail(found)
    finally:
        watch(None)
    return code if isinstance(code, int) else 0


def _no_memory(error: Exception) -> KlinepredError | None:
    if (told := out_of_memory(error)) is None:
        return None
    return KlinepredError(
        "not enough memory",
        expected="room for this many bars at once",
        got=told,
        do="use fewer symbols (--symbols) or a shorter span, or close other programs",
    )


def _unreadable(error: Exception) -> KlinepredError | None:
    """A data file of the store whose damage shows only as it is read; None for any other error. Loads no polars."""
    text = " ".join(str(error).split())
    if not type(error).__module__.startswith("polars") or not text.lower().startswith("parquet"):
        return None
    return KlinepredError(
        "a data file of the workspace",
        expected="Parquet, as it was written",
        got=text[:200],
        do="put data/ back from a backup, or go back with klinepred bars restore to a version without the damaged file",
    )


def _fail(error: KlinepredError) -> int:
    click.echo(f"error: {error}", err=True)
    return error.exit_code


def _system(error: OSError) -> KlinepredError:
    advice = {
        errno.ENOSPC: "free space on that disk, then run the same command again",
        errno.EDQUOT: "free space within your quota, then run the same command again",
        errno.EFBIG: "raise the file-size limit (ulimit -f), then run the same command again",
        errno.EROFS: "choose a workspace on a disk that can be written, with -w",
        errno.EACCES: "mend the permissions, or choose another workspace with -w",
        errno.EPERM: "mend the permissions, or choose another workspace with -w",
        errno.EMFILE: "raise the limit of open files (ulimit -n)",
    }
    return KlinepredError(
        str(error.filename or "the system"),
        expected="to read or write there",
        got=error.strerror or str(error),
        do=advice.get(error.errno or 0, "mend that, then run the same command again"),
    )
