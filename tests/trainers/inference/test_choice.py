"""`eval = "auto"`: the way of fewer seconds on the reference machine, by counts that are made by hand, and exact if it is little."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import Drawing
from graphmill.kernels.sampling.epoch_plan import evaluation_plan
from graphmill.trainers.inference import choice
from graphmill.trainers.inference.choice import (
    BATCH,
    BYTE,
    DISK,
    DRAW,
    EDGE,
    PAGES,
    ROW,
    EvaluationChoice,
    choose_evaluation,
)
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig
from tests.trainers.graphs import random_graph
from tests.trainers.runs import Stops, content, train_small, train_whole

ONE = SamplingConfig(fanouts=(1, 1), batch_size=20)
SCORES = ("weights.safetensors", "metrics.jsonl")
WIDTH, HIDDEN, CLASSES = 12, 8, 4


def sizes_of(graph: Graph, width: int = WIDTH) -> Sizes:
    nodes, edges = graph.topology.num_nodes, graph.topology.num_edges
    return Sizes(num_nodes=nodes, num_edges=edges, num_rows=nodes, width=width, row_bytes=4 * width)


def chosen(graph: Graph, sampling: SamplingConfig = ONE, width: int = WIDTH, **options: Any) -> EvaluationChoice | None:
    recipe = ModelConfig(seed=5, train=TrainConfig(hidden=HIDDEN, **options), sampling=sampling)
    return choose_evaluation(recipe, graph, Drawing(neighbours=sampling), sizes_of(graph, width))


def reached(graph: Graph, nodes: np.ndarray) -> list[tuple[int, int]]:
    """Nodes and their edges of the last layer and of the first one, for some scored nodes; of all nodes from half of them on."""
    indptr, indices = np.asarray(graph.topology.indptr), np.asarray(graph.topology.indices)
    if 2 * len(nodes) >= graph.topology.num_nodes:
        return [(graph.topology.num_nodes, len(indices))] * 2
    found, top = [], set(nodes.tolist())
    for _ in range(2):
        found.append((len(top), sum(int(indptr[node + 1] - indptr[node]) for node in top)))
        top = top.union(*(indices[indptr[node] : indptr[node + 1]].tolist() for node in top))
    return found


def exact_seconds(graph: Graph, nodes: np.ndarray, missing: bool = False) -> float:
    """Layer 2 maps the outputs of layer 1 and sums rows of as many columns as there are classes, layer 1 those of `HIDDEN`."""
    (last, last_edges), (first, first_edges) = reached(graph, nodes)
    inputs = min(graph.topology.num_nodes, first + first_edges)
    of_features = max(ROW * WIDTH * inputs, 4 * WIDTH * inputs / DISK * missing)
    assert last <= first
    return of_features + ROW * HIDDEN * first + EDGE * (HIDDEN * first_edges + min(HIDDEN, CLASSES) * last_edges)


def batch_seconds(graph: Graph, nodes: np.ndarray, missing: float = 0.0) -> float:
    item = next(evaluation_plan(nodes, ONE.batch_size, 5).batches(0))
    sampler = Drawing(neighbours=ONE).sampler(graph.topology, seed=5)
    first, second = sampler.sample(item.key, item.seeds, transpose="none")
    edges = len(first.indices), len(second.indices)
    seconds = choice.BATCH + DRAW * sum(edges) + BYTE * 4 * WIDTH * first.num_src
    seconds += ROW * (WIDTH * first.num_dst + HIDDEN * second.num_dst)
    seconds += EDGE * (HIDDEN * edges[0] + min(HIDDEN, CLASSES) * edges[1])
    return max(seconds, missing * first.num_src * (4096 + 4 * WIDTH) / PAGES)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return random_graph(tmp_path_factory.mktemp("home"), num_train=10, num_valid=20)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is little, and batches cost nothing apart from their rows and edges, so that either way may win."""
    monkeypatch.setattr(choice, "FEW", 0)
    monkeypatch.setattr(choice, "BATCH", 0.0)


def test_both_sides_of_the_bound_of_what_is_little(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = sum(map(sum, reached(graph, np.array(graph.valid_ids))))
    monkeypatch.setattr(choice, "FEW", cost)
    assert chosen(graph) == EvaluationChoice(way="exact")
    monkeypatch.setattr(choice, "FEW", cost - 1)
    found = chosen(graph)
    assert found is not None and found.exact is not None


@pytest.mark.parametrize("every", [1, 3, 0])
@pytest.mark.parametrize("share", [0.5, 1.5, 20.0])
@pytest.mark.parametrize("memory", [1 << 40, 4 * WIDTH * 400])
def test_the_seconds_of_ten_epochs_and_the_final_scores(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, memory: int, share: float, every: int
) -> None:
    """Half of the memory may hold features, so that of the smaller one half of them is read again and again.

    A batch takes so long that a sampled evaluation takes a share of an exact one, which is walked up to there; or more than the bound.
    """
    times, missing = {1: 10, 3: 4, 0: 1}[every], 0.0 if memory > 1 << 30 else 0.5
    splits, valid = [np.array(each) for each in graph.splits], np.array(graph.valid_ids)
    exact = exact_seconds(graph, np.concatenate(splits), missing > 0) + times * exact_seconds(graph, valid, missing > 0)
    bound = (times + 1) * exact_seconds(graph, np.arange(400), missing > 0)
    count = times + sum(-(-len(each) // 20) for each in splits)
    monkeypatch.setattr(choice, "FEW", 0)
    monkeypatch.setattr(choice, "memory_bytes", lambda: memory)
    monkeypatch.setattr(choice, "BATCH", 0.0)
    monkeypatch.setattr(choice, "BATCH", share * exact / count - batch_seconds(graph, valid))
    sampled, found = count * batch_seconds(graph, valid, missing), chosen(graph, eval_every=every)
    assert found is not None and found.exact is not None and found.sampled == pytest.approx(sampled)
    assert found.way == ("exact" if exact <= sampled else "sampled")
    if found.way == "exact":
        assert found.exact == pytest.approx(bound if bound <= sampled else exact)
    else:
        assert sampled < found.exact <= 1.0001 * exact


@pytest.mark.usefixtures("plain")
def test_the_way_that_takes_less_is_taken(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few nodes of a graph are scored by samples, and nearly all of them exactly; under a small memory exactly as well."""
    few = chosen(graph)
    assert few is not None and few.way == "sampled"
    many = chosen(random_graph(tmp_path, num_train=60, num_valid=200), SamplingConfig(fanouts=(-1, -1), batch_size=20))
    assert many is not None and many.way == "exact"
    monkeypatch.setattr(choice, "memory_bytes", lambda: 1)
    limited = chosen(graph)
    assert limited is not None and limited.way == "exact" and "all neighbours" in limited.sentence


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("options", [{"epochs": 1}, {"epochs": 100}, {"trainer": "disk"}, {"lr": 1.0}])
def test_what_a_training_may_go_on_with_does_not_count(graph: Graph, options: dict[str, Any]) -> None:
    assert chosen(graph, **options) == chosen(graph)


def test_who_names_a_way_or_does_not_sample_has_no_choice(graph: Graph) -> None:
    assert chosen(graph, eval="exact") is None and chosen(graph, eval="sampled") is None
    recipe = ModelConfig(seed=5, train=TrainConfig(trainer="fullgraph"), sampling=None)
    assert choose_evaluation(recipe, graph, None, sizes_of(graph)) is None


class Told(Stops):
    """Collects the lines that a training tells, and ends it behind so many batches."""

    def __init__(self, after: int = 1 << 30):
        super().__init__(after)
        self.lines: list[str] = []

    def tell(self, line: str) -> None:
        self.lines.append(line)


def sampled_wins(monkeypatch: pytest.MonkeyPatch, wins: bool) -> None:
    monkeypatch.setattr(choice, "FEW", 0)
    monkeypatch.setattr(choice, "ROW", 1.0 if wins else ROW)
    monkeypatch.setattr(choice, "BATCH", 0.0 if wins else BATCH)


@pytest.mark.parametrize("way", ["exact", "sampled"])
def test_a_training_takes_the_choice_and_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    sampled_wins(monkeypatch, way == "sampled")
    progress = Told()
    model = train_small(tmp_path / "auto", sampling=ONE, progress=progress)
    other = train_small(tmp_path / "named", sampling=ONE, eval=way)
    assert model.version != other.version
    assert {name: content(model)[name] for name in SCORES} == {name: content(other)[name] for name in SCORES}
    names = ("evaluation", "exact_evaluation_seconds", "sampled_evaluation_seconds")
    told = {name: model.summary["numbers"][name] for name in names}
    assert told["evaluation"] == way and model.run_record()["evaluation"] == told
    (line,) = (line for line in progress.lines if "eval" in line)
    assert ("all neighbours" in line) == (way == "exact") and " s" in line
    assert other.summary["numbers"] == {
        name: value for name, value in model.summary["numbers"].items() if name not in told
    }


@pytest.mark.parametrize("way", ["exact", "sampled"])
def test_a_training_that_goes_on_keeps_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """On another machine the choice may be another one."""
    options: dict[str, Any] = {"sampling": ONE, "epochs": 4, "eval_every": 1, "checkpoint_steps": 1}
    sampled_wins(monkeypatch, way == "sampled")
    expected = content(train_small(tmp_path / "whole", **options))
    with pytest.raises(ConnectionAbortedError):
        train_small(tmp_path / "stopped", progress=Told(25), **options)
    sampled_wins(monkeypatch, way == "exact")
    progress = Told()
    model = train_small(tmp_path / "stopped", resume=True, progress=progress, **options)
    assert model.summary["numbers"]["evaluation"] == way
    assert any("as this training began" in line for line in progress.lines)
    assert {name: content(model)[name] for name in SCORES} == {name: expected[name] for name in SCORES}


def test_a_technique_that_does_not_sample_is_evaluated_exactly(tmp_path: Path) -> None:
    auto, exact = train_whole(tmp_path / "auto"), train_whole(tmp_path / "exact", eval="exact")
    assert {name: content(auto)[name] for name in SCORES} == {name: content(exact)[name] for name in SCORES}
    assert auto.summary["numbers"] == exact.summary["numbers"]
