"""What `validate`, `inspect` and `plan` ask of a pipeline, so that they agree with each other and with a build: all mistakes at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graphmill.assets.cache_plan.costs import disk_mistake
from graphmill.assets.costs.needs import Sizes
from graphmill.assets.features.config import FeatureTables, step_name
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.needs import KnownSizes
from graphmill.assets.pipeline.schema import FileMistakes
from graphmill.assets.pipeline.sound_rest import sound_rest
from graphmill.assets.pipeline.steps import Step, preprocessing_steps
from graphmill.assets.pipeline.toml_text import KeyPath
from graphmill.assets.sampling.config import width_mistake
from graphmill.assets.sources.survey import Survey
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.options import Asked
from graphmill.jobs.commands.pipelines.inspect_pipeline import survey_pipeline
from graphmill.jobs.commands.pipelines.needs import PipelineNeeds, pipeline_needs
from graphmill.jobs.operations.sound import require_sound
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.cuda.driver import num_gpus
from graphmill.kernels.errors import Attempts, InputError, joined
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.known_mistakes import NO_SEEDS, bounds_mistake, known_mistakes
from graphmill.trainers.record.metrics import absent_programs


@dataclass(frozen=True, kw_only=True)
class PipelineReport:
    """What is known of a pipeline before it is built.

    Attributes:
        notes: what may be wrong, and shows only when the data are read.
    """

    survey: Survey
    needs: PipelineNeeds
    notes: Sequence[str] = ()


def report_pipeline(
    pipeline: Pipeline, home: Path | None, *, here: bool = True
) -> tuple[PipelineReport | None, list[InputError]]:
    """Returns the report on a pipeline, None if its data cannot be read; and all mistakes, those of the survey behind the others.

    Args:
        here: whether this machine is to carry it out: it is a mistake if it lacks memory, disk, a GPU or a package.
    """
    attempts, known = Attempts(), KnownSizes(Store(home))
    survey, needs = attempts(survey_pipeline, pipeline), attempts(pipeline_needs, pipeline, home, known)
    sizes: dict[str, Sizes] = {}
    if survey is not None and needs is not None:
        sizes = _training_sizes(pipeline, survey, known)
    if here:
        attempts(_require_machine, pipeline)
    attempts(require_sound, pipeline, (), 0, sizes)
    if survey is None or needs is None:
        return None, [*attempts.errors, *(error for error, _ in _width_mistakes(pipeline, sizes))]
    # A graph that is there was read without a mistake.
    there = all(not each.missing for each in needs.steps if each.step.name == "graph")
    found = [] if there else [*survey.errors]
    found += _lacking_columns(pipeline, survey)
    if here and not found:
        attempts(needs.require_fit)
    found += [error for table in pipeline.train for error in _refused(pipeline, table.name, sizes[table.name])]
    found += [error for each in sizes.values() if (error := disk_mistake(each))]
    widths = [*_width_mistakes(pipeline, sizes)]
    # What may be wrong is told beside mistakes, which are mended in the same round, and is no mistake by itself.
    found += [error for error, certain in widths if certain or found or attempts.errors]
    notes = [f"{error.problem}; {error.remedy}" for error, certain in widths if not certain]
    return PipelineReport(survey=survey, needs=needs, notes=notes), [*attempts.errors, *found]


def load_checked(asked: Asked, home: Path | None) -> Pipeline:
    """Returns a pipeline whose files are there.

    Raises:
        InputError: all mistakes in the file, and those that the rest of it has with the data.
    """
    try:
        return asked.load(files=True)
    except FileMistakes as mistakes:
        rest = sound_rest(mistakes, TrainTable)
        found = [] if rest is None else report_pipeline(rest, home)[1]
        # Without keys that are wrong there may be no labels.
        found = [each for each in found if NO_SEEDS[0] not in each.problem]
        # A trainer that refuses a model is to be changed, and then a table may have an effect after all.
        of_models = [each for each in found if isinstance(each, FileMistakes)]
        rest_of = [each for each in found if not isinstance(each, FileMistakes)]
        raise (joined([*of_models, *mistakes.apart(), *rest_of]) if found else mistakes) from None


def require_runnable(pipeline: Pipeline, home: Path | None, *, here: bool = True) -> PipelineReport:
    """Returns the report on a pipeline; the arguments are those of `report_pipeline`.

    Raises:
        InputError: all that a build or a training would refuse, as far as it is known before.
    """
    found, errors = report_pipeline(pipeline, home, here=here)
    if errors or found is None:
        raise joined(errors)
    return found


def _lacking_columns(pipeline: Pipeline, survey: Survey) -> Iterator[InputError]:
    """Yields the mistake of weights of [sampling] that name a column which their feature table lacks."""
    sampling, tables = pipeline.sampling, {table.name: table for table in survey.feature_tables}
    if sampling is None or sampling.feature_table is None:
        return
    table = tables.get(step_name(sampling.feature_table))
    if table is not None and (mistake := width_mistake(sampling.weights, table.width)):
        yield mistake


def _training_sizes(pipeline: Pipeline, survey: Survey, known: KnownSizes) -> dict[str, Sizes]:
    """Returns name of a train table -> sizes of the graph that it trains on: those of artifacts, or of the source."""
    counted = survey.sizes
    names = ("num_classes", "num_train", "num_valid", "num_test")
    found = {}
    for step in _trainings(pipeline):
        sizes = known.sizes(step)
        widths = sizes.type_widths or counted.type_widths  # of encoded features, those that reading the data told
        told = {name: getattr(counted, name) for name in names} | {"type_widths": widths}
        found[step.name] = sizes if sizes.exact else replace(sizes, **told)
    return found


def _trainings(pipeline: Pipeline) -> list[Step]:
    """Returns the trainings of the pipeline's first split."""
    first = pipeline.by_split[0]
    return training_steps(first, preprocessing_steps(first))


def _refused(pipeline: Pipeline, name: str, sizes: Sizes) -> Iterator[InputError]:
    """Yields the mistakes for which the training of a table would be refused."""
    (step,) = (each for each in _trainings(pipeline) if each.name == name)
    table = next(each for each in pipeline.train if each.name == name)
    for error in known_mistakes(step.configs[0], table.execution, sizes):
        yield InputError(f"[[train]] {name}: {error.problem}", error.remedy)


def _width_mistakes(pipeline: Pipeline, sizes: Mapping[str, Sizes]) -> Iterator[tuple[InputError, bool]]:
    """Yields the trainings on features whose widths are not known yet, and may be or are several; and whether they certainly are."""
    tables = pipeline.table("features") or FeatureTables()
    for step, table in zip(_trainings(pipeline), pipeline.train, strict=True):
        known, train = sizes.get(step.name), step.configs[0].train
        features = tables.find(table.feature_table)
        if (known is not None and (known.exact or known.type_widths)) or features.file or is_reference(train.model):
            continue
        bounds = Attempts()(lambda features=features: pipeline.by_split[0].graph.for_table(features).width_bounds())
        if bounds and (found := bounds_mistake(train, bounds)):
            yield InputError(f"[[train]] {step.name}: {found[0].problem}", found[0].remedy), found[1]


def _require_machine(pipeline: Pipeline) -> None:
    """Refuses keys that ask for what this machine does not have.

    Raises:
        InputError: all of them, with their lines.
    """
    found: list[tuple[KeyPath, str]] = []
    for index, table in enumerate(pipeline.train if not pipeline.on else ()):
        if table.device == "cuda" and not num_gpus():
            text = 'device = "cuda", and this machine has no GPU that a driver shows: set device = "cpu", or "auto"'
            found.append((("train", index, "device"), text))
        found += [(("train", index, "metrics_to"), text) for _, text in absent_programs(table.metrics_to)]
    pipeline.require(found)
