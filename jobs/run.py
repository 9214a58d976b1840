"""Runs a pipeline file in this process: builds what the store does not have, trains, and says what was reused."""

from __future__ import annotations

from collections.abc import Callable

from assets.artifact import Artifact
from assets.graph import GraphExecution, GraphStage
from assets.pipeline import Pipeline, pipeline_files
from assets.recipe import short
from assets.stage import Progress, materialize, stage_version
from assets.store import Store
from jobs.leaderboard import Entry
from kernels.errors import InputError
from trainers.config import TrainTable
from trainers.run import train_table

Report = Callable[[str], None]


def build_graph(store: Store, pipeline: Pipeline, threads: int, progress: Progress, report: Report) -> Artifact:
    """Returns the pipeline's graph artifact, building it when the store does not have it."""
    execution = GraphExecution(threads=threads)
    graph = materialize(store, GraphStage(), pipeline.graph, execution, {}, progress)
    numbers = graph.summary["numbers"]
    size = f"{numbers['num_nodes']:,} nodes, {numbers['num_edges']:,} edges"
    report(f"graph: {'reused' if graph.reused else 'built'} {graph.label} ({size})")
    return graph


def find_graph(store: Store, pipeline: Pipeline) -> Artifact:
    """Returns the pipeline's graph artifact, or says which command builds it.

    Raises:
        InputError: the store does not have it.
    """
    stage = GraphStage()
    version = stage_version(stage, pipeline.graph, {})
    found = store.find(stage.name, version)
    if found is None:
        # A file outside the search path can only be named by its path.
        named = pipeline_files().get(pipeline.path.stem) == pipeline.path
        remedy = f"graphmill build {pipeline.path.stem if named else pipeline.path}"
        raise InputError(f"graph {short(version)} of pipeline {pipeline.name} is not in {store.home}", remedy)
    return found


def select_tables(pipeline: Pipeline, names: tuple[str, ...]) -> list[TrainTable]:
    """Returns the train tables with the given names, all of them when there are none.

    Raises:
        InputError: a name is not in the pipeline, or the pipeline trains nothing.
    """
    known = {table.name: table for table in pipeline.train}
    unknown = [name for name in names if name not in known]
    if unknown or not known:
        problem = f"{unknown} not in" if unknown else "nothing to train in"
        raise InputError(f"{problem} {pipeline.path}", f"[[train]] names are: {', '.join(known) or '(none)'}")
    return [known[name] for name in names] if names else list(known.values())


def train(
    store: Store,
    pipeline: Pipeline,
    graph: Artifact,
    names: tuple[str, ...],
    resume: bool,
    progress: Progress,
    report: Report,
) -> list[Entry]:
    """Trains the named tables of a pipeline, or all, and returns their rows of the leaderboard."""
    if pipeline.sampling is None:
        raise InputError(f"{pipeline.path} has no [sampling] table", "add one with `fanouts` and `batch_size`")
    return [
        Entry(
            table=table,
            models=train_table(
                store,
                graph,
                table,
                pipeline.sampling,
                pipeline.seed,
                resume=resume,
                progress=progress,
                report=report,
            ),
        )
        for table in select_tables(pipeline, names)
    ]
