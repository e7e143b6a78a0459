"""In: the words of a command line. Out: a command run, its exit code; errors as one message, never a traceback."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from klinepred import __version__
from klinepred.errors import KlinepredError

# name -> (module under klinepred.cli, one line of help). Kept here so that --help imports none of them.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init", "Make a workspace with the shipped pipelines and presets."),
    "ingest": ("ingest", "Take bars in from Yahoo, files or the simulated market."),
    "bars": ("bars", "List, check and show the stored bars."),
    "features": ("features", "List the 50 features, show their values."),
    "train": ("train", "Train the LSTM and log the run to MLflow."),
    "evaluate": ("evaluate", "The verdict on the test part, beside naive baselines."),
    "predict": ("predict", "Predict the next bar of every symbol."),
    "models": ("models", "List and show trained models."),
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
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else " See klinepred --help."
            ctx.fail(f"No such command {args[0]!r}.{hint}")


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: klinepred run -p demo   (offline, a few minutes, ends with predictions)",
)
@click.version_option(__version__, prog_name="klinepred")
def root() -> None:
    """5-minute bars in, the next bar of every symbol out.

    Results go to stdout, progress and warnings to stderr. Times are UTC. Each command has its own --help.
    """


def main(args: list[str] | None = None) -> int:
    """Run one command line; returns the exit code (also the console script's)."""
    try:
        code = root.main(args=args, prog_name="klinepred", standalone_mode=False)
    except KlinepredError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return code if isinstance(code, int) else 0
