"""What a notebook asks for: the batches that a training gets, and a model that predicts what it predicted."""

import numpy as np
import pytest
import torch

from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.loop.executor import BatchExecutor, BatchGradient
from graphmill.trainers.notebook import mini_batches, open_trained
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config
from tests.recipes import load_tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    store, seen = Store(folder / "home"), []
    pipeline = load_tiny(folder, seed="0 -> 3")
    built = build_config(store.home, pipeline.graph, threads=1)
    steps = BatchExecutor.steps

    def watched(executor, epoch, start):
        source = executor.source.batches

        def batches(epoch, start):
            for batch in source(epoch, start):
                seen.append((epoch, batch.position, batch.seeds.copy(), batch.x.clone()))
                yield batch

        executor.source.batches = batches
        try:
            yield from steps(executor, epoch, start)
        finally:
            del executor.source.batches

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchExecutor, "steps", watched)
        models = train_table(
            store, built.inputs, pipeline.train[0], pipeline.sampling, pipeline.seed, report=lambda line: None
        )
    return pipeline, store, models[0], seen


def test_batches_are_those_of_the_training_to_the_byte(trained):
    pipeline, store, _, seen = trained
    assert len(seen) >= 4
    for epoch in (0, 1):
        wanted = [(position, seeds, x) for of, position, seeds, x in seen if of == epoch]
        got = [
            (batch.position, batch.seeds.copy(), batch.x.clone())
            for batch in mini_batches(store, pipeline, "sage", epoch)
        ]
        assert [each[0] for each in got] == [each[0] for each in wanted]
        for (_, seeds, x), (_, want_seeds, want_x) in zip(got, wanted, strict=True):
            assert np.array_equal(seeds, want_seeds) and torch.equal(x, want_x)
    later = [batch.position for batch in mini_batches(store, pipeline, "sage", 0, start=1)]
    assert later == [each[1] for each in seen if each[0] == 0][1:]


def test_a_training_loop_of_ones_own_goes_over_them(trained):
    pipeline, store, _, _ = trained
    with pytest.raises(InputError, match=r"gcn \(seed 3\) is not trained"):
        open_trained(store, pipeline, "gcn")
    found = open_trained(store, pipeline, "sage")
    gradient, optimiser = BatchGradient(found.model, 0), torch.optim.SGD(found.model.parameters(), lr=0.01)
    losses = []
    for batch in mini_batches(store, pipeline, "sage"):
        losses.append(float(gradient(batch).loss_sum))
        optimiser.step()
        optimiser.zero_grad()
    assert len(losses) >= 2 and all(np.isfinite(losses))


def test_a_model_predicts_as_it_was_scored(trained):
    pipeline, store, model, _ = trained
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


def test_a_technique_without_mini_batches_says_so(trained, monkeypatch):
    """As a whole graph does; here the table's executor is taken for another one."""
    pipeline, store, _, _ = trained
    monkeypatch.setattr("graphmill.trainers.notebook.BatchExecutor", type("Other", (), {}))
    with pytest.raises(InputError, match="has no mini-batches of one process"):
        next(mini_batches(store, pipeline, "sage"))


@pytest.mark.parametrize("wrong", [[0, 1, 10**6], [-1], [True, False], [0.5]])
def test_ids_that_are_none_of_the_graph_are_refused(trained, wrong):
    pipeline, store, *_ = trained
    with pytest.raises(InputError, match="node_ids"):
        open_trained(store, pipeline, "sage").logits(np.array(wrong))
