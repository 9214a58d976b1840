"""The commands about the store: list, show, verify, compare, ask, collect."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from jobs.commands.options import json_option

if TYPE_CHECKING:
    from assets.storage.store import Store

EXIT_DAMAGED = 1


@click.command()
@click.argument("stage", required=False)
@json_option
@click.pass_obj
def ls(home: Path | None, stage: str | None, as_json: bool) -> None:
    """Lists the artifacts in the store, of one STAGE or of all; beside a model stands what asked for it first.

    Example: graphmill ls graph
    """
    from jobs.commands.show import artifacts_json, print_artifacts

    store = _store(home)
    if as_json:
        click.echo(json.dumps(artifacts_json(store, stage), indent=2))
    else:
        print_artifacts(store, stage)


@click.command()
@click.argument("name")
@json_option
@click.pass_obj
def show(home: Path | None, name: str, as_json: bool) -> None:
    """Shows one artifact: recipe, inputs, checks, numbers, files.

    NAME is any unique beginning of a version, also as stage/beginning; or PIPELINE/STEP, and PIPELINE/STEP/SEED where a [[train]] table has
    several seeds.

    Example: graphmill show python-environment/sage
    """
    from jobs.commands.names import find_artifact
    from jobs.commands.show import artifact_json, print_artifact

    artifact = find_artifact(_store(home), name)
    if as_json:
        click.echo(json.dumps(artifact_json(artifact), indent=2, default=str))
    else:
        print_artifact(artifact)


@click.command()
@click.argument("names", nargs=-1)
@json_option
@click.pass_obj
def verify(home: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Reads every byte of the artifacts NAMES (as for `show`), or of all, and compares it with the digests.

    Example: graphmill verify
    """
    from jobs.commands.show import print_verified, verify_artifacts

    found = []
    for each in verify_artifacts(_store(home), names):
        found.append(each)
        if not as_json:
            print_verified(each)
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
    if any(each.problems for each in found):
        sys.exit(EXIT_DAMAGED)


@click.command()
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@json_option
@click.pass_obj
def diff(home: Path | None, one: str, other: str, as_json: bool) -> None:
    """Shows what differs between two artifacts: recipe, numbers, arrays, files, and metrics epoch by epoch.

    A and B are names as for `show`.

    Example: graphmill diff python-environment/sage python-environment/gcn
    """
    from jobs.commands.diff import difference_json, print_difference
    from jobs.commands.names import find_artifact

    store = _store(home)
    found = find_artifact(store, one), find_artifact(store, other)
    if as_json:
        click.echo(json.dumps(difference_json(*found), indent=2, default=str))
    else:
        print_difference(*found, click.echo)


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
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The PNG; default timeline-VERSION.png.")
@click.pass_obj
def timeline(home: Path | None, name: str, out: Path | None) -> None:
    """Shows what each thread did in the last epoch of a model, NAME as for `show`, and draws it.

    Example: graphmill timeline python-environment/sage
    """
    from jobs.commands.names import find_artifact
    from jobs.figures.timeline import print_timeline, write_timeline

    model = find_artifact(_store(home), name)
    print_timeline(model)
    click.echo(f"drawn in {write_timeline(model, out)}")


STORE_COMMANDS = (ls, show, verify, diff, sql, gc, timeline)


def _store(home: Path | None) -> Store:
    from assets.storage.store import Store

    store = Store(home)
    for line in store.sweep():
        click.echo(f"removed what an interrupted build had left (.staging/{line})", err=True)
    return store
