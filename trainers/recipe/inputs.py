"""Finds the artifacts of a train table in the store: those that decide its weights, and those that only change how it runs.

Versions are given (by the step that launched the training, or on the command line) or computed from the recipe, as the steps of a pipeline
compute them. A given artifact names its inputs, so packed chunks are enough to find their samples and their cache plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphmill.assets.building.materialize import materialize, stage_version
from graphmill.assets.pipeline.data_steps import preprocessing_steps
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.steps import OUTDATED, is_outdated
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import short
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable, model_configs
from graphmill.trainers.recipe.recipe import ModelRecipe


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
    roles = ["graph", "features", *(sampling.inputs if sampling else ())]
    return _Finder(pipeline, store, {}, table).find_all(roles)


def _deciding(pipeline: Pipeline, table: TrainTable) -> list[str]:
    """Returns the roles of the artifacts whose versions enter a model's."""
    config, *_ = model_configs(table, pipeline.sampling_of(table), pipeline.seed)
    return list(ModelRecipe().inputs(config))


@dataclass(eq=False)
class _Missing(Exception):
    """An artifact is not in the store."""

    # The artifact, and the command that builds it.
    label: str
    command: str
    # Whether the store's artifacts of the stage were built by an older version of graphmill.
    outdated: bool


class _Finder:
    """Finds the artifacts of a pipeline's steps, each once.

    Args:
        given: stage -> version, or a prefix of it.
        table: the train table, which names its feature table and its sample set.
        whole: whether all parts of an artifact must exist.
    """

    def __init__(
        self, pipeline: Pipeline, store: Store, given: Mapping[str, str], table: TrainTable, whole: bool = True
    ):
        self.pipeline, self.store, self.whole = pipeline, store, whole
        self.of_set, self.feature_table = pipeline.of_set(table.sample_set), table.feature_table
        self.steps = {step.name: step for step in preprocessing_steps(pipeline, store.home)}
        self._found = {
            self.step_of(stage): store.resolve(f"{stage}/{version}", parts=whole) for stage, version in given.items()
        }
        self._named = {
            self.of_set.step_of(each["stage"]): (each["stage"], each["version"])
            for made in self._found.values()
            for each in made.inputs.values()
        }

    def step_of(self, stage: str) -> str:
        """Returns the name of the step that the training reads under the name of a stage."""
        return self.of_set.step_of(stage, self.feature_table)

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
        if name not in self.steps:
            problem = f"{self.pipeline.path} has no table that asks for {name}, which this training reads"
            raise InputError(problem, "docs/pipelines.md says which tables a trainer needs")
        step = self.steps[name]
        inputs = {role: self.find(source.name) for role, source in step.inputs.items()}
        stage, (config,) = step.recipe, step.configs
        if name == "budgets":  # seconds of arithmetic; another machine has other measured numbers
            return materialize(self.store, stage, config, stage.Execution(), inputs)  # pyright: ignore
        return self._open(stage.name, stage_version(stage, config, inputs))  # pyright: ignore

    def _open(self, stage: str, version: str) -> Artifact:
        """Returns an artifact; the error for a missing one names the command that builds it."""
        if self.store.has(stage, version):
            return self.store.open(stage, version, parts=self.whole)  # it may be damaged
        label, command = f"{stage}/{short(version)}", f"graphmill build {self.pipeline.reference}"
        recipes = [step.recipe for step in self.steps.values() if step.recipe.name == stage]
        raise _Missing(label, command, any(is_outdated(self.store, each) for each in recipes))
