"""The way in which the trainings of a file with `eval = "auto"` are evaluated, for `graphmill inspect`, once the graph is built."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from graphmill.assets.pipeline.data_steps import preprocessing_steps
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.needs import KnownSizes
from graphmill.assets.storage.store import Store
from graphmill.jobs.planning.graph import built_graph
from graphmill.jobs.runs.training import training_steps


def evaluation_lines(pipeline: Pipeline, home: Path) -> list[str]:
    """Returns a line for each way and reason, with the names of the trainings; of several splits the first one counts."""
    from graphmill.trainers.inference.choice import choose_evaluation

    one, known, found = pipeline.by_split[0], KnownSizes(Store(home)), list[tuple[str, str]]()
    for step in training_steps(one, preprocessing_steps(one, home), home):
        semantic = step.configs[0]
        if semantic.train.eval != "auto" or semantic.sampling is None:
            continue
        sources = {role: known.artifacts(source)[0] for role, source in step.sources.items()}
        built = {role: artifact for role, artifact in sources.items() if artifact is not None}
        if "graph" in built:
            at_hand = built_graph(built, semantic.sampling)
            chosen = choose_evaluation(semantic, at_hand.graph, at_hand.drawing, known.sizes(step))
            found += [] if chosen is None else [(step.name, chosen.sentence)]
    return list(named_sentences(found))


def named_sentences(found: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields each sentence once, behind the names of all trainings that it is about."""
    names: dict[str, list[str]] = {}
    for name, sentence in found:
        names.setdefault(sentence, []).append(name)
    for sentence, each in names.items():
        yield f"{', '.join(each)}: {sentence}"
