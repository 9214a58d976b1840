"""What the command line does, as functions: find a pipeline, run it, open what it made, take its batches, predict.

A pipeline is given by its name, by the path of its TOML file, or as `pipeline` returns it, with keys that were set. Every function takes
`home`, the folder of artifacts and history; None stands for `$GRAPHMILL_HOME`, or `.graphmill` in the current folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.assets.pipeline.file import Pipeline, load_pipeline, parse_pipeline
from graphmill.assets.pipeline.schema import FileMistakes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import one_home
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable

if TYPE_CHECKING:
    import polars

    from graphmill.jobs.launch import Outcome, Selection
    from graphmill.trainers.inference.choice import Way
    from graphmill.trainers.inference.exports.export import Exported
    from graphmill.trainers.notebook import Trained
    from graphmill.trainers.record.epoch_lines import Lines
    from graphmill.trainers.training.dataset import Batches, Split

Asked = str | os.PathLike[str] | Pipeline
"""A pipeline, or its name, or the path of its file."""
Home = str | os.PathLike[str] | None


def pipeline(source: Asked | Mapping[str, Any], *settings: str) -> Pipeline:
    """Returns a checked pipeline.

    Args:
        source: its name, the path of its file, or the pipeline itself; or what its file would say, as a mapping: tables are mappings, and
            "train" is a list of them. Relative paths in a mapping start in the current folder.
        settings: KEY=VALUE each, keys of the file that are set, as `--set` does: "train.lr=0.01".

    Raises:
        InputError: the file does not exist, or all mistakes in it, each with its line; or a pipeline is to be set once more.
    """
    if isinstance(source, Mapping):
        return _of_mapping(source, settings)
    if not isinstance(source, Pipeline):
        return load_pipeline(source, TrainTable, settings=settings)
    if settings:
        problem = f"{source.path} is read already, and {', '.join(settings)} sets keys in its text"
        raise InputError(problem, f'give its name or path: graphmill.pipeline("{source.path}", ...)')
    return source


def _of_mapping(content: Mapping[str, Any], settings: Sequence[str]) -> Pipeline:
    """Returns the pipeline of a mapping, as if a file in the current folder had its text."""
    from graphmill.assets.pipeline.settings import toml_of, with_settings

    named = {"name": "notebook", **content}
    text = with_settings(toml_of(named), settings)
    try:
        return parse_pipeline(Path(f"{named['name']}.toml").absolute(), text.encode(), TrainTable)
    except FileMistakes as error:  # a mapping has no lines
        said = "".join(f"\n  {problem.message}" for problem in error.problems)
        raise InputError(f"the pipeline has mistakes:{said}", "correct the mapping") from error


def pipeline_of(source: Asked, home: Home) -> Pipeline:
    """Returns a checked pipeline; tables of assets that it names are those of the home."""
    with one_home(home):
        return pipeline(source)


def run(
    source: Asked,
    *names: str,
    selection: Selection = "all",
    resume: bool = False,
    retrain: bool = False,
    threads: int | None = None,
    epoch_lines: Lines = "some",
    report: Callable[[str], None] | None = None,
    home: Home = None,
) -> Outcome:
    """Builds the data of a pipeline, trains its models and waits; what the store has is reused, and the web UI shows the run.

    Args:
        names: `[[train]]` tables that are trained; all if none is named.
        selection: "preprocess" builds the data alone, "train" trains on data that is there, "all" does both.
        resume: whether trainings go on from their checkpoints.
        retrain: whether models that exist are trained again.
        threads: threads that build the data, None for the default.
        epoch_lines: epochs that get a printed line: "some" (about a hundred), "all" or "none".
        report: gets a line about each artifact; None for no lines. Trainings print theirs on standard error in any case.

    Raises:
        InputError: an input of a step is missing, or a value of the recipe does not fit.
        graphmill.StepError: a step failed by a defect.
        KeyboardInterrupt: the run was interrupted, or cancelled in the UI.
    """
    from graphmill.jobs.launch import Launch, launch, outside_of_cells

    order = Launch(
        pipeline=pipeline_of(source, home),
        selection=selection,
        names=names,
        home=Store(home).home,
        threads=threads,
        resume=resume,
        retrain=retrain,
        epoch_lines=epoch_lines,
        report=report or (lambda line: None),
    )
    with outside_of_cells():
        return launch(order)


def leaderboard(source: Asked, *, home: Home = None) -> polars.DataFrame:
    """Returns the scores and costs of a pipeline's trained models: a row for each `[[train]]` table, best mean validation score first.

    Scores are fractions, one per model, beside the models' seeds; seconds and bytes are per training epoch.

    Raises:
        InputError: no model is trained.
    """
    import polars

    from graphmill.jobs.commands.results.leaderboard import leaderboard_rows, stored_entries

    return polars.DataFrame(leaderboard_rows(stored_entries(pipeline_of(source, home), Store(home).home)))


def plan(source: Asked, *, again: bool = False, home: Home = None) -> polars.DataFrame:
    """Returns the time and memory that techniques would take for a graph on this machine, a row for each training. Builds nothing.

    `chosen` marks the training that `graphmill plan` would take, `refused` says why one is not compared. Columns of seconds are of all
    seeds, except for those of an epoch.

    Args:
        again: whether the speed of the machine is measured again.

    Raises:
        InputError: the pipeline cannot run.
    """
    import polars

    from graphmill.jobs.commands.pipelines.checked import require_runnable
    from graphmill.jobs.commands.pipelines.plan import plan_values
    from graphmill.jobs.planning.plan import make_plan

    asked, folder = pipeline_of(source, home), Store(home).home
    require_runnable(asked, folder, here=False)
    found = plan_values(make_plan(asked, folder, again=again))
    chosen = [{"chosen": row["name"] == found["chosen"], **row} for row in found["rows"]]
    return polars.DataFrame(chosen, infer_schema_length=None)


def report(source: Asked, out: str | os.PathLike[str] | None = None, *, home: Home = None) -> Path:
    """Writes one page with the results of a pipeline's models, as `graphmill report` does, and returns its path.

    Args:
        out: the HTML file; None for reports/PIPELINE.html in the home.

    Raises:
        InputError: no model is trained, or the file cannot be written.
    """
    from graphmill.jobs.report.commands import write_report

    return write_report(pipeline_of(source, home), Store(home).home, None if out is None else Path(out))[0]


def artifact(source: Asked, step: str = "", *, home: Home = None) -> Artifact:
    """Returns an artifact, which has files and numbers: `array(name)`, `file(name)`, `summary["numbers"]`, `verify()`.

    Args:
        source: the pipeline that asks for it; or, without `step`, its name as on the command line: "cora/graph", "graph/VERSION".
        step: the stage, or the name of the `[[train]]` table; with "/SEED" for one of several seeds, "/SPLIT" for one of several splits.

    Raises:
        InputError: the artifact is not built, or several have this name.
    """
    from graphmill.jobs.commands.names import artifact_of, find_artifact

    if step:
        return artifact_of(Store(home), pipeline_of(source, home), step)
    if isinstance(source, Pipeline):
        raise InputError(
            f"{source.path} asks for several artifacts", 'name a step: graphmill.artifact(pipeline, "graph")'
        )
    return find_artifact(Store(home), os.fspath(source))


def open(source: Asked, step: str = "", *, home: Home = None) -> Any:
    """Opens an artifact as what it is, mapped and not read.

    Args:
        source, step: the artifact, named as for `artifact`.

    Returns:
        The `Graph` of a graph; the `FeatureTable` of features; the `Trained` model of a `[[train]]` table, which predicts; and the
        `Artifact` itself of any other stage, and of a model that is named by its version.

    Raises:
        InputError: the artifact is not built, or several have this name.
    """
    from graphmill.assets.features.read import open_features
    from graphmill.assets.graph.read import open_graph
    from graphmill.jobs.commands.names import split_name
    from graphmill.trainers.recipe.recipe import ModelRecipe

    found = artifact(source, step, home=home)
    if found.stage == ModelRecipe.name:
        named = (source, step) if step or isinstance(source, Pipeline) else split_name(os.fspath(source))
        return found if named is None else _trained(pipeline_of(named[0], home), named[1], home)
    read: dict[str, Callable[[Artifact], Any]] = {"graph": open_graph, "features": open_features}
    return read.get(found.stage, lambda each: each)(found)


def _trained(asked: Pipeline, step: str, home: Home) -> Trained:
    """Returns the model of NAME, NAME/SEED, NAME/SPLIT or NAME/SPLIT/SEED, which the store has."""
    from graphmill.trainers.notebook import open_trained

    name, *which = step.split("/")
    if len(asked.by_split) > 1:
        asked = asked.by_split[asked.splits.index(which.pop(0))]
    return open_trained(Store(home), asked, name, int(which[0]) if which else None)


def batches(
    source: Asked,
    name: str,
    epoch: int = 0,
    *,
    start: int = 0,
    seed: int | None = None,
    split: Split = "train",
    home: Home = None,
) -> Batches:
    """Returns the mini-batches of a table's training: the same seeds, blocks and input rows to the byte.

    They are a `torch.utils.data.IterableDataset` with `len`: each iteration is an epoch, and the next one begins the next epoch. `epoch`
    and `set_epoch` have the number of the next one, `state_dict` and `load_state_dict` the place of the next batch. A loader of torch
    takes them with `batch_size=None`, and its workers share the batches of an epoch.

    Args:
        source, name: the pipeline and the name of its `[[train]]` table.
        epoch: training epoch of the first iteration, from 0.
        start: position of its first batch.
        seed: seed of the training; None for the table's first.
        split: "train" for the epochs of the training; "valid" or "test" for a sampled evaluation of these nodes.

    Raises:
        InputError: an artifact is missing, the table's technique does not train on mini-batches in one process, or the split has no nodes.
    """
    from graphmill.trainers.training.dataset import Batches

    return Batches(Store(home), pipeline_of(source, home), name, epoch, start=start, seed=seed, split=split)


def predict(
    source: Asked,
    name: str,
    out: str | os.PathLike[str],
    *,
    seed: int | None = None,
    nodes: str | os.PathLike[str] | None = None,
    types: Sequence[str] = (),
    probabilities: bool = False,
    top: int = 0,
    thresholds: Sequence[str] = (),
    graph: Asked | None = None,
    evaluation: Way = "exact",
    workspace: str = "1GiB",
    threads: int | None = None,
    home: Home = None,
) -> int:
    """Writes the class of every node of the types that have labels, as the trained model of a table predicts it.

    Args:
        source, name: the pipeline and the name of its `[[train]]` table.
        out: the Parquet file; replaced if it exists. A row has node_id, class, probability, label, split and embedding.
        seed: seed of the table's model; None for the first.
        nodes: a file that names nodes of these types, which alone are predicted; None for all of them.
        types: names of other node types to predict, "all" for all of them.
        probabilities: whether the probabilities of all classes are written, beside the largest.
        top: number of the most probable classes that are written in columns class_1, probability_1, class_2, ...
        thresholds: "0.8" = no class is given below this probability; "fraud=0.2" = a node is given this class from this probability on,
            and another one below it.
        graph: a pipeline whose graph is predicted, with the schema of the one that the model was trained on; None for that one.
        evaluation: "exact" by all neighbours, or "sampled" by those that `[sampling]` draws.
        workspace: a size that bounds the memory of one range of a layer.
        threads: number of threads; None for the table's.

    Returns:
        The number of rows.

    Raises:
        InputError: the model is not trained, the other graph does not fit it, a named node does not exist, or the file cannot be written.
    """
    from graphmill.trainers.inference.answers.kinds import Columns
    from graphmill.trainers.inference.predict import predict_table

    columns = Columns(probabilities=probabilities, top=top, thresholds=tuple(thresholds))
    more: dict[str, Any] = {
        "seed": seed,
        "workspace": workspace,
        "threads": threads,
        "columns": columns,
        "types": types,
        "other": None if graph is None else pipeline_of(graph, home),
        "evaluation": evaluation,
    }
    wanted = None if nodes is None else Path(nodes)
    return predict_table(Store(home), pipeline_of(source, home), name, Path(out), nodes=wanted, **more)[1]


def export(
    source: Asked, name: str, folder: str | os.PathLike[str], *, seed: int | None = None, home: Home = None
) -> Exported:
    """Writes the trained model of a table for programs without graphmill: torch programs of its layers, and modules of PyG and DGL.

    Args:
        source, name: the pipeline and the name of its `[[train]]` table.
        seed: seed of the table's model; None for the first.

    Returns:
        The files that were written, and what a library has no equal for, with the reasons.

    Raises:
        InputError: the model is not trained, or the folder has files already.
    """
    from graphmill.trainers.inference.exports.export import export_table

    return export_table(Store(home), pipeline_of(source, home), name, Path(folder), seed)
