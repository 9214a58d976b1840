"""`eval = "auto"`: exact where it costs no more than an epoch or little at all, by counts that are made by hand here."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import Drawing
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.trainers.inference import choice
from graphmill.trainers.inference.choice import EvaluationChoice, choose_evaluation
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig
from tests.trainers.graphs import random_graph
from tests.trainers.runs import content, train_small, train_whole

ONE = SamplingConfig(fanouts=(1, 1), batch_size=20)
ALL = SamplingConfig(fanouts=(-1, -1), batch_size=20)
SCORES = ("weights.safetensors", "metrics.jsonl")


def chosen(graph: Graph, sampling: SamplingConfig, **options: Any) -> EvaluationChoice | None:
    recipe = ModelConfig(seed=5, train=TrainConfig(**options), sampling=sampling)
    return choose_evaluation(recipe, graph, Drawing(neighbours=sampling))


def counted(graph: Graph) -> tuple[int, int]:
    """Edges and rows of the last layer for the validation nodes, and of both layers."""
    indptr, indices = np.asarray(graph.topology.indptr), np.asarray(graph.topology.indices)
    neighbours = {node: set(indices[indptr[node] : indptr[node + 1]].tolist()) for node in range(len(indptr) - 1)}
    top = set(graph.valid_ids.tolist())
    below = top.union(*(neighbours[node] for node in top))
    first, second = (len(nodes) + sum(len(neighbours[node]) for node in nodes) for nodes in (top, below))
    return first, first + second


def epoch_cost(graph: Graph, sampling: SamplingConfig) -> int:
    """Edges and rows of the first batch, times the batches."""
    plan = EpochPlan(np.asarray(graph.train_ids), sampling.batch_size, seed=5)
    item, sampler = next(plan.batches(0)), Drawing(neighbours=sampling).sampler(graph.topology, seed=5)
    blocks = sampler.sample(item.key, item.seeds, transpose="none")
    return sum(len(block.end) + len(block.indices) for block in blocks) * plan.num_batches


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return random_graph(tmp_path_factory.mktemp("home"), num_train=10, num_valid=20)


def test_both_sides_of_the_bound_of_what_is_little(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    (last, both), epoch = counted(graph), epoch_cost(graph, ONE)
    assert epoch < last < both
    for few, way, exact in (
        (both, "exact", both),
        (both - 1, "sampled", both),
        (last, "sampled", both),
        (0, "sampled", last),
    ):
        monkeypatch.setattr(choice, "FEW", few)
        assert chosen(graph, ONE) == EvaluationChoice(way=way, exact=exact, epoch=epoch)  # pyright: ignore


def test_both_sides_of_the_cost_of_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(tmp_path, num_valid=20)
    monkeypatch.setattr(choice, "FEW", 0)
    (_, both), epoch = counted(graph), epoch_cost(graph, ALL)
    assert both <= epoch
    assert chosen(graph, ALL) == EvaluationChoice(way="exact", exact=both, epoch=epoch)
    monkeypatch.setattr(choice, "exact_cost", lambda *given: epoch + 1)
    found = chosen(graph, ALL)
    assert found is not None and found.way == "sampled"


def test_from_half_of_the_graph_on_all_nodes_count(tmp_path: Path, graph: Graph) -> None:
    # 20 training nodes, and without validation nodes the 100 of test count too; 300 of 400 are more than half.
    found = chosen(random_graph(tmp_path, num_train=200, num_valid=0), ONE)
    assert found is not None and found.exact == 2 * (400 + graph.topology.num_edges)


def test_who_names_a_way_or_does_not_sample_has_no_choice(graph: Graph) -> None:
    assert chosen(graph, ONE, eval="exact") is None and chosen(graph, ONE, eval="sampled") is None
    assert (
        choose_evaluation(ModelConfig(seed=5, train=TrainConfig(trainer="fullgraph"), sampling=None), graph, None)
        is None
    )  # pyright: ignore


@pytest.mark.parametrize(("few", "way"), [(choice.FEW, "exact"), (0, "sampled")])
def test_a_training_takes_the_choice_and_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, way: str
) -> None:
    monkeypatch.setattr(choice, "FEW", few)
    model = train_small(tmp_path / "auto", sampling=ONE)
    other = train_small(tmp_path / "named", sampling=ONE, eval=way)
    assert model.version != other.version
    assert {name: content(model)[name] for name in SCORES} == {name: content(other)[name] for name in SCORES}
    told = {name: model.summary["numbers"][name] for name in ("evaluation", "exact_evaluation_cost", "epoch_cost")}
    assert told["evaluation"] == way and model.run_record()["evaluation"] == told
    assert (told["exact_evaluation_cost"] <= max(few, told["epoch_cost"])) == (way == "exact")
    assert other.summary["numbers"] == {
        name: value for name, value in model.summary["numbers"].items() if name not in told
    }


def test_a_technique_that_does_not_sample_is_evaluated_exactly(tmp_path: Path) -> None:
    auto, exact = train_whole(tmp_path / "auto"), train_whole(tmp_path / "exact", eval="exact")
    assert {name: content(auto)[name] for name in SCORES} == {name: content(exact)[name] for name in SCORES}
    assert auto.summary["numbers"] == exact.summary["numbers"]
