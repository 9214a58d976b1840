"""What a notebook opens: a model that predicts what it predicted."""

import numpy as np
import pytest
import torch

from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.notebook import open_trained
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config
from tests.recipes import load_tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    store = Store(folder / "home")
    pipeline = load_tiny(folder, seed="0 -> 3")
    built = build_config(store.home, pipeline.graph, threads=1)
    models = train_table(
        store, built.inputs, pipeline.train[0], pipeline.sampling, pipeline.seed, report=lambda line: None
    )
    return pipeline, store, models[0]


def test_a_model_predicts_as_it_was_scored(trained):
    pipeline, store, model = trained
    with pytest.raises(InputError, match=r"gcn \(seed 3\) is not trained"):
        open_trained(store, pipeline, "gcn")
    found = open_trained(store, pipeline, "sage")
    assert found.artifact.version == model.version
    ids = np.asarray(found.graph.test_ids)
    logits = found.logits(ids)
    accuracy = float((logits.argmax(1).numpy() == np.asarray(found.graph.labels)[ids]).mean())
    assert accuracy == pytest.approx(model.summary["numbers"]["test_accuracy"])
    assert torch.equal(found.logits()[torch.from_numpy(ids.copy())], logits)
    assert found.classes(ids[:3]) == [int(found.graph.class_names[place]) for place in logits[:3].argmax(1).tolist()]
    with pytest.raises(InputError, match="no seed 9"):
        open_trained(store, pipeline, "sage", seed=9)


@pytest.mark.parametrize("wrong", [[0, 1, 10**6], [-1], [True, False], [0.5]])
def test_ids_that_are_none_of_the_graph_are_refused(trained, wrong):
    pipeline, store, _ = trained
    with pytest.raises(InputError, match="node_ids"):
        open_trained(store, pipeline, "sage").logits(np.array(wrong))
