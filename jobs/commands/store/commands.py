"""The commands about the store: list, verify, repair, compare, collect, copy."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from graphmill.jobs.commands.options import (
    Asked,
    complete_pipelines,
    complete_tables,
    json_option,
    opened_store,
    pipeline_argument,
    required_table,
)

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
    from graphmill.jobs.commands.results.show import artifacts_json, print_artifacts

    store = opened_store(home)
    if as_json:
        click.echo(json.dumps(artifacts_json(store, stage), indent=2))
    else:
        print_artifacts(store, stage)


@click.command(short_help="Compares artifacts with their digests, byte by byte.")
@click.argument("names", nargs=-1)
@json_option
@click.pass_obj
def verify(home: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Reads every byte of the artifacts NAMES (as for `show`, or a stage), or of all, and compares it with the digests.

    Each is sound, DAMAGED (exit code 1), or was NOT READ, because a right or a device fails (exit code 3).

    Example: graphmill verify
    """
    from graphmill.assets.storage.names.home import store_url
    from graphmill.jobs.commands.results.show import print_verified, verify_artifacts
    from graphmill.jobs.commands.store.repair import not_verified

    found = []
    store = opened_store(home, there=not store_url())
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
    from graphmill.assets.storage.names.home import store_url
    from graphmill.jobs.commands.store.repair import repair_store, repair_stored

    store = opened_store(home, there=not store_url())
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
    from graphmill.jobs.commands.names import find_artifact
    from graphmill.jobs.commands.store.diff import difference_json, print_difference

    store = opened_store(home)
    found = find_artifact(store, one), find_artifact(store, other)
    if as_json:
        click.echo(json.dumps(difference_json(*found), indent=2, default=str))
    else:
        print_difference(*found, click.echo)


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
    from graphmill.assets.storage.names.home import store_url
    from graphmill.jobs.commands.store.gc import collect_garbage, collect_stored_garbage

    if keep is not None:
        store = opened_store(home)
        collect_garbage(store, keep, yes=yes, dry_run=dry_run, verbose=verbose)
        if store_url():
            collect_stored_garbage(store, keep, yes=yes, dry_run=dry_run)
    if older is not None:
        from graphmill.jobs.commands.store.prune_runs import prune_runs

        prune_runs(home, older, click.echo, yes=yes, dry_run=dry_run)


@click.command(short_help="Removes models that are named, or trials.")
@click.argument("names", nargs=-1)
@click.option(
    "--trials",
    "of",
    metavar="PIPELINE",
    shell_complete=complete_pipelines,
    help="The models that were trained for PIPELINE and that its file does not ask for, such as those of --set.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.pass_obj
def rm(home: Path | None, names: tuple[str, ...], of: str | None, yes: bool, dry_run: bool) -> None:
    """Removes the models NAMES (as for `show`) with their checkpoints, or the trials of a pipeline; shows them and asks first.

    Data stay: graphmill gc removes those that no model refers to. A model that a running job uses stays, too.

    Example: graphmill rm --trials python-environment --dry-run
    """
    from graphmill.jobs.commands.store.remove import named_models, remove_models, trials

    if not names and of is None:
        raise click.UsageError("name models, or give --trials PIPELINE")
    store = opened_store(home)
    chosen = named_models(store, names) | (trials(store, Asked(of).load()) if of is not None else {})
    remove_models(store, chosen, yes=yes, dry_run=dry_run)


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
    from graphmill.jobs.commands.store.prune_runs import prune_runs

    prune_runs(home, older, click.echo, yes=yes, dry_run=dry_run)


@click.command(short_help="Copies what a training needs, for another machine.")
@pipeline_argument
@click.argument("name", shell_complete=complete_tables)
@click.argument("out", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.pass_obj
def bundle(home: Path | None, pipeline: Asked, name: str, out: Path | None) -> None:
    """Copies what the training of [[train]] table NAME needs into the folder OUT, to train on another machine.

    The first two may be written as one, PIPELINE/NAME. On the other machine, `python -m graphmill.trainers --from OUT` trains; it needs
    neither the raw data nor Dagster.

    Example: graphmill bundle python-environment sage for-the-gpu
    """
    from graphmill.assets.storage.store import Store
    from graphmill.jobs.commands.store.bundle import bundle_table

    if out is None:
        out = Path(name)
        pipeline, name = required_table(pipeline, " OUT")
    bundle_table(Store(home), pipeline.load(), name, out, click.echo)


STORE = (ls, verify, repair, diff, rm, gc, prune_runs, bundle)
