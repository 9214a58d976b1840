"""The commands about the store: list, show, verify, compare, ask, collect."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from assets.storage.store import Store

EXIT_DAMAGED = 1


@click.command()
@click.argument("stage", required=False)
@click.pass_obj
def ls(home: Path | None, stage: str | None) -> None:
    """Lists the artifacts in the store, of one STAGE or of all.

    Example: graphmill ls graph
    """
    from jobs.commands.show import print_artifacts

    print_artifacts(_store(home), stage)


@click.command()
@click.argument("version")
@click.pass_obj
def show(home: Path | None, version: str) -> None:
    """Shows one artifact: recipe, inputs, checks, numbers, files. VERSION is any unique prefix, also as stage/prefix.

    Example: graphmill show graph/3f2a
    """
    from jobs.commands.show import print_artifact

    store = _store(home)
    print_artifact(store.resolve(version))


@click.command()
@click.argument("versions", nargs=-1)
@click.pass_obj
def verify(home: Path | None, versions: tuple[str, ...]) -> None:
    """Reads every byte of the artifacts VERSIONS, or of all, and compares it with the digests.

    Example: graphmill verify
    """
    from jobs.commands.show import verify_artifacts

    if not verify_artifacts(_store(home), versions):
        sys.exit(EXIT_DAMAGED)


@click.command()
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@click.pass_obj
def diff(home: Path | None, one: str, other: str) -> None:
    """Shows what differs between two artifacts: recipe, numbers, arrays, files, and metrics epoch by epoch.

    A and B are unique prefixes of versions, also as stage/prefix.

    Example: graphmill diff model/3f2a model/91c0
    """
    from jobs.commands.diff import print_difference

    print_difference(_store(home), one, other, click.echo)


@click.command()
@click.argument("query", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How the answer is printed; a table shows at most 200 rows.",
)
@click.pass_obj
def sql(home: Path | None, query: str | None, form: Literal["table", "csv", "json"]) -> None:
    """Answers one SELECT over the store; without QUERY it lists the views. docs/sql.md has examples.

    Example: graphmill sql "SELECT version, max(valid) FROM metrics GROUP BY version"
    """
    from jobs.commands.sql import print_query

    print_query(_store(home), query, form, click.echo)


@click.command()
@click.option("--keep", type=click.IntRange(min=0), required=True, help="Newest versions of each stage that stay.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.pass_obj
def gc(home: Path | None, keep: int, yes: bool, dry_run: bool) -> None:
    """Removes old artifacts that no kept artifact and no running job refers to; shows them and asks first.

    Example: graphmill gc --keep 3 --dry-run
    """
    from jobs.commands.gc import collect_garbage

    collect_garbage(_store(home), keep, yes=yes, dry_run=dry_run)


@click.command()
@click.argument("version")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The PNG; default timeline-VERSION.png.")
@click.pass_obj
def timeline(home: Path | None, version: str, out: Path | None) -> None:
    """Shows what each thread did in a model's last epoch, and draws it. VERSION is any unique prefix, also as model/prefix.

    Example: graphmill timeline model/3f2a
    """
    from jobs.figures.timeline import print_timeline, write_timeline

    model = _store(home).resolve(version)
    print_timeline(model)
    click.echo(f"drawn in {write_timeline(model, out)}")


STORE_COMMANDS = (ls, show, verify, diff, sql, gc, timeline)


def _store(home: Path | None) -> Store:
    from assets.storage.store import Store

    store = Store(home)
    for line in store.sweep():
        click.echo(f"removed what an interrupted build had left (.staging/{line})", err=True)
    return store
