"""Models of a pipeline besides those that its file asks for now.

`graphmill leaderboard PIPELINE` shows those that were trained under an older source of a user's own code, and `--all` every one that the
store has, with the keys that were tuned.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.steps import Step, Versions, preprocessing_steps
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import home_folder
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.storage.names.version import canonical_json, short
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.results.leaderboard import Entry, TrainedTable, stored_entries
from graphmill.jobs.commands.results.views import flattened
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.errors import InputError

SHOWN = ("model", "trainer", "metric")
"""Keys that have a column, or a meaning, of their own."""


def all_entries(pipeline: Pipeline, home: Path | None) -> list[Entry]:
    """Returns an entry for each config that train tables of a pipeline were ever trained with, as far as the store has the models.

    Models that differ only in their seed are one entry. Trials (`--set`) count, and tables that the file has no longer.

    Raises:
        InputError: the store has no model of the pipeline.
    """
    store = Store(home)
    groups: dict[tuple[str, bytes], list[Artifact]] = {}
    for name, model in models_of(store, pipeline):
        groups.setdefault((name, canonical_json(_keys(model))), []).append(model)
    if not groups:
        problem = f"{store.root} has no model that was trained for {pipeline.name}"
        raise InputError(problem, f"graphmill run {pipeline.reference} trains them")
    found = {key: sorted(models, key=lambda each: each.config["seed"]) for key, models in groups.items()}
    tables = [table.name for table in pipeline.train]
    alike: dict[str, list[dict[str, Any]]] = {}
    for (name, _), models in found.items():
        alike.setdefault(_base(name, tables), []).append(_keys(models[0]))
    return [_entry(name, models, alike[_base(name, tables)]) for (name, _), models in found.items()]


def with_older(pipeline: Pipeline, home: Path | None) -> list[Entry]:
    """Returns the entries of the models that a pipeline asks for, then those of models that differ from them in the user's own code alone.

    Raises:
        InputError: raw content is missing, or the store has no model.
    """
    older = _older_entries(pipeline, home)
    try:
        return [*stored_entries(pipeline, home), *older]
    except InputError:
        if not older:
            raise
        return older


def _older_entries(pipeline: Pipeline, home: Path | None) -> list[Entry]:
    """Returns an entry for each source that a table's models were trained under and that is no longer the one of its file."""
    method = pipeline.sampling.method if pipeline.sampling else ""
    tables = {table.name: table for table in pipeline.train if is_reference(table.model) or is_reference(method)}
    if not tables:
        return []
    store, versions = Store(home), Versions()
    steps = training_steps(pipeline, preprocessing_steps(pipeline, home_folder(home)), home_folder(home))
    asked = {
        (step.name, canonical_json(config)): (part, config)
        for step in steps
        for part in step.apart
        for config in part.configs
    }
    found: dict[tuple[str, bytes], list[Artifact]] = {}
    for name, model in models_of(store, pipeline):
        part, config = asked.get((name, canonical_json(model.config)), (None, None))
        if part is not None and name in tables and _differs_in_source(model, part, config, versions):
            found.setdefault((name, canonical_json(model.manifest["raw"])), []).append(model)
    return [
        Entry(table=tables[name], models=models, splits=[""] * len(models), older=True)
        for (name, _), models in found.items()
    ]


def _differs_in_source(model: Artifact, step: Step, config: Any, versions: Versions) -> bool:
    """Tells whether a model differs from that of a step in nothing but the digests of the user's own code."""
    same = all(
        versions.read(step, role) in (entry.get("version"), entry.get("aspect_version"))
        for role, entry in model.inputs.items()
        if role in step.inputs
    )
    of_now = model.manifest["code_version"] == step.recipe.code_version
    return same and of_now and model.manifest["raw"] != versions.raw(step.recipe, config)


def models_of(store: Store, pipeline: Pipeline) -> Iterator[tuple[str, Artifact]]:
    """Yields the train table and the model of every model that was trained for a pipeline."""
    for model in store.artifacts():
        owner, _, name = str(model.run_record().get("execution", {}).get("asked_by", "")).partition("/")
        if model.stage == "model" and owner == pipeline.name and name:
            yield name, model


def _base(name: str, tables: Sequence[str]) -> str:
    """Returns the table of the file from which a list of values made a table of this name; the name itself if it is of none."""
    return max((each for each in tables if name == each or name.startswith(f"{each}-")), key=len, default=name)


def _entry(name: str, models: Sequence[Artifact], alike: Sequence[dict[str, Any]]) -> Entry:
    """Returns the entry of models of one config.

    Args:
        alike: keys of all configs of the table, and of those that --set made of it, this one included.
    """
    keys, train = _keys(models[0]), models[0].config["train"]
    tuned = [key for key in keys if key not in SHOWN and any(each.get(key) != keys[key] for each in alike)]
    table = TrainedTable(name=name, **{key: train.get(key, "accuracy") for key in SHOWN})
    return Entry(
        table=table, models=models, splits=[""] * len(models), tuned=", ".join(f"{key} = {keys[key]}" for key in tuned)
    )


def _keys(model: Artifact) -> dict[str, Any]:
    """Returns everything that decides a model besides its seed: keys, versions of its inputs, digests of the user's own code."""
    config = {key.removeprefix("train."): value for key, value in flattened(model.config).items() if key != "seed"}
    own = {name: short(digest) for name, digest in model.manifest.get("raw", {}).items()}
    return config | own | {role: short(entry["version"]) for role, entry in model.inputs.items()}
