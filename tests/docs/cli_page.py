"""Writes docs/cli.md from the help texts of the commands: `python -m tests.docs.cli_page`, or `make docs`; `--print` prints it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from graphmill.jobs.command import graphmill
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "cli.md"
WIDTH = 100
"""Columns of the help texts, whatever the terminal has."""

HEAD = """\
# Command line

What `graphmill COMMAND --help` prints. This page is written by a program (`make docs`); a test compares it with the commands.
"""


def text() -> str:
    """Returns what the page has to be."""
    sections = [HEAD, _section("graphmill", graphmill)]
    sections += [_section(f"graphmill {name}", command) for name, command in all_commands()]
    return "\n".join(sections)


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Yields the words after `graphmill` and the command, of all commands and of those of groups behind them."""
    for name, command in sorted(graphmill.commands.items()):
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", command.commands[inner]) for inner in sorted(command.commands))


def _section(title: str, command: click.Command) -> str:
    # The help option is made once per command, from the first context that asks for it: here as the command line makes it.
    settings = {**graphmill.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    with click.Context(command, info_name=title, **settings) as context:
        shown = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    return f"## {title}\n\n```text\n{shown}\n```\n"


if __name__ == "__main__":
    if "--print" in sys.argv:
        sys.stdout.write(text())
    else:
        PAGE.write_text(text(), encoding="utf-8")
        print(f"{PAGE} is written")
