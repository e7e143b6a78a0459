"""In: a command that has commands of its own. Out: its help, each of them with its whole first sentence."""

from __future__ import annotations

import click

_WHOLE = 1000
"""Letters of a sentence that click would otherwise end after what is left of the line."""


class Group(click.Group):
    """A group whose help breaks long lines instead of ending them with dots."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(_WHOLE)) for name, one in commands if one is not None])
