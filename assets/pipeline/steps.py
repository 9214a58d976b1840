"""The steps of a pipeline: the artifacts that a recipe asks for, their inputs, and their future versions.

A step is one asset in the UI and one or more artifacts of one stage in the store (a train table has one for each of its seeds). The
artifact that a step wants is a pure function of the recipe and of the raw bytes; earlier builds do not matter. Two hashes follow from that:

- `recipe_hash`: the recipe alone, inputs included. It is known without reading raw files, so it shows which definitions changed;
- `Versions.of`: the versions of the artifacts, which raw digests enter as well.

A pipeline that lists several splits of its graph has one step per name, too, with the artifacts of all splits side by side (`join_steps`).
Each split is a recipe of its own, the file with that split in place of the list (`Pipeline.by_split`), and so are the versions: an artifact
of a list is that of the single split, and adding a split to the list builds only its own artifacts. A step that is equal for all splits,
such as the features, stays one step with one artifact. Any other is one asset in the UI, whose version stands for all of its artifacts.

There is a data step for each stage that the tables ask for, in the order in which they run. A table asks for its own stage, and a train
table for the stages that its technique reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graphmill.assets.building.build import raw_digests
from graphmill.assets.building.page import Page, markdown_text
from graphmill.assets.building.stage import Stage
from graphmill.assets.pipeline.catalogue import stages
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.notes import Origin, origin_of
from graphmill.assets.pipeline.toml_text import KeyPath
from graphmill.assets.samples.sets import SAMPLES, set_names, step_of_set
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.names.version import canonical, canonical_json, locations, short, version_of
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Step:
    """One asset of a pipeline.

    Attributes:
        pipeline, name: the two parts of its key.
        recipe: the stage, or the half of it that decides versions.
        configs: Semantic configs, one per artifact.
        inputs: role -> the step that it reads; each has one artifact.
        reads: the same for artifacts that decide only how it runs: needed to build it, but not part of its version.
        external: name of the asset that stands for the content that it reads from outside the store; "" if it reads none.
        after: keys of assets of the user's own Dagster project that come first.
        command: command that builds it, for error messages.
        origin: the table of the pipeline file that asks for it, and the file's notes.
        split: its split if the pipeline lists several; "" for a step of all of them, and without a list.
        splits: for a step with artifacts of several splits, the steps of each split, whose configs it joins.
        trial: whether keys of the file were set for one command (--set), so that the UI keeps it apart from the file's own step.
    """

    pipeline: str
    name: str
    recipe: Stage
    configs: tuple[Any, ...]
    inputs: Mapping[str, Step] = field(default_factory=dict)
    reads: Mapping[str, Step] = field(default_factory=dict)
    checks: tuple[str, ...] = ()
    external: str = ""
    after: tuple[str, ...] = ()
    command: str = ""
    origin: Origin = field(default=Origin(), compare=False)
    split: str = ""
    splits: tuple[Step, ...] = ()
    trial: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Pipeline and name: the asset's key."""
        return self.pipeline, self.name

    @property
    def apart(self) -> tuple[Step, ...]:
        """The steps of each split; only itself if it has the artifacts of one split."""
        return self.splits or (self,)

    @property
    def sources(self) -> Mapping[str, Step]:
        """All steps that it reads from the store."""
        return {**self.inputs, **self.reads}

    @property
    def followed(self) -> tuple[Step, ...]:
        """The steps that it reads whose assets make it stale when they change: not those that stand for one fixed artifact."""
        return tuple(source for source in self.sources.values() if not source.recipe.fixed(source.configs[0]))


def describe(step: Step, page: Page | None, more: str) -> str:
    """Returns the description of an asset in Markdown. It begins with what the asset is, since lists of assets show the first line alone.

    The texts of its recipe and its stage come first, then that of its pipeline file, the page of the docs, and the command.
    """
    about = page.about if page else f"Stage `{step.recipe.name}` of pipeline `{step.pipeline}`."
    own = step.recipe.sentence(step.configs[0])
    count = f" {_count(step)}" if len(step.configs) > 1 else ""
    read_on = f"More about it: `{page.docs}` in `{ROOT}`." if page else ""
    parts = (own, about + count, step.origin.notes.description, read_on, more)
    return "\n\n".join(part for part in parts if part)


def _count(step: Step) -> str:
    """Returns the sentence about a step with several artifacts."""
    if not step.splits:
        return f"It has {len(step.configs)} models, one per seed."
    seeds = len(step.configs) // len(step.splits)
    each = "one" if seeds == 1 else f"{seeds}, one per seed,"
    what = "models" if step.recipe.name == "model" else "artifacts"
    splits = ", ".join(markdown_text(one.split) for one in step.splits)
    return f"It has {len(step.configs)} {what}, {each} for each of the splits {splits}."


def recipe_hash(step: Step) -> str:
    """Returns a hash of the step's whole recipe, 64 hex digits: stage, code version, configs, and the recipes of its inputs.

    It differs whenever an edit of the pipeline file asks for other bytes, here or upstream, and only then.
    """
    if step.splits:
        return hashlib.sha256(canonical_json([recipe_hash(each) for each in step.splits])).hexdigest()
    recipe = {
        "stage": step.recipe.name,
        "code_version": step.recipe.code_version,
        "configs": [canonical(config) for config in step.configs],
        "inputs": {role: _source_hash(step, role) for role in step.inputs},
    }
    return hashlib.sha256(canonical_json(recipe)).hexdigest()


def _source_hash(step: Step, role: str) -> str:
    """Returns the recipe hash of an input, or of the aspect of it that is read."""
    source, aspect = step.inputs[role], _aspect_read(step, role)
    if aspect is None:
        return recipe_hash(source)
    configs = tuple(source.recipe.aspect(aspect, config, {})[0] for config in source.configs)
    return recipe_hash(replace(source, configs=configs))


def _aspect_read(step: Step, role: str) -> str | None:
    """Returns the aspect of an input that a step reads, None if it reads the whole."""
    aspect = step.recipe.reads_aspects.get(role)
    return aspect if aspect in step.inputs[role].recipe.aspects else None


def joint_version(versions: tuple[str, ...]) -> str:
    """Returns the one version that stands for all artifacts of a step: that of a single artifact, else a hash of the list."""
    if len(versions) == 1:
        return versions[0]
    return hashlib.sha256(canonical_json(list(versions))).hexdigest()


class Versions:
    """The versions that steps will have. Raw content is digested once in the life of this object: make one for each run.

    One object for a run also keeps the run consistent: content that changes while it runs is built by the next one.
    """

    def __init__(self):
        self._raw: dict[bytes, Mapping[str, str]] = {}
        # By the step's place in memory, with the step, which keeps that place taken.
        self._known: dict[int, tuple[Step, tuple[str, ...]]] = {}

    def of(self, step: Step) -> tuple[str, ...]:
        """Returns the version of each of the step's artifacts, 64 hex digits; raises InputError if raw content is missing or unreadable."""
        if id(step) not in self._known:
            self._known[id(step)] = step, self._versions(step)
        return self._known[id(step)][1]

    def _versions(self, step: Step) -> tuple[str, ...]:
        if step.splits:
            return tuple(version for each in step.splits for version in self.of(each))
        inputs = {role: self.read(step, role) for role in step.inputs}
        name, code_version = step.recipe.name, step.recipe.code_version
        return tuple(
            step.recipe.chosen(config) or version_of(name, code_version, config, inputs, self.raw(step.recipe, config))
            for config in step.configs
        )

    def read(self, step: Step, role: str) -> str:
        """Returns the version of an input, or of the aspect of it that a step reads."""
        source, aspect = step.inputs[role], _aspect_read(step, role)
        if aspect is None:
            return self.only(source)
        recipe, (config,) = source.recipe, source.configs
        inputs = {each: self.read(source, each) for each in source.inputs}
        named = recipe.aspect(aspect, config, self.raw(recipe, config))
        return version_of(f"{recipe.name}/{aspect}", recipe.code_version, named[0], inputs, named[1])

    def joint(self, step: Step) -> str:
        """Returns the one version that stands for all artifacts of a step: the data version of its asset."""
        return joint_version(step.recipe.siblings(step.configs[0]) or self.of(step))

    def only(self, step: Step) -> str:
        """Returns the version of a step that has one artifact."""
        (version,) = self.of(step)
        return version

    def raw(self, recipe: Stage, config: Any) -> Mapping[str, str]:
        """Returns the digests of the external content that the stage reads, from memory after the first time."""
        where = canonical_json([recipe.name, canonical(config), locations(config)])
        if where not in self._raw:
            self._raw[where] = dict(raw_digests(recipe, config))
        return self._raw[where]


def split_steps(steps: Sequence[Step], place: int) -> list[Step]:
    """Returns the steps of one split."""
    return [step.splits[place] if step.splits else step for step in steps]


def join_steps(
    each: Sequence[Sequence[Step]], splits: Sequence[str], read: Sequence[Step], command: Callable[[str], str]
) -> list[Step]:
    """Returns one step per name from the steps of each split.

    Args:
        each: the steps of each split, with equal names in equal order.
        splits: names of the splits; with a single one the steps stay as they are.
        read: joined steps that these steps read.
        command: name of a step -> command that builds it for all splits.
    """
    if len(each) == 1:
        return list(each[0])
    made = {step.key: step for step in read}
    joined = []
    for alike in zip(*each, strict=True):
        first = replace(alike[0], command=command(alike[0].name))
        if len({recipe_hash(step) for step in alike}) > 1:
            first = replace(
                first,
                configs=tuple(config for step in alike for config in step.configs),
                # A chosen model of another pipeline is one for all splits.
                inputs={role: made.get(source.key, source) for role, source in first.inputs.items()},
                reads={role: made[source.key] for role, source in first.reads.items()},
                splits=tuple(replace(step, split=split) for step, split in zip(alike, splits, strict=True)),
            )
        made[first.key] = first
        joined.append(first)
    return joined


OUTDATED = "; what it has of that was built by an older version of graphmill"


def is_outdated(store: Store, recipe: Stage) -> bool:
    """Tells whether an older code version built all artifacts of a stage in a store."""
    found = [each.manifest["code_version"] for each in store.artifacts() if each.stage == recipe.name]
    return bool(found) and max(found) < recipe.code_version


def find_all(store: Store, step: Step, versions: Versions) -> list[Artifact] | None:
    """Returns the step's artifacts, marked as reused, if the store has all of them and they are sound; else None."""
    found = [store.find(step.recipe.name, version) for version in versions.of(step)]
    return [replace(each, reused=True) for each in found if each] if all(found) else None


def find_inputs(store: Store, step: Step, versions: Versions) -> dict[str, Artifact]:
    """Returns role -> artifact for all inputs of a step of one split.

    Raises:
        InputError: the store lacks inputs; the error lists each with the command that builds it.
    """
    wanted = {role: (source, versions.only(source)) for role, source in step.sources.items()}
    found = {role: store.find(source.recipe.name, version) for role, (source, version) in wanted.items()}
    missing = [role for role, artifact in found.items() if artifact is None]
    if missing:
        listed = ", ".join(f"{wanted[role][0].recipe.name}/{short(wanted[role][1])}" for role in missing)
        commands = dict.fromkeys(wanted[role][0].command for role in missing)
        older = any(is_outdated(store, wanted[role][0].recipe) for role in missing)
        problem = f"{'/'.join(step.key)} reads {listed}, which {store.home} does not have{OUTDATED if older else ''}"
        raise InputError(problem, f"build it first: {' and '.join(commands)}")
    return {role: artifact for role, artifact in found.items() if artifact}


def preprocessing_steps(pipeline: Pipeline, home: Path | None = None) -> list[Step]:
    """Returns the steps that build data, in the order in which they run; the recipe of each is its whole stage."""
    each = [_steps_of(one, home, trial=bool(pipeline.settings)) for one in pipeline.by_split]
    return join_steps(each, pipeline.splits, (), lambda name: f"graphmill build {pipeline.reference}")


def _steps_of(pipeline: Pipeline, home: Path | None, *, trial: bool) -> list[Step]:
    steps: dict[str, Step] = {}
    command = f"graphmill build {pipeline.reference}"
    asked = [(stage, one) for stage in stages(home) for one in _by_sample_set(pipeline, stage)]
    for stage, one, own_name, config in [
        (*each, *named) for each in asked for named in each[0].configs(each[1]).items()
    ]:
        name = step_of_set(own_name, one.sample_set or "")
        # Assets that come first stand for what they write; looking at it before they ran would fail.
        after = stage.after(config)
        external = "" if after else stage.external(config)
        # Several steps read parts of one source: each part changes on its own.
        shared = any(external == step.external for step in steps.values())
        steps[name] = Step(
            pipeline=pipeline.name,
            name=name,
            recipe=stage,
            configs=(config,),
            inputs={
                role: steps[one.step_of(source, stage.input_table(config))]
                for role, source in stage.inputs(config).items()
            },
            checks=stage.expected_checks(config),
            external=f"{external}.{name}" if external and shared else external,
            after=after,
            command=command,
            origin=origin_of(pipeline.path, pipeline.text, pipeline.notes, *_tables_of(stage, name, one)),
            trial=trial,
        )
    return list(steps.values())


def _by_sample_set(pipeline: Pipeline, stage: Stage) -> list[Pipeline]:
    """Returns the sample sets, each as a recipe, for which a stage has a step; the file itself for a stage that all of them share.

    Of a file with several sets each is sampled; hotness, plans and packed rows are built for the sets whose trainings read them.
    """
    if not stage.by_sample_set or len(pipeline.by_sample_set) == 1:
        return [pipeline]
    needless = stage.name == SAMPLES or not pipeline.train
    return [one for one in pipeline.by_sample_set if needless or one.is_read(stage.name)]


def _tables_of(stage: Stage, name: str, pipeline: Pipeline) -> list[KeyPath]:
    """Returns the tables that may ask for a step, its own first: that of [features.NAME] for the step features.NAME."""
    sets = [(SAMPLES, place) for place, each in enumerate(set_names(pipeline.tables)) if each == pipeline.sample_set]
    return [*sets, tuple(name.split(".")), (stage.table,), *((table,) for table in stage.needs), ("graph",)]
