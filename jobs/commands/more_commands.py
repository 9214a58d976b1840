"""A command that takes a name and has commands of its own: a first word that is the name of one of these means it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click


class MoreCommands(click.Command):
    """A command with further ones below it.

    Args:
        more: the further commands.
        given: arguments of a command.
    """

    def __init__(self, *given: Any, more: Sequence[click.Command] = (), **named: Any):
        super().__init__(*given, **named)
        self.more = {command.name or "": command for command in more}

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Returns the context of this command, or of the further one that the first argument names."""
        if args and args[0] in self.more:
            return self.more[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of the further commands."""
        with formatter.section("Commands in place of NAME"):
            formatter.write_dl([(name, command.get_short_help_str(100)) for name, command in self.more.items()])
        super().format_epilog(ctx, formatter)
