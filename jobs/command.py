"""The group of all commands of `graphmill`; jobs/cli.py is its entry."""

from pathlib import Path

import click

from graphmill.assets.storage.names.home import one_home
from graphmill.jobs.commands.machine.commands import MACHINE
from graphmill.jobs.commands.pipelines.commands import PIPELINES
from graphmill.jobs.commands.results.commands import export, leaderboard, predict, show, sql, status, timeline
from graphmill.jobs.commands.running import RUNNING
from graphmill.jobs.commands.store.commands import STORE
from graphmill.jobs.report.commands import plot, report


class Grouped(click.Group):
    """A group whose help lists its commands under headings."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands, each heading with its own."""
        width = max(map(len, self.commands))
        for heading, commands in HEADINGS.items():
            rows = [(f"{command.name:{width}}", command.get_short_help_str(100)) for command in commands]
            with formatter.section(heading):
                formatter.write_dl(rows)


HEADINGS = {
    "Pipelines": PIPELINES,
    "Running": RUNNING,
    "Results": (status, leaderboard, report, plot, predict, export, show, timeline, sql),
    "The store": STORE,
    "The machine": MACHINE,
}
"""Heading -> its commands, as the help lists them."""


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


for group in HEADINGS.values():
    for command in group:
        graphmill.add_command(command)
