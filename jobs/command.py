"""The group of all commands of `graphmill`; jobs/cli.py is its entry."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from graphmill.assets.storage.home import one_home
from graphmill.jobs.commands.options import json_option
from graphmill.jobs.commands.paper import PAPER_COMMANDS
from graphmill.jobs.commands.recipes import RECIPE_COMMANDS
from graphmill.jobs.commands.runs import RUN_COMMANDS
from graphmill.jobs.commands.store import STORE_COMMANDS
from graphmill.jobs.report.commands import REPORT_COMMANDS

EXIT_UNFIT = 1


class Grouped(click.Group):
    """A group whose help lists its commands under headings."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands, each heading with its own."""
        width = max(map(len, self.commands))
        for heading, commands in HEADINGS.items():
            rows = [(f"{name:{width}}", self.commands[name].get_short_help_str(100)) for name in commands]
            with formatter.section(heading):
                formatter.write_dl(rows)


HEADINGS = {
    "Pipelines": ("new", "validate", "inspect", "plan", "budgets", "chunks"),
    "Running": ("run", "build", "train", "demo"),
    "Results": ("status", "leaderboard", "report", "plot", "predict", "show", "timeline", "sql"),
    "The store": ("ls", "verify", "repair", "diff", "gc", "prune-runs", "bundle"),
    "The machine": ("init", "doctor", "ui", "simulate", "network"),
}
"""Heading -> names of its commands; every command has one."""


@click.group(cls=Grouped, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--home", type=click.Path(path_type=Path), help="Where artifacts are; default $GRAPHMILL_HOME or ./.graphmill."
)
@click.version_option(package_name="graphmill", prog_name="graphmill")
@click.pass_context
def graphmill(context: click.Context, home: Path | None) -> None:
    """Prepares graphs and trains graph neural networks on them.

    PIPELINE is a name from $GRAPHMILL_PIPELINES, ./pipelines or the shipped ones, or the path of a TOML file.

    Example: graphmill run python-environment
    """
    context.obj = home
    # Digests of raw files are remembered in the default home.
    context.with_resource(one_home(home))


@graphmill.command(short_help="Makes the home folder with its settings.")
@click.pass_obj
def init(home: Path | None) -> None:
    """Makes the home folder with its settings; every other command does so where it needs to.

    Example: graphmill init
    """
    from graphmill.jobs.runs.instance import SETTINGS, init_home

    folder, written = init_home(home)
    click.echo(f"{folder / SETTINGS} {'is written' if written else 'was there already'}")


@graphmill.command(short_help="Shows what this machine has and lacks for graphmill.")
@click.option("--refresh", is_flag=True, help="Measure speeds again.")
@json_option
@click.pass_obj
def doctor(home: Path | None, refresh: bool, as_json: bool) -> None:
    """Shows what this machine has for graphmill, what it lacks, and the command that mends it; exit code 1 if nothing can be trained.

    Example: graphmill doctor
    """
    from graphmill.jobs.commands.doctor import can_train, examine, print_findings

    findings = examine(home, again=refresh)
    print_findings(findings, as_json=as_json)
    if not can_train(findings):
        sys.exit(EXIT_UNFIT)


@graphmill.command(short_help="Starts the web UI.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on; default the first free one from 3000.")
@click.option(
    "--served-as",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name under which a proxy serves it, as the proxy sends it in Host; may be given several times.",
)
@click.pass_obj
def ui(home: Path | None, port: int | None, names: tuple[str, ...]) -> None:
    """Starts the web UI on this machine's loopback address, with the daemon that runs schedules.

    Example: graphmill ui --port 3001
    """
    from graphmill.jobs.commands.ui import serve

    serve(home, port, click.echo, names)


for command in (*RECIPE_COMMANDS, *RUN_COMMANDS, *STORE_COMMANDS, *REPORT_COMMANDS, *PAPER_COMMANDS):
    graphmill.add_command(command)
