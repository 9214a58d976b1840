"""The commands about the store: list, show, verify, compare, ask, collect."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from graphmill.assets.building.terminal import unescaped
from graphmill.jobs.commands.options import json_option

if TYPE_CHECKING:
    from graphmill.assets.storage.store import Store

EXIT_DAMAGED, EXIT_UNREAD = 1, 3


@click.command(short_help="Lists the artifacts in the store.")
@click.argument("stage", required=False)
@click.option("--pipelines", is_flag=True, help="List the pipelines that can be named instead, and their files.")
@json_option
@click.pass_obj
def ls(home: Path | None, stage: str | None, pipelines: bool, as_json: bool) -> None:
    """Lists the artifacts in the store, of one STAGE or of all; beside a model stands what asked for it first.

    Example: graphmill ls graph
    """
    if pipelines:
        from graphmill.assets.pipeline.file import pipeline_files

        files = {name: str(path) for name, path in sorted(pipeline_files().items())}
        width = max(map(len, files), default=0)
        lines = [f"{name:{width}}  {path}" for name, path in files.items()]
        click.echo(json.dumps(files, indent=2) if as_json else "\n".join(lines))
        return
    from graphmill.jobs.commands.show import artifacts_json, print_artifacts

    store = _store(home)
    if as_json:
        click.echo(json.dumps(artifacts_json(store, stage), indent=2))
    else:
        print_artifacts(store, stage)


@click.command(short_help="Shows one artifact.")
@click.argument("name")
@json_option
@click.pass_obj
def show(home: Path | None, name: str, as_json: bool) -> None:
    """Shows one artifact: recipe, inputs, checks, numbers, files.

    NAME is any unique beginning of a version, also as stage/beginning; or PIPELINE/STEP, and PIPELINE/STEP/SEED where a [[train]] table has
    several seeds. If the pipeline lists splits, the split stands before the seed.

    Example: graphmill show python-environment/sage
    """
    from graphmill.jobs.commands.names import find_artifact
    from graphmill.jobs.commands.show import print_artifact

    artifact = find_artifact(_store(home), name)
    if as_json:
        found = {"path": str(artifact.path), "manifest": dict(artifact.manifest), "run": artifact.run_record()}
        click.echo(json.dumps(found, indent=2, default=str))
    else:
        print_artifact(artifact)


@click.command(short_help="Compares artifacts with their digests, byte by byte.")
@click.argument("names", nargs=-1)
@json_option
@click.pass_obj
def verify(home: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Reads every byte of the artifacts NAMES (as for `show`, or a stage), or of all, and compares it with the digests.

    Each is sound, DAMAGED (exit code 1), or was NOT READ, because a right or a device fails (exit code 3).

    Example: graphmill verify
    """
    from graphmill.assets.storage.home import store_url
    from graphmill.jobs.commands.show import print_verified, verify_artifacts
    from graphmill.jobs.commands.stored import not_verified

    found = []
    store = _store(home, there=not store_url())
    for each in verify_artifacts(store, names):
        found.append(each)
        if not as_json:
            print_verified(each)
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
    if not names and (line := not_verified(store)):
        click.echo(line, err=True)
    if any(each.problems for each in found):
        sys.exit(EXIT_DAMAGED)
    if any(each.unread for each in found):
        sys.exit(EXIT_UNREAD)


@click.command(short_help="Removes damaged artifacts.")
@click.argument("names", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.pass_obj
def repair(home: Path | None, names: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Removes damaged artifacts NAMES (as for `show`), or all, and what was built from other bytes; shows them and asks first.

    The next run of a pipeline builds what it needs of them again. Exit code 1 if something damaged stays.

    Example: graphmill repair --dry-run
    """
    from graphmill.assets.storage.home import store_url
    from graphmill.jobs.commands.repair import repair_store
    from graphmill.jobs.commands.stored import repair_stored

    store = _store(home, there=not store_url())
    kept = repair_store(store, names, yes=yes, dry_run=dry_run)
    if (store_url() and repair_stored(store, names, yes=yes, dry_run=dry_run)) or kept:
        sys.exit(EXIT_DAMAGED)


@click.command(short_help="Shows what differs between two artifacts.")
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@json_option
@click.pass_obj
def diff(home: Path | None, one: str, other: str, as_json: bool) -> None:
    """Shows what differs between two artifacts: recipe, numbers, arrays, files, and metrics epoch by epoch.

    A and B are names as for `show`.

    Example: graphmill diff python-environment/sage python-environment/gcn
    """
    from graphmill.jobs.commands.diff import difference_json, print_difference
    from graphmill.jobs.commands.names import find_artifact

    store = _store(home)
    found = find_artifact(store, one), find_artifact(store, other)
    if as_json:
        click.echo(json.dumps(difference_json(*found), indent=2, default=str))
    else:
        print_difference(*found, click.echo)


@click.command(short_help="Answers one SELECT over the store.")
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
    from graphmill.jobs.commands.sql import print_query

    # A program that reads values gets them as they are; a person's terminal is not written to by them.
    file = sys.stdout if form == "table" or sys.stdout.isatty() else unescaped(sys.stdout)
    print_query(_store(home), query, form, partial(click.echo, file=file), lambda line: click.echo(line, err=True))


def _keep_or_runs(context: click.Context, parameter: click.Parameter, older: str | None) -> str | None:
    """Refuses a command that says neither which artifacts nor which runs it is about."""
    if older is None and context.params.get("keep") is None:
        raise click.MissingParameter(ctx=context, param_type="option", param_hint="'--keep' (or '--runs')")
    return older


@click.command(short_help="Removes old artifacts that nothing refers to.")
@click.option(
    "--keep",
    is_eager=True,
    type=click.IntRange(min=0),
    help="Newest versions that stay, of each train table, seed and split, and of each pipeline's data.",
)
@click.option(
    "--runs",
    "older",
    metavar="AGE",
    callback=_keep_or_runs,
    help="Removes runs of the history as well, as prune-runs --older AGE does: 30d.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("-v", "--verbose", is_flag=True, help="Show what stays as well, and why.")
@click.pass_obj
def gc(home: Path | None, keep: int | None, older: str | None, yes: bool, dry_run: bool, verbose: bool) -> None:
    """Removes old artifacts that no kept artifact and no running job refers to; shows them and asks first.

    With --runs it removes old runs of the history, too, or these alone where --keep is not given.

    Example: graphmill gc --keep 3 --runs 30d --dry-run
    """
    from graphmill.assets.storage.home import store_url
    from graphmill.jobs.commands.gc import collect_garbage
    from graphmill.jobs.commands.stored import collect_stored_garbage

    if keep is not None:
        store = _store(home)
        collect_garbage(store, keep, yes=yes, dry_run=dry_run, verbose=verbose)
        if store_url():
            collect_stored_garbage(store, keep, yes=yes, dry_run=dry_run)
    if older is not None:
        from graphmill.jobs.commands.prune_runs import prune_runs

        prune_runs(home, older, click.echo, yes=yes, dry_run=dry_run)


@click.command(short_help="Shows and draws what each thread of a training did.")
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The PNG; default timeline-VERSION.png.")
@json_option
@click.pass_obj
def timeline(home: Path | None, name: str, out: Path | None, as_json: bool) -> None:
    """Shows what each thread did in the last epoch of a model, NAME as for `show`, and draws it; with --json only if --out is given.

    Example: graphmill timeline python-environment/sage
    """
    from graphmill.jobs.commands.names import find_artifact
    from graphmill.jobs.figures.timeline import print_timeline, read_timeline, write_timeline

    model = find_artifact(_store(home), name)
    if as_json:
        click.echo(json.dumps(dict(read_timeline(model)), indent=2))
        if out is not None:
            write_timeline(model, out)
        return
    print_timeline(model)
    click.echo(f"drawn in {write_timeline(model, out)}")


@click.command("prune-runs", short_help="Removes old runs from the history.")
@click.option(
    "--older",
    default="30d",
    show_default=True,
    metavar="AGE",
    help="Runs that ended at least this long ago go: 30d, 12h, 2w.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.pass_obj
def prune_runs(home: Path | None, older: str, yes: bool, dry_run: bool) -> None:
    """Removes old runs from the history of the web UI; shows them and asks first. What they built stays.

    The last run that built or reused each asset stays as well, however old it is.

    Example: graphmill prune-runs --older 30d --dry-run
    """
    from graphmill.jobs.commands.prune_runs import prune_runs

    prune_runs(home, older, click.echo, yes=yes, dry_run=dry_run)


STORE_COMMANDS = (ls, show, verify, repair, diff, sql, gc, prune_runs, timeline)


def _store(home: Path | None, *, there: bool = False) -> Store:
    """Returns the store of a home; with `there`, it has to be there."""
    from graphmill.assets.storage.store import Store
    from graphmill.kernels.errors import InputError

    store = Store(home)
    if not store.home.is_dir() and (there or store.home.exists()):
        what = "is no folder" if store.home.exists() else "does not exist"
        raise InputError(f"the home {store.home} {what}", "give the home that was meant by --home or GRAPHMILL_HOME")
    for line in store.sweep():
        click.echo(f"removed what an interrupted build had left (.staging/{line})", err=True)
    return store
