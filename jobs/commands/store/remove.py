"""`graphmill rm`: shows the models that are named, or the trials of a pipeline, asks, and removes them with their checkpoints."""

from collections.abc import Mapping
from dataclasses import replace

import click

from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.steps import Versions, preprocessing_steps
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.collect import collect, find_garbage
from graphmill.assets.storage.names.manifest import Address, label_of
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.names import find_artifact
from graphmill.jobs.commands.results.tuned import models_of
from graphmill.jobs.commands.store.gc import agreed, say_if_spared
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.errors import InputError


def remove_models(store: Store, chosen: Mapping[Address, str], *, yes: bool = False, dry_run: bool = False) -> int:
    """Removes models of the home and their checkpoints, after showing them and asking.

    Args:
        chosen: address of a model -> why it goes, in words.

    Returns:
        Number of freed bytes.

    Raises:
        InputError: no terminal is there to answer.
    """
    everything = find_garbage(store, 0)  # nothing refers to a model: all go but those that a running job uses
    going = {item.address for item in everything.artifacts} & chosen.keys()
    found = replace(
        everything,
        left=tuple(each for each in (*everything.left, *everything.unfinished) if each.address in going),
        artifacts=tuple(
            replace(each, why=chosen[each.address]) for each in everything.artifacts if each.address in going
        ),
    )
    for address in chosen.keys() - going:
        here = store.root.joinpath(*address).is_dir()
        click.echo(
            f"stays   {label_of(address)}: {'a running job uses it' if here else 'only the object store has it'}"
        )
    if not agreed(found, f"in {store.home}", yes=yes, dry_run=dry_run):
        return 0
    freed = collect(store, found, say_if_spared)
    click.echo(f"freed {format_bytes(freed)}")
    if store.backend.url:
        click.echo("the object store keeps its copies: `graphmill gc` removes old ones")
    return freed


def named_models(store: Store, names: tuple[str, ...]) -> dict[Address, str]:
    """Returns the addresses of models, with the names under which they were asked for.

    Raises:
        InputError: a name means no artifact, or one that is not a model.
    """
    found = {}
    for name in names:
        artifact = find_artifact(store, name)
        if artifact.stage != "model":
            problem = f"{name} is {artifact.label}, and models may have been trained on it"
            raise InputError(problem, "name models; `graphmill gc --keep N` removes data that nothing refers to")
        found[artifact.address] = f"named as {name}"
    return found


def trials(store: Store, pipeline: Pipeline) -> dict[Address, str]:
    """Returns the addresses of the models that were trained for a pipeline and that its file does not ask for.

    These are models with keys of `--set`, models of tables that the file no longer has, and models of earlier keys or data.
    """
    steps = training_steps(pipeline, preprocessing_steps(pipeline, store.home), store.home)
    versions = Versions()
    asked = {version for step in steps for version in versions.of(step)}
    return {
        model.address: f"{name}: {pipeline.path.name} does not ask for it"
        for name, model in models_of(store, pipeline)
        if model.version not in asked
    }
