"""A history beside links: no row that it gives has a message along an edge that the batch predicts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.trainers.batches.batch import MiniBatch
from graphmill.trainers.batches.links import LinkBatching
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.fresh.batches import Pruner
from graphmill.trainers.techniques.fresh.settings import FreshSettings
from tests.trainers.graphs import link_graph_artifacts
from tests.trainers.runs import count_inputs

FOREVER = FreshSettings(t_stale="forever", p_grad=1.0, arena="100%", policy="accuracy")


def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[int], Counter[int]]:
    """Returns counters of the rows that the history gives, by layer: all, and those of ends of links that their batch predicts."""
    given, of_ends, pruned = Counter[int](), Counter[int](), Pruner.pruned

    def follow(pruner: Pruner, batch: MiniBatch) -> MiniBatch:
        assert isinstance(pruner.batching, LinkBatching)
        edges, found = pruner.batching.edges, pruned(pruner, batch)
        known = KnownEdges(Triples(num_nodes=300), edges.source[batch.seeds], edges.target[batch.seeds])
        for layer, block in enumerate(found.blocks):
            if block.splice is not None:
                links, _ = known.others(block.src_ids[block.splice.hist_pos], side="target")
                given[layer] += len(links) - 1
                of_ends[layer] += int((links[1:] > links[:-1]).sum())
        return found

    monkeypatch.setattr(Pruner, "pruned", follow)
    return given, of_ends


def trained(home: Path, layers: int, exclude: bool) -> Artifact:
    sampling = SamplingConfig(fanouts=(3,) * layers, batch_size=128, per_positive=2)
    graph = link_graph_artifacts(home)
    table = TrainTable(
        name="fresh", trainer="fresh", model="gcn", layers=layers, hidden=8, epochs=4, metric="auc", dropout=0.0,
        threads=1, accumulate=2, settings=FOREVER, exclude_targets=exclude,
    )  # fmt: skip
    inputs = graph.inputs | {"hotness": count_inputs(home, graph.inputs, sampling)}
    return train_table(Store(home), inputs, table, sampling, 5, report=lambda line: None)[0]


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("exclude", [True, False])
def test_a_history_that_leaves_links_out_gives_no_row_that_has_messages_along_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: int, exclude: bool
) -> None:
    """A row of the first layer has messages along its own node's edges alone; so one of a node without such a link has none along it."""
    given, of_ends = watched(monkeypatch)
    model = trained(tmp_path, layers, exclude)
    assert model.summary["numbers"]["test_auc"] > 0.5
    assert {layer for layer, hits in given.items() if hits} == set(range(1, min(2, layers) if exclude else layers))
    assert bool(of_ends.total()) == (not exclude and layers > 1)
