"""Attributes of edges that a training does not use: the sentence, and the trainings of which none is said."""

import pytest

from graphmill.assets.sampling.config import SamplingConfig
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.together import unused_attributes, unused_lines

ALL = ("weights", "edge_types", "edge_ids")


def found(model="sage", stored=ALL, trainer="minibatch", edge_weight=False, **sampling):
    table = TrainTable(name="one", model=model, trainer=trainer, edge_weight=edge_weight)
    return unused_attributes(table, SamplingConfig(**{"fanouts": (3, -1), **sampling}), stored)


@pytest.mark.parametrize("model", ["sage", "gcn", "gat", "gin", "pinsage"])
def test_uniform_sampling_and_our_models_use_none(model):
    said = found(model)
    assert [each.partition(" are stored and not used: ")[0] for each in said] == [
        "edge weights", "relations (edge types)", "edge ids"
    ]  # fmt: skip
    assert f'model = "{model}"' in said[0] and 'method = "weighted" draws by them' in said[0]
    assert found(model, stored=()) == [] and len(found(model, stored=["edge_types"])) == 1


def test_a_model_of_relations_uses_them():
    assert [each.split()[:2] for each in found("rgcn")] == [["edge", "weights"], ["edge", "ids"]]


def test_weighted_sampling_uses_weights_and_nothing_else():
    assert [each.split()[0] for each in found(method="weighted")] == ["relations", "edge"]
    assert found(method="weighted", stored=["weights"]) == []
    assert found(method="weighted", stored=["weights"], fanouts=(-1, -1)) == []  # the mean is weighted
    assert "draws by other ones" in found(method="weighted", weights="node:in_degree", stored=["weights"])[0]
    assert "draw all neighbours" in found("gat", method="weighted", fanouts=(-1, -1), stored=["weights"])[0]
    assert 'method = "random_walk"' in found("pinsage", method="random_walk", stored=["weights"])[0]


def test_a_pass_over_the_whole_graph_uses_no_weights():
    (said,) = found("gcn", stored=["weights"], trainer="fullgraph", method="weighted")
    assert 'trainer = "fullgraph" takes all neighbours' in said and "edge_weight = true in [[train]]" in said


@pytest.mark.parametrize("trainer", ["minibatch", "fullgraph"])
@pytest.mark.parametrize("model", ["sage", "gcn", "gat", "gin", "rgcn"])
def test_a_model_whose_messages_are_weighted_uses_weights(model, trainer):
    assert found(model, stored=["weights"], trainer=trainer, edge_weight=True) == []
    assert "edge_weight = true in [[train]]" in found(model, stored=["weights"], trainer=trainer)[0]
    assert "edge_weight" not in found("pinsage", stored=["weights"], trainer=trainer)[0]


def test_your_own_model_or_sampler_may_use_weights_and_relations():
    assert [each.split()[:2] for each in found("mine:model")] == [["edge", "ids"]]
    assert [each.split()[:2] for each in found(method="mine:sampler")] == [["edge", "ids"]]


def test_one_line_for_all_tables_that_ignore_the_same():
    tables = [TrainTable(name="a", model="gcn"), TrainTable(name="b", model="gcn"), TrainTable(name="c", model="gin")]
    lines = list(unused_lines(tables, SamplingConfig(fanouts=(2, 2)), ["weights"]))
    assert [line.partition(": edge")[0] for line in lines] == ["note: a, b", "note: c"]
