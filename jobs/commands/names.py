"""Names of artifacts on the command line: the beginning of a version, or the pipeline and the step that ask for it."""

import re

from graphmill.assets.pipeline.file import Pipeline, is_pipeline, load_pipeline
from graphmill.assets.pipeline.steps import Step, Versions
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import short
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable

PREFIX = re.compile(r"(?:[a-z_]+(?:\.parts)?/)?[0-9a-f]+")
"""A possible beginning of a version, alone or as STAGE/PREFIX."""


def find_artifact(store: Store, name: str) -> Artifact:
    """Returns the artifact that a name means.

    Args:
        name: a unique beginning of its version, alone or as STAGE/PREFIX; or PIPELINE/STEP, as in `cora/gcn` and `cora/graph`, where
            PIPELINE is a name or the path of a TOML file; PIPELINE/STEP/SEED for one of several seeds; PIPELINE/STEP/SPLIT and
            PIPELINE/STEP/SPLIT/SEED if the pipeline lists splits.

    Raises:
        InputError: none or several artifacts have that name, or the named one is not built.
    """
    named = split_name(name)
    if named is None:
        return store.resolve(name)
    return artifact_of(store, load_pipeline(named[0], TrainTable), named[1], name)


def split_name(name: str) -> tuple[str, str] | None:
    """Returns the pipeline and the step, with its split and seed, that a name has; None for the beginning of a version.

    The longest beginning that is a pipeline counts.

    Raises:
        InputError: the name is neither.
    """
    pipeline = name.rpartition("/")[0]
    if PREFIX.fullmatch(name) and not (pipeline and is_pipeline(pipeline)):
        return None
    if not pipeline:
        remedy = "`graphmill ls` lists versions; `graphmill status PIPELINE` lists the steps of a pipeline"
        raise InputError(f"{name!r} is neither the beginning of a version nor PIPELINE/STEP", remedy)
    cuts = [name.rsplit("/", count) for count in (1, 2, 3)]
    first, *rest = next((cut for cut in cuts if len(cut) > 1 and is_pipeline(cut[0])), cuts[0])
    return first, "/".join(rest)


def artifact_of(store: Store, pipeline: Pipeline, step: str, called: str = "") -> Artifact:
    """Returns the artifact that a step of a pipeline asks for.

    Args:
        step: name of the step, with /SPLIT, /SEED or both if it asks for several artifacts.
        called: its name in messages; "" for PIPELINE/STEP.

    Raises:
        InputError: the pipeline has no such step, or the artifact is not built.
    """
    from graphmill.jobs.runs.training import all_steps

    name, *which = step.split("/")
    steps = {step.name: step for step in all_steps(pipeline, store.home)}
    if name not in steps:
        raise InputError(f"{pipeline.path} has no step {name!r}", f"its steps are: {', '.join(steps)}")
    wanted = steps[name]
    version = _version(wanted, which)
    artifact = store.find(wanted.recipe.name, version)
    if artifact is None:
        called = called or f"{pipeline.name}/{step}"
        problem = f"{called} is {wanted.recipe.name}/{short(version)}, which {store.home} does not have"
        raise InputError(problem, f"build it first: {wanted.command}")
    return artifact


def _version(step: Step, which: list[str]) -> str:
    """Returns the version of a step's artifact of a split and a seed, or of its only one."""
    called = f"{step.pipeline}/{step.name}"
    if step.splits:
        splits = {each.split: each for each in step.splits}
        if not which:
            problem = f"{called} is {len(step.configs)} artifacts, of the splits {', '.join(splits)}"
            raise InputError(problem, f"name one: {called}/{next(iter(splits))}")
        split, *which = which
        if split not in splits:
            raise InputError(f"{called} has no split {split}", f"its splits are: {', '.join(splits)}")
        called, step = f"{called}/{split}", splits[split]
    found = {
        str(getattr(config, "seed", None)): version
        for config, version in zip(step.configs, Versions().of(step), strict=True)
    }
    seeds = ", ".join(found)
    if not which and len(found) > 1:
        problem = f"{called} is {len(found)} models, with the seeds {seeds}"
        raise InputError(problem, f"name one: {called}/{next(iter(found))}")
    if which and "/".join(which) not in found:
        raise InputError(f"{called} has no seed {'/'.join(which)}", f"its seeds are: {seeds}")
    return found[which[0]] if which else next(iter(found.values()))
