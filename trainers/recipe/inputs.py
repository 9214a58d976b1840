"""Finds the artifacts of a train table in the store: those that decide its weights, and those that only change how it runs.

Versions are given (by the step that launched the training, or on the command line) or computed from the recipe, as the steps of a pipeline
compute them. A given artifact names its inputs, so packed chunks are enough to find their samples and their cache plan.

A trained model that a file names (assets/score.py) is one of its own tables, or is chosen from the store: by its version, or else as the
model that the other file asks for now. If that is not trained, since its data have changed, it is the last one that was trained for the
table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from graphmill.assets.building.materialize import materialize, stage_version
from graphmill.assets.building.stage import Stage
from graphmill.assets.features.config import EDGES, MAIN, of_edges
from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.pipeline.steps import OUTDATED, Step, is_outdated, preprocessing_steps
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.score import ModelName, model_name
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import short
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import PACKED_STAGES, TrainTable, find_recipe, find_table, model_configs
from graphmill.trainers.recipe.recipe import START, ModelRecipe

STAGES = {START: ModelRecipe.name, **{of_edges(stage): stage for stage in (MAIN, *PACKED_STAGES[1:])}}
"""Role of an artifact -> its stage, if that has another name."""


@dataclass(frozen=True, kw_only=True)
class TableInputs:
    """Artifacts of one train table, by role."""

    # Those whose versions enter the model's; `graph` and `features` are among them.
    inputs: Mapping[str, Artifact]
    # The other artifacts that the training reads.
    reads: Mapping[str, Artifact] = field(default_factory=dict)


def find_table_inputs(
    pipeline: Pipeline, table: TrainTable, store: Store, given: Mapping[str, str], *, whole: bool = True
) -> TableInputs:
    """Returns the artifacts that a table reads.

    Args:
        store: the store of the artifacts; only missing budgets are resolved here.
        given: stage -> version, or a prefix of it.
        whole: whether all artifacts and parts must exist. A rank that does not write the model needs neither features nor the shards of
            others.

    Raises:
        InputError: an artifact is missing, or the pipeline has no table that defines it.
    """
    finder = _Finder(pipeline, store, given, table, whole)
    deciding = [role for role in _deciding(pipeline, table) if whole or role != "features"]
    reads = [name for name in table.reads if finder.knows(finder.step_of(name))]
    found = finder.find_all([*deciding, *reads])
    return TableInputs(inputs={role: found[role] for role in deciding}, reads={role: found[role] for role in reads})


def find_model_inputs(
    pipeline: Pipeline, table: TrainTable, store: Store, given: Mapping[str, str]
) -> dict[str, Artifact]:
    """Returns role -> artifact, for those that decide the weights of a table's models; other artifacts may be missing.

    Arguments and errors are those of `find_table_inputs`.
    """
    return _Finder(pipeline, store, given, table).find_all(_deciding(pipeline, table))


def find_data(
    pipeline: Pipeline, table: TrainTable, store: Store, sampling: SamplingConfig | None
) -> dict[str, Artifact]:
    """Returns role -> artifact of the data that a trained model of another pipeline predicts from.

    Args:
        table, sampling: the train table of the model, and how its neighbours are drawn.

    Raises:
        InputError: an artifact is missing, or the pipeline has no table that defines it.
    """
    roles = ["graph", "features", *([EDGES] if table.edge_features else []), *(sampling.inputs if sampling else ())]
    return _Finder(pipeline, store, {}, table).find_all(roles)


def _deciding(pipeline: Pipeline, table: TrainTable) -> list[str]:
    """Returns the roles of the artifacts whose versions enter a model's."""
    config, *_ = model_configs(table, pipeline.sampling_of(table), pipeline.seed)
    return list(ModelRecipe().inputs(config))


@dataclass(eq=False)
class _Missing(Exception):
    # The artifact, and the command that builds it.
    label: str
    command: str
    # Whether the store's artifacts of the stage were built by an older version of graphmill.
    outdated: bool


class _Finder:
    """Finds the artifacts of a pipeline's steps, each once.

    Args:
        given: role -> version, or a prefix of it.
        table: the train table, which names its feature table, its sample set and its start.
        whole: whether all parts of an artifact must exist.
    """

    def __init__(
        self, pipeline: Pipeline, store: Store, given: Mapping[str, str], table: TrainTable, whole: bool = True
    ):
        self.pipeline, self.store, self.table, self.whole = pipeline, store, table, whole
        self.of_set, self.feature_table = pipeline.of_set(table.sample_set), table.feature_table
        self.steps = {step.name: step for step in preprocessing_steps(pipeline, store.home)}
        self._found = {
            self.step_of(role): store.resolve(f"{STAGES.get(role, role)}/{version}", parts=whole)
            for role, version in given.items()
        }
        self._named = {
            self._step_of_input(made, each["stage"]): (each["stage"], each["version"])
            for role, made in self._found.items()
            for each in made.inputs.values()
            if role != START  # it was trained on data of its own
        }

    def step_of(self, stage: str) -> str:
        """Returns the name of the step that the training reads under the name of a stage."""
        return self.of_set.step_of(stage, self.feature_table)

    def _step_of_input(self, made: Artifact, stage: str) -> str:
        """Returns the name of the step of a stage that an artifact is built from: one about rows of edges reads such."""
        edges = made.config.get("of_edges") or made.config.get("edges")
        return self.of_set.step_of(of_edges(stage) if edges and of_edges(stage) in STAGES else stage)

    def knows(self, name: str) -> bool:
        """Returns whether a step's artifact was given, is an input of a given one, or is one of the pipeline's."""
        return name in self._found or name in self._named or name in self.steps

    def find_all(self, roles: Sequence[str]) -> dict[str, Artifact]:
        """Returns role -> artifact; raises InputError, whose message names all of them, if artifacts are missing."""
        found, missing = {}, []
        for role in roles:
            try:
                found[role] = self.find(self.step_of(role))
            except _Missing as error:
                missing.append(error)
        if missing:
            labels, commands = (
                list(dict.fromkeys(getattr(each, of) for each in missing)) for of in ("label", "command")
            )
            it, are = ("it", "is") if len(labels) == 1 else ("them", "are")
            older = OUTDATED if any(each.outdated for each in missing) else ""
            problem = f"{' and '.join(labels)} {are} not in {self.store.place}{older}"
            raise InputError(problem, f"build {it}: {' and '.join(commands)}; or copy {it} from a home that has {it}")
        return found

    def find(self, name: str) -> Artifact:
        """Returns the artifact of a step."""
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Artifact:
        if name in self._named:
            return self._open(*self._named[name])
        if name == START:
            return self._start()
        if name not in self.steps:
            problem = f"{self.pipeline.path} has no table that asks for {name}, which this training reads"
            raise InputError(problem, "docs/pipelines.md says which tables a trainer needs")
        step = self.steps[name]
        inputs = {role: self.find(source.name) for role, source in step.inputs.items()}
        stage, (config,) = step.recipe, step.configs
        if name == "budgets":  # seconds of arithmetic; another machine has other measured numbers
            return materialize(self.store, stage, config, stage.Execution(), inputs)  # pyright: ignore
        return self._open(stage.name, stage_version(stage, config, inputs))  # pyright: ignore

    def _start(self) -> Artifact:
        """Returns the model whose weights the training begins with."""
        name = model_name(self.table.start, self.pipeline.path.parent)
        if not is_own(name, self.pipeline):
            return named_model(self.store, name)
        version, model = _model_now(self.store, self.pipeline, name.table)
        if model is None:
            command = f"graphmill train {self.pipeline.reference} {name.table}"
            raise _Missing(f"{ModelRecipe.name}/{short(version)}", command, is_outdated(self.store, ModelRecipe()))
        return model

    def _open(self, stage: str, version: str) -> Artifact:
        """Returns an artifact; the error for a missing one names the command that builds it."""
        if self.store.has(stage, version):
            return self.store.open(stage, version, parts=self.whole)  # it may be damaged
        label, command = f"{stage}/{short(version)}", f"graphmill build {self.pipeline.reference}"
        recipes = [step.recipe for step in self.steps.values() if step.recipe.name == stage]
        raise _Missing(label, command, any(is_outdated(self.store, each) for each in recipes))


class StoredModel(Stage):
    """The models of other pipelines that a file names: no step of the file builds them.

    Args:
        home: the home of their store, None for the default.
    """

    name = ModelRecipe.name
    code_version = ModelRecipe.code_version
    Semantic = ModelName

    def __init__(self, home: Path | None):
        self.home = home

    def chosen(self, semantic: ModelName) -> str:
        """Returns the version of the model."""
        return named_model(Store(self.home), semantic).version

    def fixed(self, semantic: ModelName) -> bool:
        """Tells whether the name has a version."""
        return bool(semantic.version)

    def siblings(self, semantic: ModelName) -> tuple[str, ...]:
        """Returns the versions of the models of all seeds of the table: of those that it has now, or the last ones."""
        return () if semantic.version else table_versions(Store(self.home), semantic)


def is_own(name: ModelName, pipeline: Pipeline) -> bool:
    """Tells whether a name means what a table of the same file has trained in the same run, and not a model of the store."""
    return name.key[0] == pipeline.name and not name.version


def model_step(text: str, pipeline: Pipeline, trained: Mapping[str, Step], home: Path | None) -> Step:
    """Returns the step whose artifact is the model that a file names: one of its own, or one that another pipeline has."""
    name = model_name(text, pipeline.path.parent)
    if is_own(name, pipeline):
        return trained[name.table]
    train = f"graphmill train {name.pipeline} {name.table}"
    return Step(pipeline=name.key[0], name=name.table, recipe=StoredModel(home), configs=(name,), command=train)


def named_model(store: Store, name: ModelName) -> Artifact:
    """Returns the trained model that a file names.

    Raises:
        InputError: the store has no such model, or it begins with itself.
    """
    if name.version:
        return store.resolve(f"{ModelRecipe.name}/{name.version}")
    _require_end(name)
    why, seed = "", None
    try:
        pipeline = load_pipeline(_file_of(name), TrainTable)
        seed = find_recipe(pipeline, name.table, None)[1].seed
        pipeline.require_one_split()
        version, model = _model_now(store, pipeline, name.table)
        why = f"; its file asks for {ModelRecipe.name}/{short(version)}"
    except InputError as error:
        model, why = None, f"; its file does not say which: {error.problem}"
    model = model or _last_model(store, "/".join(name.key), seed)
    if model is None:
        problem = f"{name.text} is not trained in {store.place}{why}"
        raise InputError(problem, f"train it: graphmill train {name.pipeline} {name.table}")
    return model


def table_versions(store: Store, name: ModelName) -> tuple[str, ...]:
    """Returns the versions of the models of all seeds of a table, of which a name without a version means the first.

    Raises:
        InputError: as `named_model`.
    """
    first, seeds, now = named_model(store, name), (), []
    try:
        pipeline = load_pipeline(_file_of(name), TrainTable)
        table = find_table(pipeline, name.table)
        configs = model_configs(table, pipeline.sampling_of(table), pipeline.seed)
        seeds = tuple(config.seed for config in configs)
        inputs = find_model_inputs(pipeline, table, store, {})
        now = [stage_version(ModelRecipe(), config, inputs) for config in configs]
    except InputError:
        pass  # the file does not say which they are now
    if first.version not in now:
        last = [_last_model(store, "/".join(name.key), seed) for seed in seeds]
        now = [model.version for model in last if model is not None]
    return tuple(now) or (first.version,)


def _require_end(name: ModelName) -> None:
    """Refuses models of which each begins with the next one, and the last with one of them."""
    chain: list[tuple[Path, str]] = []
    while not name.version:
        try:
            pipeline = load_pipeline(_file_of(name), TrainTable)
            start = find_table(pipeline, name.table).start
        except InputError:  # what is to be trained is not known, but what was trained
            return
        place = pipeline.path.resolve(), name.table
        if place in chain:
            models = " -> ".join(f"{path.stem}/{table}" for path, table in [*chain[chain.index(place) :], place])
            remedy = "leave one of them without a start, or name a version: PIPELINE/NAME@VERSION"
            raise InputError(f"start leads back to the same model: {models}", remedy)
        if not start:
            return
        chain.append(place)
        name = model_name(start, pipeline.path.parent)


def _file_of(name: ModelName) -> Path | str:
    """Returns the pipeline file of a model: the one beside the file that names it, or its name among all pipelines."""
    beside = None if name.folder is None else name.folder / f"{name.pipeline}.toml"
    return beside if beside is not None and beside.is_file() else name.pipeline


def _model_now(store: Store, pipeline: Pipeline, name: str) -> tuple[str, Artifact | None]:
    """Returns version and artifact of the model that a train table asks for, of its first seed; None if it is not trained.

    Raises:
        InputError: the data that it would be trained on are not built.
    """
    table, config = find_recipe(pipeline, name, None)
    version = stage_version(ModelRecipe(), config, find_model_inputs(pipeline, table, store, {}))
    return version, store.find(ModelRecipe.name, version)


def _last_model(store: Store, asked_by: str, seed: int | None) -> Artifact | None:
    """Returns the model that was trained last for PIPELINE/NAME, of a seed if that is known; None if there is none."""
    found = []
    for model in (*store.artifacts(ModelRecipe.name), *store.stored_only(ModelRecipe.name)):
        run = model.run_record()
        if run.get("execution", {}).get("asked_by") == asked_by and seed in (None, model.config["seed"]):
            found.append((run.get("started", ""), model.version, model))
    return max(found)[2] if found else None
